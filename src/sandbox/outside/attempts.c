/* Keeps what egress refused, and says it in words. */
#include "sandbox/outside/attempts.h"

#include "model/spec.h"

static bool is_same(const struct egress_record *a, const struct egress_record *b)
{
	return a->phase == b->phase && a->udp == b->udp && a->port == b->port &&
	       str_equal(a->name, b->name) && str_equal(a->address, b->address) &&
	       str_equal(a->why, b->why);
}

void attempts_add(struct attempts *a, const struct egress_record *r)
{
	uint32_t count = r->count ? r->count : 1;

	if (r->phase != EGRESS_DENIED && r->phase != EGRESS_LOOKUP)
		return;
	for (size_t i = 0; i < a->count; i++)
		if (is_same(&a->rows[i], r)) {
			a->rows[i].count += count;
			return;
		}
	if (a->count == ATTEMPT_KINDS) {
		a->more += count;
		return;
	}
	if (!a->rows)
		a->rows = must_alloc(calloc(ATTEMPT_KINDS, sizeof(*a->rows)));
	a->rows[a->count] = *r;
	a->rows[a->count++].count = count;
}

void attempts_done(struct attempts *a)
{
	free(a->rows);
	*a = (struct attempts){0};
}

/* ---- in words ---- */

static const char *rule_of_mode(int mode)
{
	return mode == NET_PUBLIC ? "network public" : "network allow";
}

static void sanitise(char *ret, size_t size, const char *text)
{
	str_sanitise(ret, size, text, strlen(text));
}

static void explain(const struct egress_record *r, int mode, struct denial *ret)
{
	const char *host = r->name[0] ? r->name : r->address;
	bool brackets = !r->name[0] && strchr(host, ':');
	char text[sizeof(r->remedy) + sizeof(r->why) + 32];

	*ret = (struct denial){.count = r->count};
	snprintf(ret->what, sizeof(ret->what), "%s",
		 r->phase == EGRESS_LOOKUP ? "resolve" : "connect");
	if (r->phase == EGRESS_LOOKUP || !r->port)
		snprintf(text, sizeof(text), "%s", host);
	else
		snprintf(text, sizeof(text), brackets ? "%s[%s]:%u" : "%s%s:%u",
			 r->udp ? "udp://" : "", host, r->port);
	sanitise(ret->target, sizeof(ret->target), text);
	sanitise(ret->rule, sizeof(ret->rule), r->rule[0] ? r->rule : rule_of_mode(mode));
	snprintf(text, sizeof(text), r->remedy[0] ? "%s; if it is needed: %s" : "%s%s", r->why,
		 r->remedy);
	sanitise(ret->explain, sizeof(ret->explain), text);
}

void attempts_explain_address(int mode, const char *target, struct denial *ret)
{
	snprintf(ret->rule, sizeof(ret->rule), "%s", rule_of_mode(mode));
	snprintf(ret->explain, sizeof(ret->explain),
		 "no rule allows %s; if it is needed: --allow %s", target, target);
}

void attempts_report(const struct attempts *a, int mode, struct result *r)
{
	struct denial d;

	for (size_t i = 0; i < a->count; i++) {
		explain(&a->rows[i], mode, &d);
		result_add_denials(r, &d, 1);
	}
	if (!a->more)
		return;
	d = (struct denial){.what = "connect", .target = "other destinations", .count = a->more};
	snprintf(d.rule, sizeof(d.rule), "%s", rule_of_mode(mode));
	snprintf(d.explain, sizeof(d.explain), "more than %d kinds of attempts were refused",
		 ATTEMPT_KINDS);
	result_add_denials(r, &d, 1);
}
