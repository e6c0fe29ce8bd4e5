/*
 * Init of a sandbox: reaps, passes signals on, answers the filter and name look-ups, watches memory.
 * pid 1 of level container and the init of level process share it.
 */
#include "sandbox/inside/inside_internal.h"

#include "kern/close_async.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/watch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

int init_block_signals(struct err *e)
{
	sigset_t all;
	int fd;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(e, "cannot watch signals") : fd;
}

/* Reaps all dead children; true if the command is among them: its status is then on the status page. */
static bool reap_dead(struct status_page *b, pid_t command)
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

void init_join_cgroups(struct status_page *b, const struct rights_message *m, const int *fds)
{
	bool joined = m->cgroup_layers != 0;

	for (int i = 0; i < m->join_count; i++) {
		char back[32] = "";

		/* The task writes itself, then reads back that it is listed (rule 1). */
		if (write(fds[i], "0", 1) != 1 || pread(fds[i], back, sizeof(back) - 1, 0) <= 0 ||
		    atoi(back) != getpid())
			joined = false;
	}
	if (joined)
		b->proven |= m->cgroup_layers | LAYER_BIT(LAYER_CGROUP);
}

/*
 * From inside, the pid of a sender outside is 0. The sender of rt_sigqueueinfo chooses the pid, and
 * a signal by F_SETSIG has none. Only for a plain kill (SI_USER) does the kernel fill in the pid.
 */
static bool is_order(const struct supervisor *s, const struct signalfd_siginfo *info)
{
	if (info->ssi_signo == SIGCHLD || info->ssi_code != SI_USER)
		return false;
	return (pid_t)info->ssi_pid == s->keeper ||
	       (s->anyone_ends_it && info->ssi_signo == SIGTERM);
}

/*
 * Signals that the keeper passes on go to the command's process group. In a pid namespace a stop
 * goes to all processes, as SIGSTOP: the kernel ignores SIGTSTP in a process group whose parents
 * are all in another session.
 */
static void signal_command(pid_t command, int sig)
{
	bool stops = sig == SIGTSTP || sig == SIGCONT;

	kill(stops && getpid() == 1 ? -1 : -command, sig == SIGTSTP ? SIGSTOP : sig);
}

/* True: a SIGTERM came, so the run is to end. */
static bool serve_signals(const struct supervisor *s)
{
	struct signalfd_siginfo info[8];
	ssize_t n = read(s->signals, info, sizeof(info));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(info[0]); i++) {
		if (!is_order(s, &info[i]))
			continue;
		if (info[i].ssi_signo == SIGTERM)
			return true;
		signal_command(s->command, (int)info[i].ssi_signo);
	}
	return false;
}

void init_supervise(const struct supervisor *s)
{
	enum { SIGNALS, NOTIFY, DNS, KEEPER };
	struct pollfd polls[] = {{s->signals, POLLIN, 0},
				 {s->listener, POLLIN, 0},
				 {s->dns, POLLIN, 0},
				 {s->control, POLLRDHUP, 0}};
	struct status_page *b = s->page;
	bool watching = !(b->proven & LAYER_BIT(LAYER_MEMORY));
	struct watch watch;

	watch_init(&watch, s->limits, s->watched);
	/* The command started before this, and many have ended by now. */
	if (reap_dead(b, s->command))
		return;
	/* Also the standard streams: a reader outside must see their end when the command closes them. */
	close_async_others(0, (int[]){s->signals, s->listener, s->dns, s->control}, 4);
	do {
		if (poll(polls, ARRAY_LEN(polls), watching ? watch.interval_ms : -1) < 0 &&
		    errno != EINTR)
			return;
		if ((polls[SIGNALS].revents & POLLIN) && serve_signals(s))
			return;
		if (polls[NOTIFY].revents & POLLIN)
			notify_serve(b, s->profile, s->listener);
		else if (polls[NOTIFY].revents)
			polls[NOTIFY].fd = -1;
		if (polls[DNS].revents & POLLIN)
			notify_refuse_name(b, s->dns);
		if (polls[KEEPER].revents)
			return;
		if (watching)
			b->verdict = watch_check(&watch, b);
		if (b->verdict != WATCH_NONE)
			return;
	} while (!reap_dead(b, s->command));
}

/* ---- pid 1 of a run ---- */

/* Every process of our pid namespace is a descendant of ours. */
static bool has_no_children(void)
{
	return waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOWAIT | WNOHANG | __WALL) < 0 &&
	       errno == ECHILD;
}

/*
 * The kernel would kill them when we exit, but their processor time is counted only if we wait for
 * them.
 */
static void end_pid_namespace(struct status_page *b, pid_t command)
{
	if (has_no_children())
		return;
	/*
	 * All of our pid namespace. Outside of one, this would kill every process that we may
	 * signal.
	 */
	if (getpid() == 1)
		kill(-1, SIGKILL);
	do
		reap_dead(b, command);
	while (waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOWAIT | __WALL) == 0 ||
	       errno == EINTR);
}

void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals)
{
	struct watch last;

	init_supervise(&(struct supervisor){.page = p->page,
					    .limits = &p->spec->limits,
					    .profile = plan_profile(p),
					    .command = command,
					    .signals = signals,
					    .listener = listener,
					    .dns = fds->dns,
					    .control = fds->control});
	/* The processes that the command left may be as many as the limit allows. */
	if (!(p->page->proven & LAYER_BIT(LAYER_MEMORY)) && p->page->verdict == WATCH_NONE) {
		watch_init(&last, &p->spec->limits, 0);
		last.alone = has_no_children();
		watch_check(&last, p->page);
	}
	end_pid_namespace(p->page, command);
}
