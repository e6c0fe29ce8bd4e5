/* What a network namespace needs for the rules that it serves. */
#include "net/redirect.h"

#include <sys/random.h>

/* Programs without a port in their rule mostly want these. */
static const uint16_t usual_ports[] = {443, 80, 22, 8080, 8443, 5432};

static void add_port(struct net_setup *s, uint16_t port)
{
	unsigned i = 0;

	while (i < NET_PORTS_MAX && s->tcp_ports[i] && s->tcp_ports[i] != port)
		i++;
	if (i < NET_PORTS_MAX)
		s->tcp_ports[i] = port;
}

/* Without tproxy: single ports first, then what a rule for all ports will mostly mean. */
static void choose_ports(struct net_setup *s, const struct net_policy *p)
{
	for (uint32_t i = 0; i < p->rule_count; i++) {
		const struct net_rule *r = &p->rules[i];

		if (r->verdict == NET_RULE_ALLOW && !(r->flags & NET_RULE_UDP) &&
		    r->first_port == r->last_port)
			add_port(s, r->first_port);
	}
	for (size_t i = 0; i < ARRAY_LEN(usual_ports); i++)
		add_port(s, usual_ports[i]);
}

/* A ULA of its own for each sandbox, so that two of them never have the same. */
static void choose_addresses(struct net_setup *s)
{
	unsigned char *own6 = s->own6;

	net_synthetic4(NET_GATEWAY_INDEX - 1, s->own4);
	s->prefix6[0] = 0xfd;
	if (getrandom(s->prefix6 + 1, 5, 0) != 5)
		memset(s->prefix6 + 1, 0, 5);
	memcpy(own6, s->prefix6, sizeof(s->prefix6));
	own6[9] = 1;
	own6[15] = 1;
}

bool net_setup_leads_to(const struct net_setup *s, const unsigned char address[16])
{
	struct network a = {.bits = 128};

	memcpy(a.address, address, sizeof(a.address));
	if (s->everything || net_synthetic_index(s->prefix6, address))
		return true;
	for (unsigned i = 0; i < s->network_count; i++)
		if (network_has(&s->networks[i], &a))
			return true;
	return false;
}

void net_setup_from(struct net_setup *s, const void *policy)
{
	size_t count;

	*s = (struct net_setup){0};
	choose_addresses(s);
	count = net_policy_networks(policy, s->networks, ARRAY_LEN(s->networks));
	s->network_count = (uint8_t)count;
	/* More networks than rows may have been left out: egress decides in any case. */
	s->everything = net_policy_mode(policy) == NET_PUBLIC || count == ARRAY_LEN(s->networks);
	s->udp_count = (uint8_t)net_policy_udp_ports(policy, s->udp_ports);
	(void)!net_policy_localhost_ports(policy, s->localhost_ports, NET_LOCALHOST_PORTS);
	choose_ports(s, policy);
}
