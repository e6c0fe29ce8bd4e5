/* Pid 1 of a run: serves until the command has ended, then ends all that is left. */
#include "sandbox/inside/init.h"

#include "sandbox/outside/supervise.h"
#include "sandbox/inside/watch.h"

#include <sys/wait.h>

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
static void end_all(struct status_page *b, pid_t command)
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

void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals)
{
	struct watch last;

	supervise_serve(&(struct supervisor){.page = p->page,
					     .limits = &p->spec->limits,
					     .profile = &seccomp_profile_default,
					     .command = command,
					     .signals = signals,
					     .listener = listener,
					     .dns = fds->dns,
					     .control = fds->control});
	/* What it leaves running may be all that it was allowed. */
	if (!(p->page->proven & LAYER_BIT(LAYER_MEMORY)) && p->page->verdict == WATCH_NONE) {
		watch_init(&last, &p->spec->limits, 0);
		last.alone = is_alone();
		watch_check(&last, p->page);
	}
	end_all(p->page, command);
}
