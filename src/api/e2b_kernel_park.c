/*
 * The parked process of a box (guest/python/kernel_park.py): it has loaded what kernels need, and those
 * of Python are copies of it, made by the guest (guest/park.h). It is started with the sandbox if kernels
 * are to be expected, else with the first context, which waits for it: that takes no longer than
 * starting a kernel.
 */
#include "api/e2b_kernel_inside.h"

#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <errno.h>

/* Loaded besides those of the configuration, where they are installed. */
static const char *const usual[] = {"numpy", "pandas", "matplotlib.pyplot"};

/* Those who wait for it go on, with it or without; one of them may start another. */
static void on_changed(void *arg)
{
	struct box *b = arg;
	struct context *c, *next;

	for (c = b->contexts; c; c = next) {
		next = c->next;
		if (c->state == WAITING)
			kernel_launch(c);
	}
}

static void start(struct box *b, struct sandbox *s)
{
	const struct config_warm *w = &b->api->config->warm;
	struct park_program what = {
		.request = {
			.cwd = "/home/user", .user = "user", .tag = KERNEL_PARK_TAG, .keep = true}};
	struct exec_request *r = &what.request;

	list_add(&r->argv, "python3");
	list_add(&r->argv, KERNEL_DIR "/kernel_park.py");
	for (uint32_t i = 0; i < w->preload_count; i++)
		list_add(&r->argv, w->preload[i]);
	for (size_t i = 0; i < ARRAY_LEN(usual); i++)
		list_add(&r->argv, usual[i]);
	kernel_env(b, s, &r->env);
	park_start(&b->park, s, &what);
	list_done(&r->argv);
	list_done(&r->env);
}

static bool may_be(const struct box *b)
{
	return b->api->config->warm.kernels > 0 && !park_is_hopeless(&b->park);
}

void kernel_park_init(struct box *b)
{
	b->park = (struct park){.changed = on_changed, .arg = b};
}

void kernel_park_placed(struct box *b)
{
	struct sandbox *s = kernel_sandbox(b);

	if (b->is_park_wanted && b->park.state == PARK_NONE && may_be(b) && s)
		start(b, s);
}

bool kernel_park_takes(struct context *c, struct sandbox *s)
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

bool kernel_park_refused(struct context *c, const struct err *e)
{
	if (!c->is_copy || c->eid || e->errnum != EAGAIN || c->doomed)
		return false;
	c->was_refused = true;
	c->box->park.failures++;
	return true;
}
