/*
 * Many tasks in one request. Theory of operation: tasks of all batches share a bounded number of
 * slots. A free slot goes to the token that uses the fewest, so that a batch of a thousand tasks does not
 * delay another token's batch of two, and within what the batch itself allows. A batch that streams
 * starts no task while its client does not read; any other batch may keep RESULTS_MAX bytes of results.
 *
 * Three forms of answer: one array in the order of the tasks; a line of JSON as each task ends; or server-sent events:
 * start {"index", "timeout_ms"} and end {"index", "result" or "error"} of each task, and done {"tasks", "succeeded",
 * "failed", "used", "reason"}. A task that never began has an end and no start.
 *
 * A budget that has a name is of all batches of its tenant that name it, at the same time and one after the other. Its
 * use is counted in one place; what it allows is the least that any of them has said.
 */
#include "api/rest/rest.h"

#include "api/http/server.h"

#include <assert.h>
#include <sys/queue.h>

#define SLOTS 32
#define TASKS_MAX 10000
#define RESULTS_MAX (64u << 20)
#define BUDGETS_MAX 4096
#define BUDGETS_PER_TENANT 64
#define BUDGET_FORGET_MS (24 * 3600 * 1000ULL) /* since its last use */

static const struct body_table budget_table = BODY_TABLE(
	BODY_ALONE, FIELD("cpu", BODY_TIME, "processor time"),
	FIELD("memory_seconds", BODY_COUNT, "megabytes of memory, times seconds"),
	FIELD("net_tx", BODY_WORD, "bytes sent"), FIELD("tasks", BODY_COUNT, "tasks that run"),
	FIELD("name", BODY_TEXT, "shared by all batches of the tenant that name it"));
const struct body_table v1_batch_table = BODY_TABLE(
	BODY_ALONE,
	NEEDED("tasks", BODY_ITEMS, "each as the body of /v1/run", .items = &v1_run_table),
	FIELD("parallel", BODY_COUNT, "at most so many at one time (4)"),
	FIELD("budget", BODY_OBJECT, "of all tasks together", .items = &budget_table));

/* What tasks have used, in the units of the record, and what they may; 0: no bound. */
enum budget_kind { BUDGET_CPU_MS, BUDGET_MEMORY_MB_MS, BUDGET_NET_TX, BUDGET_TASKS, BUDGET_COUNT };
static const char *const used_names[] = {"cpu_ms", "memory_mb_ms", "net_tx", "tasks"};
static_assert(ARRAY_LEN(used_names) == BUDGET_COUNT, "a name per budget");

enum batch_form { FORM_ARRAY, FORM_LINES, FORM_EVENTS };

struct batch;

struct batch_task {
	struct batch *batch;
	struct run *run;
	size_t index;
	int64_t started_ns;
	char *text; /* its line or array element, once it has ended */
	size_t len;
};

struct allowance {
	LIST_ENTRY(allowance) all;
	char tenant[IPC_ID], name[64]; /* name "": of one batch only */
	uint64_t used[BUDGET_COUNT], most[BUDGET_COUNT];
	unsigned batches; /* that hold it */
	uint64_t used_ms;
	char over[160]; /* what is used up, or "" */
};

struct batch {
	struct exchange *x;
	struct rest *rest;
	TAILQ_ENTRY(batch) all;
	struct batch_task *tasks;
	size_t count, next, active, ended, succeeded, parallel, bytes;
	struct allowance *budget;
	enum batch_form form;
	struct sse sse;
	bool gone;
};

struct rest {
	struct api *api;
	TAILQ_HEAD(, batch) batches;
	LIST_HEAD(, allowance) budgets; /* those with a name */
	size_t active;
	struct loop_task task; /* hands out slots */
};

static void hand_out(void *arg);

struct rest *rest_new(struct api *api)
{
	struct rest *r = must_alloc(calloc(1, sizeof(*r)));

	r->api = api;
	TAILQ_INIT(&r->batches);
	LIST_INIT(&r->budgets);
	r->task = (struct loop_task){.call = hand_out, .arg = r};
	return r;
}

void rest_free(struct rest *r)
{
	struct allowance *g;

	if (!r)
		return;
	while ((g = LIST_FIRST(&r->budgets))) {
		LIST_REMOVE(g, all);
		free(g);
	}
	loop_task_remove(r->api->loop, &r->task);
	free(r);
}

static void batch_done(void *data)
{
	struct batch *b = data;

	sse_close(&b->sse);
	if (b->budget && !b->budget->name[0])
		free(b->budget);
	else if (b->budget)
		b->budget->batches--;
	for (size_t i = 0; i < b->count; i++)
		free(b->tasks[i].text);
	free(b->tasks);
}

