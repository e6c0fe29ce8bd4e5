/*
 * Theory of operation. A box is what one sandbox has of kernels; it watches the sandbox's state and
 * goes with it. The kernels' files are placed once per box, then processes are started as they are
 * needed: IDLE -> PLACING -> STARTING -> READY, back to IDLE when the process ends. Those of Python
 * are copies of a parked process that has loaded everything, and wait for that (WAITING) while it
 * starts; where that cannot be had they are processes of their own. Executions stand
 * in their context's queue; the first one is with the kernel if `active`. What the kernel says is
 * bytes from inside: bounded, parsed, and put together anew.
 */
#include "api/e2b_kernel_inside.h"

#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONTEXTS_MAX 32

static const struct {
	const char *name, *alias;
} names[] = {{"python", "py"}, {"javascript", "js"}, {"bash", "sh"}};

const char *kernel_language(const char *name)
{
	if (!name || !*name)
		return "python";
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcasecmp(name, names[i].name) || !strcasecmp(name, names[i].alias))
			return names[i].name;
	return NULL;
}

void kernel_context_free(struct context *c)
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
void kernel_context_cut(struct context *c)
{
	struct err e = {.kind = ERR_CONFLICT, .msg = "the sandbox is not running"};
	struct execution *r, **rest;

	kernel_tell_ready(c, &e);
	if (c->active && c->queue->ops) {
		c->queue->ops->on_end(c->queue->arg, true);
		c->queue->ops = NULL;
	}
	rest = c->active ? &c->queue->next : &c->queue;
	while ((r = *rest)) {
		*rest = r->next;
		if (r->ops)
			r->ops->on_end(r->arg, true);
		kernel_execution_free(r);
	}
}

/* ---- boxes ---- */

static void tell_opened(struct box *b)
{
	struct opening *all = take_ptr(b->openings);

	while (all) {
		struct opening *o = all;

		all = o->next;
		o->done(o->arg);
		free(o);
	}
}

static void box_free(struct box *b)
{
	struct opening *waiting = take_ptr(b->openings);

	struct box **p = &e2b_state_of(b->api)->boxes;

	while (*p && *p != b)
		p = &(*p)->next;
	if (*p)
		*p = b->next;
	if (b->wait)
		sandbox_unwait(b->wait);
	if (b->placing)
		call_drop(b->placing);
	park_drop(&b->park);
	while (b->contexts) {
		struct context *c = b->contexts;

		kernel_context_cut(c);
		if (c->active)
			kernel_end_first(c, true);
		if (c->exec)
			exec_detach(c->exec);
		kernel_context_free(c);
	}
	b->openings = waiting;
	tell_opened(b);
	free(b);
}

static void on_state(void *arg, struct sandbox *s)
{
	struct box *b = arg;

	if (sandbox_state(s) == STATE_PAUSED)
		for (struct context *c = b->contexts; c; c = c->next)
			kernel_context_cut(c);
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
	kernel_park_init(b);
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
	struct timespec now;

	c->box = b;
	/* Above all that another daemon may have given this kernel. */
	clock_gettime(CLOCK_REALTIME, &now);
	c->next_id = (uint64_t)now.tv_sec * 1000;
	snprintf(c->id, sizeof(c->id), "%s", id);
	c->language = language;
	c->cwd = str_copy(cwd);
	c->patience = (struct loop_timer){.call = kernel_on_patience, .arg = c};
	while (*last)
		last = &(*last)->next;
	*last = c;
	return c;
}

/* ---- what an earlier daemon left ---- */

static void adopt(struct box *b, struct sandbox *s, const json_t *exec)
{
	const char *tag = json_string_value(json_object_get(exec, "tag"));
	const char *cwd = json_string_value(json_object_get(exec, "cwd"));
	const char *language = NULL, *colon;
	struct context *c;
	char id[40];

	if (!tag || !json_is_true(json_object_get(exec, "running")))
		return;
	if (str_equal(tag, KERNEL_PARK_TAG))
		park_adopt(&b->park, s, (uint32_t)json_integer_value(json_object_get(exec, "id")));
	if (!str_starts(tag, KERNEL_TAG))
		return;
	tag += strlen(KERNEL_TAG);
	colon = strchr(tag, ':');
	if (colon && (size_t)(colon - tag) < sizeof(id))
		language = kernel_language(colon + 1);
	if (!language)
		return;
	snprintf(id, sizeof(id), "%.*s", (int)(colon - tag), tag);
	c = context_new(b, id, language, cwd ? cwd : "/home/user");
	c->state = READY;
	c->eid = (uint32_t)json_integer_value(json_object_get(exec, "id"));
	c->exec = exec_attach(s, c->eid, UINT64_MAX, &kernel_process_ops, c);
}

struct looking {
	struct api *api;
	char id[IPC_ID];
};

static void on_execs(void *arg, json_t *value, const struct err *e)
{
	struct looking *k = arg;
	struct box *b = e2b_state_of(k->api)->boxes;
	struct sandbox *s;
	json_t *one;
	size_t i;

	(void)e;
	while (b && !str_equal(b->id, k->id))
		b = b->next;
	free(k);
	s = b ? kernel_sandbox(b) : NULL;
	if (s && !b->known)
		json_array_foreach (value, i, one)
			adopt(b, s, one);
	json_decref(value);
	if (!b)
		return;
	b->known = s != NULL;
	tell_opened(b);
}

void kernel_open(struct api *api, struct sandbox *s, void (*done)(void *arg), void *arg)
{
	struct box *b = box_of(api, s);
	struct opening *o;
	struct looking *k;
	bool is_first = !b->openings;

	if (b->known) {
		done(arg);
		return;
	}
	o = must_alloc(calloc(1, sizeof(*o)));
	*o = (struct opening){.next = b->openings, .done = done, .arg = arg};
	b->openings = o;
	if (!is_first)
		return;
	k = must_alloc(calloc(1, sizeof(*k)));
	k->api = api;
	snprintf(k->id, sizeof(k->id), "%s", b->id);
	sandbox_execs(s, on_execs, k);
}

void kernel_expect(struct api *api, struct sandbox *s)
{
	struct box *b = box_of(api, s);

	if (!api->config->warm.kernels)
		return;
	/* It is new: nobody has left anything in it. */
	b->known = true;
	b->is_park_wanted = true;
	kernel_place(b);
}

/* ---- finding and making them ---- */

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
	kernel_tell_ready(c, &e);
	while (c->queue)
		kernel_fail_first(c, "ContextRemoved", "The context was removed");
	if (c->exec)
		kernel_kill(c);
	else
		kernel_context_free(c);
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
		kernel_kill(c);
		return;
	}
	kernel_go(c);
}
