/* UDP by rule. */
#include "egress/egress_internal.h"

void flows_udp_ready(struct listener *l)
{
}

void flows_check_again(struct uplink *s)
{
}

void flows_free(struct uplink *s)
{
}
