/* Opens TLS by rule. */
#include "egress/egress_internal.h"

static void inspect_step(struct conn *c)
{
	conn_deny(c, "inspection is not built yet", NULL);
}

const struct handler conn_inspect = {.name = "inspect", .step = inspect_step};

int inspect_start(struct role *r, struct err *e)
{
	return 0;
}

int inspect_settings(struct role *r, struct err *e)
{
	return 0;
}

int inspect_uplink(struct uplink *s, struct err *e)
{
	return 0;
}

void inspect_uplink_done(struct uplink *s)
{
}
