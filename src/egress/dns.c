/* The resolver that sandboxes see. */
#include "egress/egress_internal.h"

void dns_udp_ready(struct listener *l)
{
}

void lookups_free(struct uplink *s)
{
}

static void dns_step(struct conn *c)
{
	conn_reset(c);
}

const struct handler conn_dns = {.name = "dns", .step = dns_step};
