/* The process behind a context: its files are placed, it is started, fed, heard and ended. */
#include "api/e2b_kernel_inside.h"

#include "base/auto.h"
#include "base/str.h"
#include "model/guest_files.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define START_MS 60000 /* for a process to be ready */
#define GOING_MS 5000  /* for a sandbox to be gone after its link */

struct language {
	const char *name, *program, *file;
};

static const struct language languages[] = {
	{"python", "python3", "kernel.py"},
	{"javascript", "node", "kernel.js"},
	{"bash", "python3", "kernel_bash.py"},
};

static const char *const files[] = {"kernel.py", "kernel_charts.py", "kernel_park.py",
				    "park.py",	 "kernel_bash.py",   "kernel.js"};

static const struct language *language_of(const struct context *c)
{
	size_t i = 0;

	while (!str_equal(languages[i].name, c->language))
		i++;
	return &languages[i];
}

/* ---- its process ---- */

struct sandbox *kernel_sandbox(const struct box *b)
{
	struct sandbox *s = manager_find_any(b->api->manager, b->id);

	return s && sandbox_state(s) == STATE_RUNNING ? s : NULL;
}

void kernel_ignore(void *arg, json_t *value, const struct err *e)
{
	(void)arg, (void)e;
	json_decref(value);
}

void kernel_kill(struct context *c)
{
	struct sandbox *s = kernel_sandbox(c->box);

	if (c->exec && c->eid && s)
		sandbox_signal(s, c->eid, SIGKILL, true, kernel_ignore, NULL);
}

void kernel_credit(struct context *c)
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
	kernel_feed(c); /* of one that was taken up again */
	if (c->doomed || c->restarting)
		kernel_kill(c);
}

static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct context *c = arg;

	(void)seq;
	c->owed += len;
	if (kind == 1) {
		buf_add(&c->line, bytes, len);
		kernel_read_lines(c);
	}
	kernel_credit(c);
}

void kernel_process_reset(struct context *c)
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

	kernel_process_reset(c);
	if (c->doomed) {
		kernel_context_free(c);
		return;
	}
	if (was_starting && !c->restarting) {
		snprintf(e.msg, sizeof(e.msg), "the %s kernel did not start: %s", c->language, why);
		kernel_failed(c, &e);
		return;
	}
	if (c->active)
		kernel_fail_first(c,
				  c->restarting ? "ContextRestarting" : "UnexpectedEndOfExecution",
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

	if (kernel_park_refused(c, e)) {
		kernel_process_reset(c);
		kernel_launch(c);
		return;
	}
	if (e->errnum || (e->kind != ERR_CONFLICT && e->kind != ERR_SYSTEM) || c->doomed) {
		process_over(c, e->msg);
		return;
	}
	/* Its state will say so in a moment; whoever is cut off before would find it running. */
	kernel_process_reset(c);
	loop_timer_set(c->box->api->loop, &c->patience, GOING_MS);
}

/* As much as the guest takes now. */
void kernel_feed(void *arg)
{
	struct context *c = arg;

	while (c->exec && c->input.len) {
		size_t room = exec_room(c->exec), n = c->input.len < room ? c->input.len : room;

		n = n < KERNEL_PIECE ? n : KERNEL_PIECE;
		if (n == 0 || !exec_input(c->exec, buf_head(&c->input), n))
			return;
		buf_drop(&c->input, n);
	}
}

const struct exec_ops kernel_process_ops = {.on_start = on_process,
					    .on_output = on_output,
					    .on_exit = on_process_exit,
					    .on_error = on_process_error,
					    .on_room = kernel_feed};

/* Neither started nor ended in time; or lost, without the sandbox's end. */
void kernel_on_patience(void *arg)
{
	struct context *c = arg;

	if (c->exec) {
		kernel_kill(c);
		return;
	}
	kernel_context_cut(c);
	if (c->active)
		kernel_end_first(c, true);
}

void kernel_env(const struct box *b, const struct sandbox *s, struct list *ret)
{
	list_add(ret, "E2B_SANDBOX=true");
	list_take(ret, str_format("E2B_SANDBOX_ID=%s", b->id));
	list_take(ret, str_format("E2B_TEMPLATE_ID=%s", e2b_data_text(s, "template")));
}

void kernel_launch(struct context *c)
{
	const struct language *l = language_of(c);
	struct sandbox *s = kernel_sandbox(c->box);
	struct exec_request r = {.cwd = c->cwd, .user = "user", .keep = true};
	auto_free char *tag = str_format(KERNEL_TAG "%s:%s", c->id, c->language);
	struct err e = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};

	if (!s) {
		kernel_failed(c, &e);
		return;
	}
	if (kernel_park_takes(c, s)) {
		if (c->state == WAITING)
			return;
		r.park = c->box->park.eid;
	}
	list_add(&r.argv, l->program);
	list_take(&r.argv, str_format(KERNEL_DIR "/%s", l->file));
	kernel_env(c->box, s, &r.env);
	r.tag = tag;
	c->state = STARTING;
	loop_timer_set(c->box->api->loop, &c->patience, START_MS);
	c->exec = exec_start(s, &r, &kernel_process_ops, c);
	list_done(&r.argv);
	list_done(&r.env);
}

/* ---- placing the files ---- */

static void place_next(struct box *b);

static void after_placing(struct box *b, const struct err *e)
{
	struct context *c, *next;

	b->placed = !e;
	if (!e)
		kernel_park_placed(b);
	for (c = b->contexts; c; c = next) {
		next = c->next;
		if (c->state != PLACING)
			continue;
		if (e)
			kernel_failed(c, e);
		else
			kernel_launch(c);
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
	for (size_t at = 0; at < f->size; at += KERNEL_PIECE)
		if (!call_send(b->placing, f->bytes + at,
			       f->size - at < KERNEL_PIECE ? f->size - at : KERNEL_PIECE))
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
	struct sandbox *s = kernel_sandbox(b);
	auto_free char *path = NULL;
	struct buf p = {0};

	while (b->file < ARRAY_LEN(files) && !guest_file_find(files[b->file]))
		b->file++;
	if (b->file == ARRAY_LEN(files)) {
		after_placing(b, NULL);
		return;
	}
	path = str_format(KERNEL_DIR "/%s", files[b->file]);
	pack_str(&p, path);
	pack_u32(&p, 0644);
	pack_u64(&p, UINT64_MAX);
	pack_u8(&p, 1);
	b->placing = s ? sandbox_call(s, G_WRITE, buf_head(&p), p.len, &ops, b) : NULL;
	buf_done(&p);
	if (!b->placing)
		after_placing(b, &e);
}

void kernel_place(struct box *b)
{
	if (b->placing)
		return;
	b->file = 0;
	place_next(b);
}

void kernel_go(struct context *c)
{
	struct box *b = c->box;

	if (c->state != IDLE)
		return;
	if (b->placed) {
		kernel_launch(c);
		return;
	}
	c->state = PLACING;
	kernel_place(b);
}