/* ---- the end ---- */

static void answer_whole(struct batch *b)
{
	struct buf out = {0};

	buf_add(&out, "[", 1);
	for (size_t i = 0; i < b->count; i++) {
		if (i)
			buf_add(&out, ",", 1);
		buf_add(&out, b->tasks[i].text, b->tasks[i].len);
	}
	buf_add(&out, "]", 1);
	exchange_reply(b->x, 200, "application/json", buf_head(&out), out.len);
	buf_done(&out);
}

static void send_done(struct batch *b)
{
	json_t *used = json_object();

	for (size_t i = 0; i < BUDGET_COUNT; i++)
		json_object_set_new(used, used_names[i],
				    json_integer((json_int_t)b->budget->used[i]));
	sse_send(&b->sse, "done",
		 json_pack("{s:I, s:I, s:I, s:o, s:s?}", "tasks", (json_int_t)b->count, "succeeded",
			   (json_int_t)b->succeeded, "failed",
			   (json_int_t)(b->ended - b->succeeded), "used", used, "reason",
			   b->budget->over[0] ? b->budget->over : NULL));
}

static void end_if_done(struct batch *b)
{
	if (b->active || (b->ended < b->count && !b->gone))
		return;
	TAILQ_REMOVE(&b->rest->batches, b, all);
	if (b->form == FORM_EVENTS)
		send_done(b);
	if (b->form != FORM_ARRAY)
		exchange_finish(b->x);
	else if (b->gone)
		exchange_answer_gone(b->x);
	else
		answer_whole(b);
}

/* {"result":...} or {"error":...}; with its index if it is sent as it ends. */
static void keep_record(struct batch_task *t, const struct result *r, const struct err *e)
{
	struct batch *b = t->batch;
	struct err large = {0};
	char head[64] = "{";
	struct buf out = {0};
	size_t len = 0;
	auto_free char *record = r ? result_text(r, &len) : NULL;
	const char *text = record;

	if (b->form != FORM_ARRAY)
		snprintf(head, sizeof(head), "{\"index\":%zu,", t->index);
	if (text && b->form == FORM_ARRAY && b->bytes + len > RESULTS_MAX) {
		err_set(&large, ERR_LIMIT,
			"the results are too large for one answer; ask for application/x-ndjson");
		large.errnum = EFBIG;
		text = NULL;
		e = &large;
	}
	buf_add(&out, head, strlen(head));
	if (text) {
		buf_add(&out, "\"result\":", 9);
		buf_add(&out, text, len);
		buf_add(&out, "}", 1);
	} else {
		json_t *body = exchange_error_body(exchange_status_of(e), e);
		char *error = json_dumps(body, JSON_COMPACT);

		buf_add(&out, error + 1, strlen(error) - 1); /* without its bracket */
		free(error);
		json_decref(body);
	}
	b->bytes += out.len;
	if (b->form == FORM_EVENTS) {
		exchange_event(b->x, "end", buf_head(&out), out.len);
	} else if (b->form == FORM_LINES) {
		buf_add(&out, "\n", 1);
		exchange_write(b->x, buf_head(&out), out.len);
	} else {
		t->len = out.len;
		t->text = must_alloc(malloc(out.len));
		memcpy(t->text, buf_head(&out), out.len);
		exchange_keep(b->x, out.len);
	}
	buf_done(&out);
}

/* ---- the budget of all tasks ---- */

static int read_budget(struct allowance *g, const json_t *budget, struct err *e)
{
	const char *bytes = body_text(budget, "net_tx");
	uint64_t most[BUDGET_COUNT] = {0};

	if (body_time(budget, "cpu", 0, &most[BUDGET_CPU_MS], e) < 0)
		return -1;
	if (bytes && parse_size(bytes, &most[BUDGET_NET_TX], e) < 0)
		return err_field(e, ERR_INVALID, "net_tx", "net_tx: '%.40s' is not a size", bytes);
	most[BUDGET_MEMORY_MB_MS] = body_count(budget, "memory_seconds", 0) * 1000;
	most[BUDGET_TASKS] = body_count(budget, "tasks", 0);
	for (size_t i = 0; i < BUDGET_COUNT; i++)
		if (most[i] && (!g->most[i] || most[i] < g->most[i]))
			g->most[i] = most[i];
	return 0;
}

