/* Commands in a sandbox: one struct exec is one attachment to one of them. */
#include "manager/manager_internal.h"

#include "manager/warm/snippets.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <assert.h>

static_assert(EXEC_MAX_ARGS == GUEST_MAX_ARGS, "as many as the guest takes");

/* The guest ends a command at its timeout. If it does not, the daemon stops waiting this much later. */
#define OVERDUE_MS 15000
#define DISK_FULL (64u << 10) /* with less room than this a write may have failed */

static void exec_free(struct exec *x)
{
	loop_timer_stop(x->s->m->p.loop, &x->overdue);
	call_drop(x->call);
	if (x->is_idle)
		x->s->idle_execs--;
	else
		sandbox_active(x->s, -1);
	if (x->is_snippet)
		snippets_expect(x->s);
	sandbox_release(x->s);
	buf_done(&x->request);
	buf_done(&x->cold);
	free(x->file);
	free(x);
}

static void fail_exec(struct exec *x, const struct err *e)
{
	const struct exec_ops *ops = x->ops;
	void *arg = x->arg;
	bool detached = x->detached;
	struct err copy = *e;

	x->s->m->metrics.execs_failed++;
	if (x->file && !x->eid)
		snippets_remove(x->s, x->file);
	exec_free(x);
	if (!detached)
		ops->on_error(arg, &copy);
}

/* ---- the end of a command ---- */

void exit_read(struct unpack *u, const struct sandbox *s, struct outcome *ret)
{
	struct ending from = {.has_cpu_limit = s->o.spec.limits.cpu_time_ms};
	uint8_t told, why;

	from.wait_status = (int)unpack_u32(u);
	from.exec_errno = (int)unpack_u32(u);
	told = unpack_u8(u);
	why = told & GUEST_WHY_MASK;
	from.was_ended = why != GUEST_WHY_NONE && why != GUEST_WHY_OOM;
	from.reason = why == GUEST_WHY_TIMEOUT ? STATUS_TIMEOUT : STATUS_KILLED;
	outcome_judge(&from, ret);
	ret->duration_ms = (double)unpack_u64(u) / 1e3;
	ret->cpu_ms = (double)unpack_u64(u) / 1e3;
	ret->max_rss_bytes = unpack_u64(u);
	ret->denials_seen = unpack_u32(u);
	ret->limits_hit |=
		(told & GUEST_HIT_PIDS ? HIT_PIDS : 0) | (told & GUEST_HIT_DISK ? HIT_DISK : 0);
	if (why == GUEST_WHY_OOM || (told & GUEST_HIT_MEMORY))
		outcome_add_oom(ret, from.was_ended);
}

static void finish_exec(struct exec *x)
{
	const struct exec_ops *ops = x->ops;
	void *arg = x->arg;
	bool detached = x->detached;
	struct outcome exit = x->exit;

	histogram_add(&x->s->m->metrics.exec_ms, (double)(now_ns() - x->begun_ns) / 1e6);
	if (!x->unacked)
		ack(x->s, x->eid);
	if (x->file)
		snippets_ended(x->s, x->file);
	exec_free(x);
	if (!detached && ops->on_exit)
		ops->on_exit(arg, &exit);
}

/* The command has a sandbox of its own, so the peak usage of the sandbox is the command's. */
static bool has_own_sandbox(const struct exec *x)
{
	return x->unacked && x->s->o.transient && !x->warm;
}

/* The counters of the kernel say which limits were reached since the last look. */
static void judge_limits(struct exec *x, const struct ipc_stats *st)
{
	struct sandbox *s = x->s;

	if (st->oom_kills > s->oom_kills)
		outcome_add_oom(&x->exit, x->exit.status == STATUS_KILLED);
	if (st->pids_refused > s->pids_refused)
		x->exit.limits_hit |= HIT_PIDS;
	if (st->disk_limit_bytes && st->disk_bytes + DISK_FULL > st->disk_limit_bytes)
		x->exit.limits_hit |= HIT_DISK;
	s->oom_kills = st->oom_kills;
	s->pids_refused = st->pids_refused;
	if (has_own_sandbox(x)) {
		x->exit.pids_peak = st->pids_peak;
		x->exit.disk_bytes = (int64_t)st->disk_bytes;
	}
}

static void on_exec_stats(void *arg, const struct ipc *reply, int fd)
{
	struct exec *x = arg;

	close_fd(&fd);
	x->answering = false;
	if (reply->err.kind == ERR_NONE)
		judge_limits(x, &reply->stats);
	finish_exec(x);
}

