/*
 * Commands: started on request, signalled, reaped, and kept until the daemon has taken their end.
 */
#include "guest/exec/command.h"

#include "guest/files/files.h"
#include "guest/warm/host.h"
#include "guest/link/request.h"
#include "guest/exec/spawn.h"
#include "guest/files/tree.h"
#include "model/variables.h"

#include <sys/ioctl.h>

struct command *command_find(struct guest *g, uint32_t eid)
{
	struct command *c = g->commands;

	while (c && c->eid != eid)
		c = c->next;
	return c;
}

size_t command_running(const struct guest *g)
{
	size_t n = 0;

	for (const struct command *c = g->commands; c; c = c->next)
		n += command_is_running(c);
	return n;
}

uint64_t command_mark(const struct command *c)
{
	return tree_mark(c->guest->boot_id,
			 c->flags & GUEST_EXEC_PREFORK ? TREE_PREFORK(c->eid) : c->eid);
}

/* ---- the end ---- */

void command_free(struct command *c)
{
	struct guest *g = c->guest;

	command_detach_all(c);
	command_close_input(c);
	close_fd(&c->prefork);
	for (int i = 0; i < 2; i++) {
		loop_unwatch(g->loop, &c->sources[i].watch);
		close_fd(&c->sources[i].watch.fd);
	}
	loop_timer_stop(g->loop, &c->timeout);
	loop_timer_stop(g->loop, &c->again);
	loop_timer_stop(g->loop, &c->deadline);
	*c->back = c->next;
	if (c->next)
		c->next->back = c->back;
	else
		g->commands_end = c->back;
	g->kept_bytes -= c->output.kept;
	g->ended_count -= c->finished;
	output_done(&c->output);
	list_done(&c->argv);
	free(c->tag);
	free(c->session);
	free(c->cwd);
	free(c);
}

void command_free_all(struct guest *g)
{
	while (g->commands) {
		tree_signal(command_mark(g->commands), 0, SIGKILL);
		command_free(g->commands);
	}
}

static bool is_open(const struct command *c)
{
	return c->sources[0].watch.fd >= 0 || c->sources[1].watch.fd >= 0;
}

/*
 * Drops acknowledged commands after a while. When there are too many, drops the oldest: first
 * acknowledged ones, then those whose output is closed, then any.
 */
static void forget_ended(struct guest *g)
{
	int64_t limit = now_ns() - COMMAND_KEEP_MS * 1000000ll;
	struct command *next;

	for (int pass = 0; pass < 4; pass++) {
		for (struct command *c = g->commands; c; c = next) {
			next = c->next;
			if (pass > 0 && g->ended_count <= COMMANDS_ENDED)
				return;
			if (c->finished && !c->attached && (c->acked || pass > 1) &&
			    (!is_open(c) || pass > 2) && (c->ended_ns <= limit || pass > 0))
				command_free(c);
		}
	}
}

static void on_forget(void *arg)
{
	struct guest *g = arg;

	forget_ended(g);
	if (g->ended_count)
		loop_timer_set(g->loop, &g->forget, COMMAND_KEEP_MS);
}

void command_ended(struct command *c)
{
	struct guest *g = c->guest;

	g->ended_count++;
	command_close_input(c);
	close_fd(&c->prefork);
	loop_timer_stop(g->loop, &c->timeout);
	if (*c->session)
		session_keep(g, c->session);
	denials_tell_exec(g, c);
	g->forget.call = on_forget;
	g->forget.arg = g;
	/* By the timer, not from here: it may free this very command. */
	loop_timer_set(g->loop, &g->forget, g->ended_count > COMMANDS_ENDED ? 0 : COMMAND_KEEP_MS);
}

static void end(struct command *c)
{
	loop_timer_stop(c->guest->loop, &c->deadline);
	c->exit.duration_us = (uint64_t)(c->ended_ns - c->started_ns) / 1000;
	c->reaped = true;
	service_ended(c->guest, c->eid);
	command_watch_sources(c);
}

void command_left_sandbox(void *arg, const struct task_end *e)
{
	struct command *c = arg;

	c->exit.wait_status = e->wait_status;
	c->exit.exec_errno = e->exec_errno;
	c->exit.limits = e->limits;
	c->exit.cpu_us = e->cpu_us;
	c->exit.max_rss_bytes = e->max_rss_bytes;
	c->exit.disk_bytes = e->disk_bytes;
	c->ended_ns = e->ended_ns;
	if ((e->limits & GUEST_HIT_MEMORY) && c->exit.why == GUEST_WHY_NONE)
		c->exit.why = GUEST_WHY_OOM;
	end(c);
}

