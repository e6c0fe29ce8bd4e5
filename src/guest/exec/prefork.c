/*
 * Preforked commands (warm/warm.h): a command that has loaded all that takes long, and then only
 * forks copies of itself on request (guest/python/prefork.py). This file asks for a copy and makes
 * a command of it.
 *
 *   guest -> prefork  on its fd 3, SEQPACKET: an order (spawn_pack_order) and four fds, the copy's
 *                     standard streams and a socket to report on
 *   copy -> guest     on that socket, once its parent is the guest: a byte; the kernel names the sender
 *   guest -> copy     a byte: the copy is a command now, and may begin
 *
 * The copy forks twice, so that it becomes the guest's own child, and the guest learns from the
 * kernel how it ended.
 */
#include "base/fd_message.h"
#include "guest/exec/command.h"
#include "guest/link/request.h"
#include "guest/exec/spawn.h"
#include "guest/files/tree.h"
#include "sandbox/inside/message.h"

#include <sys/socket.h>

#define SILENCE_MS 2000 /* a copy takes a few milliseconds; this is for a busy sandbox */
#define DEADLINE_MS 10000
#define ORDER_FDS 4

int prefork_open(struct command *c, int *ret_theirs, struct err *e)
{
	int pair[2];

	if (message_pair(pair, e) < 0)
		return -1;
	c->prefork = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

/* A copy that was asked for. */
struct prefork_copy {
	struct guest *guest;
	struct guest_stream *stream;
	struct exec_args *args;
	uint32_t prefork; /* the command that is to make it */
	int64_t asked_ns, looked_ns;
	struct loop_watch report;
	struct loop_timer silence;
	int ours[3];
};

static void copy_free(void *arg)
{
	struct prefork_copy *p = arg;

	loop_unwatch(p->guest->loop, &p->report);
	loop_timer_stop(p->guest->loop, &p->silence);
	close_fd(&p->report.fd);
	/* A copy that reports too late finds its streams closed. */
	spawn_close(p->ours, 3);
	exec_args_free(p->args);
	free(p);
}

static void refuse_copy(struct prefork_copy *p, const char *why)
{
	struct guest_stream *s = p->stream;

	copy_free(p);
	stream_error(s, EAGAIN, "%s", why);
}

/*
 * A prefork that still answers other requests is only busy. One that answers none is killed, so
 * that others need not wait for it. A copy that it makes after all is not allowed to begin.
 */
static void on_silence(void *arg)
{
	struct prefork_copy *p = arg;
	struct command *prefork = command_find(p->guest, p->prefork);
	bool is_there = prefork && prefork->prefork >= 0 && !prefork->reaped;
	bool is_silent = is_there && prefork->copied_ns < p->looked_ns;

	p->looked_ns = now_ns();
	if (is_there && !is_silent && p->looked_ns - p->asked_ns < DEADLINE_MS * 1000000LL) {
		loop_timer_set(p->guest->loop, &p->silence, SILENCE_MS);
		return;
	}
	if (is_silent)
		command_kill(prefork, GUEST_WHY_KILLED);
	refuse_copy(p, "the preforked process does not answer");
}

/* The pid of the process that wrote the byte, as the kernel reports it; -1: none. */
static pid_t read_report(int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	char byte;
	struct iovec data = {&byte, 1};
	struct msghdr m = {.msg_iov = &data,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	struct ucred who;
	struct cmsghdr *c;

	if (recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
		return -1;
	memcpy(&who, CMSG_DATA(c), sizeof(who));
	return who.pid;
}

static bool is_command(const struct guest *g, pid_t pid)
{
	for (const struct command *c = g->commands; c; c = c->next)
		if (c->pid == pid && !c->reaped)
			return true;
	return false;
}

/* The copy is our child: from now on it is a command like any other. */
static void become_command(struct prefork_copy *p, pid_t pid)
{
	const struct exec_args *a = p->args;
	const struct spawned process = {.pid = pid,
					.in = take_fd(&p->ours[0]),
					.out = take_fd(&p->ours[1]),
					.err = take_fd(&p->ours[2])};
	struct command *c = command_new(p->guest, a), *prefork = command_find(p->guest, p->prefork);

	if (prefork)
		prefork->copied_ns = now_ns();
	/* The copy has started no process so far, and must not before it has this mark. */
	tree_move(pid, command_mark(c));
	command_begin(c, a, &process, p->stream);
	oom_watch(p->guest);
	(void)!write(p->report.fd, "", 1);
	copy_free(p);
}

static void on_report(void *arg, uint32_t events)
{
	struct prefork_copy *p = arg;
	pid_t pid = read_report(p->report.fd);

	if (pid <= 1 || tree_parent(pid) != getpid() || is_command(p->guest, pid))
		refuse_copy(p, "the preforked process made no copy");
	else
		become_command(p, pid);
}

/* ---- asking ---- */

/* ret_report: our end of the socket that the copy reports on. */
static int send_order(struct guest *g, int prefork, const struct exec_args *a, int ours[3],
		      int *ret_report)
{
	int theirs[ORDER_FDS] = {-1, -1, -1, -1}, pair[2], on = 1, rc = -1;
	auto_list struct list env = {0};
	auto_buf struct buf text = {0};
	struct err e;

	if (spawn_open_streams(&(struct spawn){.no_stdin = a->flags & GUEST_EXEC_NO_STDIN}, ours,
			       theirs, &e) < 0)
		return -1;
	if (message_pair(pair, &e) == 0) {
		*ret_report = pair[0];
		theirs[3] = pair[1];
		exec_args_env(g, a, &env);
		spawn_pack_order(a->cwd, a->argv.items, env.items, &text);
		if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0)
			rc = fd_message_send(prefork, buf_head(&text), text.len, theirs, ORDER_FDS,
					     MSG_DONTWAIT);
	}
	spawn_close(theirs, ORDER_FDS);
	return rc;
}

static void ask_for_copy(struct guest *g, struct guest_stream *s, struct command *prefork,
			 struct exec_args *a)
{
	static const struct stream_ops waiting = {.on_end = copy_free};
	struct prefork_copy *p = must_alloc(calloc(1, sizeof(*p)));
	int rc;

	*p = (struct prefork_copy){.guest = g,
				   .stream = s,
				   .args = a,
				   .prefork = prefork->eid,
				   .asked_ns = now_ns(),
				   .looked_ns = now_ns(),
				   .ours = {-1, -1, -1}};
	p->report = (struct loop_watch){.fd = -1, .events = EPOLLIN, .call = on_report, .arg = p};
	p->silence = (struct loop_timer){.call = on_silence, .arg = p};
	rc = send_order(g, prefork->prefork, a, p->ours, &p->report.fd);
	if (rc < 0 || loop_watch(g->loop, &p->report) < 0) {
		refuse_copy(p, "the preforked process takes no order");
		return;
	}
	stream_go_on(s, &waiting, p);
	loop_timer_set(g->loop, &p->silence, SILENCE_MS);
}

bool fork_request(struct guest *g, struct guest_stream *s, struct unpack *u)
{
	uint32_t eid = unpack_u32(u);
	struct exec_args *a = exec_args_unpack(g, u);
	struct command *prefork = command_find(g, eid);
	const uint8_t foreign = GUEST_EXEC_TTY | GUEST_EXEC_SHELL | GUEST_EXEC_PREFORK;

	if (!a)
		return false;
	if (!command_has_cwd(s, a->cwd)) {
		exec_args_free(a);
		return true;
	}
	if (a->argv.count && !(a->flags & foreign) && !*a->session && env_knows_user(a->user) &&
	    prefork && !prefork->reaped && prefork->prefork >= 0) {
		ask_for_copy(g, s, prefork, a);
		return true;
	}
	exec_args_free(a);
	stream_error(s, EAGAIN, "there is no preforked process for this");
	return true;
}
