#include "api/v1.h"

#include "api/metrics.h"

#include <string.h>

void v1_healthz(struct exchange *x)
{
	exchange_json(x, 200, json_pack("{s:s, s:s}", "status", "ok", "version", CLOCHE_VERSION));
}

void v1_metrics(struct exchange *x)
{
	struct buf b = {0};

	metrics_write(x->api->metrics, x->api, &b);
	exchange_reply(x, 200, "text/plain; version=0.0.4", buf_head(&b), b.len);
	buf_done(&b);
}
