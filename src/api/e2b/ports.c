/* Ports inside a sandbox, by host name or header: previews of what is served there. */
#include "api/e2b/e2b.h"

/* What network.maskRequestHost says, with ${PORT} put in; NULL: nothing. The caller's. */
static char *masked_host(const struct sandbox *s, unsigned port)
{
	const json_t *network = json_object_get(sandbox_door_data(s), "network");
	const char *mask = json_string_value(json_object_get(network, "maskRequestHost"));
	const char *at = mask ? strstr(mask, "${PORT}") : NULL;

	if (!mask || !*mask || strpbrk(mask, "\r\n") || strlen(mask) > 250)
		return NULL;
	if (!at)
		return str_copy(mask);
	return str_format("%.*s%u%s", (int)(at - mask), mask, port, at + strlen("${PORT}"));
}

static void pass(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *host = masked_host(s, q->port);
	struct ports_target t = {.port = q->port,
				 .path = q->x->path,
				 .prefix = "",
				 .host = host,
				 .own_host = !exchange_header(q->x, "E2b-Sandbox-Id")};

	ports_proxy(q->x, s, &t);
}

const struct route e2b_port_routes[] = {
	{"GET", "/*", e2b_enter, 0, BODY_STREAM,
	 ROUTE_OPEN | ROUTE_ANY_METHOD | ROUTE_NO_ORIGIN_CHECK, "A port inside (E2B)",
	 &(const struct e2b_method){.need = E2B_TRAFFIC_TOKEN, .call = pass}},
};
const size_t e2b_port_route_count = ARRAY_LEN(e2b_port_routes);
