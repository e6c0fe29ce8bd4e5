/*
 * Commands besides the main process. An exec is made, started, and looked at afterwards; it is forgotten when its
 * container ends or has too many, the oldest that does not run first. What it holds of a request is counted as the
 * tenant's.
 */
#include "api/docker/docker_internal.h"

#include "auth/shares.h"

#define CONTAINER_PART 32 /* digits of an exec's id that are the container's */

struct docker_exec {
	struct docker_exec *next; /* made before this one */
	struct container
		*c; /* NULL: it has ended, and the exec is to be freed when nobody uses it */
	char id[DOCKER_ID];
	json_t *in; /* as POST .../exec has it */
	size_t counted;
	struct exec *exec;  /* while it runs */
	struct raw *raw;    /* of its client, or NULL */
	struct exchange *x; /* that starts it, until it is answered */
	uint32_t eid, pid;
	uint64_t owed;
	bool started, is_eof, detached;
	int code; /* -1: not ended */
};

static const struct body_table exec_table = BODY_TABLE(
	BODY_ALONE, FIELD("AttachStderr", BODY_FLAG, "stderr"),
	FIELD("AttachStdin", BODY_FLAG, "input"), FIELD("AttachStdout", BODY_FLAG, "stdout"),
	FIELD("Cmd", BODY_LIST, "the command", .flags = BODY_REQUIRED),
	FIELD("Env", BODY_LIST, "K=V"), FIELD("Privileged", BODY_FLAG, "refused"),
	FIELD("Tty", BODY_FLAG, "a terminal"), FIELD("User", BODY_TEXT, "who runs it"),
	FIELD("WorkingDir", BODY_PATH, "where it starts"));

static const struct body_table start_table =
	BODY_TABLE(BODY_ALONE, FIELD("Detach", BODY_FLAG, "no streams"),
		   FIELD("Tty", BODY_FLAG, "as the exec has it"));

/* ---- the list of a container ---- */

static struct budget *budget_of(const struct container *c)
{
	return shares_of(manager_shares(c->api->manager), sandbox_owner(c->s), SHARE_BODIES);
}

static void exec_drop(struct docker_exec *d)
{
	budget_give(budget_of(d->c), d->counted);
	d->c->exec_count--;
	exec_detach(d->exec);
	raw_finish(d->raw);
	json_decref(d->in);
	free(d);
}

static bool is_busy(const struct docker_exec *d)
{
	return d->exec || d->x || d->raw;
}

/* The oldest that does not run makes room. */
static bool make_room(struct container *c)
{
	struct docker_exec **at = &c->execs, **oldest = NULL, *d;

	for (; *at; at = &(*at)->next)
		if (!is_busy(*at))
			oldest = at;
	if (c->exec_count < DOCKER_EXECS)
		return true;
	if (!oldest)
		return false;
	d = *oldest;
	*oldest = d->next;
	exec_drop(d);
	return true;
}

static void ignore_answer(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
}

void execs_kill(struct container *c)
{
	for (struct docker_exec *d = c->execs; d; d = d->next)
		if (d->exec && d->eid)
			sandbox_signal(c->s, d->eid, SIGKILL, true, ignore_answer, NULL);
}

void execs_end(struct container *c)
{
	struct docker_exec *d;

	while ((d = c->execs)) {
		c->execs = d->next;
		if (d->x)
			docker_fail(take_ptr(d->x), 409, "container %s is not running", c->id);
		exec_drop(d);
	}
}

/* The exec of the route; NULL: an error was answered. */
static struct docker_exec *wanted_exec(struct exchange *x)
{
	const char *id = x->params[0];
	struct container *c = container_first(x);

	while (c && strncmp(c->id, id, CONTAINER_PART) != 0)
		c = c->next;
	for (struct docker_exec *d = c ? c->execs : NULL; d; d = d->next)
		if (str_equal(d->id, id))
			return d;
	docker_fail(x, 404, "No such exec instance: %.80s", id);
	return NULL;
}

/* ---- making ---- */

static int check_exec(const struct container *c, const json_t *in, struct err *e)
{
	const char *user;

	if (body_flag(in, "Privileged"))
		return err_field(e, ERR_DENIED, "Privileged",
				 "Privileged: not offered: a command has what its container has");
	return user_read(sandbox_spec(c->s), body_text(in, "User"), &user, e);
}

