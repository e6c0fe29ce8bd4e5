/*
 * process.Process: commands that are started, watched and fed. A command outlives its stream; whoever
 * connects again gets what is new. Commands are found by their pid inside, or by their tag.
 */
#include "api/e2b_stream.h"

#include "auth/tokens.h"
#include "base/auto.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define KEEPALIVE "{\"event\":{\"keepalive\":{}}}"
#define CHUNK (32u << 10)

/* ---- a stream of events ---- */

struct watching {
	struct e2b_stream stream;
	struct exec *exec;
	char *cwd; /* as the client named it; NULL: the home */
	bool tty;
};

static void watching_done(void *more)
{
	struct watching *w = more;

	e2b_stream_done(&w->stream);
	if (w->exec)
		exec_detach(w->exec);
	free(w->cwd);
}

static struct watching *watching_new(struct e2b_request *q)
{
	struct watching *w = e2b_keep(q, sizeof(*w), watching_done);

	w->stream.q = q;
	return w;
}

static void event(struct watching *w, json_t *what)
{
	e2b_stream_send(&w->stream, json_pack("{s:o}", "event", must_alloc(what)));
}

static void on_start(void *arg, uint32_t eid, uint32_t pid)
{
	(void)eid;
	event(arg, json_pack("{s:{s:I}}", "start", "pid", (json_int_t)pid));
}

static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct watching *w = arg;
	const char *name = w->tty ? "pty" : kind == 2 ? "stderr" : "stdout";

	(void)seq;
	for (size_t at = 0; at < len; at += CHUNK) {
		size_t n = len - at < CHUNK ? len - at : CHUNK;

		event(w, json_pack("{s:{s:o}}", "data", name, connect_from_bytes(bytes + at, n)));
	}
	pump_moved(&w->stream.pump, len);
}

/* As Go says it, which are glibc's words in lower case. */
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
	json_t *end;

	if (x->signal)
		signal_text(x->signal, status, sizeof(status));
	else
		snprintf(status, sizeof(status), "exit status %d", x->exit_code);
	end = must_alloc(json_pack("{s:i,s:b,s:s}", "exitCode", x->signal ? -1 : x->exit_code,
				   "exited", !x->signal, "status", status));
	if (x->signal || x->exit_code)
		json_object_set_new(end, "error", json_string(status));
	return json_pack("{s:o}", "end", end);
}

/* No more comes from the command. */
static void forget_exec(struct watching *w)
{
	w->exec = NULL;
	w->stream.pump.from = NULL;
}

static void on_exit_(void *arg, const struct outcome *x)
{
	struct watching *w = arg;

	forget_exec(w);
	if (x->exec_errno) {
		e2b_stream_end(&w->stream, CONNECT_INVALID_ARGUMENT, strerror(x->exec_errno));
	} else if (x->status == STATUS_TIMEOUT) {
		e2b_stream_end(&w->stream, CONNECT_DEADLINE_EXCEEDED, "the command's time is over");
	} else {
		event(w, end_event(x));
		e2b_stream_end(&w->stream, CONNECT_OK, NULL);
	}
}

static void on_error(void *arg, const struct err *e)
{
	struct watching *w = arg;
	char text[480];

	forget_exec(w);
	if (w->cwd && str_equal(e->field, "cwd") && (e->errnum == ENOENT || e->errnum == ENOTDIR)) {
		snprintf(text, sizeof(text), "cwd '%.400s' %s", w->cwd,
			 e->errnum == ENOENT ? "does not exist" : "is not a directory");
		e2b_stream_end(&w->stream, CONNECT_INVALID_ARGUMENT, text);
	} else {
		e2b_stream_fail(&w->stream, e);
	}
}

static const struct exec_ops ops = {
	.on_start = on_start, .on_output = on_output, .on_exit = on_exit_, .on_error = on_error};

static void stop(void *arg)
{
	struct watching *w = arg;

	if (w->exec)
		exec_detach(w->exec);
	forget_exec(w);
}

static void watch(struct watching *w, struct sandbox *s, uint64_t deadline)
{
	w->stream.stop = stop;
	w->stream.arg = w;
	e2b_stream_open(&w->stream, s, KEEPALIVE, deadline);
}

