/* Any bytes as HTTP/2 from a program inside and from its server: nothing breaks. */
#include "fuzz.h"

#include "egress/h2.h"
#include "egress/secrets.h"

#include <string.h>
#include <strings.h>

static struct secrets *set;

static bool may_call_it(void *context, const char *host, size_t len)
{
	return len == 6 && !strncasecmp(host, "a.test", 6);
}

static const char *count(void *context)
{
	return NULL;
}

static void decide(void *context, unsigned method, const char *path, struct net_answer *ret)
{
	*ret = (struct net_answer){.allowed = !str_starts(path, "/no")};
}

static struct secrets *secrets_of(void *context)
{
	return set;
}

static void make_set(void)
{
	static struct egress_secret row = {.name = "K",
					   .placeholder = "PLACEHOLDER",
					   .hosts = {"a.test"},
					   .header = "Authorization: Bearer {}",
					   .value_len = 6,
					   .value = "VALUE!"};
	struct err e = {0};

	if (!set)
		set = secrets_new(&row, sizeof(row), NULL, &e);
}

/* Pieces: two bytes with the side and the length, then so many bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_place p = {.name = "a.test",
			       .port = 443,
			       .is_tls = true,
			       .may_call_it = may_call_it,
			       .count = count,
			       .decide = decide,
			       .secrets = secrets_of};
	struct stage *s;
	size_t at = 0;

	make_set();
	s = h2_new(&p);
	while (at + 2 < size) {
		enum stage_side side = data[at] & 1;
		size_t len = (size_t)(data[at] >> 1) << 8 | data[at + 1];

		at += 2;
		len = len < size - at ? len : size - at;
		stage_feed(s, side, (const char *)data + at, len);
		at += len;
		for (int i = 0; i < 2; i++)
			buf_drop(&s->out[i], s->out[i].len);
		stage_drained(s);
	}
	stage_end(s, STAGE_SERVER);
	stage_end(s, STAGE_CLIENT);
	stage_free(s);
	return 0;
}
