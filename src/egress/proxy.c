/* The explicit proxy: HTTP, CONNECT and SOCKS5. */
#include "egress/egress_internal.h"

static void proxy_step(struct conn *c)
{
	conn_deny(c, "the proxy is not built yet", NULL);
}

const struct handler conn_proxy = {.name = "proxy", .step = proxy_step};
