/*
 * Theory of operation. A kernel set holds the kernels of one sandbox; it watches the state of the
 * sandbox and goes with it. The kernels' files are written once per set, then processes are started as
 * they are needed: IDLE -> WAITING -> STARTING -> READY, back to IDLE when the process ends. Kernels of
 * Python are copies of a prefork, a process that has loaded everything (guest/python/kernel_prefork.py),
 * and wait while it starts; without a prefork they are processes of their own. Executions stand in the
 * queue of their context; the first one is with the kernel if `active`. Output of a kernel is bytes from
 * inside the sandbox: bounded, parsed, and composed anew.
 */
#include "api/e2b/kernel_internal.h"

#include "auth/shares.h"
#include "policy/config.h"

#include <sodium.h>
#include <strings.h>

#define CONTEXTS_MAX 32

static const struct kernel_language languages[] = {
	{"python", "py", "python3", "kernel.py"},
	{"javascript", "js", "node", "kernel.js"},
	{"bash", "sh", "python3", "kernel_bash.py"},
};
#define ALWAYS_THERE 2 /* the first languages have a default context that is always listed */

const struct kernel_language *kernel_language(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(languages); i++)
		if (!name || !*name || !strcasecmp(name, languages[i].name) ||
		    !strcasecmp(name, languages[i].alias))
			return &languages[i];
	return NULL;
}

void kernel_context_free(struct context *c)
{
	struct context **p = &c->set->contexts;

	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
	loop_timer_stop(c->set->api->loop, &c->overdue);
	kernel_forget_bytes(c);
	buf_done(&c->input);
	free(c->cwd);
	free(c);
}

/* ---- sets ---- */

static void set_free(struct kernel_set *k)
{
	struct kernel_set **p = &e2b_state_of(k->api)->kernel_sets;
	struct context *c;

	while (*p && *p != k)
		p = &(*p)->next;
	if (*p)
		*p = k->next;
	if (k->wait)
		sandbox_unwait(k->wait);
	call_drop(k->placing);
	prefork_drop(&k->prefork);
	while ((c = k->contexts)) {
		if (c->exec)
			exec_detach(c->exec);
		kernel_watch(c, NULL);
		if (kernel_cut_all(c, true))
			kernel_context_free(c);
	}
	free(k);
}

static void kernel_sandbox_changed(void *arg, struct sandbox *s)
{
	struct kernel_set *k = arg;
	struct context *next;

	if (sandbox_state(s) == STATE_PAUSED) {
		for (struct context *c = k->contexts; c; c = next) {
			next = c->next;
			kernel_cut_all(c, false);
		}
	} else if (sandbox_state(s) == STATE_RUNNING) {
		/* Kernels whose end was decided while nothing inside could be reached. */
		for (struct context *c = k->contexts; c; c = c->next)
			if (c->doomed || c->restarting)
				kernel_signal(c, SIGKILL, true);
	} else {
		set_free(k);
	}
}

static struct kernel_set *set_of(struct api *api, struct sandbox *s)
{
	struct kernel_set **head = &e2b_state_of(api)->kernel_sets;
	struct kernel_set *k = *head;

	while (k && !str_equal(k->id, sandbox_id(s)))
		k = k->next;
	if (k)
		return k;
	k = must_alloc(calloc(1, sizeof(*k)));
	k->api = api;
	k->user = shares_user(manager_shares(api->manager), sandbox_owner(s));
	k->output = shares_of(manager_shares(api->manager), sandbox_owner(s), SHARE_OUTPUT);
	k->prefork = (struct prefork){.changed = kernel_on_prefork, .arg = k};
	snprintf(k->id, sizeof(k->id), "%s", sandbox_id(s));
	k->next = *head;
	*head = k;
	k->wait = sandbox_wait(s, kernel_sandbox_changed, k);
	return k;
}

/* ---- contexts ---- */

static struct context *context_new(struct kernel_set *k, const char *id,
				   const struct kernel_language *language, const char *cwd)
{
	struct context *c = must_alloc(calloc(1, sizeof(*c))), **last = &k->contexts;

	c->set = k;
	/* Above every id that an earlier daemon may have given to this kernel. */
	c->next_id = unix_ms();
	snprintf(c->id, sizeof(c->id), "%s", id);
	c->language = language;
	c->cwd = str_copy(cwd);
	c->reading = (struct loop_task){.call = kernel_read_lines, .arg = c, .user = k->user};
	c->overdue = (struct loop_timer){.call = kernel_on_overdue, .arg = c};
	while (*last)
		last = &(*last)->next;
	*last = c;
	return c;
}

/* ---- kernels that an earlier daemon left running ---- */

