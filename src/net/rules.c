/* Policies as bytes: making them from the text of rules, checking them, and what the redirection asks of them. */
#include "net/rules.h"

#include "net/rule.h"

#include <assert.h>

#define POLICY_VERSION 1

static_assert(sizeof(struct net_rule) == 40 && sizeof(struct net_policy) % 8 == 0,
	      "rows have no padding that could differ between programs");

struct net_policy_maker {
	struct net_rule *rules;
	size_t count, room;
	struct buf strings;
	bool too_many_stages;
	struct net_policy head; /* without its rows, so the last member */
};

struct net_policy_maker *net_policy_new(void)
{
	struct net_policy_maker *m = must_alloc(calloc(1, sizeof(*m)));

	buf_add(&m->strings, "", 1);
	return m;
}

void net_policy_free(struct net_policy_maker *m)
{
	if (!m)
		return;
	free(m->rules);
	buf_done(&m->strings);
	free(m);
}

void net_policy_stage(struct net_policy_maker *m, int mode, enum net_source by)
{
	if (m->head.stage_count == NET_STAGES) {
		m->too_many_stages = true;
		return;
	}
	m->head.modes[m->head.stage_count] = (uint8_t)mode;
	m->head.sources[m->head.stage_count++] = (uint8_t)by;
}

static uint32_t add_string(struct net_policy_maker *m, const char *s)
{
	uint32_t at = (uint32_t)m->strings.len;

	if (!s[0])
		return 0;
	buf_add(&m->strings, s, strlen(s) + 1);
	return at;
}

/* The end of the text is often the name itself: "example.com", "*.example.com". */
static uint32_t add_name(struct net_policy_maker *m, const char *name, const char *text,
			 uint32_t text_at)
{
	size_t len = strlen(name), text_len = strlen(text);

	if (len && len <= text_len && str_equal(text + text_len - len, name))
		return text_at + (uint32_t)(text_len - len);
	return add_string(m, name);
}

static int add_row(struct net_policy_maker *m, enum net_verdict verdict, const char *text,
		   const char *shown, struct err *e)
{
	struct net_rule_text r;

	if (net_rule_parse(text, verdict, &r, e) < 0)
		return -1;
	if (m->count == NET_RULES_MAX)
		return err_set(e, ERR_LIMIT, "more than %d rules", NET_RULES_MAX);
	r.row.stage = (uint16_t)(m->head.stage_count - 1);
	r.row.text = add_string(m, shown);
	r.row.name = add_name(m, r.name, shown, r.row.text);
	r.row.path = add_string(m, r.path);
	m->rules = array_room(m->rules, m->count, &m->room, sizeof(*m->rules));
	m->rules[m->count++] = r.row;
	return 0;
}

static int add_set(struct net_policy_maker *m, enum net_verdict verdict, const char *set,
		   struct err *e)
{
	char known[256] = "", shown[512];
	const char *last = "";
	bool found = false;

	for (size_t i = 0; i < net_set_row_count; i++) {
		const struct net_set_row *row = &net_set_rows[i];

		if (!str_equal(row->set, last))
			str_append(known, sizeof(known), " ", "%s", row->set);
		last = row->set;
		if (!str_equal(row->set, set))
			continue;
		found = true;
		snprintf(shown, sizeof(shown), "@%s %s", set, row->rule);
		if (add_row(m, verdict, row->rule, shown, e) < 0)
			return -1;
	}
	if (found)
		return 0;
	return err_set(e, ERR_INVALID, "'@%.60s' is not a set; there are: %s", set, known);
}

static bool is_set(const char *text)
{
	for (size_t i = 0; i < net_set_row_count; i++)
		if (str_equal(net_set_rows[i].set, text))
			return true;
	return false;
}

int net_policy_add(struct net_policy_maker *m, enum net_verdict verdict, const char *text,
		   struct err *e)
{
	if (m->head.stage_count == 0)
		return err_set(e, ERR_SYSTEM, "a rule without a stage");
	if (text[0] == '@' || is_set(text))
		return add_set(m, verdict, text + (text[0] == '@'), e);
	return add_row(m, verdict, text, text, e);
}

