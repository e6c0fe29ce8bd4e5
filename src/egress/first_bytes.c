/*
 * Chooses the handler of a connection by the first bytes of its client. The server's bytes are relayed meanwhile,
 * since in many protocols the server speaks first.
 */
#include "egress/egress_internal.h"

static void first_bytes_step(struct conn *c)
{
	if (c->upstream == UPSTREAM_REFUSED || c->upstream == UPSTREAM_FAILED)
		conn_reset(c);
	else if (c->client.in.len)
		conn_hand_over(c, &conn_relay);
}

const struct handler conn_first_bytes = {.name = "first bytes", .step = first_bytes_step};
const struct handler conn_tls = {.name = "tls", .step = first_bytes_step};