void command_reaped(struct guest *g, pid_t pid, int status, const struct rusage *usage)
{
	struct command *c = g->commands;

	if (warm_host_reaped(g->warm_host, pid, status, usage))
		return;
	while (c && (c->pid != pid || c->reaped || c->in_sandbox))
		c = c->next;
	if (!c)
		return;
	c->ended_ns = now_ns();
	c->exit.wait_status = status;
	c->exit.cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
			 (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
	c->exit.max_rss_bytes = (uint64_t)usage->ru_maxrss * 1024;
	end(c);
}

/* 0: the process was reaped, and its pid may be another's by now. */
static pid_t live_pid(const struct command *c)
{
	if (c->reaped)
		return 0;
	return c->in_sandbox ? warm_host_task_pid(c->guest->warm_host, c->eid) : c->pid;
}

/* ---- signals ---- */

/* Processes that were being forked meanwhile are killed in the next round. */
static void kill_again(void *arg)
{
	struct command *c = arg;

	for (int round = 0; round < 20; round++)
		if (tree_signal(command_mark(c), live_pid(c), SIGKILL) == 0)
			return;
	/* A process that does not die is retried less and less often. */
	c->again_ms = c->again_ms < 1000 ? c->again_ms * 2 + 10 : 1000;
	loop_timer_set(c->guest->loop, &c->again, c->again_ms);
}

void command_kill(struct command *c, enum guest_why why)
{
	if (!c->reaped && c->exit.why == GUEST_WHY_NONE)
		c->exit.why = why;
	if (c->in_sandbox) {
		warm_host_kill(c->guest->warm_host, c->eid);
		return;
	}
	c->again.call = kill_again;
	c->again.arg = c;
	kill_again(c);
}

static void on_timeout(void *arg)
{
	command_kill(arg, GUEST_WHY_TIMEOUT);
}

/* ---- requests ---- */

bool command_unpack_list(struct unpack *u, struct list *ret)
{
	uint32_t n = unpack_u32(u);

	if (n > GUEST_MAX_ARGS)
		u->bad = true;
	for (uint32_t i = 0; i < n && !u->bad; i++) {
		size_t len;
		const char *s = unpack_bytes(u, &len);

		if (memchr(s, '\0', len))
			u->bad = true;
		else
			list_take(ret, must_alloc(strndup(s, len)));
	}
	return !u->bad;
}

static bool unpack_exec(struct unpack *u, struct exec_args *a)
{
	a->flags = unpack_u8(u);
	a->rows = unpack_u32(u);
	a->cols = unpack_u32(u);
	a->timeout_ms = unpack_u64(u);
	a->open_files = unpack_u32(u);
	unpack_str(u, a->cwd, sizeof(a->cwd));
	unpack_str(u, a->user, sizeof(a->user));
	unpack_str(u, a->tag, sizeof(a->tag));
	unpack_str(u, a->session, sizeof(a->session));
	return command_unpack_list(u, &a->argv) && command_unpack_list(u, &a->env) &&
	       unpack_is_done(u);
}

void exec_args_free(struct exec_args *a)
{
	list_done(&a->argv);
	list_done(&a->env);
	free(a);
}

void exec_args_set_cwd(const struct guest *g, struct exec_args *a)
{
	char absolute[GUEST_MAX_PATH];

	if (*a->cwd)
		files_absolute(g, a->cwd, absolute, sizeof(absolute));
	snprintf(a->cwd, sizeof(a->cwd), "%s", *a->cwd ? absolute : files_workdir(g));
}

struct exec_args *exec_args_unpack(struct guest *g, struct unpack *u)
{
	struct exec_args *a = must_alloc(calloc(1, sizeof(*a)));

	if (!unpack_exec(u, a)) {
		exec_args_free(a);
		return NULL;
	}
	exec_args_set_cwd(g, a);
	return a;
}

bool command_has_cwd(struct guest_stream *s, const char *cwd)
{
	int fd = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC), why = errno;

	if (fd >= 0 && faccessat(fd, ".", X_OK, 0) == 0) {
		close(fd);
		return true;
	}
	if (fd >= 0) {
		why = errno;
		close(fd);
	}
	stream_error(s, why, "cwd: %s: %s", cwd, strerror(why));
	return false;
}

