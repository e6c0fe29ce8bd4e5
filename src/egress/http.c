/* Plain HTTP. */
#include "egress/egress_internal.h"

static void http_step(struct conn *c)
{
	conn_deny(c, "plain HTTP is not built yet", NULL);
}

const struct handler conn_http = {.name = "http", .step = http_step};
