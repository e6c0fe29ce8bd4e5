/*
 * The index of a policy and its decisions. A decision looks up the name, each of its parents, and the address under
 * each prefix length that the rules have; rules for other names and networks are not looked at.
 */
#include "net/rules.h"

#include "net/rule.h"

#include <sys/random.h>

#define NO_RULE UINT32_MAX

struct net_index {
	struct net_policy *p;
	uint64_t seed;
	uint32_t *slots; /* first rule of a name or network, by hash */
	uint32_t *next;	 /* of each rule: the next one of the same name or network */
	size_t mask;
	uint32_t any, localhost; /* first rules of those kinds */
	uint64_t lengths[3];	 /* prefix lengths that networks have */
	bool has_allow[NET_STAGES];
	bool judges_addresses; /* a rule for addresses has conditions, or inspects */
};

/* ---- the index ---------------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t seed, unsigned kind, const void *bytes, size_t len)
{
	const unsigned char *at = bytes;
	uint64_t h = seed ^ kind * 0x9e3779b97f4a7c15ULL;

	for (size_t i = 0; i < len; i++) {
		h = (h ^ at[i]) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
	}
	return h;
}

static bool is_same_name(const struct net_index *x, const struct net_rule *r, unsigned kind,
			 const char *name)
{
	return r->kind == kind && str_equal(net_policy_string(x->p, r->name), name);
}

static bool is_same_network(const struct net_rule *r, const unsigned char address[16],
			    unsigned bits)
{
	return r->kind == NET_RULE_NETWORK && r->bits == bits &&
	       memcmp(r->address, address, 16) == 0;
}

/* The slot of the name, or the empty one where it belongs. */
static size_t find_name(const struct net_index *x, unsigned kind, const char *name)
{
	size_t at = hash_bytes(x->seed, kind, name, strlen(name)) & x->mask;

	while (x->slots[at] != NO_RULE && !is_same_name(x, &x->p->rules[x->slots[at]], kind, name))
		at = (at + 1) & x->mask;
	return at;
}

static size_t find_network(const struct net_index *x, const unsigned char address[16],
			   unsigned bits)
{
	size_t at = hash_bytes(x->seed, NET_RULE_NETWORK + bits, address, 16) & x->mask;

	while (x->slots[at] != NO_RULE &&
	       !is_same_network(&x->p->rules[x->slots[at]], address, bits))
		at = (at + 1) & x->mask;
	return at;
}

/* ret may be the address itself. */
static void mask_address(const unsigned char address[16], unsigned bits, unsigned char ret[16])
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned left = bits > 8 * i ? bits - 8 * i : 0;

		ret[i] = (unsigned char)(address[i] & (left >= 8 ? 0xff : 0xff00 >> left));
	}
}

static uint32_t *chain_of(struct net_index *x, struct net_rule *r)
{
	switch (r->kind) {
	case NET_RULE_ANY:
		return &x->any;
	case NET_RULE_LOCALHOST:
		return &x->localhost;
	case NET_RULE_NETWORK:
		mask_address(r->address, r->bits, r->address);
		x->lengths[r->bits / 64] |= 1ULL << r->bits % 64;
		return &x->slots[find_network(x, r->address, r->bits)];
	default:
		return &x->slots[find_name(x, r->kind, net_policy_string(x->p, r->name))];
	}
}

/* Is it about addresses, and about what is spoken with them? */
static bool is_about_requests(const struct net_rule *r)
{
	return (r->kind == NET_RULE_NETWORK || r->kind == NET_RULE_LOCALHOST) &&
	       (r->methods || r->path || r->flags & NET_RULE_INSPECT);
}

struct net_index *net_index_new(const void *bytes, size_t len, struct err *e)
{
	struct net_index *x;
	size_t room = 16;

	if (net_policy_check(bytes, len, e) < 0)
		return NULL;
	x = must_alloc(calloc(1, sizeof(*x)));
	x->p = must_alloc(malloc(len));
	memcpy(x->p, bytes, len);
	while (room < 2 * (size_t)x->p->rule_count)
		room *= 2;
	x->mask = room - 1;
	x->slots = must_alloc(malloc(room * sizeof(*x->slots)));
	x->next = must_alloc(malloc((x->p->rule_count + 1) * sizeof(*x->next)));
	memset(x->slots, 0xff, room * sizeof(*x->slots));
	x->any = x->localhost = NO_RULE;
	/* Names are chosen by strangers: which of them collide must not be known to them. */
	if (getrandom(&x->seed, sizeof(x->seed), 0) != sizeof(x->seed))
		x->seed = (uintptr_t)x;
	/* From the last to the first, so that chains are in the order of the rules. */
	for (uint32_t i = x->p->rule_count; i-- > 0;) {
		uint32_t *first = chain_of(x, &x->p->rules[i]);

		x->next[i] = *first;
		*first = i;
		x->judges_addresses |= is_about_requests(&x->p->rules[i]);
		if (x->p->rules[i].verdict == NET_RULE_ALLOW)
			x->has_allow[x->p->rules[i].stage] = true;
	}
	return x;
}

