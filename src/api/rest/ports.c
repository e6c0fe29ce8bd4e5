#include "api/rest/rest.h"

#include "api/http/ports.h"

void v1_port(struct exchange *x)
{
	const char *rest = x->params[2] ? x->params[2] : "";
	auto_free char *path = str_format("/%s", rest);
	auto_free char *prefix = str_format("%.*s", (int)(strlen(x->path) - strlen(rest)), x->path);
	struct ports_target t = {.path = path, .prefix = prefix};
	struct err e = {0};
	uint64_t port;

	if (parse_count(x->params[1], &port, &e) < 0 || port < 1 || port > 65535) {
		exchange_refuse(x, "port", "'%.20s' is none", x->params[1]);
		return;
	}
	t.port = (uint32_t)port;
	ports_proxy(x, x->sandbox, &t);
}
