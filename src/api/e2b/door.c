/* The E2B door's tables, and how a request finds the right one. */
#include "api/e2b/e2b.h"

#include "api/http/server.h"

#include <stdarg.h>
#include <strings.h>

#define ID_LETTERS STR_LOWER STR_DIGITS

/* "<port>-<id>." at the front of a Host header. */
static bool split_host(const char *host, char id[IPC_ID], unsigned *ret_port)
{
	unsigned port = 0;
	size_t digits = strspn(host, "0123456789"), len;

	if (digits < 1 || digits > 5 || host[digits] != '-')
		return false;
	for (size_t i = 0; i < digits; i++)
		port = port * 10 + (unsigned)(host[i] - '0');
	host += digits + 1;
	len = strspn(host, ID_LETTERS);
	if (len < 1 || len >= IPC_ID || host[len] != '.' || port < 1 || port > 65535)
		return false;
	memcpy(id, host, len);
	id[len] = '\0';
	*ret_port = port;
	return true;
}

bool e2b_target(const struct exchange *x, char id[IPC_ID], unsigned *ret_port)
{
	const char *name = exchange_header(x, "E2b-Sandbox-Id");
	const char *port = exchange_header(x, "E2b-Sandbox-Port");
	const char *host = exchange_header(x, "Host");
	uint64_t number = E2B_ENVD_PORT;
	struct err e;

	if (!name)
		return host && split_host(host, id, ret_port);
	if (port && (parse_count(port, &number, &e) < 0 || number < 1 || number > 65535))
		number = 0;
	/* Answers repeat the id, so only letters that an id can have are kept. */
	if (strlen(name) >= IPC_ID || strspn(name, ID_LETTERS) != strlen(name))
		name = "";
	snprintf(id, IPC_ID, "%s", name);
	*ret_port = (unsigned)number;
	return true;
}

/* The port that a request names; 0: not a valid port; -1: the request names none. */
static int port_of(const struct exchange *x)
{
	char id[IPC_ID];
	unsigned port;

	return e2b_target(x, id, &port) ? (int)port : -1;
}

/* Signed addresses name no sandbox: the signature tells which one is meant. */
static bool claims_envd(const struct exchange *x)
{
	int port = port_of(x);

	return port == E2B_ENVD_PORT || (port < 0 && str_equal(x->path, "/files"));
}

static bool claims_interpreter(const struct exchange *x)
{
	return port_of(x) == E2B_INTERPRETER_PORT;
}

static bool claims_other_port(const struct exchange *x)
{
	int port = port_of(x);

	return port >= 0 && port != E2B_ENVD_PORT && port != E2B_INTERPRETER_PORT;
}

void e2b_error(struct exchange *x, int status, const struct err *e)
{
	char clean[sizeof(e->msg)];

	str_sanitise(clean, sizeof(clean), e->msg, strnlen(e->msg, sizeof(e->msg)));
	exchange_json(x, status,
		      must_alloc(json_pack("{s:i,s:s}", "code", status, "message", clean)));
}

void e2b_fail(struct exchange *x, int status, const char *fmt, ...)
{
	struct err e = {.kind = status == 401 || status == 403 ? ERR_DENIED
				: status == 404		       ? ERR_NOT_FOUND
				: status == 409		       ? ERR_CONFLICT
				: status == 501		       ? ERR_UNSUPPORTED
							       : ERR_INVALID};
	va_list args;

	va_start(args, fmt);
	vsnprintf(e.msg, sizeof(e.msg), fmt, args);
	va_end(args);
	exchange_error_as(x, status, &e);
}

static const struct {
	int status;
	enum connect_code code;
} rpc_codes[] = {
	{400, CONNECT_INVALID_ARGUMENT},   {401, CONNECT_UNAUTHENTICATED},
	{403, CONNECT_PERMISSION_DENIED},  {404, CONNECT_UNIMPLEMENTED},
	{405, CONNECT_UNIMPLEMENTED},	   {413, CONNECT_RESOURCE_EXHAUSTED},
	{429, CONNECT_RESOURCE_EXHAUSTED}, {501, CONNECT_UNIMPLEMENTED},
	{503, CONNECT_UNAVAILABLE},
};

static bool is_rpc(const struct exchange *x)
{
	return str_starts(x->path, "/process.") || str_starts(x->path, "/filesystem.");
}

/* Errors that the server finds before it calls a handler of envd. */
static void envd_error(struct exchange *x, int status, const struct err *e)
{
	enum connect_code code = CONNECT_INTERNAL;

	if (!is_rpc(x)) {
		e2b_error(x, status, e);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(rpc_codes); i++)
		if (rpc_codes[i].status == status)
			code = rpc_codes[i].code;
	exchange_json(x, status, connect_error(code, e->msg));
}

/* The interpreter's errors are text. */
static void interpreter_error(struct exchange *x, int status, const struct err *e)
{
	exchange_reply(x, status, "text/plain; charset=utf-8", e->msg, strlen(e->msg));
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

void e2b_add_doors(struct server *s)
{
	static struct door doors[] = {
		{DOOR_E2B, "e2b", e2b_envd_routes, 0, claims_envd, envd_error, NULL},
		{DOOR_E2B, "e2b", e2b_interpreter_routes, 0, claims_interpreter, interpreter_error,
		 NULL},
		{DOOR_E2B, "e2b", e2b_port_routes, 0, claims_other_port, port_error, NULL},
		{DOOR_E2B, "e2b", e2b_control_routes, 0, NULL, e2b_error, NULL},
	};

	doors[0].route_count = e2b_envd_route_count;
	doors[1].route_count = e2b_interpreter_route_count;
	doors[2].route_count = e2b_port_route_count;
	doors[3].route_count = e2b_control_route_count;
	for (size_t i = 0; i < ARRAY_LEN(doors); i++)
		server_add_door(s, &doors[i]);
}