/* Names what is used up. */
static void judge_budget(struct allowance *g)
{
	static const char *const names[] = {"cpu", "memory_seconds", "net_tx", "tasks"};

	static_assert(ARRAY_LEN(names) == BUDGET_COUNT, "a name per budget");
	for (size_t i = 0; i < BUDGET_COUNT && !g->over[0]; i++)
		if (g->most[i] && g->used[i] >= g->most[i])
			snprintf(g->over, sizeof(g->over),
				 "budget: %s of all tasks together is used up%s%.63s", names[i],
				 g->name[0] ? ", of " : "", g->name);
}

/* Adds what a task used. */
static void count_use(struct batch *b, const struct result *r)
{
	double mb = (double)r->end.max_rss_bytes / (1 << 20);
	struct allowance *g = b->budget;

	g->used[BUDGET_CPU_MS] += (uint64_t)r->end.cpu_ms;
	g->used[BUDGET_MEMORY_MB_MS] += (uint64_t)(mb * r->end.duration_ms);
	g->used[BUDGET_NET_TX] += r->net_tx_bytes;
	g->used[BUDGET_TASKS]++;
	g->used_ms = unix_ms();
	judge_budget(g);
}

/* Of a tenant; those that nobody has used for a day are forgotten meanwhile. */
static struct allowance *find_budget(struct rest *r, const char *tenant, const char *name,
				     size_t *ret_count)
{
	struct allowance *found = NULL, *next;
	uint64_t now = unix_ms();

	for (struct allowance *g = LIST_FIRST(&r->budgets); g; g = next) {
		next = LIST_NEXT(g, all);
		if (!g->batches && g->used_ms + BUDGET_FORGET_MS < now) {
			LIST_REMOVE(g, all);
			free(g);
			continue;
		}
		ret_count[0]++;
		ret_count[1] += str_equal(g->tenant, tenant);
		if (str_equal(g->tenant, tenant) && str_equal(g->name, name))
			found = g;
	}
	return found;
}

/* The budget of a batch: its own, or one with a name. */
static int take_budget(struct batch *b, const json_t *budget, struct err *e)
{
	const char *name = body_text(budget, "name"), *tenant = b->x->caller.token;
	size_t count[2] = {0}; /* of all, of this tenant */
	struct allowance *g = name ? find_budget(b->rest, tenant, name, count) : NULL, *made = NULL;

	if (name && !str_only(name, STR_ALNUM "._-", 1, sizeof(g->name) - 1))
		return err_field(e, ERR_INVALID, "name",
				 "name: a budget's has letters, digits, '.', '_' and '-'");
	if (name && !g && (count[0] >= BUDGETS_MAX || count[1] >= BUDGETS_PER_TENANT))
		return err_field(e, ERR_LIMIT, "name", "name: there are too many budgets");
	if (!g)
		g = made = must_alloc(calloc(1, sizeof(*g)));
	if (read_budget(g, budget, e) < 0) {
		free(made);
		return -1;
	}
	if (made && name) {
		snprintf(g->tenant, sizeof(g->tenant), "%s", tenant);
		snprintf(g->name, sizeof(g->name), "%s", name);
		LIST_INSERT_HEAD(&b->rest->budgets, g, all);
	}
	g->batches++;
	g->used_ms = unix_ms();
	judge_budget(g);
	b->budget = g;
	return 0;
}

/* Tasks that run are ended, and the others do not begin: each is an error that says why. */
static void end_by_budget(struct batch *b)
{
	struct err e = {0};

	err_field(&e, ERR_LIMIT, "budget", "%s", b->budget->over);
	for (size_t i = 0; i < b->count; i++) {
		struct batch_task *t = &b->tasks[i];

		if (i >= b->next) {
			t->batch = b;
			t->index = i;
		} else if (t->run) {
			run_cancel(take_ptr(t->run));
			b->active--;
			b->rest->active--;
		} else {
			continue;
		}
		b->ended++;
		keep_record(t, NULL, &e);
	}
	b->next = b->count;
}

/* All batches that share a budget which is used up, but one, whose caller goes on with it. */
static void end_others(struct rest *r, const struct batch *but)
{
	struct batch *b, *next;

	for (b = TAILQ_FIRST(&r->batches); b; b = next) {
		next = TAILQ_NEXT(b, all);
		if (b == but || b->budget != but->budget || b->gone || b->ended == b->count)
			continue;
		end_by_budget(b);
		end_if_done(b);
	}
}

