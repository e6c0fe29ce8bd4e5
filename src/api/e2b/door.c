/* How a request of an E2B client finds its door, and the errors that all of them share. */
#include "api/e2b/e2b_internal.h"

#include <stdarg.h>

#define ID_LETTERS STR_LOWER STR_DIGITS

/* "<port>-<id>." at the front of a Host header. */
static bool split_host(const char *host, char id[IPC_ID], unsigned *ret_port)
{
	size_t digits = strspn(host, STR_DIGITS), len;
	unsigned long port = digits >= 1 && digits <= 5 ? strtoul(host, NULL, 10) : 0;

	if (port < 1 || port > 65535 || host[digits] != '-')
		return false;
	host += digits + 1;
	len = strspn(host, ID_LETTERS);
	if (len < 1 || len >= IPC_ID || host[len] != '.')
		return false;
	memcpy(id, host, len);
	id[len] = '\0';
	*ret_port = (unsigned)port;
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

int e2b_port_of(const struct exchange *x)
{
	char id[IPC_ID];
	unsigned port;

	return e2b_target(x, id, &port) ? (int)port : -1;
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