void net_index_free(struct net_index *x)
{
	if (!x)
		return;
	free(x->p);
	free(x->slots);
	free(x->next);
	free(x);
}

const struct net_policy *net_index_policy(const struct net_index *x)
{
	return x->p;
}

bool net_index_judges_addresses(const struct net_index *x)
{
	return x->judges_addresses;
}

/* ---- one decision ------------------------------------------------------------------------------- */

/* What the rules of one stage say. */
struct view {
	const struct net_rule *deny;
	const struct net_rule *name; /* allows the name; one without conditions if there is any */
	const struct net_rule *address; /* allows the address */
	bool inspect, no_sni, txt, may_deny;
};

struct decision {
	const struct net_index *x;
	const struct net_question *q;
	enum net_address_kind kind;
	unsigned bits;	   /* that a network must have to name the address */
	bool special;	   /* the address is not public, or the host's own */
	bool is_localhost; /* the name is localhost, or below it */
	bool path_is_clean;
	unsigned looked_at;
	char path[NET_PATH * 2];
	struct view views[NET_STAGES];
};

static bool has_condition(const struct net_rule *r)
{
	return r->methods || r->path;
}

/* Do protocol and port fit? A look-up has neither: any allowed port will do, a denial must be of all. */
static bool fits_port(const struct net_rule *r, const struct net_question *q)
{
	bool denies = r->verdict == NET_RULE_DENY, udp = r->flags & NET_RULE_UDP;

	if (q->port == 0)
		return !denies || (!udp && r->first_port <= 1 && r->last_port == 65535);
	if (q->port < r->first_port || q->port > r->last_port)
		return false;
	return denies ? q->udp || !udp : udp == q->udp;
}

/* Do method and path of a known request fit? A path that programs read differently fits no rule that allows. */
static bool fits_request(const struct decision *d, const struct net_rule *r)
{
	bool denies = r->verdict == NET_RULE_DENY;

	if (r->methods && !(r->methods & d->q->method))
		return false;
	if (!r->path)
		return true;
	if (!d->q->path || !d->path_is_clean)
		return denies;
	return net_path_has_prefix(d->path, net_policy_string(d->x->p, r->path));
}

static void keep(const struct net_rule **best, const struct net_rule *r)
{
	if (!*best || (has_condition(*best) && !has_condition(r)))
		*best = r;
}

static void apply_deny(struct decision *d, struct view *v, const struct net_rule *r)
{
	if (r->kind == NET_RULE_LOCALHOST && !d->is_localhost && d->kind != NET_LOOPBACK_ADDRESS &&
	    !d->q->own)
		return;
	if (has_condition(r))
		v->may_deny = true;
	if (!v->deny && (!has_condition(r) || (d->q->method && fits_request(d, r))))
		v->deny = r;
}

static void apply_allow(struct decision *d, struct view *v, const struct net_rule *r)
{
	bool here = d->kind == NET_LOOPBACK_ADDRESS || d->q->own;

	if (has_condition(r) && d->q->method && !fits_request(d, r))
		return;
	switch (r->kind) {
	case NET_RULE_NAME:
	case NET_RULE_BELOW:
		keep(&v->name, r);
		break;
	case NET_RULE_ANY:
		if (d->is_localhost)
			return;
		keep(&v->name, r);
		if (d->q->address && !d->special)
			keep(&v->address, r);
		break;
	case NET_RULE_LOCALHOST:
		if (d->is_localhost)
			keep(&v->name, r);
		if (d->q->address && here)
			keep(&v->address, r);
		break;
	case NET_RULE_NETWORK:
		/* Only localhost opens the loopback; the host's own address must be named itself. */
		if (d->kind == NET_LOOPBACK_ADDRESS || r->bits < d->bits)
			return;
		keep(&v->address, r);
		break;
	}
	v->inspect |= (r->flags & NET_RULE_INSPECT) != 0;
	v->no_sni |= (r->flags & NET_RULE_NO_SNI) != 0;
	v->txt |= (r->flags & NET_RULE_TXT) != 0;
}

static void apply_chain(struct decision *d, uint32_t first)
{
	for (uint32_t i = first; i != NO_RULE; i = d->x->next[i]) {
		const struct net_rule *r = &d->x->p->rules[i];
		struct view *v = &d->views[r->stage];

		d->looked_at++;
		if (!fits_port(r, d->q))
			continue;
		if (r->verdict == NET_RULE_DENY)
			apply_deny(d, v, r);
		else
			apply_allow(d, v, r);
	}
}

