/*
 * Theory of operation. A box is what one sandbox has of kernels; it watches the sandbox's state and
 * goes with it. The kernels' files are placed once per box, then processes are started as they are
 * needed: IDLE -> PLACING -> STARTING -> READY, back to IDLE when the process ends. Executions stand
 * in their context's queue; the first one is with the kernel if `active`. What the kernel says is
 * bytes from inside: bounded, parsed, and put together anew.
 */
#include "api/e2b_kernel.h"

#include "base/auto.h"
#include "base/str.h"
#include "model/guest_files.h"
#include "policy/config.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DIR_INSIDE "/tmp/.cloche"
#define LINE_MAX_BYTES (9u << 20)
#define QUEUE_MAX 128
#define PIECE (32u << 10)
#define CONTEXTS_MAX 32
#define GRACE_MS 20000 /* for an interrupted execution to end */
#define START_MS 60000 /* for a process to be ready */
#define GOING_MS 5000  /* for a sandbox to be gone after its link */

enum kernel_state { IDLE, PLACING, STARTING, READY };

struct execution {
	struct execution *next;
	struct context *context;
	uint64_t id;
	json_t *request;
	const struct execution_ops *ops; /* NULL: abandoned */
	void *arg;
};

struct readiness {
	struct readiness *next;
	kernel_ready done;
	void *arg;
};

struct context {
	struct context *next;
	struct box *box;
	char id[40];
	const char *language;
	char *cwd;
	enum kernel_state state;
	bool active, doomed, restarting;
	struct exec *exec;
	uint32_t eid;
	struct buf line, input; /* from it, and for it */
	size_t owed;
	uint64_t next_id;
	struct execution *queue;
	struct readiness *awaited;
	struct loop_timer patience;
};

struct box {
	struct box *next;
	struct api *api;
	char id[IPC_ID];
	struct waiter *wait;
	struct context *contexts;
	bool placed;
	struct call *placing;
	size_t file; /* being placed */
};

struct language {
	const char *name, *alias, *program, *file;
};

static const struct language languages[] = {
	{"python", "py", "python3", "kernel.py"},
	{"javascript", "js", "node", "kernel.js"},
	{"bash", "sh", "python3", "kernel_bash.py"},
};

static const char *const files[] = {"kernel.py", "kernel_charts.py", "kernel_bash.py", "kernel.js"};

static void kernel_go(struct context *c);
static void next_execution(struct context *c);

const char *kernel_language(const char *name)
{
	if (!name || !*name)
		return "python";
	for (size_t i = 0; i < ARRAY_LEN(languages); i++)
		if (!strcasecmp(name, languages[i].name) || !strcasecmp(name, languages[i].alias))
			return languages[i].name;
	return NULL;
}

static const struct language *language_of(const struct context *c)
{
	size_t i = 0;

	while (!str_equal(languages[i].name, c->language))
		i++;
	return &languages[i];
}

/* ---- executions ---- */

static void say(struct execution *r, json_t *o)
{
	auto_free char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	json_decref(o);
	if (text && r->ops)
		r->ops->on_line(r->arg, text, strlen(text));
}

static void execution_free(struct execution *r)
{
	json_decref(r->request);
	free(r);
}

/* Takes the first one out of the queue and ends it. */
static void end_first(struct context *c, bool cut)
{
	struct execution *r = c->queue;

	c->queue = r->next;
	c->active = false;
	loop_timer_stop(c->box->api->loop, &c->patience);
	if (r->ops)
		r->ops->on_end(r->arg, cut);
	execution_free(r);
}

static void fail_first(struct context *c, const char *name, const char *value)
{
	say(c->queue, json_pack("{s:s,s:s,s:s,s:s}", "type", "error", "name", name, "value", value,
				"traceback", ""));
	say(c->queue, json_pack("{s:s}", "type", "end_of_execution"));
	end_first(c, false);
}

static void tell_ready(struct context *c, const struct err *e)
{
	struct readiness *all = take_ptr(c->awaited);

	/* What is told may be answered by removing the context. */
	while (all) {
		struct readiness *a = all;

		all = a->next;
		a->done(a->arg, e);
		free(a);
	}
}

/* It cannot work: everybody who waits for it is told. */
static void kernel_failed(struct context *c, const struct err *e)
{
	c->state = IDLE;
	loop_timer_stop(c->box->api->loop, &c->patience);
	while (c->queue)
		fail_first(c, "KernelNotAvailable", e->msg);
	tell_ready(c, e);
}

