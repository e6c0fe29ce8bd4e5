/* Ports inside a sandbox, by host name or header: previews of what is served there. */
#include "api/e2b.h"

#include "base/auto.h"
#include "base/str.h"

static void closed(struct e2b_request *q, struct sandbox *s)
{
	(void)s;
	exchange_json(q->x, 502,
		      must_alloc(json_pack("{s:s,s:s,s:i,s:i}", "sandboxId", q->id, "message",
					   "The sandbox is running but port is not open", "port",
					   (int)q->port, "code", 502)));
}

static void any(struct exchange *x)
{
	e2b_enter(x, E2B_TRAFFIC_TOKEN, closed);
}

const struct route e2b_port_routes[] = {
	{"GET", "/*", any, 0, BODY_STREAM, ROUTE_OPEN | ROUTE_ANY_METHOD | ROUTE_NO_ORIGIN_CHECK,
	 "A port inside (E2B)", NULL},
};
const size_t e2b_port_route_count = ARRAY_LEN(e2b_port_routes);
