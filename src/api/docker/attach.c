/*
 * Clients that are attached to a main process. They may come before it is started, and what they send waits for it.
 * Each gets what it asked for of the output; the slowest one decides how fast the process can print.
 */
#include "api/docker/docker_internal.h"

struct attached {
	struct attached *next;
	struct container *c; /* held */
	struct raw *raw;
	bool wants[3]; /* by kind: 0 input, 1 stdout, 2 stderr */
	bool is_eof;   /* it sends no more */
};

static void unlist(struct attached *a)
{
	struct attached **at = &a->c->attached;

	while (*at && *at != a)
		at = &(*at)->next;
	if (*at)
		*at = a->next;
}

static void attached_free(struct attached *a)
{
	container_release(a->c);
	free(a);
}

/* ---- input ---- */

static size_t take_input(void *arg, const char *bytes, size_t len)
{
	struct attached *a = arg;

	if (!a->wants[0] || !body_flag(container_config(a->c), "OpenStdin"))
		return len;
	return container_is_running(a->c) && a->c->main ? exec_push(a->c->main, bytes, len) : 0;
}

static void close_input(struct attached *a)
{
	struct exec_source end = {.open = true};

	if (a->is_eof && a->wants[0] && container_is_running(a->c) && a->c->main &&
	    body_flag(container_config(a->c), "StdinOnce"))
		exec_feed(a->c->main, &end);
}

static void on_eof(void *arg)
{
	struct attached *a = arg;

	a->is_eof = true;
	close_input(a);
}

void attached_feed(struct container *c)
{
	for (struct attached *a = c->attached; a; a = a->next) {
		raw_more(a->raw);
		close_input(a);
	}
}

/* ---- output ---- */

size_t attached_room(const struct container *c)
{
	size_t least = SIZE_MAX, room;

	for (const struct attached *a = c->attached; a; a = a->next) {
		room = raw_room(a->raw);
		least = room < least ? room : least;
	}
	return least;
}

void attached_output(struct container *c, int kind, const char *bytes, size_t len)
{
	for (struct attached *a = c->attached; a; a = a->next)
		if (a->wants[kind])
			raw_write(a->raw, kind, bytes, len);
}

static void on_room(void *arg)
{
	run_output_room(((struct attached *)arg)->c);
}

static void on_closed(void *arg)
{
	struct attached *a = arg;
	struct container *c = a->c;

	unlist(a);
	if (!a->is_eof) {
		a->is_eof = true;
		close_input(a);
	}
	run_output_room(c);
	attached_free(a);
}

void attached_end(struct container *c)
{
	struct attached *a;

	while ((a = c->attached)) {
		c->attached = a->next;
		raw_finish(a->raw);
		attached_free(a);
	}
}

/* ---- the request ---- */

void docker_attach(struct exchange *x)
{
	static const struct raw_ops ops = {take_input, on_eof, on_room, on_closed};
	struct container *c = docker_of(x)->c;
	struct attached *a;

	if (container_is_paused(c)) {
		docker_fail(x, 409, "You cannot attach to a paused container, unpause it first");
		return;
	}
	a = must_alloc(calloc(1, sizeof(*a)));
	*a = (struct attached){.c = container_hold(c)};
	if (docker_flag(x, "stream", false)) {
		a->wants[0] = docker_flag(x, "stdin", false);
		a->wants[1] = docker_flag(x, "stdout", false);
		a->wants[2] = docker_flag(x, "stderr", false);
	}
	a->next = c->attached;
	c->attached = a;
	a->raw = raw_open(x, container_has_tty(c), &ops, a);
}
