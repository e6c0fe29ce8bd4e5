/* The executions of a context: a queue. The kernel gets one at a time and answers in lines of JSON. */
#include "api/e2b/kernel_internal.h"

#include "auth/shares.h"

#define LINE_MAX_BYTES (9u << 20)
#define PARSED_MAX (16u << 10) /* a longer line is checked, but not taken apart */
#define UNCOUNTED (64u << 10)  /* bytes of a line that count in no share */
#define QUEUE_MAX 128
#define GRACE_MS 20000 /* for an interrupted execution to end */

static void send_line(struct execution *r, json_t *o)
{
	auto_free char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	json_decref(o);
	if (text && r->ops && r->ops->on_line)
		r->ops->on_line(r->arg, text, strlen(text));
}

static void execution_end(struct execution *r, enum execution_end how, const char *why)
{
	if (r->ops)
		r->ops->on_end(r->arg, how, why);
	json_decref(r->request);
	free(r);
}

static void end_first(struct context *c, enum execution_end how, const char *why)
{
	struct execution *r = c->queue;

	c->queue = r->next;
	c->active = false;
	loop_timer_stop(c->set->api->loop, &c->overdue);
	execution_end(r, how, why);
}

void kernel_fail_first(struct context *c, const char *name, const char *value)
{
	send_line(c->queue, json_pack("{s:s,s:s,s:s,s:s}", "type", "error", "name", name, "value",
				      value, "traceback", ""));
	send_line(c->queue, json_pack("{s:s}", "type", "end_of_execution"));
	end_first(c, EXECUTION_FAILED, value);
}

/* After callbacks that may have removed the context; false: the context is freed. */
static bool after_callbacks(struct context *c)
{
	c->is_telling = false;
	if (c->doomed && !c->exec) {
		kernel_context_free(c);
		return false;
	}
	if (c->doomed)
		kernel_signal(c, SIGKILL, true);
	return true;
}

bool kernel_fail_all(struct context *c, const char *name, const char *value)
{
	c->is_telling = true;
	while (c->queue)
		kernel_fail_first(c, name, value);
	return after_callbacks(c);
}

bool kernel_cut_all(struct context *c, bool is_lost)
{
	static const char why[] = "the sandbox is not running";
	struct execution *first = c->active && !is_lost ? c->queue : NULL;
	struct execution **rest = first ? &first->next : &c->queue, *r;

	c->is_telling = true;
	c->active = first != NULL;
	if (first && first->ops) {
		first->ops->on_end(first->arg, EXECUTION_CUT, why);
		first->ops = NULL;
	}
	while ((r = *rest)) {
		*rest = r->next;
		execution_end(r, EXECUTION_CUT, why);
	}
	return after_callbacks(c);
}

/* ---- messages of the kernel ---- */

static void take_started(struct execution *r, const json_t *m)
{
	send_line(r, json_pack("{s:s,s:I}", "type", "number_of_executions", "execution_count",
			       json_integer_value(json_object_get(m, "execution_count"))));
}

static void take_text(struct execution *r, const json_t *m)
{
	send_line(r, json_pack("{s:O,s:O,s:o}", "type", json_object_get(m, "type"), "text",
			       json_object_get(m, "text"), "timestamp", e2b_time(unix_ms())));
}

/* All members but the id are those of the client's protocol. */
static void take_result(struct execution *r, const json_t *m)
{
	json_t *o = json_copy((json_t *)m);

	json_object_del(o, "id");
	send_line(r, o);
}

static void take_end(struct execution *r, const json_t *m)
{
	struct context *c = r->context;

	send_line(r, json_pack("{s:s}", "type", "end_of_execution"));
	end_first(c, EXECUTION_DONE, NULL);
	kernel_next(c);
}

static void take_bad_request(struct execution *r, const json_t *m)
{
	const char *why = json_string_value(json_object_get(m, "message"));
	struct context *c = r->context;

	kernel_fail_first(c, "BadRequest", why ? why : "the kernel did not take the request");
	kernel_next(c);
}

