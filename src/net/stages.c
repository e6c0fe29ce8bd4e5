/* Puts stages of several sources together. The rows of a request are copied, their text is not parsed again. */
#include "net/stages.h"

int net_policy_from_spec(const struct sandbox_spec *s, struct buf *ret, struct err *e)
{
	struct net_policy_maker *m = net_policy_new();
	int rc = net_from_spec(m, s, NET_BY_REQUEST, e);

	if (rc == 0)
		rc = net_policy_write(m, ret, e);
	net_policy_free(m);
	return rc;
}

int net_policy_add_words(struct net_policy_maker *m, enum net_verdict verdict, const char *words,
			 struct err *e)
{
	while (*words) {
		size_t len = strcspn(words, ",");
		auto_free char *word = str_format("%.*s", (int)len, words);

		if (net_policy_add(m, verdict, word, e) < 0)
			return -1;
		words += len + (words[len] == ',');
	}
	return 0;
}

void net_policy_ceiling(struct net_policy_maker *m, enum net_source by, int ceiling, bool has_rules,
			int request)
{
	struct err ignored;
	bool leaves_choice = ceiling == NET_ALLOW && !has_rules;

	net_policy_stage(m, leaves_choice && request == NET_PUBLIC ? NET_NONE : ceiling, by);
	if (leaves_choice)
		(void)!net_policy_add(m, NET_RULE_ALLOW, "*", &ignored);
}

static uint64_t tighter(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static void tighten(struct net_budget *to, const struct net_budget *by)
{
	to->tx_bytes = tighter(to->tx_bytes, by->tx_bytes);
	to->rx_bytes = tighter(to->rx_bytes, by->rx_bytes);
	to->tx_rate = tighter(to->tx_rate, by->tx_rate);
	to->rx_rate = tighter(to->rx_rate, by->rx_rate);
	to->connections = (uint32_t)tighter(to->connections, by->connections);
	to->open = (uint32_t)tighter(to->open, by->open);
	to->names = (uint32_t)tighter(to->names, by->names);
	to->requests = (uint32_t)tighter(to->requests, by->requests);
}

static size_t rules_size(const struct net_policy *p)
{
	return sizeof(*p) + p->rule_count * sizeof(p->rules[0]);
}

/* Offset 0 is the empty string, wherever it is. */
static uint32_t moved(uint32_t offset, size_t by)
{
	return offset ? offset + (uint32_t)by : 0;
}

int net_policy_join(const void *front, const void *back, struct buf *ret, struct err *e)
{
	const struct net_policy *a = front, *b = back;
	size_t a_strings = a->size - rules_size(a), b_strings = b->size - rules_size(b);
	struct net_policy head = *a;

	head.rule_count = a->rule_count + b->rule_count;
	head.stage_count = a->stage_count + b->stage_count;
	if (head.stage_count > NET_STAGES || head.rule_count > NET_RULES_MAX ||
	    (size_t)a->size + b->size > NET_POLICY_MAX)
		return err_field(e, ERR_LIMIT, "allow", "allow: too many rules");
	head.size = (uint32_t)(rules_size(&head) + a_strings + b_strings);
	for (uint32_t i = 0; i < b->stage_count; i++) {
		head.modes[a->stage_count + i] = b->modes[i];
		head.sources[a->stage_count + i] = NET_BY_REQUEST;
	}
	tighten(&head.budget, &b->budget);
	buf_add(ret, &head, sizeof(head));
	buf_add(ret, a->rules, a->rule_count * sizeof(a->rules[0]));
	for (uint32_t i = 0; i < b->rule_count; i++) {
		struct net_rule r = b->rules[i];

		r.stage = (uint16_t)(r.stage + a->stage_count);
		r.name = moved(r.name, a_strings);
		r.path = moved(r.path, a_strings);
		r.text = moved(r.text, a_strings);
		buf_add(ret, &r, sizeof(r));
	}
	buf_add(ret, (const char *)a + rules_size(a), a_strings);
	buf_add(ret, (const char *)b + rules_size(b), b_strings);
	return net_policy_check(buf_head(ret), ret->len, e);
}