void docker_exec_create(struct exchange *x)
{
	struct container *c = docker_of(x)->c;
	struct docker_exec *d;
	struct err e = {0};
	size_t bytes;
	json_t *in;

	if (json_is_string(json_object_get(x->json, "Cmd")))
		json_object_set_new(x->json, "Cmd",
				    json_pack("[O]", json_object_get(x->json, "Cmd")));
	if (!container_needs_running(x, c))
		return;
	in = docker_body(x->json, &exec_table, &e);
	if (!in || check_exec(c, in, &e) < 0) {
		json_decref(in);
		exchange_error(x, &e);
		return;
	}
	bytes = json_dumpb(in, NULL, 0, JSON_COMPACT);
	if (!make_room(c) || !budget_take(budget_of(c), bytes)) {
		json_decref(in);
		docker_fail(x, 429, "too many commands of this container wait or run");
		return;
	}
	d = must_alloc(calloc(1, sizeof(*d)));
	*d = (struct docker_exec){.c = c, .in = in, .counted = bytes, .code = -1, .next = c->execs};
	docker_id_make(d->id);
	memcpy(d->id, c->id, CONTAINER_PART);
	c->execs = d;
	c->exec_count++;
	exchange_json(x, 201, json_pack("{s:s}", "Id", d->id));
}

/* ---- streams ---- */

static void pass_credit(struct docker_exec *d)
{
	if (!d->exec || !d->owed || (d->raw && !raw_room(d->raw)))
		return;
	exec_credit(d->exec, d->owed);
	d->owed = 0;
}

static size_t take_input(void *arg, const char *bytes, size_t len)
{
	struct docker_exec *d = arg;

	if (!body_flag(d->in, "AttachStdin"))
		return len;
	return d->eid && d->exec ? exec_push(d->exec, bytes, len) : 0;
}

static void close_input(struct docker_exec *d)
{
	struct exec_source end = {.open = true};

	if (d->is_eof && d->eid && d->exec && body_flag(d->in, "AttachStdin"))
		exec_feed(d->exec, &end);
}

static void on_eof(void *arg)
{
	struct docker_exec *d = arg;

	d->is_eof = true;
	close_input(d);
}

static void on_room(void *arg)
{
	pass_credit(arg);
}

/* The command goes on, as in Docker. */
static void on_closed(void *arg)
{
	struct docker_exec *d = arg;

	d->raw = NULL;
	d->is_eof = true;
	close_input(d);
	pass_credit(d);
}

static const struct raw_ops raw_ops = {take_input, on_eof, on_room, on_closed};

/* ---- the command ---- */

/* In Docker's words, on the stream: clients print it, then ask for the code. */
static void say_cannot(struct docker_exec *d, int errnum)
{
	const char *first = json_string_value(json_array_get(json_object_get(d->in, "Cmd"), 0));
	char text[400];
	int len = snprintf(text, sizeof(text),
			   "OCI runtime exec failed: exec failed: unable to start container "
			   "process: exec: \"%.200s\": %s\r\n",
			   first,
			   errnum == EACCES   ? "permission denied"
			   : errnum != ENOENT ? strerror(errnum)
			   : first[0] == '/'  ? "no such file or directory"
					      : "executable file not found in $PATH");

	if (d->raw)
		raw_write(d->raw, 1, text, (size_t)len);
}

static void on_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct docker_exec *d = arg;

	d->eid = eid;
	d->pid = pid;
	if (d->x)
		docker_empty(take_ptr(d->x), 200);
	if (exec_errno(d->exec))
		say_cannot(d, exec_errno(d->exec));
	else if (d->raw)
		raw_more(d->raw);
	close_input(d);
}

static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct docker_exec *d = arg;

	if (d->raw && body_flag(d->in, kind == 2 ? "AttachStderr" : "AttachStdout"))
		raw_write(d->raw, kind, bytes, len);
	d->owed += len;
	pass_credit(d);
}

static void on_exit_of(void *arg, const struct outcome *x)
{
	struct docker_exec *d = arg;

	d->exec = NULL;
	d->code = x->signal ? 128 + x->signal : x->exit_code < 0 ? 128 + SIGKILL : x->exit_code;
	raw_finish(take_ptr(d->raw));
}

static void on_error(void *arg, const struct err *e)
{
	struct docker_exec *d = arg;

	d->exec = NULL;
	d->code = d->eid ? 128 + SIGKILL : 126;
	if (d->x)
		exchange_error(take_ptr(d->x), e);
	if (d->raw && !d->eid) {
		raw_write(d->raw, 1, e->msg, strlen(e->msg));
		raw_write(d->raw, 1, "\r\n", 2);
	}
	raw_finish(take_ptr(d->raw));
}

static void on_input_room(void *arg)
{
	struct docker_exec *d = arg;

	if (d->raw)
		raw_more(d->raw);
}