static const struct {
	const char *type;
	void (*take)(struct execution *r, const json_t *m);
	bool may_be_long, has_time;
} messages[] = {
	{"started", take_started, false, false},
	{"stdout", take_text, true, true},
	{"stderr", take_text, true, true},
	{"result", take_result, true, false},
	{"error", take_result, true, false},
	{"end", take_end, false, false},
	{"bad_request", take_bad_request, false, false},
};

static size_t find_message(const char *type)
{
	size_t i = 0;

	while (i < ARRAY_LEN(messages) && !str_equal(messages[i].type, type))
		i++;
	return i;
}

static void kernel_message(struct context *c, const json_t *m)
{
	const char *type = json_string_value(json_object_get(m, "type"));
	const json_t *id = json_object_get(m, "id");
	size_t i;

	if (!type)
		return;
	if (c->state == STARTING && str_equal(type, "ready")) {
		c->state = READY;
		loop_timer_stop(c->set->api->loop, &c->overdue);
		kernel_next(c);
		return;
	}
	if (!c->active || (uint64_t)json_integer_value(id) != c->queue->id)
		return;
	i = find_message(type);
	if (i < ARRAY_LEN(messages))
		messages[i].take(c->queue, m);
}

/*
 * A long line, a picture for example, is passed on as it came: building and printing it again would take
 * too long. Kernels put id and type first; without them the line is ignored like any that is malformed.
 */
static void take_long_line(struct context *c, const char *line, size_t len)
{
	char head[128], type[16], end[64] = "}";
	unsigned long long id;
	struct buf b = {0};
	int at = 0;
	size_t i;

	snprintf(head, sizeof(head), "%.*s", (int)sizeof(head) - 1, line);
	if (sscanf(head, "{ \"id\" : %20llu , \"type\" : \"%15[a-z]\" ,%n", &id, type, &at) != 2 ||
	    !at)
		return;
	i = find_message(type);
	if (!c->active || id != c->queue->id || i == ARRAY_LEN(messages) ||
	    !messages[i].may_be_long || !c->queue->ops || !c->queue->ops->on_line)
		return;
	while (line[len - 1] != '}')
		len--;
	buf_reserve(&b, len + sizeof(head));
	buf_add(&b, "{\"type\":\"", 9);
	buf_add(&b, type, strlen(type));
	buf_add(&b, "\",", 2);
	buf_add(&b, line + at, len - 1 - (size_t)at);
	if (messages[i].has_time) {
		json_t *time = e2b_time(unix_ms());

		snprintf(end, sizeof(end), ",\"timestamp\":\"%.40s\"}", json_string_value(time));
		json_decref(time);
	}
	buf_add(&b, end, strlen(end));
	c->queue->ops->on_line(c->queue->arg, buf_head(&b), b.len);
	buf_done(&b);
}

static void take_line(struct context *c, size_t len)
{
	bool is_good = json_scan_is_whole(&c->scan) && buf_head(&c->line)[0] == '{';
	json_t *m =
		is_good && len <= PARSED_MAX ? json_loadb(buf_head(&c->line), len, 0, NULL) : NULL;

	if (is_good && len > PARSED_MAX)
		take_long_line(c, buf_head(&c->line), len);
	buf_drop(&c->line, len + 1);
	c->scanned = 0;
	c->scan = (struct json_scan){0};
	if (json_is_object(m))
		kernel_message(c, m);
	json_decref(m);
}

/* Counts a long line in the owner's share; false: too little of the share is left. */
static bool count_line(struct context *c)
{
	size_t held = c->line.len > UNCOUNTED ? c->line.len : 0;

	if (held > c->counted && !budget_take(c->set->output, held - c->counted))
		return false;
	if (held < c->counted)
		budget_give(c->set->output, c->counted - held);
	c->counted = held;
	return true;
}