void exec_args_env(const struct guest *g, const struct exec_args *a, struct list *ret)
{
	env_make(g, a->user, a->cwd, a->flags & GUEST_EXEC_TTY, ret);
	for (size_t i = 0; i < a->env.count; i++)
		variables_set(ret, a->env.items[i]);
}

static bool session_is_busy(const struct guest *g, const char *session)
{
	for (const struct command *c = g->commands; c; c = c->next)
		if (!c->finished && str_equal(c->session, session))
			return true;
	return false;
}

/* The argv that is executed. */
static void make_argv(const struct guest *g, const struct exec_args *a, struct list *ret)
{
	bool line = a->flags & GUEST_EXEC_SHELL, login = a->flags & GUEST_EXEC_LOGIN;

	if (line && !*a->session) {
		bool bash = access("/bin/bash", X_OK) == 0;

		list_add(ret, bash ? "/bin/bash" : "/bin/sh");
		if (login)
			list_add(ret, "-l");
		list_add(ret, "-c");
	}
	for (size_t i = 0; i < a->argv.count; i++)
		list_add(ret, a->argv.items[i]);
	if (*a->session)
		session_wrap(g, a, ret);
}

/* Keeps as much of the arguments as fits into an item of a list. */
static void keep_argv(const struct list *argv, struct list *ret)
{
	size_t left = COMMAND_ARGV;

	for (size_t i = 0; i < argv->count && left > 0; i++) {
		size_t len = strnlen(argv->items[i], left);

		list_take(ret, str_format("%.*s", (int)len, argv->items[i]));
		left -= len + 8 < left ? len + 8 : left;
	}
}

struct command *command_new(struct guest *g, const struct exec_args *a)
{
	struct command *c = must_alloc(calloc(1, sizeof(*c)));

	c->guest = g;
	c->eid = ++g->last_eid;
	c->flags = a->flags;
	c->tag = str_copy(a->tag);
	c->session = str_copy(a->session);
	c->cwd = str_copy(a->cwd);
	keep_argv(&a->argv, &c->argv);
	c->started_ms = unix_ms();
	c->started_ns = now_ns();
	c->input.fd = c->sources[0].watch.fd = c->sources[1].watch.fd = c->prefork = -1;
	c->back = g->commands_end;
	*g->commands_end = c;
	g->commands_end = &c->next;
	return c;
}

static int start(struct command *c, const struct exec_args *a, struct list *argv,
		 struct spawned *ret, struct err *e)
{
	auto_list struct list env = {0};
	int rc, prefork = 0;

	if (a->flags & GUEST_EXEC_PREFORK && prefork_open(c, &prefork, e) < 0)
		return -1;
	exec_args_env(c->guest, a, &env);
	rc = spawn(&(struct spawn){.argv = argv->items,
				   .env = env.items,
				   .cwd = c->cwd,
				   .tty = a->flags & GUEST_EXEC_TTY,
				   .no_stdin = a->flags & GUEST_EXEC_NO_STDIN,
				   .merge = a->flags & GUEST_EXEC_MERGE,
				   .rows = a->rows,
				   .cols = a->cols,
				   .open_files_soft =
					   a->open_files ? a->open_files : c->guest->open_files,
				   .prefork = prefork,
				   .uid = env_uid_of(c->guest, a->user),
				   .mark = command_mark(c)},
		   ret, e);
	if (prefork)
		close(prefork);
	return rc;
}

static void on_deadline(void *arg)
{
	struct command *c = arg;

	server_release(c->guest);
	command_watch_sources(c);
}

/*
 * The scheduler moves the reader of a pipe to the writer's processor, since most writers go to
 * sleep after writing. A writer that exits instead would delay our answer until its memory is
 * freed. So the output of a command that has just begun in a warm sandbox is read at its end, or
 * after COMMAND_QUIET_MS.
 */
void command_begin(struct command *c, const struct exec_args *a, const struct spawned *p,
		   struct guest_stream *s)
{
	struct guest *g = c->guest;
	size_t before;

