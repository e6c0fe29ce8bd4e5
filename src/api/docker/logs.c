/*
 * GET /containers/ID/logs: the output of the last runs of the main process, as far as the guest has kept it, and with
 * follow what comes after it. When a piece of output came is known of what this front has seen; older output has the
 * time at which its run began.
 */
#include "api/docker/docker_internal.h"

#define TAIL_MAX 100000 /* lines that are counted back; more is everything */

/* A line, or a part of one: of `kept`, len bytes behind the piece before it. */
struct piece {
	uint64_t unix_ns;
	uint32_t len;
	uint8_t kind;
	bool begins; /* a line of this output */
};

struct logs {
	struct exchange *x;
	struct container *c; /* the request holds it */
	bool wants[3];	     /* by kind */
	bool follows, timestamps;
	uint64_t since_ns, until_ns, tail; /* tail UINT64_MAX: all */
	bool in_line[3];
	/* The run that is read. */
	size_t run;
	json_t *execs;
	struct exec *exec;
	uint64_t until; /* its output so far; UINT64_MAX: to its end */
	struct pump pump;
	/* The end of what there was, if only some lines of it are wanted. */
	bool is_kept; /* it has been written */
	struct buf kept;
	struct piece *pieces;
	size_t first, count, room, lines;
};

static void logs_done(void *data)
{
	struct logs *l = data;

	exec_detach(l->exec);
	json_decref(l->execs);
	buf_done(&l->kept);
	free(l->pieces);
}

/* ---- writing ---- */

static void write_piece(struct logs *l, const struct piece *p, const char *bytes)
{
	char stamp[UTC_TEXT + 1] = "", head[RAW_FRAME];
	size_t stamp_len = 0;

	if (l->timestamps && p->begins) {
		utc_text(p->unix_ns / 1000000000, (uint32_t)(p->unix_ns % 1000000000), 9, stamp);
		stamp_len = strlen(stamp);
		stamp[stamp_len++] = ' ';
	}
	raw_frame(head, p->kind, stamp_len + p->len);
	if (!container_has_tty(l->c))
		exchange_write(l->x, head, sizeof(head));
	exchange_write(l->x, stamp, stamp_len);
	exchange_write(l->x, bytes, p->len);
}

static void drop_oldest(struct logs *l)
{
	/* The first one begins a line; what continues it goes along. */
	do {
		buf_drop(&l->kept, l->pieces[l->first].len);
		l->first++;
	} while (l->first < l->count && !l->pieces[l->first].begins);
	l->lines--;
	if (l->first > 1024 && l->first > l->count / 2) {
		memmove(l->pieces, l->pieces + l->first,
			(l->count - l->first) * sizeof(*l->pieces));
		l->count -= l->first;
		l->first = 0;
	}
}

static void keep_piece(struct logs *l, const struct piece *p, const char *bytes)
{
	/* A rest of a line whose beginning is gone counts as a line. */
	bool is_line = p->begins || l->first == l->count;

	l->pieces = array_room(l->pieces, l->count, &l->room, sizeof(*l->pieces));
	l->pieces[l->count] = *p;
	l->pieces[l->count++].begins = is_line;
	buf_add(&l->kept, bytes, p->len);
	l->lines += is_line;
	while (l->lines > l->tail)
		drop_oldest(l);
}

static void write_kept(struct logs *l)
{
	for (size_t i = l->first; i < l->count; i++) {
		write_piece(l, &l->pieces[i], buf_head(&l->kept));
		buf_drop(&l->kept, l->pieces[i].len);
	}
	l->first = l->count = 0;
	l->is_kept = true;
}

static bool is_wanted(const struct logs *l, uint64_t unix_ns)
{
	return unix_ns >= l->since_ns && (!l->until_ns || unix_ns <= l->until_ns);
}

static void take_output(struct logs *l, int kind, uint64_t seq, const char *bytes, size_t len)
{
	const struct box_run *run = &l->c->runs[l->run];
	bool keeps = l->tail != UINT64_MAX && !l->is_kept;

	if (!l->wants[kind])
		return;
	if (!keeps && !l->timestamps && !l->since_ns && !l->until_ns) {
		write_piece(l, &(struct piece){0, (uint32_t)len, (uint8_t)kind, false}, bytes);
		return;
	}
	while (len) {
		const char *end = memchr(bytes, '\n', len);
		size_t n = end ? (size_t)(end - bytes) + 1 : len;
		struct piece p = {run_time(run, seq), (uint32_t)n, (uint8_t)kind,
				  !l->in_line[kind]};

		l->in_line[kind] = !end;
		if (is_wanted(l, p.unix_ns) && keeps)
			keep_piece(l, &p, bytes);
		else if (is_wanted(l, p.unix_ns))
			write_piece(l, &p, bytes);
		bytes += n;
		seq += n;
		len -= n;
	}
}

/* ---- reading ---- */

static void read_run(struct logs *l);

static void end_logs(struct logs *l)
{
	if (!l->is_kept)
		write_kept(l);
	exchange_finish(l->x);
}

static void next_run(struct logs *l)
{
	l->run++;
	read_run(l);
}