/* ---- what the kernel says ---- */

static json_t *now_json(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return e2b_time((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

static void on_started(struct execution *r, const json_t *m)
{
	say(r, json_pack("{s:s,s:I}", "type", "number_of_executions", "execution_count",
			 json_integer_value(json_object_get(m, "execution_count"))));
}

static void on_text(struct execution *r, const json_t *m)
{
	say(r, json_pack("{s:O,s:O,s:o}", "type", json_object_get(m, "type"), "text",
			 json_object_get(m, "text"), "timestamp", now_json()));
}

/* The names are the same; the id is ours alone. */
static void on_result(struct execution *r, const json_t *m)
{
	json_t *o = json_copy((json_t *)m);

	json_object_del(o, "id");
	say(r, o);
}

static void on_end_of(struct execution *r, const json_t *m)
{
	struct context *c = r->context;

	(void)m;
	say(r, json_pack("{s:s}", "type", "end_of_execution"));
	end_first(c, false);
	next_execution(c);
}

static void on_bad_request(struct execution *r, const json_t *m)
{
	const char *why = json_string_value(json_object_get(m, "message"));
	struct context *c = r->context;

	fail_first(c, "BadRequest", why ? why : "the kernel did not take the request");
	next_execution(c);
}

static const struct {
	const char *type;
	void (*take)(struct execution *r, const json_t *m);
} messages[] = {
	{"started", on_started},	 {"stdout", on_text},  {"stderr", on_text},
	{"result", on_result},		 {"error", on_result}, {"end", on_end_of},
	{"bad_request", on_bad_request},
};

static void on_message(struct context *c, const json_t *m)
{
	const char *type = json_string_value(json_object_get(m, "type"));
	const json_t *id = json_object_get(m, "id");

	if (!type)
		return;
	if (c->state == STARTING && str_equal(type, "ready")) {
		c->state = READY;
		loop_timer_stop(c->box->api->loop, &c->patience);
		next_execution(c);
		tell_ready(c, NULL);
		return;
	}
	if (!c->active || (uint64_t)json_integer_value(id) != c->queue->id)
		return;
	for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
		if (str_equal(messages[i].type, type)) {
			messages[i].take(c->queue, m);
			return;
		}
	}
}

static void kill_process(struct context *c);

/* Whole lines; a line that has no end is not the kernel's. */
static void read_lines(struct context *c)
{
	char *end;

	while (c->line.len && (end = memchr(buf_head(&c->line), '\n', c->line.len))) {
		size_t len = (size_t)(end - buf_head(&c->line)) + 1;
		json_t *m = json_loadb(buf_head(&c->line), len - 1, 0, NULL);

		buf_drop(&c->line, len);
		if (json_is_object(m))
			on_message(c, m);
		json_decref(m);
	}
	if (c->line.len > LINE_MAX_BYTES)
		kill_process(c);
	else if (c->line.len == 0)
		buf_done(&c->line);
}

/* ---- its process ---- */

static struct sandbox *sandbox_of(const struct box *b)
{
	struct sandbox *s = manager_find_any(b->api->manager, b->id);

	return s && sandbox_state(s) == STATE_RUNNING ? s : NULL;
}

static void ignore(void *arg, json_t *value, const struct err *e)
{
	(void)arg, (void)e;
	json_decref(value);
}

static void kill_process(struct context *c)
{
	struct sandbox *s = sandbox_of(c->box);

	if (c->exec && c->eid && s)
		sandbox_signal(s, c->eid, SIGKILL, true, ignore, NULL);
}

static void give_credit(struct context *c)
{
	const struct execution *r = c->active ? c->queue : NULL;
	size_t owed = c->owed;

	if (!c->exec || !owed || (r && r->ops && !r->ops->has_room(r->arg)))
		return;
	c->owed = 0;
	exec_credit(c->exec, owed);
}

static void on_process(void *arg, uint32_t eid, uint32_t pid)
{
	struct context *c = arg;

	(void)pid;
	c->eid = eid;
	if (c->doomed || c->restarting)
		kill_process(c);
}

static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct context *c = arg;

	(void)seq;
	c->owed += len;
	if (kind == 1) {
		buf_add(&c->line, bytes, len);
		read_lines(c);
	}
	give_credit(c);
}

static void context_free(struct context *c)
{
	struct context **p = &c->box->contexts;

	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
	loop_timer_stop(c->box->api->loop, &c->patience);
	buf_done(&c->line);
	buf_done(&c->input);
	free(c->cwd);
	free(c);
}

/* Nobody listens any more. The one that is with the kernel goes on in silence. */
static void context_cut(struct context *c)
{
	struct err e = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};
	struct execution *r, **rest;

	tell_ready(c, &e);
	if (c->active && c->queue->ops) {
		c->queue->ops->on_end(c->queue->arg, true);
		c->queue->ops = NULL;
	}
	rest = c->active ? &c->queue->next : &c->queue;
	while ((r = *rest)) {
		*rest = r->next;
		if (r->ops)
			r->ops->on_end(r->arg, true);
		execution_free(r);
	}
}

