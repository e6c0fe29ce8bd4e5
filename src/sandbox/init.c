#include "sandbox/init.h"

#include "base/auto.h"
#include "sandbox/notice.h"
#include "sandbox/supervise.h"
#include "sandbox/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

/*
 * From inside the pid is our own namespace's; 0 is somebody outside. That alone would not do: the
 * sender of rt_sigqueueinfo writes the pid himself, and a file's F_SETSIG comes without one. Only of
 * a plain kill (SI_USER) the kernel lets nobody forge it.
 */
static bool is_from_outside(const struct signalfd_siginfo *info)
{
	return info->ssi_code == SI_USER && info->ssi_pid == 0;
}

/*
 * Signals that the keeper passes on go to the command's process group. A stop goes to all there is: SIGTSTP
 * would be ignored there, as by every group whose parents are in another session.
 */
static void pass_on(pid_t command, int sig)
{
	bool stops = sig == SIGTSTP || sig == SIGCONT;

	kill(stops && getpid() == 1 ? -1 : -command, sig == SIGTSTP ? SIGSTOP : sig);
}

/* SIGTERM means: the end. */
static bool take_signals(struct board *b, pid_t command, int signals)
{
	struct signalfd_siginfo info[8];
	ssize_t n = read(signals, info, sizeof(info));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(info[0]); i++) {
		if (info[i].ssi_signo == SIGCHLD || !is_from_outside(&info[i]))
			continue;
		if (info[i].ssi_signo == SIGTERM)
			return true;
		pass_on(command, (int)info[i].ssi_signo);
	}
	return supervise_reap(b, command);
}

/* Whatever is in our pid namespace has us for an ancestor. */
static bool is_alone(void)
{
	return waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOWAIT | WNOHANG | __WALL) < 0 &&
	       errno == ECHILD;
}

/*
 * The kernel would do it when we exit, but without counting: processor time of a child is ours only
 * if we wait for it.
 */
static void end_all(struct board *b, pid_t command)
{
	if (is_alone())
		return;
	/* Everything in our pid namespace. Outside of one it would be everything that we may kill. */
	if (getpid() == 1)
		kill(-1, SIGKILL);
	do
		supervise_reap(b, command);
	while (waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOWAIT | __WALL) == 0 ||
	       errno == EINTR);
}

static void serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
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
	struct watch watch;

	watch_init(&watch, &p->spec->limits, 0);
	/* It ran before we did, and many end within that time. */
	if (supervise_reap(p->board, command))
		return;
	/* Also the standard streams: a reader outside must see their end when the command closes
	 * them. */
	supervise_close_others((int[]){signals, listener, fds->dns, fds->control}, 4);
	do {
		if (poll(polls, ARRAY_LEN(polls), watching ? watch.interval_ms : -1) < 0 &&
		    errno != EINTR)
			return;
		if ((polls[SIGNALS].revents & POLLIN) && take_signals(p->board, command, signals))
			return;
		if (polls[NOTIFY].revents & POLLIN)
			notice_syscall(p->board, &seccomp_profile_default, listener);
		else if (polls[NOTIFY].revents)
			polls[NOTIFY].fd = -1;
		if (polls[DNS].revents & POLLIN)
			notice_query(p->board, fds->dns);
		if (polls[KEEPER].revents & (POLLRDHUP | POLLHUP))
			return;
		if (watching)
			p->board->verdict = watch_check(&watch, p->board);
		if (p->board->verdict != WATCH_NONE)
			return;
	} while (!supervise_reap(p->board, command));
}

void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals)
{
	struct watch last;

	serve(p, fds, command, listener, signals);
	/* What it leaves running may be all that it was allowed. */
	if (!(p->board->proven & LAYER_BIT(LAYER_MEMORY)) && p->board->verdict == WATCH_NONE) {
		watch_init(&last, &p->spec->limits, 0);
		last.alone = is_alone();
		watch_check(&last, p->board);
	}
	end_all(p->board, command);
}
