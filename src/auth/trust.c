#include "auth/trust.h"

#include "model/spec.h"

#include <assert.h>

#define TO(level) (1u << (level))

static const struct trust_level levels[] = {
	{.name = "untrusted", .talks_to = 0, .net = NET_NONE, .wants_vm = true},
	{.name = "sandboxed", .talks_to = TO(1), .net = NET_NONE},
	{.name = "limited", .talks_to = TO(1) | TO(2), .net = NET_ALLOW},
	{.name = "standard", .talks_to = TO(1) | TO(2) | TO(3), .net = NET_ALLOW},
	{.name = "elevated",
	 .talks_to = TO(2) | TO(3) | TO(4),
	 .net = NET_PUBLIC,
	 .may_leave = true},
	{.name = "admin",
	 .talks_to = TO(0) | TO(1) | TO(2) | TO(3) | TO(4) | TO(5),
	 .net = NET_PUBLIC,
	 .may_leave = true,
	 .is_as_asked = true},
};
static_assert(ARRAY_LEN(levels) == TRUST_LEVELS, "a row for each level");

const struct trust_level *trust_level(int level)
{
	return &levels[level >= 0 && level < TRUST_LEVELS ? level : 0];
}

bool trust_may_talk(int from, int to)
{
	return to >= 0 && to < TRUST_LEVELS && trust_level(from)->talks_to & TO(to);
}

bool trust_may_delegate(int from, int to)
{
	return to <= from && trust_may_talk(from, to);
}

int trust_net(int level)
{
	return trust_level(level)->net;
}

int trust_usual_net(int level, bool has_rules)
{
	const struct trust_level *l = trust_level(level);

	/* An allowlist without a destination is the same as no network, and costs more. */
	if (l->is_as_asked || (l->net == NET_ALLOW && !has_rules))
		return NET_NONE;
	return l->net;
}
