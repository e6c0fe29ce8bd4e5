/*
 * The output of a sandbox's commands. The guest keeps the last part for each command. It is read by
 * attaching to one command after the other, up to the end that the list of commands named.
 */
#include "api/rest/rest.h"

#define BYTES_DEFAULT (64u << 10)
#define BYTES_MAX (1u << 20)
#define TOTAL_MAX (16u << 20)

struct logs {
	struct exchange *x;
	struct sandbox *s; /* held */
	json_t *execs, *answer;
	size_t at, total;
	uint64_t bytes, until, from;
	int64_t only; /* -1: all */
	struct exec *exec;
	struct buf text;
};

static void logs_done(void *data)
{
	struct logs *l = data;

	json_decref(l->execs);
	json_decref(l->answer);
	buf_done(&l->text);
	sandbox_release(l->s);
}

static void read_next(struct logs *l);

static void add_log(struct logs *l)
{
	json_t *o = json_array_get(l->execs, l->at++);
	size_t cut = l->text.len > l->bytes ? l->text.len - l->bytes : 0;
	json_t *entry = json_deep_copy(o);

	json_object_set_new(
		entry, "text",
		text_json(l->text.len ? buf_head(&l->text) + cut : "", l->text.len - cut));
	json_object_set_new(entry, "truncated", json_boolean(l->from > 0 || cut));
	json_array_append_new(l->answer, entry);
	l->total += l->text.len - cut;
	buf_done(&l->text);
	read_next(l);
}

static void on_log_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct logs *l = arg;

	buf_add(&l->text, bytes, len);
	if (l->text.len > 2 * l->bytes)
		buf_drop(&l->text, l->text.len - l->bytes);
	exec_credit(l->exec, len);
	if (seq + len >= l->until) {
		exec_detach(take_ptr(l->exec));
		add_log(l);
	}
}

/* The command has ended, or the guest no longer knows it. */
static void on_log_over(void *arg, const struct err *e)
{
	struct logs *l = arg;

	l->exec = NULL;
	add_log(l);
}

static void on_log_exit(void *arg, const struct outcome *x)
{
	on_log_over(arg, NULL);
}

static const struct exec_ops log_ops = {
	.on_output = on_log_output, .on_exit = on_log_exit, .on_error = on_log_over};

static void read_next(struct logs *l)
{
	const json_t *o;

	while ((o = json_array_get(l->execs, l->at))) {
		int64_t id = json_integer_value(json_object_get(o, "id"));

		if ((l->only < 0 || l->only == id) && l->total < TOTAL_MAX)
			break;
		l->at++;
	}
	if (!o) {
		json_t *answer = json_pack("{s:O}", "logs", l->answer);

		if (l->only >= 0 && !json_array_size(l->answer)) {
			json_decref(answer);
			exchange_fail(l->x, ERR_NOT_FOUND, "there is no such command");
		} else {
			exchange_json(l->x, 200, answer);
		}
		return;
	}
	l->until = (uint64_t)json_integer_value(json_object_get(o, "next_seq"));
	l->from = l->until > l->bytes ? l->until - l->bytes : 0;
	if (l->until == (uint64_t)json_integer_value(json_object_get(o, "oldest_seq")))
		add_log(l);
	else
		l->exec = exec_attach(l->s, (uint32_t)json_integer_value(json_object_get(o, "id")),
				      l->from, &log_ops, l);
}

static void on_log_list(void *arg, json_t *value, const struct err *e)
{
	struct logs *l = arg;

	l->execs = value;
	if (e && e->kind != ERR_NONE)
		exchange_error(l->x, e);
	else
		read_next(l);
}

static void on_logs_gone(void *arg)
{
	struct logs *l = arg;

	if (!l->exec)
		return;
	exec_detach(take_ptr(l->exec));
	exchange_answer_gone(l->x);
}

void v1_logs(struct exchange *x)
{
	struct logs *l = exchange_attach(x, sizeof(*l), logs_done);
	uint64_t only = 0;

	l->x = x;
	l->s = sandbox_hold(x->sandbox);
	l->answer = json_array();
	if (!v1_arg_uint(x, "bytes", BYTES_DEFAULT, BYTES_MAX, &l->bytes) ||
	    !v1_arg_uint(x, "exec", 0, UINT32_MAX, &only))
		return;
	l->only = exchange_arg(x, "exec") ? (int64_t)only : -1;
	exchange_on_gone(x, on_logs_gone, l);
	sandbox_execs(x->sandbox, on_log_list, l);
}