	c->pid = p->pid;
	c->exit.exec_errno = p->exec_errno;
	c->input.fd = p->in;
	/* A terminal is one fd for both directions, and an epoll takes an fd only once. */
	if (a->flags & GUEST_EXEC_TTY)
		c->input.fd = fcntl(p->in, F_DUPFD_CLOEXEC, 3);
	c->sources[0] =
		(struct output_source){.command = c, .type = G_OUT, .watch = {.fd = p->out}};
	c->sources[1] =
		(struct output_source){.command = c, .type = G_ERR, .watch = {.fd = p->err}};
	if (a->timeout_ms) {
		c->timeout = (struct loop_timer){.call = on_timeout, .arg = c};
		loop_timer_set(g->loop, &c->timeout, a->timeout_ms);
	}
	if (c->in_sandbox) {
		c->deadline = (struct loop_timer){.call = on_deadline, .arg = c};
		loop_timer_set(g->loop, &c->deadline, COMMAND_QUIET_MS);
	}
	before = server_pending(g);
	if (s)
		command_attach(c, s, 0);
	/* The answer that it has begun can be sent along with its end. */
	if (c->in_sandbox)
		server_hold(g, before);
	command_watch_sources(c);
}

struct command *command_start(struct guest *g, struct exec_args *a, struct guest_stream *s)
{
	auto_list struct list argv = {0};
	struct spawned process;
	struct command *c = command_new(g, a);
	struct err e = {0};

	make_argv(g, a, &argv);
	if (start(c, a, &argv, &process, &e) < 0) {
		if (s)
			stream_error(s, e.errnum, "%s", e.msg);
		command_free(c);
		return NULL;
	}
	command_begin(c, a, &process, s);
	oom_watch(g);
	return c;
}

bool exec_request(struct guest *g, struct guest_stream *s, struct unpack *u)
{
	struct exec_args *a = exec_args_unpack(g, u);

	if (!a)
		return false;
	if (a->argv.count == 0 || ((a->flags & GUEST_EXEC_SHELL) && a->argv.count != 1))
		stream_error(s, EINVAL, "there is no command");
	else if (!env_knows_user(a->user))
		stream_error(s, EINVAL, "user: there is no '%s' inside; it is user", a->user);
	else if (*a->session && session_is_busy(g, a->session))
		stream_error(s, EBUSY, "session '%s' is busy", a->session);
	else
		command_start(g, a, s);
	exec_args_free(a);
	return true;
}

void attach_request(struct guest_stream *s, const struct unpacked_request *r)
{
	command_attach(r->command, s, r->number[0]);
}

void signal_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct command *c = r->command;
	unsigned sig = (unsigned)r->number[0];
	bool tree = r->number[1];

	if (sig > 64) {
		stream_error(s, EINVAL, "there is no signal %u", sig);
		return;
	}
	if (!tree && !live_pid(c)) {
		stream_error(s, ESRCH, "the command has ended");
		return;
	}
	if (sig == SIGKILL && tree)
		command_kill(c, GUEST_WHY_KILLED);
	else if (tree)
		tree_signal(command_mark(c), live_pid(c), (int)sig);
	else
		kill(live_pid(c), (int)sig);
	if (sig == SIGKILL && !c->reaped && c->exit.why == GUEST_WHY_NONE)
		c->exit.why = GUEST_WHY_KILLED;
	stream_ok(s, NULL);
}

void resize_request(struct guest_stream *s, const struct unpacked_request *r)
{
	uint64_t rows = r->number[0], cols = r->number[1];
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
	const struct command *c = r->command;

	if (!(c->flags & GUEST_EXEC_TTY))
		stream_error(s, ENOTTY, "the command has no terminal");
	else if (rows > 4096 || cols > 4096)
		stream_error(s, EINVAL, "a terminal has at most 4096 rows and columns");
	else if (c->sources[0].watch.fd >= 0 &&
		 ioctl(c->sources[0].watch.fd, TIOCSWINSZ, &size) < 0)
		stream_error(s, errno, "cannot resize the terminal: %m");
	else
		stream_ok(s, NULL);
}

void ack_request(struct guest_stream *s, const struct unpacked_request *r)
{
	r->command->acked = true;
	if (r->command->in_sandbox)
		warm_host_release(s->guest->warm_host, r->command->eid);
	stream_ok(s, NULL);
}

void input_request(struct guest_stream *s, const struct unpacked_request *r)
{
	if (r->command->waiting.len + r->len > COMMAND_INPUT)
		stream_error(s, EAGAIN, "the command does not read its input");
	else if (!command_input(r->command, r->bytes, r->len, r->number[0]))
		stream_error(s, EPIPE,
			     "the command's input is closed; it stays open for one started with "
			     "\"interactive\": true");
	else
		stream_ok(s, NULL);
}
