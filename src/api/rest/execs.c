/* Commands of a sandbox by id: list, stream, input, signals, terminal size. */
#include "api/rest/rest.h"

const struct body_table v1_stdin_table =
	BODY_TABLE(BODY_ALONE, FIELD("text", BODY_TEXT, "what it reads"),
		   FIELD("base64", BODY_TEXT, "or that as base64"),
		   FIELD("close", BODY_FLAG, "nothing comes after it"));

const struct body_table v1_signal_table = BODY_TABLE(
	BODY_ALONE, FIELD("signal", BODY_WORD, "TERM (default), KILL, INT ... or a number"),
	FIELD("tree", BODY_FLAG, "all of its descendants as well"));

const struct body_table v1_resize_table =
	BODY_TABLE(BODY_ALONE, NEEDED("rows", BODY_COUNT, "of the terminal"),
		   NEEDED("cols", BODY_COUNT, "of the terminal"));

/* ---- by id ---- */

bool v1_read_eid(struct exchange *x, uint32_t *ret)
{
	struct err e = {0};
	uint64_t n;

	if (parse_count(x->params[1], &n, &e) == 0 && n <= UINT32_MAX) {
		*ret = (uint32_t)n;
		return true;
	}
	exchange_fail(x, ERR_NOT_FOUND, "there is no such command");
	return false;
}

void v1_execs(struct exchange *x)
{
	sandbox_execs(x->sandbox, v1_answer_json, x);
}

static void find_exec(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	const json_t *list = json_is_object(value) ? json_object_get(value, "execs") : value;
	json_t *item, *found = NULL;
	uint32_t eid;
	size_t i;

	if (e && e->kind != ERR_NONE) {
		exchange_error(x, e);
	} else if (v1_read_eid(x, &eid)) {
		json_array_foreach (list, i, item)
			if (json_integer_value(json_object_get(item, "id")) == eid)
				found = item;
		if (found)
			exchange_json(x, 200, json_incref(found));
		else
			exchange_fail(x, ERR_NOT_FOUND, "there is no such command");
	}
	json_decref(value);
}

void v1_exec_inspect(struct exchange *x)
{
	sandbox_execs(x->sandbox, find_exec, x);
}

void v1_exec_kill(struct exchange *x)
{
	uint32_t eid;

	if (v1_read_eid(x, &eid))
		sandbox_signal(x->sandbox, eid, SIGKILL, true, v1_answer_empty, x);
}

void v1_exec_stream(struct exchange *x)
{
	uint64_t from;
	uint32_t eid;

	if (v1_read_eid(x, &eid) && v1_arg_uint(x, "from", 0, INT64_MAX, &from))
		stream_attach(x, x->sandbox, eid, from);
}

static const int signals[] = {SIGHUP,  SIGINT,	SIGQUIT, SIGKILL, SIGUSR1,
			      SIGUSR2, SIGTERM, SIGCONT, SIGSTOP, SIGWINCH};

int v1_read_signal(const char *name, int *ret, struct err *e)
{
	uint64_t n = 0;
	struct err inner;

	if (str_starts(name, "SIG"))
		name += 3;
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (str_equal(name, sigabbrev_np(signals[i])))
			n = (uint64_t)signals[i];
	if (!n && (parse_count(name, &n, &inner) < 0 || n < 1 || n > 64))
		return err_field(e, ERR_INVALID, "signal", "signal: '%.40s' is none", name);
	*ret = (int)n;
	return 0;
}

void v1_exec_signal(struct exchange *x)
{
	const char *name = body_text(x->json, "signal");
	char number[24];
	struct err e = {0};
	uint32_t eid;
	int sig = 0;

	if (!v1_read_eid(x, &eid))
		return;
	snprintf(number, sizeof(number), "%llu",
		 (unsigned long long)body_count(x->json, "signal", SIGTERM));
	if (v1_read_signal(name ? name : number, &sig, &e) < 0)
		exchange_error(x, &e);
	else
		sandbox_signal(x->sandbox, eid, sig, body_flag(x->json, "tree"), v1_answer_empty,
			       x);
}

void v1_exec_resize(struct exchange *x)
{
	uint64_t rows = body_count(x->json, "rows", 0), cols = body_count(x->json, "cols", 0);
	uint32_t eid;

	if (!v1_read_eid(x, &eid))
		return;
	if (rows > 10000 || cols > 10000)
		exchange_refuse(x, "rows", "the terminal is too large");
	else
		sandbox_resize(x->sandbox, eid, (uint32_t)rows, (uint32_t)cols, v1_answer_empty, x);
}

/* ---- input by id ---- */

void v1_exec_stdin(struct exchange *x)
{
	/* .../close_stdin has no fields. */
	bool close = x->route->describe == &v1_empty_table || body_flag(x->json, "close");
	struct err e = {0};
	uint32_t eid;
	size_t len;
	char *bytes;

	if (!v1_read_eid(x, &eid))
		return;
	if (body_bytes(x->json, "text", "base64", &bytes, &len, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	exchange_also_free(x, bytes, NULL);
	sandbox_input(x->sandbox, eid, bytes, len, close, v1_answer_empty, x);
}

/* A body as it comes, at the command's pace; its end is the end of the input. */
struct input_stream {
	struct exchange *x;
	struct sandbox *s; /* held */
	struct exec *exec; /* takes the input; what the command prints is for others */
	uint32_t eid;
	bool has_ended; /* the guest is told so */
};

static size_t take_input(void *arg, const char *bytes, size_t len)
{
	struct input_stream *i = arg;

	return i->exec ? exec_push(i->exec, bytes, len) : 0;
}

static void end_input(void *arg)
{
	struct input_stream *i = arg;

	i->has_ended = true;
	sandbox_input(i->s, i->eid, "", 0, true, v1_answer_empty, i->x);
}

static void input_begins(void *arg, uint32_t eid, uint32_t pid)
{
	static const struct body_ops ops = {take_input, end_input};
	struct input_stream *i = arg;

	exchange_take_body(i->x, &ops, i);
}

static void input_has_room(void *arg)
{
	struct input_stream *i = arg;

	exchange_more(i->x);
}

static void input_fails(void *arg, const struct err *e)
{
	struct input_stream *i = arg;

	i->exec = NULL;
	if (!i->has_ended)
		exchange_error(i->x, e);
}

static void input_unread(void *arg, const struct outcome *outcome)
{
	struct err e = {.kind = ERR_CONFLICT, .msg = "the command ended before its input did"};

	input_fails(arg, &e);
}

static void input_gone(void *arg)
{
	struct input_stream *i = arg;

	exec_detach(take_ptr(i->exec));
	if (!i->has_ended)
		exchange_answer_gone(i->x);
}

static void input_done(void *arg)
{
	struct input_stream *i = arg;

	exec_detach(take_ptr(i->exec));
	sandbox_release(i->s);
}

void v1_exec_input(struct exchange *x)
{
	static const struct exec_ops ops = {.on_start = input_begins,
					    .on_room = input_has_room,
					    .on_exit = input_unread,
					    .on_error = input_fails};
	struct input_stream *i;
	uint32_t eid;

	if (!v1_read_eid(x, &eid))
		return;
	i = exchange_attach(x, sizeof(*i), input_done);
	*i = (struct input_stream){.x = x, .s = sandbox_hold(x->sandbox), .eid = eid};
	exchange_on_gone(x, input_gone, i);
	i->exec = exec_attach(i->s, eid, UINT64_MAX, &ops, i);
	exec_leave_unread(i->exec);
}
