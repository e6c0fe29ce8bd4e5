/* process.Process: input, signals and terminal sizes for running commands, and the list of them. */
#include "api/e2b/e2b_internal.h"

/* Ends a call without a result: {} or the error. */
static void call_done(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;

	json_decref(value);
	if (e && e->kind != ERR_NONE)
		e2b_rpc_error(q, e);
	else
		e2b_rpc_ok(q, json_object());
}

/* ---- input ---- */

struct process_input {
	struct buf bytes;
	bool tty;
};

static void process_input_done(void *more)
{
	buf_done(&((struct process_input *)more)->bytes);
}

/* {"stdin":base64} or {"pty":base64}; -1 after an answer. */
static int take_input(struct e2b_request *q, struct process_input *f, const json_t *input)
{
	const json_t *text = json_object_get(input, "stdin"), *pty = json_object_get(input, "pty");

	if (pty && !json_is_null(pty)) {
		text = pty;
		f->tty = true;
	}
	if (!json_is_string(text))
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "input: names neither stdin nor pty");
	else if (connect_bytes(json_string_value(text), json_string_length(text), &f->bytes) < 0)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "input: not base64");
	else
		return 0;
	return -1;
}

static void input_fed(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;
	bool failed = e && e->kind != ERR_NONE;

	/* A command without an open stdin: envd answers "internal", whatever the errno. */
	if (failed && !e2b_is_cut(q, e) && e->errnum != ENOENT && e->errnum != ESRCH) {
		json_decref(value);
		e2b_rpc_fail(q, CONNECT_INTERNAL, "error writing to stdin: %s", e->msg);
	} else {
		call_done(q, value, e);
	}
}

void e2b_process_feed(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	struct process_input *f = q->more;
	bool tty = json_is_true(json_object_get(exec, "tty"));

	if (f->tty != tty)
		e2b_rpc_fail(q, CONNECT_INTERNAL,
			     tty ? "tty assigned to process" : "tty not assigned to process");
	else if (!f->bytes.len)
		input_fed(q, NULL, NULL);
	else
		sandbox_input(s, e2b_exec_id(exec), buf_head(&f->bytes), f->bytes.len, false,
			      input_fed, q);
}

void e2b_process_input(struct e2b_request *q, struct sandbox *s)
{
	if (take_input(q, e2b_keep(q, sizeof(struct process_input), process_input_done),
		       json_object_get(q->in, "input")) == 0)
		e2b_process_find(q, s);
}

/* ---- StreamInput: the start, then data and keepalives, all in one body ---- */

static int take_row(struct e2b_request *q, struct process_input *f, json_t *row)
{
	const json_t *start = json_object_get(row, "start"), *data = json_object_get(row, "data");

	if (start && !q->in) {
		q->in = json_deep_copy(start);
		return 0;
	}
	if (!q->in) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "the first message is not a start");
		return -1;
	}
	return data ? take_input(q, f, json_object_get(data, "input")) : 0;
}

void e2b_process_stream_input(struct e2b_request *q, struct sandbox *s)
{
	struct buf body = {.data = (char *)q->x->body, .len = q->x->body_len};
	struct process_input *f = e2b_keep(q, sizeof(*f), process_input_done);
	struct connect_envelope v;
	struct err e = {0};
	int got;

	while ((got = connect_next(&body, E2B_MESSAGE, &v, &e)) > 0 && !(v.flags & CONNECT_END)) {
		json_t *row = connect_message(v.data, v.len, &e);
		int rc = row ? take_row(q, f, row) : -2;

		json_decref(row);
		if (rc == -1)
			return;
		if (rc < 0)
			break;
		body.at += v.size;
		body.len -= v.size;
	}
	if (e.kind != ERR_NONE)
		e2b_rpc_fail(q, connect_code_of(&e), "%s", e.msg);
	else if (got == 0 && body.len)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "the request ends within an envelope");
	else if (!q->in)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "the request has no message");
	else
		e2b_process_find(q, s);
}

/* ---- the rest ---- */

void e2b_process_close_stdin(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	if (json_is_true(json_object_get(exec, "tty")))
		e2b_rpc_fail(q, CONNECT_UNKNOWN,
			     "cannot close stdin for PTY process - send Ctrl+D (0x04) instead");
	else
		sandbox_input(s, e2b_exec_id(exec), "", 0, true, call_done, q);
}

/* By name or by number: proto3 JSON allows both. 0: not supported. */
static int signal_of(const json_t *value)
{
	const char *name = json_string_value(value);
	json_int_t number = json_integer_value(value);

	if (name ? str_equal(name, "SIGNAL_SIGKILL") : number == SIGKILL)
		return SIGKILL;
	return (name ? str_equal(name, "SIGNAL_SIGTERM") : number == SIGTERM) ? SIGTERM : 0;
}

void e2b_process_kill(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	int sig = signal_of(json_object_get(q->in, "signal"));

	sandbox_signal(s, e2b_exec_id(exec), sig, sig == SIGKILL, call_done, q);
}

void e2b_process_signal(struct e2b_request *q, struct sandbox *s)
{
	if (signal_of(json_object_get(q->in, "signal")))
		e2b_process_find(q, s);
	else
		e2b_rpc_fail(q, CONNECT_UNIMPLEMENTED,
			     "invalid signal: SIGNAL_SIGKILL or SIGNAL_SIGTERM");
}

void e2b_process_update(struct e2b_request *q, struct sandbox *s, const json_t *exec)
{
	uint32_t rows, cols;
	struct err e = {0};

	if (!json_object_get(q->in, "pty"))
		e2b_rpc_ok(q, json_object());
	else if (!json_is_true(json_object_get(exec, "tty")))
		e2b_rpc_fail(q, CONNECT_INTERNAL, "tty not assigned to process");
	else if (e2b_pty_size(q->in, &rows, &cols, &e) < 0)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
	else
		sandbox_resize(s, e2b_exec_id(exec), rows, cols, call_done, q);
}

/* ---- List ---- */

static json_t *process_json(const json_t *exec)
{
	const json_t *cmd = json_object_get(exec, "cmd");
	const char *first = json_string_value(json_array_get(cmd, 0));
	const char *cwd = json_string_value(json_object_get(exec, "cwd"));
	const char *tag = json_string_value(json_object_get(exec, "tag"));
	json_t *args = must_alloc(json_array());

	for (size_t i = 1; i < json_array_size(cmd); i++)
		json_array_append(args, json_array_get(cmd, i));
	return must_alloc(json_pack("{s:{s:s,s:o,s:{},s:s*},s:O,s:s*}", "config", "cmd",
				    first ? first : "", "args", args, "envs", "cwd",
				    cwd && *cwd ? cwd : NULL, "pid", json_object_get(exec, "pid"),
				    "tag", tag && *tag ? tag : NULL));
}

static void list_execs(void *arg, json_t *value, const struct err *e)
{
	struct e2b_request *q = arg;
	json_t *all, *one;
	size_t i;

	if (!value) {
		e2b_rpc_error(q, e);
		return;
	}
	all = must_alloc(json_array());
	json_array_foreach (value, i, one)
		if (json_is_true(json_object_get(one, "running")) && !e2b_is_hidden(one))
			json_array_append_new(all, process_json(one));
	e2b_rpc_ok(q, json_pack("{s:o}", "processes", all));
	json_decref(value);
}

void e2b_process_list(struct e2b_request *q, struct sandbox *s)
{
	sandbox_execs(s, list_execs, q);
}
