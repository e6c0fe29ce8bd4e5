/* Any bytes as a policy file. */
#include "fuzz.h"

#include "base/str.h"
#include "policy/policy.h"

#include <string.h>

/* What cloched hands to the launcher must be taken there and mean the same. */
static void replay_pairs(const struct policy *p)
{
	struct sandbox_spec s;
	struct err e = {0};

	spec_init(&s);
	for (size_t i = 0; i < p->names.count; i++)
		PROMISE(spec_set(&s, p->names.items[i], p->values.items[i], &e) == 0);
	s.json = s.capture.count > 0;
	PROMISE(spec_finish(&s, &e) == 0);
	PROMISE(s.required_layers == p->spec.required_layers);
	PROMISE(memcmp(&s.limits, &p->spec.limits, sizeof(s.limits)) == 0);
	spec_done(&s);
}

static void explain(struct policy *p)
{
	static FILE *null;

	if (!null)
		null = fopen("/dev/null", "w");
	/* Mount sources would be looked up on the host. */
	list_done(&p->spec.mounts);
	if (null)
		policy_explain(p, null);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct policy_text from = {"f", "/d", (const char *)data, size};
	struct policy p;
	struct err e = {0};

	if (policy_parse(&from, &p, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
		PROMISE(str_starts(e.msg, "f:"));
		PROMISE(!memchr(e.msg, '\n', strlen(e.msg)));
		return 0;
	}
	PROMISE(p.names.count == p.values.count);
	replay_pairs(&p);
	explain(&p);
	policy_done(&p);
	return 0;
}
