#include "api/rest/rest.h"

#include "api/http/metrics.h"
#include "api/rest/run_task.h"

struct running {
	struct exchange *x;
	struct run *run;
};

static void on_run_done(void *arg, const struct result *record, const struct err *e)
{
	struct running *r = arg;

	r->run = NULL;
	if (!record) {
		exchange_error(r->x, e);
		return;
	}
	metrics_run(r->x->api->metrics, r->x->started_ns);
	v1_answer_result(r->x, record);
}

static void on_run_gone(void *arg)
{
	struct running *r = arg;

	run_cancel(take_ptr(r->run));
	exchange_fail(r->x, ERR_SYSTEM, "the client has gone");
}

void v1_run(struct exchange *x)
{
	struct running *r = exchange_attach(x, sizeof(*r), NULL);
	struct err e = {0};
	json_t *nothing = x->json ? NULL : json_object();

	r->x = x;
	r->run = run_start(x->api, &x->caller, x->json ? x->json : nothing, on_run_done, r, &e);
	json_decref(nothing);
	if (!r->run)
		exchange_error(x, &e);
	else
		exchange_on_gone(x, on_run_gone, r);
}