/* Bytes are looked at once, when they arrive. A kernel that sends an endless line is killed. */
void kernel_read_lines(void *arg)
{
	struct context *c = arg;
	struct loop *l = c->set->api->loop;
	auto_free char *why = NULL;
	size_t moved;

	while (c->scanned < c->line.len) {
		const char *at = buf_head(&c->line) + c->scanned;
		size_t left = c->line.len - c->scanned;
		const char *end = memchr(at, '\n', left);
		size_t len = end ? (size_t)(end - at) : left;

		json_scan_feed(&c->scan, at, len);
		c->scanned += len;
		if (end)
			take_line(c, c->scanned);
		if (c->scanned < c->line.len && loop_turn_is_over(l)) {
			loop_task_add(l, &c->reading);
			return;
		}
	}
	if (c->line.len > LINE_MAX_BYTES || !count_line(c))
		kernel_signal(c, SIGKILL, true);
	else if (c->line.len == 0)
		buf_done(&c->line);
	moved = c->unmoved;
	c->unmoved = 0;
	pump_moved(&c->pump, moved);
	why = take_ptr(c->ended);
	if (why)
		kernel_process_over(c, why);
}

void kernel_take_bytes(struct context *c, const char *bytes, size_t len)
{
	buf_add(&c->line, bytes, len);
	c->unmoved += len;
	kernel_read_lines(c);
}

void kernel_forget_bytes(struct context *c)
{
	loop_task_remove(c->set->api->loop, &c->reading);
	buf_done(&c->line);
	(void)count_line(c);
	c->scanned = c->unmoved = 0;
	c->scan = (struct json_scan){0};
	free(take_ptr(c->ended));
}

/* ---- executing ---- */

void kernel_next(struct context *c)
{
	auto_free char *text = NULL;

	if (c->active || c->state != READY || !c->exec || c->restarting)
		return;
	while (c->queue && !c->queue->request)
		end_first(c, EXECUTION_DONE, NULL);
	if (!c->queue)
		return;
	text = json_dumps(c->queue->request, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!kernel_sandbox(c->set) || !text) {
		end_first(c, EXECUTION_CUT, "the sandbox is not running");
		return;
	}
	c->active = true;
	buf_add(&c->input, text, strlen(text));
	buf_add(&c->input, "\n", 1);
	kernel_feed(c);
}

static struct execution *execution_new(struct context *c, struct execution **at,
				       const struct execution_ops *ops, void *arg)
{
	struct execution *r = must_alloc(calloc(1, sizeof(*r)));

	*r = (struct execution){
		.next = *at, .context = c, .id = ++c->next_id, .ops = ops, .arg = arg};
	*at = r;
	return r;
}

struct execution *kernel_execute(struct context *c, const char *code, json_t *env,
				 const struct execution_ops *ops, void *arg)
{
	struct execution *r, **last = &c->queue;
	size_t waiting = 0;

	for (; *last; last = &(*last)->next)
		waiting++;
	if (waiting >= QUEUE_MAX)
		return NULL;
	r = execution_new(c, last, ops, arg);
	r->request = must_alloc(
		json_pack("{s:I,s:s,s:s}", "id", (json_int_t)r->id, "op", "execute", "code", code));
	if (env)
		json_object_set(r->request, "env", env);
	if (c->state == READY)
		kernel_next(c);
	else
		kernel_go(c);
	return r;
}

void kernel_start(struct context *c, bool restart, const struct execution_ops *ops, void *arg)
{
	/* Ends before the executions that wait. */
	execution_new(c, c->active ? &c->queue->next : &c->queue, ops, arg);
	if (restart && c->exec) {
		c->restarting = true;
		kernel_signal(c, SIGKILL, true);
	} else {
		kernel_go(c);
	}
}

void kernel_abandon(struct execution *r)
{
	struct context *c = r->context;
	struct execution **p = &c->queue;

	r->ops = NULL;
	if (c->active && c->queue == r) {
		kernel_signal(c, SIGINT, false);
		loop_timer_set(c->set->api->loop, &c->overdue, GRACE_MS);
		pump_resume(&c->pump);
		return;
	}
	while (*p != r)
		p = &(*p)->next;
	*p = r->next;
	execution_end(r, EXECUTION_DONE, NULL);
}