static void adopt_kernel(struct kernel_set *k, struct sandbox *s, const json_t *exec)
{
	const char *tag = json_string_value(json_object_get(exec, "tag"));
	const char *cwd = json_string_value(json_object_get(exec, "cwd"));
	uint32_t eid = e2b_exec_id(exec);
	const struct kernel_language *language = NULL;
	const char *colon;
	struct context *c;
	char id[40];

	if (!tag || !json_is_true(json_object_get(exec, "running")))
		return;
	if (str_equal(tag, KERNEL_PREFORK_TAG))
		prefork_adopt(&k->prefork, s, eid);
	if (!str_starts(tag, KERNEL_TAG))
		return;
	tag += strlen(KERNEL_TAG);
	colon = strchr(tag, ':');
	if (colon && (size_t)(colon - tag) < sizeof(id))
		language = kernel_language(colon + 1);
	if (!language)
		return;
	snprintf(id, sizeof(id), "%.*s", (int)(colon - tag), tag);
	c = context_new(k, id, language, cwd ? cwd : "/home/user");
	c->state = READY;
	c->eid = eid;
	kernel_watch(c, exec_attach(s, eid, UINT64_MAX, &kernel_process_ops, c));
}

static void adopt_execs(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = e2b_still(q);
	struct kernel_set *k = s ? set_of(q->x->api, s) : NULL;
	json_t *one;
	size_t i;

	/* Without the list a kernel that runs would be taken for a new one. */
	if (k && e && !k->known) {
		exchange_error(q->x, e);
		return;
	}
	if (k && !k->known) {
		json_array_foreach (value, i, one)
			adopt_kernel(k, s, one);
		k->known = true;
	}
	json_decref(value);
	if (k)
		q->method->call(q, s);
}

void kernel_open(struct e2b_request *q, struct sandbox *s)
{
	if (set_of(q->x->api, s)->known)
		q->method->call(q, s);
	else
		sandbox_execs(s, adopt_execs, q);
}

void kernel_expect(struct api *api, struct sandbox *s)
{
	struct kernel_set *k;

	if (!api->config->warm.kernels)
		return;
	k = set_of(api, s);
	/* A new sandbox has no kernels from an earlier daemon. */
	k->known = true;
	k->is_prefork_wanted = true;
	kernel_place(k);
}

/* ---- finding and making contexts ---- */

struct context *kernel_find(struct api *api, struct sandbox *s, const char *id)
{
	struct kernel_set *k = set_of(api, s);
	struct context *c = k->contexts;

	while (c && (c->doomed || !str_equal(c->id, id)))
		c = c->next;
	/* The default contexts are named after their language. */
	for (size_t i = 0; !c && i < ALWAYS_THERE; i++)
		if (str_equal(id, languages[i].name))
			c = context_new(k, id, &languages[i], "/home/user");
	return c;
}

struct context *kernel_default(struct api *api, struct sandbox *s,
			       const struct kernel_language *language)
{
	struct context *c = kernel_find(api, s, language->name);

	return c ? c : context_new(set_of(api, s), language->name, language, "/home/user");
}

struct context *kernel_new(struct api *api, struct sandbox *s,
			   const struct kernel_language *language, const char *cwd, struct err *e)
{
	struct kernel_set *k = set_of(api, s);
	size_t count = 0, most = api->config->warm.kernels;
	unsigned char random[16];
	char id[40];

	for (const struct context *c = k->contexts; c; c = c->next)
		count += !c->doomed;
	if (count >= (most ? most : CONTEXTS_MAX)) {
		err_set(e, ERR_LIMIT, "this sandbox has %zu contexts, which is all it may have",
			count);
		return NULL;
	}
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(id, sizeof(id), random, sizeof(random));
	return context_new(k, id, language, cwd);
}

json_t *kernel_describe(const struct context *c)
{
	return must_alloc(json_pack("{s:s,s:s,s:s}", "id", c->id, "language", c->language->name,
				    "cwd", c->cwd));
}

json_t *kernel_list(struct api *api, struct sandbox *s)
{
	json_t *all = must_alloc(json_array());

	for (size_t i = 0; i < ALWAYS_THERE; i++)
		json_array_append_new(all, kernel_describe(kernel_default(api, s, &languages[i])));
	for (const struct context *c = set_of(api, s)->contexts; c; c = c->next)
		if (!c->doomed && !str_equal(c->id, languages[0].name) &&
		    !str_equal(c->id, languages[1].name))
			json_array_append_new(all, kernel_describe(c));
	return all;
}

void kernel_remove(struct context *c)
{
	c->doomed = true;
	if (!c->is_telling)
		kernel_fail_all(c, "ContextRemoved", "The context was removed");
}