static uint64_t tighter(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

void net_policy_budget(struct net_policy_maker *m, const struct net_budget *b)
{
	struct net_budget *t = &m->head.budget;

	t->tx_bytes = tighter(t->tx_bytes, b->tx_bytes);
	t->rx_bytes = tighter(t->rx_bytes, b->rx_bytes);
	t->tx_rate = tighter(t->tx_rate, b->tx_rate);
	t->rx_rate = tighter(t->rx_rate, b->rx_rate);
	t->connections = (uint32_t)tighter(t->connections, b->connections);
	t->open = (uint32_t)tighter(t->open, b->open);
	t->names = (uint32_t)tighter(t->names, b->names);
	t->requests = (uint32_t)tighter(t->requests, b->requests);
}

int net_policy_write(struct net_policy_maker *m, struct buf *ret, struct err *e)
{
	size_t size = sizeof(m->head) + m->count * sizeof(*m->rules) + m->strings.len;
	struct buf whole = {0};

	if (m->too_many_stages || m->head.stage_count == 0)
		return err_set(e, ERR_SYSTEM, "a policy has 1 to %d stages", NET_STAGES);
	if (size > NET_POLICY_MAX)
		return err_set(e, ERR_LIMIT, "the rules have more than %u bytes", NET_POLICY_MAX);
	m->head.version = POLICY_VERSION;
	m->head.size = (uint32_t)size;
	m->head.rule_count = (uint32_t)m->count;
	buf_add(&whole, &m->head, sizeof(m->head));
	if (m->count)
		buf_add(&whole, m->rules, m->count * sizeof(*m->rules));
	buf_add(&whole, buf_head(&m->strings), m->strings.len);
	if (net_policy_check(buf_head(&whole), whole.len, e) < 0) {
		buf_done(&whole);
		return -1;
	}
	buf_done(ret);
	*ret = whole;
	return 0;
}

/* ---- checking ----------------------------------------------------------------------------------- */

static size_t strings_at(const struct net_policy *p)
{
	return sizeof(*p) + (size_t)p->rule_count * sizeof(p->rules[0]);
}

const char *net_policy_string(const struct net_policy *p, uint32_t offset)
{
	return (const char *)p + strings_at(p) + offset;
}

static bool is_canonical(const char *name)
{
	char canonical[NET_NAME];
	struct network n;
	struct err e;

	return net_host(name, strlen(name), canonical, &n, &e) == NET_IS_NAME &&
	       str_equal(name, canonical);
}

static const char *check_rule(const struct net_policy *p, const struct net_rule *r)
{
	size_t room = p->size - strings_at(p);
	char clean[NET_PATH];

	if (r->verdict > NET_RULE_ALLOW || r->kind < NET_RULE_NAME || r->kind > NET_RULE_ANY)
		return "unknown kind";
	if (r->flags & ~(NET_RULE_UDP | NET_RULE_INSPECT | NET_RULE_NO_SNI | NET_RULE_TXT))
		return "unknown flag";
	if (r->stage >= p->stage_count)
		return "stage that is not there";
	if (r->first_port > r->last_port || r->last_port == 0)
		return "ports out of order";
	if (r->methods >= NET_OTHER_METHOD || r->bits > 128)
		return "number out of range";
	if (r->name >= room || r->path >= room || r->text >= room)
		return "string out of range";
	if ((r->kind == NET_RULE_NAME || r->kind == NET_RULE_BELOW) &&
	    !is_canonical(net_policy_string(p, r->name)))
		return "name that is not canonical";
	if (r->path && (!net_path_clean(net_policy_string(p, r->path), clean, sizeof(clean)) ||
			!str_equal(net_policy_string(p, r->path), clean)))
		return "path that is not plain";
	if (r->kind == NET_RULE_LOCALHOST && r->first_port != r->last_port)
		return "range of ports of localhost";
	if ((r->flags & NET_RULE_UDP) && r->verdict == NET_RULE_ALLOW &&
	    r->first_port != r->last_port)
		return "range of UDP ports";
	return NULL;
}

static int bad_policy(struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID, "compiled network rules: %s", why);
}

int net_policy_check(const void *bytes, size_t len, struct err *e)
{
	const struct net_policy *p = bytes;

	if ((uintptr_t)bytes % _Alignof(struct net_policy) || len < sizeof(*p) ||
	    len > NET_POLICY_MAX)
		return bad_policy(e, "wrong size");
	if (p->version != POLICY_VERSION || p->size != len)
		return bad_policy(e, "another version, or cut short");
	if (p->rule_count > NET_RULES_MAX || p->stage_count < 1 || p->stage_count > NET_STAGES ||
	    strings_at(p) >= len)
		return bad_policy(e, "count out of range");
	if (net_policy_string(p, 0)[0] || ((const char *)bytes)[len - 1])
		return bad_policy(e, "strings without an end");
	for (size_t i = 0; i < p->stage_count; i++)
		if (p->modes[i] > NET_ISOLATED || p->sources[i] > NET_BY_REQUEST)
			return bad_policy(e, "unknown mode");
	for (size_t i = 0; i < p->rule_count; i++) {
		const char *wrong = check_rule(p, &p->rules[i]);

		if (wrong)
			return bad_policy(e, wrong);
	}
	if (net_policy_udp_ports(bytes, NULL) > NET_UDP_PORTS)
		return err_set(e, ERR_LIMIT, "rules for more than %d UDP ports", NET_UDP_PORTS);
	return 0;
}

