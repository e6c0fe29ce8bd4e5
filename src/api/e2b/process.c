/*
 * process.Process: commands that are started and watched. A command outlives its stream; a client that
 * connects again gets the output from then on. Commands are found by their pid inside the sandbox, or by
 * their tag.
 */
#include "api/e2b/e2b_internal.h"

#include "auth/tokens.h"

#include <ctype.h>

#define KEEPALIVE "{\"event\":{\"keepalive\":{}}}"
#define CHUNK (32u << 10)

/* ---- a stream of events ---- */

struct process_stream {
	struct e2b_stream stream; /* the command feeds its pump */
	char *cwd;		  /* as the client named it; NULL: the home */
	bool tty;
};

static void process_stream_done(void *more)
{
	struct process_stream *w = more;

	e2b_stream_done(&w->stream);
	exec_detach(w->stream.pump.from);
	free(w->cwd);
}

static void process_event(struct process_stream *w, json_t *what)
{
	e2b_stream_send(&w->stream, json_pack("{s:o}", "event", must_alloc(what)));
}

static void process_started(void *arg, uint32_t eid, uint32_t pid)
{
	process_event(arg, json_pack("{s:{s:I}}", "start", "pid", (json_int_t)pid));
}

static void process_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct process_stream *w = arg;
	const char *name = w->tty ? "pty" : kind == 2 ? "stderr" : "stdout";

	for (size_t at = 0; at < len; at += CHUNK) {
		size_t n = len - at < CHUNK ? len - at : CHUNK;

		process_event(
			w, json_pack("{s:{s:o}}", "data", name, connect_from_bytes(bytes + at, n)));
	}
	pump_moved(&w->stream.pump, len);
}

/* The names that Go prints: those of glibc in lower case. */
static void signal_text(int sig, char *text, size_t size)
{
	size_t len;

	if (sig < 1 || sig > SIGTERM) {
		snprintf(text, size, "signal: signal %d", sig);
		return;
	}
	len = (size_t)snprintf(text, size, "signal: ");
	snprintf(text + len, size - len, "%s", sigdescr_np(sig));
	text[len] = (char)tolower((unsigned char)text[len]);
}

static json_t *end_event(const struct outcome *x)
{
	char status[64];

	if (x->signal)
		signal_text(x->signal, status, sizeof(status));
	else
		snprintf(status, sizeof(status), "exit status %d", x->exit_code);
	return json_pack("{s:{s:i,s:b,s:s,s:s*}}", "end", "exitCode", x->signal ? -1 : x->exit_code,
			 "exited", !x->signal, "status", status, "error",
			 x->signal || x->exit_code ? status : NULL);
}

static void process_ended(void *arg, const struct outcome *x)
{
	struct process_stream *w = arg;
	const json_t *process = json_object_get(w->stream.q->in, "process");
	const char *cmd = json_string_value(json_object_get(process, "cmd"));
	char text[480];

	w->stream.pump.from = NULL;
	if (x->exec_errno) {
		snprintf(text, sizeof(text), "cmd '%.300s' cannot be started: %s", cmd ? cmd : "",
			 strerror(x->exec_errno));
		e2b_stream_end(&w->stream, CONNECT_INVALID_ARGUMENT, text);
	} else if (x->status == STATUS_TIMEOUT) {
		e2b_stream_end(&w->stream, CONNECT_DEADLINE_EXCEEDED, "the command's time is over");
	} else {
		process_event(w, end_event(x));
		e2b_stream_end(&w->stream, CONNECT_OK, NULL);
	}
}

static void process_failed(void *arg, const struct err *e)
{
	struct process_stream *w = arg;
	char text[480];

	w->stream.pump.from = NULL;
	if (w->cwd && str_equal(e->field, "cwd") && (e->errnum == ENOENT || e->errnum == ENOTDIR)) {
		snprintf(text, sizeof(text), "cwd '%.400s' %s", w->cwd,
			 e->errnum == ENOENT ? "does not exist" : "is not a directory");
		e2b_stream_end(&w->stream, CONNECT_INVALID_ARGUMENT, text);
	} else {
		e2b_stream_fail(&w->stream, e);
	}
}

