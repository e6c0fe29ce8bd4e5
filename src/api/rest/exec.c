/* POST /exec: reads the request, then answers with the result, a stream, or a background command. */
#include "api/rest/rest.h"

const struct body_table v1_exec_table = BODY_TABLE(
	BODY_ALONE, FIELD("cmd", BODY_LIST, "the command and its arguments"),
	FIELD("shell", BODY_TEXT, "or: one line for a shell"),
	FIELD("code", BODY_TEXT, "or: a snippet"),
	FIELD("language", BODY_TEXT, "of the code; python"),
	FIELD("args", BODY_LIST, "its arguments"),
	FIELD("env", BODY_ENV, "variables besides the sandbox's"),
	FIELD("cwd", BODY_TEXT, "where it starts"),
	FIELD("stdin", BODY_TEXT, "its input, then the end of it"),
	FIELD("stdin_base64", BODY_TEXT, "the same, as base64"),
	FIELD("interactive", BODY_FLAG, "input stays open for .../stdin"),
	FIELD("timeout", BODY_TIME, "then it is killed; 0 for none, if the operator allows that"),
	FIELD("user", BODY_TEXT, "user (default) or root of the sandbox"),
	FIELD("tty", BODY_FLAG, "a terminal"), FIELD("rows", BODY_COUNT, "of the terminal"),
	FIELD("cols", BODY_COUNT, "of the terminal"),
	FIELD("tag", BODY_TEXT, "to find it again by"),
	FIELD("session", BODY_TEXT, "a shell session whose directory and variables stay"),
	FIELD("background", BODY_FLAG, "answer as soon as it has started"),
	FIELD("on_disconnect", BODY_TEXT, "kill (default) or keep"),
	FIELD("encoding", BODY_TEXT, "base64: output as base64 in the result"));

/* ---- one request to execute something ---- */

struct exec_job {
	struct exchange *x;
	struct exec_request r;
	char code[SNIPPET_PATH]; /* the file of a snippet, or "" */
	struct call *placing;
	char *input;
	bool has_input, keep;
	struct exec *exec;
	struct capture_run *capture;
	uint32_t eid, pid;
};

static void exec_job_done(void *data)
{
	struct exec_job *j = data;

	call_drop(j->placing);
	list_done(&j->r.argv);
	list_done(&j->r.env);
	free(j->input);
}

static int read_words(struct exec_job *j, const json_t *body, struct err *e)
{
	static const char *const ends[] = {"kill", "keep", NULL};
	const struct language *l;
	int end;

	if (command_read(body, &j->r, &l, e) < 0)
		return -1;
	if (l) {
		snippet_choose_path(l, j->code);
		snippet_request(l, j->code, &j->r);
		body_list(body, "args", &j->r.argv);
	}
	end = body_choice(body, "on_disconnect", ends, e);
	j->keep = end == 1;
	return end < 0 ? -1 : body_env(body, "env", &j->r.env, e);
}

/* most_ms: a ceiling, or 0. */
static int read_timeout(struct exec_request *r, const json_t *body, uint64_t usual_ms,
			uint64_t most_ms, struct err *e)
{
	/* Background commands and terminals have no default timeout. */
	if (body_flag(body, "background") || body_flag(body, "tty"))
		usual_ms = 0;
	if (body_time(body, "timeout", usual_ms, &r->timeout_ms, e) < 0)
		return -1;
	if (!most_ms || (r->timeout_ms && r->timeout_ms <= most_ms))
		return 0;
	if (body_has(body, "timeout"))
		return err_field(e, ERR_DENIED, "timeout", "timeout: at most %" PRIu64 " ms here",
				 most_ms);
	r->timeout_ms = most_ms;
	return 0;
}

static int read_job(struct exec_job *j, const json_t *body, uint64_t timeout_ms, uint64_t most_ms,
		    struct err *e)
{
	struct exec_request *r = &j->r;