/* The broker is asked only if a limit may explain the failure. */
static bool may_be_a_limit(const struct exec *x)
{
	const struct outcome *e = &x->exit;

	if (e->status == STATUS_SIGNALED)
		return x->unacked || e->signal == SIGKILL;
	return e->status == STATUS_EXITED && !e->exec_errno &&
	       (x->unacked ? e->exit_code != 0 : e->exit_code == 128 + SIGKILL);
}

static void begin_cold(struct exec *x);

/* An error of the guest about a field begins with the name of the field. */
static struct err with_field(const struct err *e)
{
	static const char *const fields[] = {"cwd", "user"};
	struct err named = *e;

	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if (str_starts(e->msg, fields[i]) && e->msg[strlen(fields[i])] == ':')
			snprintf(named.field, sizeof(named.field), "%s", fields[i]);
	return named;
}

static void on_exec_end(void *arg, const struct err *e)
{
	struct exec *x = arg;
	struct ipc m = {.type = IPC_STATS};
	struct err why;

	x->call = NULL;
	if (e && e->errnum == EAGAIN && !x->eid && x->cold.len) {
		begin_cold(x);
		return;
	}
	if (!x->exited) {
		err_set(&why, ERR_SYSTEM, "the sandbox did not say how the command ended");
		if (e)
			why = with_field(e);
		fail_exec(x, &why);
		return;
	}
	/* The counters of a warm host are those of all its lanes; the guest has reported those of the task. */
	if (x->warm || !(may_be_a_limit(x) || has_own_sandbox(x)) || x->s->state != STATE_RUNNING) {
		finish_exec(x);
		return;
	}
	x->answering = true;
	memcpy(m.id, x->s->id, sizeof(m.id));
	broker_ask(x->s->m->p.broker, &m, -1, on_exec_stats, x);
}

/* ---- output ---- */

static void take_output(struct exec *x, int kind, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	uint64_t seq = unpack_u64(&u);

	if (u.bad)
		return;
	/* The sequence number counts against the window, too, but the receiver credits only the bytes. */
	call_credit(x->call, 8);
	if (x->ops->on_output)
		x->ops->on_output(x->arg, kind, seq, (const char *)u.at, (size_t)(u.end - u.at));
	else
		call_credit(x->call, (size_t)(u.end - u.at));
}

/* A number beyond any disk means unknown. Older guests do not send it. */
static int64_t read_disk(struct unpack *u)
{
	uint64_t bytes = u->at < u->end ? unpack_u64(u) : UINT64_MAX;

	return bytes > INT64_MAX ? -1 : (int64_t)bytes;
}

static void on_exec_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct exec *x = arg;
	struct unpack u = unpack_from(payload, len);
	uint32_t pid;

	switch (type) {
	case G_OK:
		x->eid = unpack_u32(&u);
		pid = unpack_u32(&u);
		if (x->warm) {
			x->proven = unpack_u32(&u);
			x->landlock_abi = (int)unpack_u32(&u);
		} else if (u.at < u.end) {
			/* Older guests do not say. */
			x->cannot = (int)unpack_u32(&u);
		}
		exec_feed(x, &x->source);
		if (x->ops->on_start)
			x->ops->on_start(x->arg, x->eid, pid);
		break;
	case G_OUT:
		take_output(x, 1, payload, len);
		break;
	case G_ERR:
		take_output(x, 2, payload, len);
		break;
	case G_EXIT:
		exit_read(&u, x->s, &x->exit);
		if (x->warm)
			x->exit.disk_bytes = read_disk(&u);
		x->exited = !u.bad;
		break;
	}
}

static void on_exec_room(void *arg)
{
	struct exec *x = arg;

	exec_feed(x, &x->source);
	if (x->ops->on_room)
		x->ops->on_room(x->arg);
}

static const struct call_ops exec_ops = {
	.on_frame = on_exec_frame, .on_end = on_exec_end, .on_room = on_exec_room};

static void on_exec_overdue(void *arg)
{
	struct exec *x = arg;
	struct err e;

	if (x->answering)
		return;
	err_set(&e, ERR_SYSTEM, "the sandbox did not end the command when its time was over");
	fail_exec(x, &e);
}

/* ---- starting ---- */

static void send_request(struct exec *x)
{
	x->call = guest_call(x->s, x->type, buf_head(&x->request), x->request.len, &exec_ops, x);
	acks_send(x->s);
	buf_done(&x->request);
	if (x->timeout_ms && !x->background)
		loop_timer_set(x->s->m->p.loop, &x->overdue, x->timeout_ms + OVERDUE_MS);
}

