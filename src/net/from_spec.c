/* The network part of a specification as a stage of a policy: for `cloche run`, policy files and the daemon's front. */
#include "net/rules.h"

static int add_rules(struct net_policy_maker *m, enum net_verdict verdict, const char *field,
		     const struct list *rules, struct err *e)
{
	for (size_t i = 0; i < rules->count; i++) {
		struct err inner = {0};

		if (net_policy_add(m, verdict, rules->items[i], &inner) < 0)
			return err_field(e, inner.kind, field, "%s: %s", field, inner.msg);
	}
	return 0;
}

int net_from_spec(struct net_policy_maker *m, const struct sandbox_spec *s, enum net_source by,
		  struct err *e)
{
	const struct net_limits *l = &s->net_limits;

	net_policy_stage(m, s->net, by);
	if (add_rules(m, NET_RULE_ALLOW, "allow", &s->allow, e) < 0 ||
	    add_rules(m, NET_RULE_DENY, "deny", &s->deny, e) < 0)
		return -1;
	net_policy_budget(m, &(struct net_budget){.tx_bytes = l->tx_bytes,
						  .rx_bytes = l->rx_bytes,
						  .tx_rate = l->rate,
						  .rx_rate = l->rate,
						  .connections = (uint32_t)l->connections,
						  .names = (uint32_t)l->names,
						  .requests = (uint32_t)l->requests});
	return 0;
}

int net_check_spec(const struct sandbox_spec *s, struct err *e)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	struct err inner = {0};
	int rc = net_from_spec(m, s, NET_BY_REQUEST, e);

	if (rc == 0 && net_policy_write(m, &bytes, &inner) < 0)
		rc = err_field(e, inner.kind, "allow", "allow: %s", inner.msg);
	net_policy_free(m);
	return rc;
}