static const struct exec_ops process_ops = {.on_start = process_started,
					    .on_output = process_output,
					    .on_exit = process_ended,
					    .on_error = process_failed};

static void process_detach(void *arg)
{
	struct process_stream *w = arg;

	exec_detach(take_ptr(w->stream.pump.from));
}

static struct process_stream *process_stream_new(struct e2b_request *q)
{
	struct process_stream *w = e2b_keep(q, sizeof(*w), process_stream_done);

	w->stream.q = q;
	w->stream.stop = process_detach;
	w->stream.pump.credit = exec_credit;
	return w;
}

/* ---- Start ---- */

static int take_args(struct exec_request *r, const json_t *process, struct err *e)
{
	json_t *args = json_object_get(process, "args"), *value;
	bool bad = false;
	const char *cmd = e2b_text(process, "cmd", &bad);
	size_t i;

	if (bad || !cmd || !*cmd)
		return err_set(e, ERR_INVALID, "process.cmd: is missing or not a string");
	if (args && !json_is_array(args) && !json_is_null(args))
		return err_set(e, ERR_INVALID, "process.args: not a list");
	if (json_array_size(args) >= EXEC_MAX_ARGS)
		return err_set(e, ERR_INVALID, "process.args: more than %d", EXEC_MAX_ARGS - 1);
	list_add(&r->argv, cmd);
	json_array_foreach (args, i, value) {
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "process.args: not a list of strings");
		list_add(&r->argv, json_string_value(value));
	}
	return 0;
}

int e2b_pty_size(const json_t *in, uint32_t *ret_rows, uint32_t *ret_cols, struct err *e)
{
	const json_t *size = json_object_get(json_object_get(in, "pty"), "size");
	json_int_t rows = json_integer_value(json_object_get(size, "rows"));
	json_int_t cols = json_integer_value(json_object_get(size, "cols"));

	if (!json_is_object(size) || rows < 0 || cols < 0 || rows > 65535 || cols > 65535)
		return err_set(e, ERR_INVALID, "pty.size: not a size of a terminal");
	*ret_rows = (uint32_t)rows;
	*ret_cols = (uint32_t)cols;
	return 0;
}

static int read_start(struct process_stream *w, struct exec_request *r, struct sandbox *s,
		      struct err *e)
{
	const struct e2b_request *q = w->stream.q;
	const json_t *process = json_object_get(q->in, "process"),
		     *pty = json_object_get(q->in, "pty");
	bool bad_cwd = false, bad_tag = false;
	const char *cwd = e2b_text(process, "cwd", &bad_cwd);

	if (!json_is_object(process))
		return err_set(e, ERR_INVALID, "process: is missing");
	r->tag = e2b_text(q->in, "tag", &bad_tag);
	if (bad_cwd)
		return err_set(e, ERR_INVALID, "process.cwd: not a string");
	if (bad_tag || (r->tag && (strlen(r->tag) > 200 || str_starts(r->tag, E2B_HIDDEN_TAG))))
		return err_set(e, ERR_INVALID,
			       "tag: not a string of at most 200 bytes, or reserved");
	r->tty = w->tty = pty && !json_is_null(pty);
	e2b_env(s, &r->env);
	if (take_args(r, process, e) < 0 ||
	    e2b_strings(json_object_get(process, "envs"), "process.envs", EXEC_MAX_ARGS / 2,
			&r->env, e) < 0 ||
	    (r->tty && e2b_pty_size(q->in, &r->rows, &r->cols, e) < 0))
		return -1;
	if (cwd && *cwd && !(w->cwd = e2b_path(cwd, q->user, e)))
		return -1;
	r->cwd = w->cwd				? w->cwd
		 : *e2b_data_text(s, "workdir") ? e2b_data_text(s, "workdir")
						: "/home/user";
	r->user = q->user;
	r->keep = true;
	r->no_stdin = json_is_false(json_object_get(q->in, "stdin")) && !r->tty;
	return 0;
}