/* No copy of the interpreter can be made: the snippet is started as a new process. */
static void begin_cold(struct exec *x)
{
	x->type = G_EXEC;
	x->request = x->cold;
	x->cold = (struct buf){0};
	send_request(x);
}

/* The audit has answered: the command starts, or e says why not. */
static void start_or_fail(void *arg, struct sandbox *s, const struct err *e)
{
	struct exec *x = arg;

	x->answering = false;
	if (x->detached)
		exec_free(x);
	else if (e)
		fail_exec(x, e);
	else
		send_request(x);
}

static void on_exec_audited(void *arg, const struct err *e)
{
	struct exec *x = arg;
	struct err refused;

	if (e)
		audit_refused(x->s->m, e, &refused);
	start_or_fail(x, NULL, e ? &refused : NULL);
}

static struct exec *exec_new(struct sandbox *s, uint8_t type, const struct exec_ops *ops, void *arg)
{
	struct exec *x = must_alloc(calloc(1, sizeof(*x)));

	*x = (struct exec){.s = sandbox_hold(s), .type = type, .ops = ops, .arg = arg};
	x->begun_ns = now_ns();
	x->overdue = (struct loop_timer){.call = on_exec_overdue, .arg = x};
	sandbox_active(s, 1);
	return x;
}

static uint8_t exec_flags(const struct exec_request *r)
{
	return (uint8_t)((r->tty ? GUEST_EXEC_TTY : 0) | (r->shell ? GUEST_EXEC_SHELL : 0) |
			 (r->no_stdin ? GUEST_EXEC_NO_STDIN : 0) |
			 (r->background ? GUEST_EXEC_BACKGROUND : 0) |
			 (r->keep || r->background ? 0 : GUEST_EXEC_KILL) |
			 (r->login ? GUEST_EXEC_LOGIN : 0) |
			 (r->preforks ? GUEST_EXEC_PREFORK : 0));
}

static void pack_list(struct buf *b, const struct list *l)
{
	pack_u32(b, (uint32_t)l->count);
	for (size_t i = 0; i < l->count; i++)
		pack_str(b, l->items[i]);
}

static void pack_request(const struct exec_request *r, uint32_t prefork, struct buf *b)
{
	if (prefork)
		pack_u32(b, prefork);
	pack_u8(b, exec_flags(r));
	pack_u32(b, r->rows);
	pack_u32(b, r->cols);
	pack_u64(b, r->timeout_ms);
	pack_u32(b, 0);
	pack_str(b, r->cwd);
	pack_str(b, r->user);
	pack_str(b, r->tag);
	pack_str(b, r->session);
	if (r->shell) {
		pack_u32(b, 1);
		pack_str(b, r->shell);
	} else {
		pack_list(b, &r->argv);
	}
	pack_list(b, &r->env);
}

static void pack_warm(const struct exec_request *r, struct buf *b)
{
	struct exec_request command = *r;

	command.shell = NULL;
	pack_u8(b, (uint8_t)((r->warm - WARM_COMMAND) | (r->hold ? GUEST_RUN_HOLD : 0)));
	pack_u8(b, exec_flags(&command));
	pack_u64(b, r->timeout_ms);
	pack_str(b, r->cwd);
	if (r->shell) {
		pack_u32(b, 3);
		pack_str(b, "/bin/bash");
		pack_str(b, "-c");
		pack_str(b, r->shell);
	} else {
		pack_list(b, &r->argv);
	}
	pack_list(b, &r->env);
	pack_bytes(b, r->code, r->code_len);
}

/* The kernel's limit for one argument or variable, with its NUL: 32 pages of 4 KB. */
#define MAX_ARG_STRLEN 131072u

static int check_word(const char *field, size_t index, const char *word, struct err *e)
{
	if (strlen(word) < MAX_ARG_STRLEN)
		return 0;
	return err_field(
		e, ERR_INVALID, field,
		"%s: number %zu has %zu bytes; Linux takes at most %u in one (MAX_ARG_STRLEN). "
		"Put what is long into a file or the input",
		field, index, strlen(word), MAX_ARG_STRLEN - 1);
}

static int check_words(const struct exec_request *r, struct err *e)
{
	if (r->shell && check_word("shell", 0, r->shell, e) < 0)
		return -1;
	for (size_t i = 0; i < r->argv.count; i++)
		if (check_word("cmd", i, r->argv.items[i], e) < 0)
			return -1;
	for (size_t i = 0; i < r->env.count; i++)
		if (check_word("env", i, r->env.items[i], e) < 0)
			return -1;
	return 0;
}

/*
 * A malformed request breaks the link of the guest and all other commands on it, so a request that the
 * guest would not accept is refused here, by the name of the field.
 */