static void on_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct logs *l = arg;
	uint64_t end = seq + len;

	/* What was there has been read: the lines that are wanted of it go out, and what follows as it comes. */
	if (l->until != UINT64_MAX && end > l->until)
		len -= (size_t)(end - l->until);
	take_output(l, kind, seq, bytes, len);
	pump_moved(&l->pump, (size_t)(end - seq));
	if (l->until == UINT64_MAX || end < l->until)
		return;
	exec_detach(take_ptr(l->exec));
	l->pump.from = NULL;
	if (l->follows && l->run + 1 == l->c->run_count) {
		write_kept(l);
		l->until = UINT64_MAX;
		read_run(l);
	} else {
		next_run(l);
	}
}

static void on_over(void *arg, const struct err *e)
{
	struct logs *l = arg;

	l->exec = NULL;
	l->pump.from = NULL;
	next_run(l);
}

static void on_exit_of(void *arg, const struct outcome *x)
{
	on_over(arg, NULL);
}

static const struct exec_ops log_ops = {
	.on_output = on_output, .on_exit = on_exit_of, .on_error = on_over};

static const json_t *find_exec(const struct logs *l, uint32_t eid)
{
	json_t *item;
	size_t i;

	json_array_foreach (l->execs, i, item)
		if (json_integer_value(json_object_get(item, "id")) == eid)
			return item;
	return NULL;
}

static uint64_t number_of(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* Reads the run that is next, or the rest of it (until UINT64_MAX). */
static void read_run(struct logs *l)
{
	const json_t *item = NULL;
	uint64_t from = 0;

	while (l->run < l->c->run_count && !(item = find_exec(l, l->c->runs[l->run].eid)))
		l->run++;
	if (!item || l->c->is_gone) {
		end_logs(l);
		return;
	}
	if (l->until == UINT64_MAX) {
		from = number_of(item, "next_seq");
	} else {
		bool goes_on = l->follows && l->run + 1 == l->c->run_count;

		l->until = number_of(item, "next_seq");
		if (l->until == number_of(item, "oldest_seq") && !goes_on) {
			next_run(l);
			return;
		}
		if (l->until == number_of(item, "oldest_seq") ||
		    (goes_on && l->tail == UINT64_MAX)) {
			write_kept(l);
			l->until = UINT64_MAX;
		}
	}
	l->exec = exec_attach(l->c->s, l->c->runs[l->run].eid, from, &log_ops, l);
	exec_retain(l->exec);
	l->pump.from = l->exec;
}

static void on_list(void *arg, json_t *value, const struct err *e)
{
	struct logs *l = arg;

	l->execs = value;
	if (e && e->kind != ERR_NONE) {
		exchange_error(l->x, e);
		return;
	}
	/* A client that is gone is told of once, and that was before there was anything to detach. */
	if (l->x->gone) {
		exchange_answer_gone(l->x);
		return;
	}
	if (l->follows)
		exchange_set_endless(l->x);
	exchange_stream(l->x, 200, raw_type(container_has_tty(l->c)), EXCHANGE_UNKNOWN_LENGTH);
	read_run(l);
}

static void on_gone(void *arg)
{
	struct logs *l = arg;

	/* Without an attachment another answer is due, and ends the exchange. */
	if (!l->exec)
		return;
	exec_detach(take_ptr(l->exec));
	l->pump.from = NULL;
	exchange_answer_gone(l->x);
}

/* ---- the request ---- */

static int read_query(struct logs *l, struct err *e)
{
	const char *tail = exchange_arg(l->x, "tail");

	l->wants[1] = docker_flag(l->x, "stdout", false);
	l->wants[2] = docker_flag(l->x, "stderr", false);
	l->follows = docker_flag(l->x, "follow", false);
	l->timestamps = docker_flag(l->x, "timestamps", false);
	l->tail = UINT64_MAX;
	if (!l->wants[1] && !l->wants[2])
		return err_set(e, ERR_INVALID,
			       "Bad parameters: you must choose at least one stream");
	/* What is no number means all, as in Docker. */
	if (tail && str_only(tail, STR_DIGITS, 1, 5))
		l->tail = strtoull(tail, NULL, 10);
	if (l->tail > TAIL_MAX)
		l->tail = UINT64_MAX;
	return docker_arg_time(l->x, "since", &l->since_ns, e) < 0
		       ? -1
		       : docker_arg_time(l->x, "until", &l->until_ns, e);
}

static void logs_awake(struct exchange *x, struct sandbox *s)
{
	sandbox_execs(s, on_list, docker_of(x)->more);
}

void docker_logs(struct exchange *x)
{
	struct logs *l = must_alloc(calloc(1, sizeof(*l)));
	struct err e = {0};

	*l = (struct logs){.x = x, .c = docker_of(x)->c};
	docker_of(x)->more = l;
	exchange_also_free(x, l, logs_done);
	if (read_query(l, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	l->pump.credit = exec_credit;
	exchange_pump(x, &l->pump);
	exchange_on_gone(x, on_gone, l);
	container_awake(x, logs_awake);
}