static void process_reset(struct context *c)
{
	c->exec = NULL;
	c->eid = 0;
	c->owed = 0;
	buf_done(&c->line);
	buf_done(&c->input);
	c->state = IDLE;
	loop_timer_stop(c->box->api->loop, &c->patience);
}

/* It has ended by itself, was killed, or was never there. */
static void process_over(struct context *c, const char *why)
{
	bool was_starting = c->state == STARTING;
	struct err e = {.kind = ERR_UNSUPPORTED};

	process_reset(c);
	if (c->doomed) {
		context_free(c);
		return;
	}
	if (was_starting && !c->restarting) {
		snprintf(e.msg, sizeof(e.msg), "the %s kernel did not start: %s", c->language, why);
		kernel_failed(c, &e);
		return;
	}
	if (c->active)
		fail_first(c, c->restarting ? "ContextRestarting" : "UnexpectedEndOfExecution",
			   c->restarting ? "Context was restarted"
					 : "The kernel ended before the execution did");
	c->restarting = false;
	if (c->queue || c->awaited)
		kernel_go(c);
}

static void on_process_exit(void *arg, const struct exec_exit *x)
{
	process_over(arg, x->exec_errno ? strerror(x->exec_errno) : "it ended at once");
}

/* Without the guest's word: the sandbox itself is going. */
static void on_process_error(void *arg, const struct err *e)
{
	struct context *c = arg;

	if (e->errnum || (e->kind != ERR_CONFLICT && e->kind != ERR_SYSTEM) || c->doomed) {
		process_over(c, e->msg);
		return;
	}
	/* Its state will say so in a moment; whoever is cut off before would find it running. */
	process_reset(c);
	loop_timer_set(c->box->api->loop, &c->patience, GOING_MS);
}

/* As much as the guest takes now. */
static void feed(void *arg)
{
	struct context *c = arg;

	while (c->exec && c->input.len) {
		size_t room = exec_room(c->exec), n = c->input.len < room ? c->input.len : room;

		n = n < PIECE ? n : PIECE;
		if (n == 0 || !exec_input(c->exec, buf_head(&c->input), n))
			return;
		buf_drop(&c->input, n);
	}
}

static const struct exec_ops process_ops = {.on_start = on_process,
					    .on_output = on_output,
					    .on_exit = on_process_exit,
					    .on_error = on_process_error,
					    .on_room = feed};

/* Neither started nor ended in time; or lost, without the sandbox's end. */
static void on_patience(void *arg)
{
	struct context *c = arg;

	if (c->exec) {
		kill_process(c);
		return;
	}
	context_cut(c);
	if (c->active)
		end_first(c, true);
}

static void launch(struct context *c)
{
	const struct language *l = language_of(c);
	struct sandbox *s = sandbox_of(c->box);
	struct exec_request r = {.cwd = c->cwd, .user = "user", .keep = true};
	auto_free char *tag = str_format(E2B_HIDDEN_TAG "kernel:%s", c->id);
	struct err e = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};

	if (!s) {
		kernel_failed(c, &e);
		return;
	}
	list_add(&r.argv, l->program);
	list_take(&r.argv, str_format(DIR_INSIDE "/%s", l->file));
	list_add(&r.env, "E2B_SANDBOX=true");
	list_take(&r.env, str_format("E2B_SANDBOX_ID=%s", c->box->id));
	list_take(&r.env, str_format("E2B_TEMPLATE_ID=%s", e2b_data_text(s, "template")));
	r.tag = tag;
	c->state = STARTING;
	loop_timer_set(c->box->api->loop, &c->patience, START_MS);
	c->exec = exec_start(s, &r, &process_ops, c);
	list_done(&r.argv);
	list_done(&r.env);
}

/* ---- placing the files ---- */