/* ---- for the redirection ------------------------------------------------------------------------ */

size_t net_policy_networks(const void *bytes, struct network *ret, size_t room)
{
	const struct net_policy *p = bytes;
	size_t count = 0;

	for (size_t i = 0; i < p->rule_count && count < room; i++) {
		const struct net_rule *r = &p->rules[i];
		bool seen = false;

		if (r->kind != NET_RULE_NETWORK || r->verdict != NET_RULE_ALLOW)
			continue;
		for (size_t j = 0; j < count && !seen; j++)
			seen = ret[j].bits == r->bits &&
			       memcmp(ret[j].address, r->address, sizeof(r->address)) == 0;
		if (seen)
			continue;
		ret[count].bits = r->bits;
		memcpy(ret[count++].address, r->address, sizeof(r->address));
	}
	return count;
}

/* Is there in every stage, as far as ports go, something that allows this UDP port? */
static bool is_open_udp(const struct net_policy *p, uint16_t port)
{
	bool open[NET_STAGES];

	for (size_t s = 0; s < p->stage_count; s++)
		open[s] = p->modes[s] == NET_PUBLIC;
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct net_rule *r = &p->rules[i];

		if (r->verdict == NET_RULE_ALLOW && (r->flags & NET_RULE_UDP) &&
		    r->first_port == port)
			open[r->stage] = true;
	}
	for (size_t s = 0; s < p->stage_count; s++)
		if (!open[s])
			return false;
	return true;
}

/* ret may be NULL to count them; at most one more than NET_UDP_PORTS is counted. */
size_t net_policy_udp_ports(const void *bytes, uint16_t *ret)
{
	const struct net_policy *p = bytes;
	uint16_t ports[NET_UDP_PORTS + 1];
	size_t count = 0;

	for (size_t i = 0; i < p->rule_count && count < ARRAY_LEN(ports); i++) {
		const struct net_rule *r = &p->rules[i];
		bool seen = false;

		if (r->verdict != NET_RULE_ALLOW || !(r->flags & NET_RULE_UDP))
			continue;
		for (size_t j = 0; j < count && !seen; j++)
			seen = ports[j] == r->first_port;
		if (!seen && is_open_udp(p, r->first_port))
			ports[count++] = r->first_port;
	}
	if (ret)
		memcpy(ret, ports, sizeof(*ret) * (count < NET_UDP_PORTS ? count : NET_UDP_PORTS));
	return count;
}

size_t net_policy_localhost_ports(const void *bytes, uint16_t *ret, size_t room)
{
	const struct net_policy *p = bytes;
	size_t count = 0;

	for (size_t i = 0; i < p->rule_count && count < room; i++)
		if (p->rules[i].kind == NET_RULE_LOCALHOST &&
		    p->rules[i].verdict == NET_RULE_ALLOW && !(p->rules[i].flags & NET_RULE_UDP))
			ret[count++] = p->rules[i].first_port;
	return count;
}

/* Methods and paths are about HTTPS, too, unless the port is that of plain HTTP. */
bool net_policy_inspects(const void *bytes)
{
	const struct net_policy *p = bytes;

	for (uint32_t i = 0; i < p->rule_count; i++) {
		const struct net_rule *r = &p->rules[i];
		bool is_plain = r->first_port == 80 && r->last_port == 80;

		if ((r->flags & NET_RULE_INSPECT) || ((r->methods || r->path) && !is_plain))
			return true;
	}
	return false;
}

int net_policy_mode(const void *bytes)
{
	static const int from_narrow[] = {NET_NONE, NET_ISOLATED, NET_ALLOW, NET_PUBLIC};
	const struct net_policy *p = bytes;

	for (size_t i = 0; i < ARRAY_LEN(from_narrow); i++)
		for (size_t s = 0; s < p->stage_count; s++)
			if (p->modes[s] == from_narrow[i])
				return from_narrow[i];
	return NET_NONE;
}
