/* The operator's HTTP proxy. */
#include "egress/egress_internal.h"

int upstream_step(struct conn *c, struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED, "a proxy is not built yet");
}