static void fill_request(const struct docker_exec *d, struct exec_request *r)
{
	const json_t *size = json_object_get(d->in, "ConsoleSize"), *item;
	const char *user = NULL;
	struct err ignored;
	size_t i;

	body_list(d->in, "Cmd", &r->argv);
	json_array_foreach (json_object_get(d->in, "Env"), i, item)
		if (strchr(json_string_value(item), '='))
			list_add(&r->env, json_string_value(item));
	if (user_read(sandbox_spec(d->c->s), body_text(d->in, "User"), &user, &ignored) == 0)
		r->user = user;
	r->cwd = body_text(d->in, "WorkingDir");
	r->cwd = r->cwd ? r->cwd : container_text(d->c, "workdir");
	r->tty = body_flag(d->in, "Tty");
	r->no_stdin = !body_flag(d->in, "AttachStdin") && !r->tty;
	r->keep = true;
	r->background = d->detached;
	terminal_size(size, r);
}

/* ---- starting ---- */

static void start_awake(struct exchange *x, struct sandbox *s)
{
	static const struct exec_ops ops = {on_start, on_output, on_exit_of, on_error,
					    on_input_room};
	struct docker_exec *d = wanted_exec(x);
	struct exec_request r = {0};

	if (!d || !container_needs_running(x, d->c))
		return;
	if (d->started) {
		docker_fail(x, 409, "exec %s has been started already", d->id);
		return;
	}
	d->started = true;
	d->detached = body_flag(x->json, "Detach");
	fill_request(d, &r);
	r.timeout_ms = exec_timeout_most(x->api->manager, &x->caller);
	d->exec = exec_start(s, &x->caller, &r, &ops, d);
	if (d->detached)
		d->x = x;
	else
		d->raw = raw_open(x, r.tty, &raw_ops, d);
	list_done(&r.argv);
	list_done(&r.env);
}

void docker_exec_start(struct exchange *x)
{
	struct docker_exec *d = wanted_exec(x);
	struct err e = {0};
	json_t *in;

	if (!d)
		return;
	in = docker_body(x->json, &start_table, &e);
	if (!in) {
		exchange_error(x, &e);
		return;
	}
	if (json_array_size(json_object_get(x->json, "ConsoleSize")) == 2 &&
	    json_is_integer(json_array_get(json_object_get(x->json, "ConsoleSize"), 0)) &&
	    json_is_integer(json_array_get(json_object_get(x->json, "ConsoleSize"), 1)))
		json_object_set(d->in, "ConsoleSize", json_object_get(x->json, "ConsoleSize"));
	json_decref(in);
	docker_of(x)->c = container_hold(d->c);
	if (container_needs_running(x, d->c))
		container_awake(x, start_awake);
}

/* ---- looking ---- */

void docker_exec_inspect(struct exchange *x)
{
	const struct docker_exec *d = wanted_exec(x);
	json_t *args, *argv;

	if (!d)
		return;
	argv = json_object_get(d->in, "Cmd");
	args = json_copy(argv);
	json_array_remove(args, 0);
	exchange_json(x, 200,
		      json_pack("{s:s,s:b,s:o,s:I,s:s,s:b,s:b,s:b,s:b,s:s,s:{s:O,s:o,s:b,s:b,s:s}}",
				"ID", d->id, "Running", d->exec != NULL, "ExitCode",
				d->code < 0 ? json_null() : json_integer(d->code), "Pid",
				(json_int_t)d->pid, "ContainerID", d->c->id, "OpenStdin",
				body_flag(d->in, "AttachStdin"), "OpenStdout",
				body_flag(d->in, "AttachStdout"), "OpenStderr",
				body_flag(d->in, "AttachStderr"), "CanRemove", d->code >= 0,
				"DetachKeys", "", "ProcessConfig", "entrypoint",
				json_array_get(argv, 0), "arguments", args, "tty",
				body_flag(d->in, "Tty"), "privileged", 0, "user",
				body_text(d->in, "User") ? body_text(d->in, "User") : ""));
}

static void on_resized(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	if (e && e->kind != ERR_NONE)
		exchange_error(arg, e);
	else
		docker_empty(arg, 201);
}

void docker_exec_resize(struct exchange *x)
{
	const struct docker_exec *d = wanted_exec(x);
	struct err e = {0};
	uint64_t rows, cols;

	if (!d)
		return;
	if (exchange_arg_uint(x, "h", 0, 10000, &rows, &e) < 0 ||
	    exchange_arg_uint(x, "w", 0, 10000, &cols, &e) < 0)
		exchange_error(x, &e);
	else if (!d->exec || !d->eid)
		docker_fail(x, 409, "exec %s is not running", d->id);
	else
		sandbox_resize(d->c->s, d->eid, (uint32_t)rows, (uint32_t)cols, on_resized, x);
}