static void watch_exec(struct watching *w, struct exec *exec)
{
	w->exec = exec;
	w->stream.pump.credit = exec_credit;
	w->stream.pump.from = exec;
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

static int take_env(struct exec_request *r, const struct sandbox *s, const json_t *process,
		    struct err *e)
{
	json_t *envs = json_object_get(process, "envs"), *value;
	const char *name;

	if (envs && !json_is_object(envs) && !json_is_null(envs))
		return err_set(e, ERR_INVALID, "process.envs: not an object");
	if (json_object_size(envs) > EXEC_MAX_ARGS / 2)
		return err_set(e, ERR_INVALID, "process.envs: too many");
	e2b_env(s, &r->env);
	json_object_foreach (envs, name, value) {
		if (!json_is_string(value) || !*name || strchr(name, '='))
			return err_set(e, ERR_INVALID, "process.envs: '%.60s' is no variable",
				       name);
		list_take(&r->env, str_format("%s=%s", name, json_string_value(value)));
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

static int read_start(struct watching *w, struct exec_request *r, struct sandbox *s, struct err *e)
{
	const struct e2b_request *q = w->stream.q;
	const json_t *process = json_object_get(q->in, "process"),
		     *pty = json_object_get(q->in, "pty");
	bool bad = false;
	const char *cwd = e2b_text(process, "cwd", &bad);

	if (!json_is_object(process))
		return err_set(e, ERR_INVALID, "process: is missing");
	r->tag = e2b_text(q->in, "tag", &bad);
	if (bad || (r->tag && (strlen(r->tag) > 200 || str_starts(r->tag, E2B_HIDDEN_TAG))))
		return err_set(e, ERR_INVALID, "cwd or tag: not a usable string");
	r->tty = w->tty = pty && !json_is_null(pty);
	if (take_args(r, process, e) < 0 || take_env(r, s, process, e) < 0 ||
	    (r->tty && e2b_pty_size(q->in, &r->rows, &r->cols, e) < 0))
		return -1;
	if (cwd && *cwd && !(w->cwd = e2b_path(cwd, q->user, e)))
		return -1;
	r->cwd = w->cwd ? w->cwd : "/home/user";
	r->user = q->user;
	r->keep = true;
	r->no_stdin = json_is_false(json_object_get(q->in, "stdin")) && !r->tty;
	return 0;
}

/* A sandbox's own keys are worth no more than the token that it was made with. */
static uint64_t timeout_most(const struct e2b_request *q, const struct sandbox *s)
{
	const struct tokens *all = q->x->api->tokens;
	struct caller owner = {0};

	for (size_t i = 0; i < tokens_count(all); i++) {
		const struct token *t = tokens_at(all, i);

		if (!str_equal(t->id, sandbox_owner(s)))
			continue;
		owner.has_ceiling = true;
		owner.ceiling = t->ceiling;
	}
	return exec_timeout_most(q->x->api->manager, &owner);
}

void e2b_process_start(struct e2b_request *q, struct sandbox *s)
{
	struct watching *w = watching_new(q);
	struct exec_request r = {0};
	uint64_t most = timeout_most(q, s);
	struct err e = {0};

	if (e2b_stream_deadline(q, &r.timeout_ms) < 0)
		return;
	if (read_start(w, &r, s, &e) < 0) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
	} else {
		if (most && (!r.timeout_ms || r.timeout_ms > most))
			r.timeout_ms = most;
		watch(w, s, 0);
		watch_exec(w, exec_start(s, &r, &ops, w));
	}
	list_done(&r.argv);
	list_done(&r.env);
}

/* ---- finding a command ---- */

bool e2b_is_hidden(const json_t *exec)
{
	const char *tag = json_string_value(json_object_get(exec, "tag"));

	return tag && str_starts(tag, E2B_HIDDEN_TAG);
}

/* Connect is told of an ended command, too. A pid may come again; the one that runs is meant. */
static const json_t *pick(const struct e2b_request *q, const json_t *execs, const char *key)
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

static void on_execs(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;
	const json_t *selector = json_object_get(q->in, "process");
	const char *tag = json_string_value(json_object_get(selector, "tag"));
	const json_t *one = value ? pick(q, value, tag ? "tag" : "pid") : NULL;
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
		sandbox_execs(s, on_execs, q);
	else
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "process: names neither pid nor tag");
}

/* ---- Connect ---- */

void e2b_process_attach(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	struct watching *w;
	uint64_t deadline_ms;

	if (e2b_stream_deadline(q, &deadline_ms) < 0)
		return;
	w = watching_new(q);
	w->tty = json_is_true(json_object_get(exec, "tty"));
	watch(w, s, deadline_ms);
	/* Only what is new, as of envd; of an ended one nothing but its end. */
	watch_exec(w, exec_attach(s, (uint32_t)json_integer_value(json_object_get(exec, "id")),
				  UINT64_MAX, &ops, w));
}