static int check_request(const struct exec_request *r, size_t packed, struct err *e)
{
	const struct {
		const char *field, *text;
		size_t size;
	} texts[] = {{"cwd", r->cwd, GUEST_MAX_PATH},
		     {"user", r->user, GUEST_MAX_USER},
		     {"tag", r->tag, GUEST_MAX_NAME},
		     {"session", r->session, GUEST_MAX_NAME}};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].text && strlen(texts[i].text) >= texts[i].size)
			return err_field(e, ERR_INVALID, texts[i].field,
					 "%s: has more than %zu bytes", texts[i].field,
					 texts[i].size - 1);
	if (r->argv.count > GUEST_MAX_ARGS)
		return err_field(e, ERR_INVALID, "cmd", "cmd: more than %d arguments",
				 GUEST_MAX_ARGS);
	if (r->env.count > GUEST_MAX_ARGS)
		return err_field(e, ERR_INVALID, "env", "env: more than %d variables",
				 GUEST_MAX_ARGS);
	if (packed > GUEST_MAX_EXEC)
		return err_field(e, ERR_INVALID, "cmd",
				 "cmd: command, arguments and variables have more than %u KB; put "
				 "what is long into a file or the input",
				 GUEST_MAX_EXEC >> 10);
	return check_words(r, e);
}

/* The command, cut to size, for the audit. The audit role escapes the bytes. */
static void name_command(const struct exec_request *r, char *text, size_t size)
{
	snprintf(text, size, "%s%s", r->shell ? "shell " : "", r->shell ? r->shell : "");
	for (size_t i = 0; !r->shell && i < r->argv.count; i++)
		str_append(text, size, " ", "%s", r->argv.items[i]);
}

struct exec *exec_start(struct sandbox *s, const struct caller *who, const struct exec_request *r,
			const struct exec_ops *ops, void *arg)
{
	uint32_t prefork = r->snippet ? snippets_prefork(s) : r->prefork;
	struct exec *x = exec_new(s, r->warm ? G_RUN : prefork ? G_FORK : G_EXEC, ops, arg);
	char command[200];
	struct err e;

	x->timeout_ms = r->timeout_ms;
	x->background = r->background;
	x->warm = r->warm != WARM_NOT;
	if (x->warm)
		pack_warm(r, &x->request);
	else
		pack_request(r, prefork, &x->request);
	x->is_snippet = r->snippet;
	x->file = r->file ? str_copy(r->file) : NULL;
	if (r->snippet && prefork)
		pack_request(r, 0, &x->cold);
	s->m->metrics.execs++;
	x->answering = true;
	if (check_request(r, x->request.len, &e) < 0) {
		answer_later(s->m, start_or_fail, x, &e);
		return x;
	}
	name_command(r, command, sizeof(command));
	if (s->m->p.audit)
		audit_decision(s, who, "exec", command, on_exec_audited, x);
	else
		answer_later(s->m, start_or_fail, x, NULL);
	return x;
}

struct exec *exec_attach(struct sandbox *s, uint32_t eid, uint64_t from_seq,
			 const struct exec_ops *ops, void *arg)
{
	struct exec *x = exec_new(s, G_ATTACH, ops, arg);

	x->eid = eid;
	x->background = true;
	pack_u32(&x->request, eid);
	pack_u64(&x->request, from_seq);
	x->answering = true;
	answer_later(s->m, start_or_fail, x, NULL);
	return x;
}

/* ---- for the owner of an attachment ---- */

void exec_leave_idle(struct exec *x)
{
	sandbox_active(x->s, -1);
	x->s->idle_execs++;
	x->is_idle = true;
}

size_t exec_push(struct exec *x, const void *bytes, size_t len)
{
	sandbox_used(x->s);
	return x->call ? call_push(x->call, bytes, len) : 0;
}

void exec_feed(struct exec *x, struct exec_source *in)
{
	size_t n = in->open && in->len ? exec_push(x, in->bytes, in->len) : 0;

	in->bytes += n;
	in->len -= n;
	if (in->open && !in->len) {
		if (x->call)
			call_close(x->call);
		in->open = false;
	}
}

void exec_leave_unread(struct exec *x)
{
	x->unacked = true;
}

void exec_credit(void *exec, size_t len)
{
	struct exec *x = exec;

	if (x->call)
		call_credit(x->call, len);
}

void exec_retain(struct exec *x)
{
	x->unacked = true;
}

int exec_errno(const struct exec *x)
{
	return x->cannot;
}

void exec_detach(struct exec *x)
{
	if (!x)
		return;
	x->detached = true;
	if (!x->answering)
		exec_free(x);
}