	if (read_words(j, body, e) < 0 || read_timeout(r, body, timeout_ms, most_ms, e) < 0)
		return -1;
	r->cwd = body_text(body, "cwd");
	r->user = body_text(body, "user");
	r->tag = body_text(body, "tag");
	r->session = body_text(body, "session");
	r->tty = body_flag(body, "tty");
	r->rows = (uint32_t)body_count(body, "rows", 24);
	r->cols = (uint32_t)body_count(body, "cols", 80);
	r->background = body_flag(body, "background");
	r->keep = j->keep || r->background;
	j->has_input = body_has(body, "stdin") || body_has(body, "stdin_base64");
	r->no_stdin = !j->has_input && !r->tty && !body_flag(body, "interactive");
	if (r->rows > 10000 || r->cols > 10000)
		return err_field(e, ERR_INVALID, "rows", "rows: the terminal is too large");
	return v1_read_input(body, r, &j->input, e);
}

/* ---- plain: one result ---- */

static void on_captured(void *arg, struct capture_run *c, const struct err *e)
{
	struct exec_job *j = arg;

	j->capture = NULL;
	if (c)
		v1_answer_result(j->x, capture_result(c));
	else
		exchange_error(j->x, e);
	capture_drop(c);
}

static void plain_gone(void *arg)
{
	struct exec_job *j = arg;

	if (j->keep || !j->capture)
		return;
	capture_drop(take_ptr(j->capture));
	exchange_answer_gone(j->x);
}

static void start_plain(struct exec_job *j, struct sandbox *s)
{
	exchange_on_gone(j->x, plain_gone, j);
	j->capture = exec_capture(s, &j->x->caller, &j->r, on_captured, j);
}

/* ---- background ---- */

static void answer_background(void *arg, const struct err *e)
{
	struct exec_job *j = arg;

	if (e)
		exchange_error(j->x, e);
	else
		exchange_json(j->x, 201,
			      json_pack("{s:I, s:I, s:b, s:s?}", "id", (json_int_t)j->eid, "pid",
					(json_int_t)j->pid, "running", true, "tag", j->r.tag));
}

static void on_input_given(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	answer_background(arg, e);
}

static void on_background(void *arg, uint32_t eid, uint32_t pid)
{
	struct exec_job *j = arg;
	struct sandbox *s;

	j->eid = eid;
	j->pid = pid;
	exec_detach(take_ptr(j->exec));
	if (!j->has_input)
		answer_background(j, NULL);
	else if ((s = v1_sandbox(j->x)))
		sandbox_input(s, eid, j->r.input, j->r.input_len, true, on_input_given, j);
}

static void no_exit(void *arg, const struct outcome *x)
{
	answer_background(arg, NULL);
}

static const struct exec_ops background_ops = {
	.on_start = on_background, .on_exit = no_exit, .on_error = answer_background};

static void start_command(struct exchange *x)
{
	struct exec_job *j = x->data;
	struct sandbox *s = x->sandbox;

	if (j->r.background)
		j->exec = exec_start(s, &j->x->caller, &j->r, &background_ops, j);
	else if (exchange_accepts(x, "text/event-stream"))
		stream_start(x, s, &j->r, j->has_input ? j->r.input : NULL, j->r.input_len);
	else
		start_plain(j, s);
}

static void on_placed(void *arg, const struct answer *a, const struct err *e)
{
	struct exec_job *j = arg;

	j->placing = NULL;
	if (e)
		exchange_error(j->x, e);
	else
		v1_awake(j->x, start_command);
}

void v1_exec(struct exchange *x)
{
	struct exec_job *j = exchange_attach(x, sizeof(*j), exec_job_done);
	struct err e = {0};

	j->x = x;
	if (read_job(j, x->json, sandbox_spec(x->sandbox)->limits.timeout_ms,
		     exec_timeout_most(x->api->manager, &x->caller), &e) < 0)
		exchange_error(x, &e);
	else if (*j->code)
		j->placing = snippet_put(x->sandbox, j->code, json_object_get(x->json, "code"),
					 on_placed, j);
	else
		start_command(x);
}