static void apply_names(struct decision *d)
{
	const struct net_index *x = d->x;

	apply_chain(d, x->slots[find_name(x, NET_RULE_NAME, d->q->name)]);
	for (const char *dot = strchr(d->q->name, '.'); dot; dot = strchr(dot + 1, '.'))
		apply_chain(d, x->slots[find_name(x, NET_RULE_BELOW, dot + 1)]);
}

static void apply_networks(struct decision *d)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	/* A network of IPv6 is not about IPv4, although that is kept as a part of it. */
	unsigned least = memcmp(d->q->address, mapped, 12) == 0 ? 96 : 0;

	for (unsigned bits = least; bits <= 128; bits++) {
		unsigned char masked[16];

		if (!(d->x->lengths[bits / 64] & 1ULL << bits % 64))
			continue;
		mask_address(d->q->address, bits, masked);
		apply_chain(d, d->x->slots[find_network(d->x, masked, bits)]);
	}
}

static void gather(struct decision *d)
{
	const struct net_question *q = d->q;
	const char *dot = q->name ? strrchr(q->name, '.') : NULL;

	d->is_localhost = q->name && str_equal(dot ? dot + 1 : q->name, "localhost");
	if (q->address) {
		d->kind = net_address_range(q->address, &d->bits);
		d->special = d->kind != NET_PUBLIC_ADDRESS || q->own;
		if (q->own)
			d->bits = 128;
	}
	d->path_is_clean = q->path && net_path_clean(q->path, d->path, sizeof(d->path));
	if (q->name)
		apply_names(d);
	if (q->address)
		apply_networks(d);
	apply_chain(d, d->x->any);
	apply_chain(d, d->x->localhost);
}

enum refusal { NOT_REFUSED, BY_RULE, BY_MODE, NO_NAME_RULE, NO_ADDRESS_RULE };

static enum refusal judge_peer(const struct decision *d, size_t stage)
{
	const struct view *v = &d->views[stage];

	if (v->deny)
		return BY_RULE;
	if (d->x->p->modes[stage] == NET_NONE)
		return BY_MODE;
	return d->x->p->modes[stage] != NET_ISOLATED || !d->x->has_allow[stage] || v->name
		       ? NOT_REFUSED
		       : NO_NAME_RULE;
}

static enum refusal judge(const struct decision *d, size_t stage)
{
	const struct view *v = &d->views[stage];
	int mode = d->x->p->modes[stage];
	bool everything = mode == NET_PUBLIC && !d->is_localhost;

	if (d->q->peer)
		return judge_peer(d, stage);
	if (v->deny)
		return BY_RULE;
	if (mode != NET_ALLOW && mode != NET_PUBLIC)
		return BY_MODE;
	if (d->q->name && !v->name && !everything)
		return NO_NAME_RULE;
	if (d->q->address && d->special && !v->address)
		return NO_ADDRESS_RULE;
	if (!d->q->name && !v->address && !(everything && d->q->address))
		return NO_ADDRESS_RULE;
	return NOT_REFUSED;
}

/* ---- the answer in words ------------------------------------------------------------------------ */

static void format_target(const struct decision *d, bool by_address, char *ret, size_t size)
{
	const struct net_question *q = d->q;
	char digits[NET_ADDRESS_TEXT], port[8] = "";
	const char *host = q->name ? q->name : "";

	if ((by_address || !q->name) && q->address) {
		bool here = d->kind == NET_LOOPBACK_ADDRESS || q->own;

		net_address_text(q->address, q->port != 0, digits);
		host = here && q->port ? "localhost" : digits;
	}
	if (q->port)
		snprintf(port, sizeof(port), ":%u", q->port);
	snprintf(ret, size, "%s%s%s", q->udp && q->port ? "udp://" : "", host, port);
}

/* Method and path, if the path can be typed into a shell as it is. */
static void add_request(const struct decision *d, char *ret, size_t size)
{
	const char *method = net_method_name(d->q->method);

	if (!method[0])
		return;
	str_append(ret, size, " ", "%s", method);
	if (d->path_is_clean && str_only(d->path, STR_ALNUM "/._~-", 1, 127))
		str_append(ret, size, " ", "%s", d->path);
}

/* As in "no rule of the operator allows it"; "" for the request, whose author reads it. */
static const char *const owners[] = {[NET_BY_OPERATOR] = "the operator",
				     [NET_BY_TOKEN] = "the token",
				     [NET_BY_TRUST] = "the trust level",
				     [NET_BY_REQUEST] = ""};

