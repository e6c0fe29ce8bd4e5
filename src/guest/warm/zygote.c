/*
 * The zygote of a warm host: starts it, orders tasks from it, and replaces it
 * (warm/preload/preload.c).
 */
#include "base/exec_path.h"
#include "guest/warm/host_internal.h"
#include "guest/link/server.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "sandbox/inside/message.h"
#include "warm/preload/zygote.h"

#include <sys/socket.h>

/* Orders a task from the zygote, ahead of any request. */
static int order_task(struct lane *s, struct err *e)
{
	struct warm_host *n = s->host;
	int theirs[3] = {-1, -1, -1}, pair[2], fds[ZYGOTE_FDS], count = 0, rc = -1;

	if (message_pair(pair, e) < 0)
		return -1;
	if (spawn_open_streams(&(struct spawn){0}, s->streams, theirs, e) == 0 &&
	    lane_watch(s, &s->report, pair[0], lane_take_report) == 0) {
		fds[count++] = s->sandbox.fd;
		fds[count++] = s->scratch;
		fds[count++] = pair[1];
		for (int i = 0; i < 3; i++)
			fds[count++] = theirs[i];
		for (int i = 0; i < n->options.settings.join_count; i++)
			fds[count++] = s->joins[i];
		rc = message_send(n->zygote.control.fd, &n->options.settings,
				  sizeof(n->options.settings), fds, count, e);
	}
	close(pair[1]);
	spawn_close(theirs, 3);
	if (rc == 0) {
		s->state = LANE_ORDERED;
		n->zygote.asked = s;
		n->zygote.is_void = false;
	}
	return rc;
}

void zygote_order_next(struct warm_host *n)
{
	struct err e;

	for (int i = 0; i < n->lane_count && n->zygote.stage == ZYGOTE_READY && !n->zygote.asked;
	     i++) {
		struct lane *s = &n->lanes[i];

		if (s->kind == WARM_HOST_PYTHON && s->state == LANE_MAKING && s->sandbox.fd >= 0 &&
		    order_task(s, &e) < 0)
			lane_break(s, &e);
	}
}

/* No task may be forked from it any more. Whether its last order was carried out is not known. */
static void let_go(struct warm_host *n)
{
	struct lane *asked = n->zygote.asked;

	loop_unwatch(n->guest->loop, &n->zygote.control);
	close_fd(&n->zygote.control.fd);
	n->zygote.stage = ZYGOTE_LOADING;
	n->zygote.asked = NULL;
	if (asked && !n->zygote.is_void && asked->sandbox.fd >= 0)
		sys_pidfd_send_signal(asked->sandbox.fd, SIGKILL);
	loop_task_add(n->guest->loop, &n->ready);
}

void zygote_lose(struct warm_host *n)
{
	let_go(n);
	warm_host_revive_later(n);
}

void zygote_replace(struct warm_host *n)
{
	struct err e;

	let_go(n);
	err_set(&n->why, ERR_SYSTEM, "files of the warm interpreter have changed");
	for (each_lane(s, n)) {
		if (s->kind != WARM_HOST_PYTHON ||
		    (s->state != LANE_READY && s->state != LANE_ORDERED))
			continue;
		s->state = LANE_LEAVING;
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
	}
	if (zygote_start(n, &e) < 0)
		zygote_lose(n);
}

/* ---- what it says ---- */

static bool it_ended(struct warm_host *n)
{
	err_set(&n->why, ERR_SYSTEM, "the warm interpreter ended");
	return false;
}

static bool take_origin(struct warm_host *n)
{
	static char paths[ORIGIN_BYTES_MAX];
	ssize_t got = recv(n->zygote.control.fd, paths, sizeof(paths), 0);

	if (got <= 0 || paths[got - 1] != '\0')
		return it_ended(n);
	origin_note(&n->zygote.origin, paths, (size_t)got, &n->zygote.started);
	n->zygote.stage = ZYGOTE_LISTED;
	return true;
}

static void take_task(struct lane *s, const struct zygote_answer *a)
{
	struct warm_host *n = s->host;

	n->zygote.asked = NULL;
	if (n->zygote.is_void)
		return;
	s->task = a->pid > 0 ? a->pid : 0;
	/* A task that was reaped before its lane was known will not be reaped again. */
	if (s->task && kill(s->task, 0) < 0)
		s->task = 0;
	/* Its report may have come first. */
	if (s->task && s->report.fd < 0 && s->told.err.kind == ERR_NONE)
		lane_set_ready(s);
	if (!s->task) {
		n->failures++;
		if (a->pid < 0)
			n->why = a->err;
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
	}
}

static bool take_answer(struct warm_host *n)
{
	struct zygote_answer a;
	ssize_t got = recv(n->zygote.control.fd, &a, sizeof(a), 0);

	if (got != (ssize_t)sizeof(a))
		return it_ended(n);
	if (n->zygote.stage == ZYGOTE_LISTED && a.pid == 0) {
		n->zygote.stage = ZYGOTE_READY;
	} else if (n->zygote.asked) {
		take_task(n->zygote.asked, &a);
	} else if (a.pid < 0) {
		n->why = a.err;
		return false;
	}
	return true;
}

static void on_zygote(void *arg, uint32_t events)
{
	struct warm_host *n = arg;

	if (n->zygote.stage == ZYGOTE_LOADING ? take_origin(n) : take_answer(n)) {
		zygote_order_next(n);
		return;
	}
	zygote_lose(n);
}

/* ---- beginning ---- */

int zygote_start(struct warm_host *n, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (message_pair(pair, e) < 0)
		return -1;
	/* As coarse as the times of files. */
	clock_gettime(CLOCK_REALTIME_COARSE, &n->zygote.started);
	n->zygote.stage = ZYGOTE_LOADING;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* The environment names fd 3. Code of the image gets a filter of its own. */
		if (dup2(pair[1], 3) == 3 && sys_close_range(4, ~0u, 0) == 0 &&
		    seccomp_load(&seccomp_profile_zygote, NULL, e) == 0)
			exec_path_run(n->options.interpreter, n->options.environment, NULL, NULL);
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
