/*
 * The process behind a context: writing its files into the sandbox, starting, feeding, reading and
 * ending it. A Python kernel is a copy of the set's prefork, made by the guest (guest/exec/prefork.c).
 * The prefork is started with the sandbox if kernels are to be expected, else with the first context,
 * which waits for it: that takes no longer than starting a kernel.
 */
#include "api/e2b/kernel_internal.h"

#include "calls/calls.h"
#include "model/guest_files.h"
#include "policy/config.h"

#define START_MS 60000 /* for a process to be ready */
#define GOING_MS 5000  /* between the loss of the link and the new state of the sandbox */

#define DIR "/tmp/.cloche"

/* Modules that the prefork loads if they are installed, besides those of the settings. */
static const char *const usual_modules[] = {"numpy", "pandas", "matplotlib.pyplot"};

static const char *const files[] = {"kernel.py",	"kernel_magics.py",  "kernel_ipython.py",
				    "kernel_charts.py", "kernel_prefork.py", "prefork.py",
				    "kernel_bash.py",	"kernel.js"};

/* ---- the running process ---- */

struct sandbox *kernel_sandbox(const struct kernel_set *k)
{
	return e2b_running(k->api, k->id);
}

static void ignore_answer(void *arg, json_t *value, const struct err *e)
{
	(void)arg, (void)e;
	json_decref(value);
}

void kernel_signal(struct context *c, int sig, bool tree)
{
	struct sandbox *s = kernel_sandbox(c->set);

	if (c->exec && c->eid && s)
		sandbox_signal(s, c->eid, sig, tree, ignore_answer, NULL);
}

static size_t room_of(void *to)
{
	const struct context *c = to;
	const struct execution *r = c->active ? c->queue : NULL;

	return r && r->ops ? r->ops->room(r->arg) : 1;
}

void kernel_watch(struct context *c, struct exec *exec)
{
	c->exec = exec;
	c->pump = (struct pump){.room = room_of, .to = c, .credit = exec_credit, .from = exec};
}

static void kernel_process_started(void *arg, uint32_t eid, uint32_t pid)
{
	struct context *c = arg;

	c->eid = eid;
	kernel_feed(c); /* input that waited while the process was being attached */
	if (c->doomed || c->restarting)
		kernel_signal(c, SIGKILL, true);
}

static void kernel_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct context *c = arg;

	if (kind == 1)
		kernel_take_bytes(c, bytes, len);
	else
		pump_moved(&c->pump, len);
}

static void process_reset(struct context *c)
{
	kernel_watch(c, NULL);
	c->eid = 0;
	kernel_forget_bytes(c);
	buf_done(&c->input);
	c->state = IDLE;
	loop_timer_stop(c->set->api->loop, &c->overdue);
}

static void kernel_launch(struct context *c);

/* The kernel cannot work: fails every execution that waits for it. */
static void kernel_failed(struct context *c, const char *why)
{
	c->state = IDLE;
	loop_timer_stop(c->set->api->loop, &c->overdue);
	kernel_fail_all(c, "KernelNotAvailable", why);
}

void kernel_process_over(struct context *c, const char *why)
{
	bool was_starting = c->state == STARTING;
	auto_free char *text = NULL;

	c->is_telling = false;
	process_reset(c);
	if (c->doomed) {
		kernel_context_free(c);
		return;
	}
	if (was_starting && !c->restarting) {
		text = str_format("the %s kernel did not start: %.500s", c->language->name, why);
		kernel_failed(c, text);
		return;
	}
	if (c->active)
		kernel_fail_first(c,
				  c->restarting ? "ContextRestarting" : "UnexpectedEndOfExecution",
				  c->restarting ? "Context was restarted"
						: "The kernel ended before the execution did");
	c->restarting = false;
	if (c->queue)
		kernel_go(c);
}

static void on_process_exit(void *arg, const struct outcome *x)
{
	const char *why = x->exec_errno ? strerror(x->exec_errno) : "it ended at once";
	struct context *c = arg;

	if (!c->reading.back) {
		kernel_process_over(c, why);
		return;
	}
	/* Some of its last lines are still to be read. */
	kernel_watch(c, NULL);
	c->is_telling = true;
	c->ended = str_copy(why);
}

/* The process ended without an exit status; mostly because the sandbox is going away. */
static void on_process_error(void *arg, const struct err *e)
{
	struct context *c = arg;

	/* The prefork made no copy: start a process of its own instead. */
	if (c->is_copy && !c->eid && e->errnum == EAGAIN && !c->doomed) {
		c->was_refused = true;
		c->set->prefork.failures++;
		process_reset(c);
		kernel_launch(c);
		return;
	}
	if (e->errnum || (e->kind != ERR_CONFLICT && e->kind != ERR_SYSTEM) || c->doomed) {
		kernel_process_over(c, e->msg);
		return;
	}
	/* Wait for the new state: a client that is cut off now would find the sandbox running. */
	process_reset(c);
	loop_timer_set(c->set->api->loop, &c->overdue, GOING_MS);
}