static void explain_address(const struct decision *d, struct net_answer *ret)
{
	const char *name = d->q->name;
	char digits[NET_ADDRESS_TEXT], kind[64];

	net_address_text(d->q->address, false, digits);
	if (d->q->own && d->kind != NET_LOOPBACK_ADDRESS)
		snprintf(kind, sizeof(kind), "an address of the host itself");
	else
		snprintf(kind, sizeof(kind), "a %s address", net_address_kind_name(d->kind));
	if (name)
		snprintf(ret->why, sizeof(ret->why), "%.200s leads to %s, %s that no rule names",
			 name, digits, kind);
	else
		snprintf(ret->why, sizeof(ret->why), "%s is %s, which no rule names", digits, kind);
}

static void explain_why(const struct decision *d, size_t stage, enum refusal refusal,
			struct net_answer *ret)
{
	static const char *const modes[] = {"none", "allow", "public", "isolated"};
	const char *owner = owners[d->x->p->sources[stage]], *of = owner[0] ? " of " : "";
	char target[NET_NAME + 24], method[24] = "";

	if (refusal == NO_ADDRESS_RULE && d->q->address && d->special) {
		explain_address(d, ret);
		return;
	}
	format_target(d, false, target, sizeof(target));
	if (net_method_name(d->q->method)[0])
		snprintf(method, sizeof(method), "%s to ", net_method_name(d->q->method));
	if (refusal == BY_RULE)
		snprintf(ret->why, sizeof(ret->why), "a rule%s%s denies it: %.200s", of, owner,
			 ret->rule);
	else if (refusal == BY_MODE)
		snprintf(ret->why, sizeof(ret->why), "network %s%s%s", modes[d->x->p->modes[stage]],
			 owner[0] ? ", set by " : "", owner);
	else
		snprintf(ret->why, sizeof(ret->why), "no rule%s%s allows %s%s", of, owner, method,
			 target);
}

static void explain(const struct decision *d, size_t stage, enum refusal refusal,
		    struct net_answer *ret)
{
	const char *owner = owners[d->x->p->sources[stage]];
	bool none = d->x->p->modes[stage] == NET_NONE;
	const char *quote;

	explain_why(d, stage, refusal, ret);
	if (refusal == BY_RULE) {
		snprintf(ret->remedy, sizeof(ret->remedy),
			 owner[0] ? "%s must remove the rule that denies %.200s"
				  : "%sremove --deny '%.200s'",
			 owner, ret->rule);
		return;
	}
	format_target(d, refusal == NO_ADDRESS_RULE, ret->wanted, sizeof(ret->wanted));
	if (refusal == NO_NAME_RULE || !d->q->name)
		add_request(d, ret->wanted, sizeof(ret->wanted));
	quote = strchr(ret->wanted, ' ') ? "'" : "";
	if (owner[0]) {
		snprintf(ret->remedy, sizeof(ret->remedy), "%s must allow %s", owner, ret->wanted);
		ret->wanted[0] = '\0'; /* nobody is asked about it */
	} else {
		snprintf(ret->remedy, sizeof(ret->remedy), "%s--allow %s%s%s",
			 none ? "--net allow " : "", quote, ret->wanted, quote);
	}
}

static void allow(const struct decision *d, struct net_answer *ret)
{
	ret->allowed = true;
	for (size_t s = 0; s < d->x->p->stage_count; s++) {
		const struct view *v = &d->views[s];
		bool open = d->x->p->modes[s] == NET_PUBLIC && !d->special && !d->is_localhost;
		bool by_address = !d->q->name || d->special;

		ret->http |= v->may_deny;
		if (v->name && !open)
			ret->http |= has_condition(v->name);
		if (v->address && by_address && !open)
			ret->http |= has_condition(v->address);
		ret->inspect |= v->inspect;
		ret->no_sni |= v->no_sni;
		ret->txt |= v->txt;
		if (v->name || v->address)
			ret->rule =
				net_policy_string(d->x->p, (v->name ? v->name : v->address)->text);
	}
	ret->inspect |= ret->http;
}

void net_decide(const struct net_index *x, const struct net_question *q, struct net_answer *ret)
{
	struct decision d = {.x = x, .q = q};
	bool isolated = false;

	*ret = (struct net_answer){.rule = ""};
	gather(&d);
	ret->looked_at = d.looked_at;
	for (size_t s = 0; s < x->p->stage_count; s++) {
		enum refusal refusal = judge(&d, s);

		isolated |= x->p->modes[s] == NET_ISOLATED;
		if (refusal == NOT_REFUSED)
			continue;
		if (d.views[s].deny)
			ret->rule = net_policy_string(x->p, d.views[s].deny->text);
		explain(&d, s, refusal, ret);
		return;
	}
	if (q->peer && !isolated) {
		snprintf(ret->why, sizeof(ret->why), "not in an isolated segment");
		return;
	}
	allow(&d, ret);
}
