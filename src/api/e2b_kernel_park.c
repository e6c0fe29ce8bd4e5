/*
 * The parked process of a box (guest/python/kernel_park.py): it has loaded what kernels need, and those
 * of Python are copies of it, made by the guest (guest/park.h). It is started with the sandbox if kernels
 * are to be expected, else with the first context, which waits for it: that takes no longer than
 * starting a kernel. One that does not work is a loss of time, nothing else.
 */
#include "api/e2b_kernel_inside.h"

#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <errno.h>
#include <signal.h>

#define START_MS 30000
#define FAILURES_MAX 3
#define CHANGED 3 /* its exit status: it would load other modules today */

/* Loaded besides those of the configuration, where they are installed. */
static const char *const usual[] = {"numpy", "pandas", "matplotlib.pyplot"};

/* Those who wait for it go on, with it or without. */
static void wake(struct box *b)
{
	struct context *c, *next;

	for (c = b->contexts; c; c = next) {
		next = c->next;
		if (c->state == WAITING)
			kernel_launch(c);
	}
}

static void lose(struct box *b, bool is_failure)
{
	loop_timer_stop(b->api->loop, &b->park.patience);
	b->park.state = PARK_NONE;
	b->park.exec = NULL;
	b->park.eid = 0;
	b->park.failures += is_failure;
}

static void on_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct box *b = arg;

	(void)pid;
	b->park.eid = eid;
}

/* Its first word is that it is ready; what else it may say does not matter. */
static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct box *b = arg;

	(void)seq, (void)bytes;
	exec_credit(b->park.exec, len);
	if (kind != 1 || b->park.state != PARK_STARTING)
		return;
	b->park.state = PARK_READY;
	loop_timer_stop(b->api->loop, &b->park.patience);
	wake(b);
}

static void on_patience(void *arg)
{
	struct box *b = arg;
	struct sandbox *s = kernel_sandbox(b);

	if (s && b->park.eid)
		sandbox_signal(s, b->park.eid, SIGKILL, true, kernel_ignore, NULL);
}

/* Another is started when it is needed, by whoever waits for this one perhaps. */
static void on_exit_(void *arg, const struct exec_exit *x)
{
	struct box *b = arg;

	lose(b, x->exit_code != CHANGED);
	wake(b);
}

static void on_error(void *arg, const struct err *e)
{
	struct box *b = arg;

	(void)e;
	lose(b, true);
	wake(b);
}

static const struct exec_ops ops = {
	.on_start = on_start, .on_output = on_output, .on_exit = on_exit_, .on_error = on_error};

static void start(struct box *b, struct sandbox *s)
{
	const struct config_warm *w = &b->api->config->warm;
	struct exec_request r = {.cwd = "/home/user",
				 .user = "user",
				 .tag = KERNEL_PARK_TAG,
				 .keep = true,
				 .no_stdin = true,
				 .parks = true};

	list_add(&r.argv, "python3");
	list_add(&r.argv, KERNEL_DIR "/kernel_park.py");
	for (uint32_t i = 0; i < w->preload_count; i++)
		list_add(&r.argv, w->preload[i]);
	for (size_t i = 0; i < ARRAY_LEN(usual); i++)
		list_add(&r.argv, usual[i]);
	kernel_env(b, s, &r.env);
	b->park.state = PARK_STARTING;
	b->park.patience = (struct loop_timer){.call = on_patience, .arg = b};
	loop_timer_set(b->api->loop, &b->park.patience, START_MS);
	b->park.exec = exec_start(s, &r, &ops, b);
	list_done(&r.argv);
	list_done(&r.env);
}

static bool may_be(const struct box *b)
{
	return b->api->config->warm.kernels > 0 && b->park.failures < FAILURES_MAX;
}

void park_placed(struct box *b)
{
	struct sandbox *s = kernel_sandbox(b);

	if (b->park.is_wanted && b->park.state == PARK_NONE && may_be(b) && s)
		start(b, s);
}

bool park_takes(struct context *c, struct sandbox *s)
{
	struct box *b = c->box;

	c->is_copy = false;
	if (!str_equal(c->language, "python") || c->was_refused || !may_be(b))
		return false;
	if (b->park.state == PARK_NONE)
		start(b, s);
	c->is_copy = b->park.state == PARK_READY;
	c->state = c->is_copy ? STARTING : WAITING;
	return true;
}

bool park_refused(struct context *c, const struct err *e)
{
	if (!c->is_copy || c->eid || e->errnum != EAGAIN || c->doomed)
		return false;
	c->was_refused = true;
	c->box->park.failures++;
	return true;
}

void park_adopt(struct box *b, struct sandbox *s, uint32_t eid)
{
	if (b->park.exec)
		return;
	b->park.state = PARK_READY;
	b->park.eid = eid;
	b->park.exec = exec_attach(s, eid, UINT64_MAX, &ops, b);
}

void park_drop(struct box *b)
{
	loop_timer_stop(b->api->loop, &b->park.patience);
	if (b->park.exec)
		exec_detach(take_ptr(b->park.exec));
}