static void on_task(void *arg, struct result *record, const struct err *e)
{
	struct batch_task *t = arg;
	struct batch *b = t->batch;
	struct rest *r = b->rest;
	bool was_over = b->budget->over[0];

	t->run = NULL;
	b->active--;
	r->active--;
	b->ended++;
	if (record) {
		metrics_run(r->api->metrics, t->started_ns);
		count_use(b, record);
		b->succeeded += outcome_is_success(&record->end);
	}
	keep_record(t, record, e);
	if (b->budget->over[0] && !was_over) {
		end_by_budget(b);
		end_others(r, b);
	}
	loop_task_add(r->api->loop, &r->task);
	end_if_done(b);
}

/* ---- slots ---- */

static size_t slots_of(const struct rest *r, const char *token)
{
	const struct batch *b;
	size_t n = 0;

	TAILQ_FOREACH (b, &r->batches, all)
		if (str_equal(b->x->caller.token, token))
			n += b->active;
	return n;
}

static struct batch *next_batch(struct rest *r)
{
	struct batch *b, *best = NULL;
	size_t fewest = SIZE_MAX;

	TAILQ_FOREACH (b, &r->batches, all) {
		size_t n;

		if (b->gone || b->next == b->count || b->active >= b->parallel ||
		    (b->form != FORM_ARRAY && !exchange_room(b->x)))
			continue;
		n = slots_of(r, b->x->caller.token);
		if (n < fewest) {
			fewest = n;
			best = b;
		}
	}
	return best;
}

static void start_task(struct batch *b)
{
	struct batch_task *t = &b->tasks[b->next];
	json_t *body = json_array_get(json_object_get(b->x->json, "tasks"), b->next);
	struct err e = {0};

	t->batch = b;
	t->index = b->next++;
	t->started_ns = b->x->started_ns;
	b->active++;
	b->rest->active++;
	t->run = run_start(b->x->api, &b->x->caller, body, on_task, t, &e);
	if (!t->run)
		on_task(t, NULL, &e);
	else if (b->form == FORM_EVENTS)
		sse_send(&b->sse, "start",
			 json_pack("{s:I, s:I}", "index", (json_int_t)t->index, "timeout_ms",
				   (json_int_t)run_timeout_ms(t->run)));
}

static void hand_out(void *arg)
{
	struct rest *r = arg;
	struct batch *b;

	while (r->active < SLOTS && (b = next_batch(r)))
		start_task(b);
}

static void on_batch_room(void *arg)
{
	struct batch *b = arg;

	loop_task_add(b->x->api->loop, &b->rest->task);
}

static void on_batch_gone(void *arg)
{
	struct batch *b = arg;

	b->gone = true;
	for (size_t i = 0; i < b->next; i++) {
		if (!b->tasks[i].run)
			continue;
		run_cancel(take_ptr(b->tasks[i].run));
		b->active--;
		b->rest->active--;
	}
	loop_task_add(b->x->api->loop, &b->rest->task);
	end_if_done(b);
}

void v1_batch(struct exchange *x)
{
	size_t count = json_array_size(json_object_get(x->json, "tasks"));
	struct err e = {0};
	struct batch *b;

	if (!v1_body(x))
		return;
	if (count > TASKS_MAX) {
		exchange_fail(x, ERR_LIMIT, "tasks: more than %d", TASKS_MAX);
		return;
	}
	b = exchange_attach(x, sizeof(*b), batch_done);
	b->x = x;
	b->rest = x->api->door_state[DOOR_REST];
	b->count = count;
	b->tasks = must_alloc(calloc(count + 1, sizeof(*b->tasks)));
	b->parallel = body_count(x->json, "parallel", 4);
	b->parallel = b->parallel < 1 ? 1 : b->parallel;
	b->form = exchange_accepts(x, "text/event-stream")	? FORM_EVENTS
		  : exchange_accepts(x, "application/x-ndjson") ? FORM_LINES
								: FORM_ARRAY;
	if (take_budget(b, json_object_get(x->json, "budget"), &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	TAILQ_INSERT_TAIL(&b->rest->batches, b, all);
	exchange_on_gone(x, on_batch_gone, b);
	if (b->form == FORM_EVENTS)
		sse_open(&b->sse, x);
	else if (b->form == FORM_LINES)
		exchange_stream(x, 200, "application/x-ndjson", EXCHANGE_UNKNOWN_LENGTH);
	if (b->form != FORM_ARRAY)
		exchange_on_room(x, on_batch_room, b);
	if (b->budget->over[0]) {
		end_by_budget(b);
		/* It may be over since this request has lowered it. */
		end_others(b->rest, b);
	}
	loop_task_add(x->api->loop, &b->rest->task);
	end_if_done(b);
}