/* Sends as much of the input as the guest takes now. */
void kernel_feed(void *arg)
{
	struct context *c = arg;

	if (c->exec && c->input.len)
		buf_drop(&c->input, exec_push(c->exec, buf_head(&c->input), c->input.len));
}

const struct exec_ops kernel_process_ops = {.on_start = kernel_process_started,
					    .on_output = kernel_output,
					    .on_exit = on_process_exit,
					    .on_error = on_process_error,
					    .on_room = kernel_feed};

/* The process did not start or end in time, or only its link is lost. */
void kernel_on_overdue(void *arg)
{
	struct context *c = arg;

	if (c->exec)
		kernel_signal(c, SIGKILL, true);
	else
		kernel_cut_all(c, true);
}

/* ---- starting a process ---- */

static bool can_prefork(const struct kernel_set *k)
{
	return k->api->config->warm.kernels > 0 && !prefork_is_hopeless(&k->prefork);
}

static void start_prefork(struct kernel_set *k, struct sandbox *s)
{
	const struct config_warm *w = &k->api->config->warm;
	struct prefork_program what = {.request = {.cwd = "/home/user",
						   .user = "user",
						   .tag = KERNEL_PREFORK_TAG,
						   .keep = true}};
	struct exec_request *r = &what.request;

	list_add(&r->argv, "python3");
	list_add(&r->argv, DIR "/kernel_prefork.py");
	for (uint32_t i = 0; i < w->preload_count; i++)
		list_add(&r->argv, w->preload[i]);
	for (size_t i = 0; i < ARRAY_LEN(usual_modules); i++)
		list_add(&r->argv, usual_modules[i]);
	e2b_env(s, &r->env);
	prefork_start(&k->prefork, s, &what);
	list_done(&r->argv);
	list_done(&r->env);
}

/* The files are in place. A kernel that is to be a copy waits for the prefork. */
static void kernel_launch(struct context *c)
{
	struct prefork *prefork = &c->set->prefork;
	struct sandbox *s = kernel_sandbox(c->set);
	struct exec_request r = {.cwd = c->cwd, .user = "user", .keep = true};
	struct caller owner = {0};
	auto_free char *tag = str_format(KERNEL_TAG "%s:%s", c->id, c->language->name);

	if (!s) {
		kernel_failed(c, "the sandbox is not running");
		return;
	}
	c->is_copy =
		str_equal(c->language->name, "python") && !c->was_refused && can_prefork(c->set);
	if (c->is_copy && prefork->state == PREFORK_NONE)
		start_prefork(c->set, s);
	if (c->is_copy && prefork->state != PREFORK_READY) {
		c->state = WAITING;
		return;
	}
	r.prefork = c->is_copy ? prefork->eid : 0;
	list_add(&r.argv, c->language->program);
	list_take(&r.argv, str_format(DIR "/%s", c->language->file));
	e2b_env(s, &r.env);
	r.tag = tag;
	c->state = STARTING;
	loop_timer_set(c->set->api->loop, &c->overdue, START_MS);
	sandbox_act_as_owner(s, &owner);
	kernel_watch(c, exec_start(s, &owner, &r, &kernel_process_ops, c));
	list_done(&r.argv);
	list_done(&r.env);
}

/* Launches the contexts that wait, or fails them with why. */
static void launch_waiting(struct kernel_set *k, const char *why)
{
	struct context *c, *next;

	for (c = k->contexts; c; c = next) {
		next = c->next;
		if (c->state == WAITING && why)
			kernel_failed(c, why);
		else if (c->state == WAITING && k->placed)
			kernel_launch(c);
	}
}

void kernel_on_prefork(void *arg)
{
	launch_waiting(arg, NULL);
}

/* ---- placing the files ---- */

/* Writes one file after the other: called again when one is written. */
static void place_next(void *arg, const struct answer *a, const struct err *e)
{
	struct err stopped = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};
	struct kernel_set *k = arg;
	struct sandbox *s = kernel_sandbox(k);
	const struct guest_file *f = NULL;
	char path[64];

	k->placing = NULL;
	k->file += a ? 1 : 0;
	while (!e && k->file < ARRAY_LEN(files) && !(f = guest_file_find(files[k->file])))
		k->file++;
	if (f && s) {
		struct file_put put = {.path = path,
				       .mode = 0644,
				       .bytes = (const char *)f->bytes,
				       .len = f->size};

		snprintf(path, sizeof(path), DIR "/%s", files[k->file]);
		k->placing = call_put(s, &put, place_next, k);
		return;
	}
	e = f ? &stopped : e;
	k->placed = !e;
	if (!e && k->is_prefork_wanted && k->prefork.state == PREFORK_NONE && can_prefork(k) && s)
		start_prefork(k, s);
	launch_waiting(k, e ? e->msg : NULL);
}

void kernel_place(struct kernel_set *k)
{
	if (k->placing)
		return;
	k->file = 0;
	place_next(k, NULL, NULL);
}

void kernel_go(struct context *c)
{
	struct kernel_set *k = c->set;

	if (c->state != IDLE)
		return;
	if (k->placed) {
		kernel_launch(c);
		return;
	}
	c->state = WAITING;
	kernel_place(k);
}
