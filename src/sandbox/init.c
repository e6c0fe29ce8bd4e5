#include "sandbox/init.h"

#include "base/auto.h"
#include "base/clock.h"
#include "sandbox/notice.h"
#include "sandbox/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/* Reaps all that has died; true once the command is among it. */
static bool reap(struct board *b, pid_t command)
{
	bool ended = false;
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (pid != command)
			continue;
		b->ended_ns = now_ns();
		b->wait_status = status;
		b->stage = STAGE_ENDED;
		ended = true;
	}
	return ended;
}

/* Signals that the keeper passes on go to the command's process group. */
static bool take_signals(struct board *b, pid_t command, int signals)
{
	struct signalfd_siginfo info[8];
	ssize_t n = read(signals, info, sizeof(info));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(info[0]); i++) {
		/* From inside the pid is our own namespace's; 0 is somebody outside. */
		if (info[i].ssi_signo != SIGCHLD && info[i].ssi_pid == 0)
			kill(-command, (int)info[i].ssi_signo);
	}
	return reap(b, command);
}

void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals)
{
	enum { SIGNALS, NOTIFY, DNS, KEEPER };
	struct pollfd polls[] = {
		[SIGNALS] = {signals, POLLIN, 0},
		[NOTIFY] = {listener, POLLIN, 0},
		[DNS] = {fds->dns, POLLIN, 0},
		[KEEPER] = {fds->control, POLLRDHUP, 0},
	};
	bool watching = !(p->board->proven & LAYER_BIT(LAYER_MEMORY));
	int interval = watching ? WATCH_INTERVAL_MS : -1;
	int64_t watch_at = 0;

	while (!reap(p->board, command)) {
		if (poll(polls, ARRAY_LEN(polls), interval) < 0 && errno != EINTR)
			return;
		if ((polls[SIGNALS].revents & POLLIN) && take_signals(p->board, command, signals))
			return;
		if (polls[NOTIFY].revents & POLLIN)
			notice_syscall(p->board, listener);
		else if (polls[NOTIFY].revents)
			polls[NOTIFY].fd = -1;
		if (polls[DNS].revents & POLLIN)
			notice_query(p->board, fds->dns);
		if (polls[KEEPER].revents & (POLLRDHUP | POLLHUP))
			return;
		if (watching && now_ns() >= watch_at) {
			p->board->verdict = watch_check(&p->spec->limits);
			watch_at = now_ns() + WATCH_INTERVAL_MS * 1000000LL;
		}
		if (p->board->verdict != WATCH_NONE)
			return;
	}
}