static void place_next(struct box *b);

static void after_placing(struct box *b, const struct err *e)
{
	struct context *c, *next;

	b->placed = !e;
	for (c = b->contexts; c; c = next) {
		next = c->next;
		if (c->state != PLACING)
			continue;
		if (e)
			kernel_failed(c, e);
		else
			launch(c);
	}
}

static void on_place_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct box *b = arg;
	const struct guest_file *f = guest_file_find(files[b->file]);

	(void)payload, (void)len;
	if (type != G_OK || !f)
		return;
	/* They are far smaller than the window. */
	for (size_t at = 0; at < f->size; at += PIECE)
		if (!call_send(b->placing, f->bytes + at,
			       f->size - at < PIECE ? f->size - at : PIECE))
			return;
	call_close(b->placing);
}

static void on_place_end(void *arg, const struct err *e)
{
	struct box *b = arg;

	b->placing = NULL;
	if (e) {
		after_placing(b, e);
		return;
	}
	b->file++;
	place_next(b);
}

static void place_next(struct box *b)
{
	static const struct call_ops ops = {.on_frame = on_place_frame, .on_end = on_place_end};
	struct err e = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};
	struct sandbox *s = sandbox_of(b);
	auto_free char *path = NULL;
	struct buf p = {0};

	while (b->file < ARRAY_LEN(files) && !guest_file_find(files[b->file]))
		b->file++;
	if (b->file == ARRAY_LEN(files)) {
		after_placing(b, NULL);
		return;
	}
	path = str_format(DIR_INSIDE "/%s", files[b->file]);
	pack_str(&p, path);
	pack_u32(&p, 0644);
	pack_u64(&p, UINT64_MAX);
	pack_u8(&p, 1);
	b->placing = s ? sandbox_call(s, G_WRITE, buf_head(&p), p.len, &ops, b) : NULL;
	buf_done(&p);
	if (!b->placing)
		after_placing(b, &e);
}

static void kernel_go(struct context *c)
{
	struct box *b = c->box;

	if (c->state != IDLE)
		return;
	if (b->placed) {
		launch(c);
		return;
	}
	c->state = PLACING;
	if (!b->placing) {
		b->file = 0;
		place_next(b);
	}
}

/* ---- boxes ---- */

static void box_free(struct box *b)
{
	struct box **p = &e2b_state_of(b->api)->boxes;

	while (*p && *p != b)
		p = &(*p)->next;
	if (*p)
		*p = b->next;
	if (b->wait)
		sandbox_unwait(b->wait);
	if (b->placing)
		call_drop(b->placing);
	while (b->contexts) {
		struct context *c = b->contexts;

		context_cut(c);
		if (c->active)
			end_first(c, true);
		if (c->exec)
			exec_detach(c->exec);
		context_free(c);
	}
	free(b);
}

static void on_state(void *arg, struct sandbox *s)
{
	struct box *b = arg;

	if (sandbox_state(s) == STATE_PAUSED)
		for (struct context *c = b->contexts; c; c = c->next)
			context_cut(c);
	else if (sandbox_state(s) != STATE_RUNNING)
		box_free(arg);
}

static struct box *box_of(struct api *api, struct sandbox *s)
{
	struct box **head = &e2b_state_of(api)->boxes;
	struct box *b = *head;

	while (b && !str_equal(b->id, sandbox_id(s)))
		b = b->next;
	if (b)
		return b;
	b = must_alloc(calloc(1, sizeof(*b)));
	b->api = api;
	snprintf(b->id, sizeof(b->id), "%s", sandbox_id(s));
	b->next = *head;
	*head = b;
	b->wait = sandbox_wait(s, on_state, b);
	return b;
}

/* ---- contexts ---- */

static struct context *context_new(struct box *b, const char *id, const char *language,
				   const char *cwd)
{
	struct context *c = must_alloc(calloc(1, sizeof(*c))), **last = &b->contexts;

	c->box = b;
	snprintf(c->id, sizeof(c->id), "%s", id);
	c->language = language;
	c->cwd = str_copy(cwd);
	c->patience = (struct loop_timer){.call = on_patience, .arg = c};
	while (*last)
		last = &(*last)->next;
	*last = c;
	return c;
}

struct context *kernel_find(struct api *api, struct sandbox *s, const char *id)
{
	struct box *b = box_of(api, s);
	struct context *c = b->contexts;