/* The access token of a sandbox is worth no more than the API key that made the sandbox. */
static uint64_t timeout_most(const struct e2b_request *q, const struct sandbox *s)
{
	const struct tokens *all = q->x->api->tokens;
	struct caller owner = {0};

	for (size_t i = 0; i < tokens_count(all); i++) {
		const struct token *t = tokens_at(all, i);

		if (str_equal(t->id, sandbox_owner(s)))
			owner = (struct caller){.has_ceiling = true, .ceiling = t->ceiling};
	}
	return exec_timeout_most(q->x->api->manager, &owner);
}

void e2b_process_start(struct e2b_request *q, struct sandbox *s)
{
	struct process_stream *w = process_stream_new(q);
	struct exec_request r = {0};
	uint64_t most = timeout_most(q, s);
	struct e2b_deadline deadline;
	struct err e = {0};

	if (e2b_stream_deadline(q, &deadline) < 0)
		return;
	r.timeout_ms = deadline.command_ms;
	if (read_start(w, &r, s, &e) < 0) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
	} else {
		if (most && (!r.timeout_ms || r.timeout_ms > most))
			r.timeout_ms = most;
		e2b_stream_open(&w->stream, s, KEEPALIVE, deadline.stream_ms);
		w->stream.pump.from = exec_start(s, &q->x->caller, &r, &process_ops, w);
	}
	list_done(&r.argv);
	list_done(&r.env);
}

/* ---- finding a command ---- */

uint32_t e2b_exec_id(const json_t *exec)
{
	return (uint32_t)json_integer_value(json_object_get(exec, "id"));
}

bool e2b_is_hidden(const json_t *exec)
{
	const char *tag = json_string_value(json_object_get(exec, "tag"));

	return tag && str_starts(tag, E2B_HIDDEN_TAG);
}

/* Connect also finds ended commands. If several have had this pid, the running one counts. */
static const json_t *pick_command(const struct e2b_request *q, const json_t *execs, const char *key)
{
	const json_t *wanted = json_object_get(json_object_get(q->in, "process"), key),
		     *best = NULL;
	bool ended_too = q->method->shape == E2B_STREAM;
	json_t *one;
	size_t i;

	json_array_foreach ((json_t *)execs, i, one) {
		if (e2b_is_hidden(one) || !json_equal(json_object_get(one, key), wanted))
			continue;
		if (json_is_true(json_object_get(one, "running")) || (ended_too && !best))
			best = one;
	}
	return best;
}

static void find_command(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;
	const json_t *selector = json_object_get(q->in, "process");
	const char *tag = json_string_value(json_object_get(selector, "tag"));
	const json_t *one = value ? pick_command(q, value, tag ? "tag" : "pid") : NULL;
	struct sandbox *s;

	if (!value)
		e2b_rpc_error(q, e);
	else if (!one && tag)
		e2b_rpc_fail(q, CONNECT_NOT_FOUND, "process with tag %.200s not found", tag);
	else if (!one)
		e2b_rpc_fail(q, CONNECT_NOT_FOUND, "process with pid %lld not found",
			     (long long)json_integer_value(json_object_get(selector, "pid")));
	else if ((s = e2b_still(q)))
		q->method->found(q, s, one);
	json_decref(value);
}

void e2b_process_find(struct e2b_request *q, struct sandbox *s)
{
	const json_t *selector = json_object_get(q->in, "process");

	if (json_is_integer(json_object_get(selector, "pid")) ||
	    json_is_string(json_object_get(selector, "tag")))
		sandbox_execs(s, find_command, q);
	else
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "process: names neither pid nor tag");
}

/* ---- Connect ---- */

void e2b_process_attach(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	struct process_stream *w;
	struct e2b_deadline deadline;

	if (e2b_stream_deadline(q, &deadline) < 0)
		return;
	w = process_stream_new(q);
	w->tty = json_is_true(json_object_get(exec, "tty"));
	e2b_stream_open(&w->stream, s, KEEPALIVE, deadline.stream_ms);
	/* Like envd, sends only new output, and of an ended command only the end event. */
	w->stream.pump.from = exec_attach(s, e2b_exec_id(exec), UINT64_MAX, &process_ops, w);
}
