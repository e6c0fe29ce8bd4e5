/* The warm interpreter of a nest, from which tenants are forked (src/zygote). */
#include "base/auto.h"
#include "guest/nest_inner.h"
#include "guest/server.h"
#include "kern/sys.h"
#include "sandbox/message.h"
#include "zygote/zygote.h"

#include <signal.h>
#include <sys/socket.h>

/* A tenant of the interpreter's, ahead of any request. */
static int order_tenant(struct seat *s, struct err *e)
{
	struct nest *n = s->nest;
	struct zygote_order order = {n->options.terms};
	int theirs[3] = {-1, -1, -1}, pair[2], fds[ZYGOTE_FDS], count = 0, rc = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	if (seat_open_streams(s, theirs, e) == 0 &&
	    seat_watch(s, &s->report, pair[0], seat_on_report) == 0) {
		fds[count++] = s->cell.fd;
		fds[count++] = s->scratch;
		fds[count++] = pair[1];
		for (int i = 0; i < 3; i++)
			fds[count++] = theirs[i];
		for (int i = 0; i < n->options.terms.join_count; i++)
			fds[count++] = s->joins[i];
		rc = message_send(n->zygote.control.fd, &order, sizeof(order), fds, count, e);
	}
	close(pair[1]);
	tenant_close_fds(theirs, 3);
	if (rc == 0) {
		s->state = SEAT_ORDERED;
		n->zygote.asked = s;
	}
	return rc;
}

void zygote_order_next(struct nest *n)
{
	struct err e;

	for (int i = 0; i < n->seat_count && n->zygote.loaded && !n->zygote.asked; i++) {
		struct seat *s = &n->seats[i];

		if (s->kind == NEST_PYTHON && s->state == SEAT_MAKING && s->cell.fd >= 0 &&
		    order_tenant(s, &e) < 0)
			seat_be_broken(s);
	}
}
void zygote_lose(struct nest *n)
{
	struct seat *asked = n->zygote.asked;

	loop_unwatch(n->guest->loop, &n->zygote.control);
	close_fd(&n->zygote.control.fd);
	n->zygote.loaded = false;
	n->zygote.asked = NULL;
	/* Its order may have been carried out, or not: begin anew. */
	if (asked && asked->cell.fd >= 0)
		sys_pidfd_send_signal(asked->cell.fd, SIGKILL);
	loop_task_add(n->guest->loop, &n->ready);
	nest_revive_later(n);
}

static void on_zygote(void *arg, uint32_t events)
{
	struct nest *n = arg;
	struct zygote_answer a;
	struct seat *s = n->zygote.asked;
	ssize_t got = recv(n->zygote.control.fd, &a, sizeof(a), 0);

	(void)events;
	if (got != (ssize_t)sizeof(a) || (!s && a.pid < 0)) {
		if (got == (ssize_t)sizeof(a))
			n->why = a.err;
		else
			err_set(&n->why, ERR_SYSTEM, "the warm interpreter ended");
		zygote_lose(n);
		return;
	}
	if (!n->zygote.loaded) {
		n->zygote.loaded = true;
	} else if (s) {
		n->zygote.asked = NULL;
		s->tenant = a.pid > 0 ? a.pid : 0;
		/* Its report may have been quicker. */
		if (s->tenant && s->report.fd < 0 && s->told.err.kind == ERR_NONE)
			seat_be_ready(s);
		if (!s->tenant) {
			n->failures++;
			n->why = a.err;
			sys_pidfd_send_signal(s->cell.fd, SIGKILL);
		}
	}
	zygote_order_next(n);
}
int zygote_start(struct nest *n, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* Number 3 is what the environment says. */
		if (dup2(pair[1], 3) == 3 && sys_close_range(4, ~0u, 0) == 0)
			tenant_exec(n->options.interpreter, n->options.environment);
		_exit(127);
	}
	close(pair[1]);
	n->zygote.pid = pid;
	n->zygote.control =
		(struct loop_watch){.fd = pair[0], .events = EPOLLIN, .call = on_zygote, .arg = n};
	if (pid < 0 || loop_watch(n->guest->loop, &n->zygote.control) < 0)
		return err_sys(e, "cannot start a warm interpreter");
	return 0;
}