	while (c && (c->doomed || !str_equal(c->id, id)))
		c = c->next;
	/* The ones that are always there are called by their language. */
	if (!c && (str_equal(id, "python") || str_equal(id, "javascript")))
		c = context_new(b, id, kernel_language(id), "/home/user");
	return c;
}

struct context *kernel_default(struct api *api, struct sandbox *s, const char *language)
{
	struct context *c = kernel_find(api, s, language);

	return c ? c : context_new(box_of(api, s), language, language, "/home/user");
}

struct context *kernel_new(struct api *api, struct sandbox *s, const char *language,
			   const char *cwd, struct err *e)
{
	struct box *b = box_of(api, s);
	size_t count = 0, most = api->config->warm.kernels;
	unsigned char random[16];
	char id[40];

	for (const struct context *c = b->contexts; c; c = c->next)
		count += !c->doomed;
	if (count >= (most ? most : CONTEXTS_MAX)) {
		err_set(e, ERR_LIMIT, "this sandbox has %zu contexts, which is all it may have",
			count);
		return NULL;
	}
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(id, sizeof(id), random, sizeof(random));
	return context_new(b, id, language, cwd);
}

json_t *kernel_describe(const struct context *c)
{
	return must_alloc(
		json_pack("{s:s,s:s,s:s}", "id", c->id, "language", c->language, "cwd", c->cwd));
}

json_t *kernel_list(struct api *api, struct sandbox *s)
{
	static const char *const always[] = {"python", "javascript"};
	json_t *all = must_alloc(json_array());

	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		json_array_append_new(all, kernel_describe(kernel_default(api, s, always[i])));
	for (const struct context *c = box_of(api, s)->contexts; c; c = c->next)
		if (!c->doomed && !str_equal(c->id, "python") && !str_equal(c->id, "javascript"))
			json_array_append_new(all, kernel_describe(c));
	return all;
}

void kernel_remove(struct context *c)
{
	struct err e = {.kind = ERR_NOT_FOUND, .msg = "the context was removed"};

	c->doomed = true;
	tell_ready(c, &e);
	while (c->queue)
		fail_first(c, "ContextRemoved", "The context was removed");
	if (c->exec)
		kill_process(c);
	else
		context_free(c);
}

static void later_ready(struct context *c, kernel_ready done, void *arg)
{
	struct readiness *a = must_alloc(calloc(1, sizeof(*a))), **last = &c->awaited;

	*a = (struct readiness){.done = done, .arg = arg};
	while (*last)
		last = &(*last)->next;
	*last = a;
}

void kernel_start(struct context *c, bool restart, kernel_ready done, void *arg)
{
	if (c->state == READY && !restart) {
		done(arg, NULL);
		return;
	}
	later_ready(c, done, arg);
	if (restart && c->exec) {
		c->restarting = true;
		kill_process(c);
		return;
	}
	kernel_go(c);
}

/* ---- executing ---- */

static void next_execution(struct context *c)
{
	auto_free char *text = NULL;
	struct sandbox *s;

	if (c->active || !c->queue || c->state != READY || !c->exec || c->restarting)
		return;
	s = sandbox_of(c->box);
	text = json_dumps(c->queue->request, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!s || !text) {
		end_first(c, true);
		return;
	}
	c->active = true;
	buf_add(&c->input, text, strlen(text));
	buf_add(&c->input, "\n", 1);
	feed(c);
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
	r = must_alloc(calloc(1, sizeof(*r)));
	*r = (struct execution){.context = c, .id = ++c->next_id, .ops = ops, .arg = arg};
	r->request = must_alloc(
		json_pack("{s:I,s:s,s:s}", "id", (json_int_t)r->id, "op", "execute", "code", code));
	if (env)
		json_object_set(r->request, "env", env);
	*last = r;
	if (c->state == READY)
		next_execution(c);
	else
		kernel_go(c);
	return r;
}

void kernel_abandon(struct execution *r)
{
	struct context *c = r->context;
	struct sandbox *s = sandbox_of(c->box);
	struct execution **p = &c->queue;

	r->ops = NULL;
	if (c->active && c->queue == r) {
		if (s)
			sandbox_signal(s, c->eid, SIGINT, false, ignore, NULL);
		loop_timer_set(c->box->api->loop, &c->patience, GRACE_MS);
		give_credit(c);
		return;
	}
	while (*p != r)
		p = &(*p)->next;
	*p = r->next;
	execution_free(r);
}

void kernel_room(struct execution *r)
{
	give_credit(r->context);
}
