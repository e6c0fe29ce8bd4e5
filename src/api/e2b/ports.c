/* Ports inside a sandbox, by host name or header: previews of what is served there. */
#include "api/e2b/e2b_internal.h"

/* network.maskRequestHost with the port in place of ${PORT}; NULL: not set. The caller frees it. */
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

static void proxy_port(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *host = masked_host(s, q->port);
	struct ports_target t = {.port = q->port,
				 .path = q->x->path,
				 .prefix = "",
				 .host = host,
				 .own_host = !exchange_header(q->x, "E2b-Sandbox-Id")};

	ports_proxy(q->x, s, &t);
}

static const struct route routes[] = {
	{"GET", "/*", e2b_enter, 0, BODY_STREAM,
	 ROUTE_OPEN | ROUTE_ANY_METHOD | ROUTE_NO_ORIGIN_CHECK, "A port inside (E2B)",
	 &(const struct e2b_method){.need = E2B_TRAFFIC_TOKEN, .call = proxy_port}},
};

static bool claims_other_port(const struct exchange *x)
{
	int port = e2b_port_of(x);

	return port >= 0 && port != E2B_ENVD_PORT && port != E2B_INTERPRETER_PORT;
}

/* Nothing listens on the port: return the same 502 body that E2B's proxy returns. */
static void port_error(struct exchange *x, int status, const struct err *e)
{
	char id[IPC_ID];
	unsigned port;

	if (status != 502 || !e2b_target(x, id, &port)) {
		e2b_error(x, status, e);
		return;
	}
	exchange_json(x, 502,
		      must_alloc(json_pack("{s:s,s:s,s:i,s:i}", "sandboxId", id, "message",
					   "The sandbox is running but port is not open", "port",
					   (int)port, "code", 502)));
}

const struct door e2b_port_door = {
	DOOR_E2B, "e2b",     routes, ARRAY_LEN(routes), claims_other_port, port_error,
	NULL,	  e2b_admit, NULL,
};
