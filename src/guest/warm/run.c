/* G_RUN: a run waits until a warm sandbox is ready, and then becomes a command in it. */
#include "guest/exec/command.h"
#include "guest/files/files.h"
#include "guest/warm/host.h"
#include "guest/link/request.h"

#define PENDING_MAX 1024
#define PENDING_BYTES (32u << 20) /* of all runs that wait */
#define DEADLINE_MS 10

/* A request that waits for a warm sandbox. */
struct pending_run {
	struct pending_run *next, **back;
	struct guest *guest;
	struct guest_stream *stream;
	int64_t since_ns;
	enum warm_host_kind kind;
	bool holds;
	struct exec_args args; /* of Python: the path of the script, then its arguments */
	char *code;
	size_t code_len, bytes;
};

static void pending_run_free(void *arg)
{
	struct pending_run *w = arg;

	if (w->back) {
		*w->back = w->next;
		if (w->next)
			w->next->back = w->back;
		else
			w->guest->pending_end = w->back;
	}
	list_done(&w->args.argv);
	list_done(&w->args.env);
	free(w->code);
	free(w);
}

static void add_sized(struct buf *b, const void *bytes, size_t len)
{
	uint32_t size = (uint32_t)len;

	buf_add(b, &size, sizeof(size));
	buf_add(b, bytes, len);
}

/*
 * Writes the order to the task's standard input, in front of the command's own input: task_run in
 * task.c or perform() in guest/python/zygote.py reads it.
 */
static void send_order(struct command *c, const struct pending_run *w, char **env)
{
	auto_buf struct buf order = {0}, b = {0};

	spawn_pack_order(w->args.cwd, w->args.argv.items, env, &order);
	add_sized(&b, buf_head(&order), order.len);
	add_sized(&b, w->code, w->code_len);
	command_input(c, buf_head(&b), b.len, w->args.flags & GUEST_EXEC_NO_STDIN);
}

/* Most requests have the same environment. */
static struct list *usual_env(const struct guest *g, const char *cwd)
{
	static struct list env;
	static unsigned configured;
	static char *of;

	if (of && configured == g->configured && str_equal(of, cwd))
		return &env;
	free(of);
	of = str_copy(cwd);
	configured = g->configured;
	list_done(&env);
	env_make(g, "", cwd, false, &env);
	return &env;
}

/* other: is filled for a request with variables of its own. */
static char **make_env(const struct pending_run *w, struct list *other)
{
	if (w->args.env.count == 0)
		return usual_env(w->guest, w->args.cwd)->items;
	exec_args_env(w->guest, &w->args, other);
	return other->items;
}

/* -1 with EAGAIN: not yet. */
static int start_run(struct pending_run *w, struct err *e)
{
	auto_list struct list other = {0};
	struct warm_report report;
	struct spawned process;
	struct command *c;
	char **env;

	if (warm_host_take_task(w->guest->warm_host, w->kind, &process, &report, e) < 0)
		return -1;
	env = make_env(w, &other);
	c = command_new(w->guest, &w->args);
	c->in_sandbox = true;
	c->layers = report.proven;
	c->landlock_abi = report.landlock_abi;
	c->listening = report.listening;
	warm_host_follow(w->guest->warm_host, process.pid,
			 &(struct task_owner){c->eid, w->holds, command_left_sandbox, c});
	command_begin(c, &w->args, &process, w->stream);
	send_order(c, w, env);
	return 0;
}

/*
 * Every few milliseconds while runs wait: starts more lanes, and gives up runs that wait in vain.
 */
static void on_deadline(void *arg)
{
	struct guest *g = arg;
	bool wanted[WARM_HOST_KINDS] = {false};

	for (struct pending_run *w = g->pending; w; w = w->next)
		wanted[w->kind] = true;
	for (int kind = 0; kind < WARM_HOST_KINDS; kind++)
		if (wanted[kind] && kind != WARM_HOST_NODE)
			warm_host_grow(g->warm_host, (enum warm_host_kind)kind);
	warm_serve(g);
}

/* First come, first served, for each kind. */
void warm_serve(void *guest)
{
	struct guest *g = guest;
	bool stuck[WARM_HOST_KINDS] = {false};
	struct pending_run *next;

	for (struct pending_run *w = g->pending; w; w = next) {
		struct guest_stream *s = w->stream;
		struct err e = {0};

		next = w->next;
		if (stuck[w->kind])
			continue;
		if (start_run(w, &e) == 0) {
			pending_run_free(w);
		} else if (e.errnum == EAGAIN &&
			   warm_host_is_worth_waiting(g->warm_host, w->kind, w->since_ns)) {
			stuck[w->kind] = true;
		} else {
			pending_run_free(w);
			stream_error(s, e.errnum ? e.errnum : EIO, "%s", e.msg);
		}
	}
	if (g->pending && !g->deadline.place) {
		g->deadline.call = on_deadline;
		g->deadline.arg = g;
		loop_timer_set(g->loop, &g->deadline, DEADLINE_MS);
	}
}

static struct pending_run *unpack_pending_run(const struct guest *g, struct unpack *u)
{
	struct pending_run *w = must_alloc(calloc(1, sizeof(*w)));
	struct exec_args *a = &w->args;
	const char *code;
	uint8_t kind = unpack_u8(u);

	w->kind = (enum warm_host_kind)(kind & ~GUEST_RUN_HOLD);
	w->holds = kind & GUEST_RUN_HOLD;
	a->flags = unpack_u8(u);
	a->timeout_ms = unpack_u64(u);
	unpack_str(u, a->cwd, sizeof(a->cwd));
	exec_args_set_cwd(g, a);
	if (command_unpack_list(u, &a->argv) && command_unpack_list(u, &a->env)) {
		code = unpack_bytes(u, &w->code_len);
		w->code = must_alloc(malloc(w->code_len + 1));
		memcpy(w->code, code, w->code_len);
	}
	if (unpack_is_done(u) && w->kind < WARM_HOST_KINDS && a->argv.count > 0)
		return w;
	pending_run_free(w);
	return NULL;
}

bool run_request(struct guest *g, struct guest_stream *s, struct unpack *u)
{
	static const struct stream_ops waiting = {.on_end = pending_run_free};
	size_t count = 0, bytes = (size_t)(u->end - u->at);
	struct pending_run *w = unpack_pending_run(g, u);

	if (!w)
		return false;
	w->bytes = bytes;
	for (const struct pending_run *other = g->pending; other; other = other->next) {
		bytes += other->bytes;
		count++;
	}
	if (!g->warm_host || count >= PENDING_MAX || bytes > PENDING_BYTES) {
		pending_run_free(w);
		stream_error(s, g->warm_host ? EBUSY : EOPNOTSUPP,
			     "no warm sandbox can be had here");
		return true;
	}
	/* A warm sandbox has the same directories as the warm host. */
	if (!str_equal(w->args.cwd, files_workdir(g)) && !command_has_cwd(s, w->args.cwd)) {
		pending_run_free(w);
		return true;
	}
	w->guest = g;
	w->stream = s;
	w->since_ns = now_ns();
	stream_go_on(s, &waiting, w);
	w->back = g->pending_end;
	*g->pending_end = w;
	g->pending_end = &w->next;
	warm_serve(g);
	return true;
}
