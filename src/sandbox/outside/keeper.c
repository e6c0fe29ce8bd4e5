/*
 * The keeper of a run: starts the sandbox, passes input, output and signals, watches the clocks.
 */
#include "sandbox/outside/keeper.h"

#include "kern/close_async.h"
#include "kern/sched.h"
#include "kern/sys.h"
#include "sandbox/inside/message.h"
#include "sandbox/sandbox.h"
#include "sandbox/inside/verify.h"
#include "sandbox/outside/run_net.h"
#include "sandbox/workspace/keep_control.h"

#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/* ---- before the clone ---- */

/*
 * Character devices that may be a standard stream: terminals, and null, zero, full, random,
 * urandom.
 */
static bool is_harmless_device(const struct stat *st, int fd)
{
	unsigned minor = minor(st->st_rdev);

	if (isatty(fd))
		return true;
	return major(st->st_rdev) == 1 &&
	       (minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9);
}

/*
 * A socket belongs to the network namespace that it was made in: connected anew, it would lead onto
 * the host's network. A connected Unix stream socket cannot be connected to another peer.
 */
static bool is_harmless_socket(int fd)
{
	int domain = -1, type = -1;
	socklen_t size = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return false;
	return domain == AF_UNIX && (type == SOCK_STREAM || type == SOCK_SEQPACKET) &&
	       getpeername(fd, (struct sockaddr *)&(struct sockaddr_un){0},
			   &(socklen_t){sizeof(struct sockaddr_un)}) == 0;
}

/*
 * Why this cannot be a standard stream, or NULL. A directory, for example, would be a way out
 * (fchdir, openat).
 */
static const char *refuse_stream(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (fcntl(fd, F_GETFL) & O_PATH))
		return "not open for reading or writing";
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFIFO:
		return NULL;
	case S_IFCHR:
		return is_harmless_device(&st, fd) ? NULL : "a device";
	case S_IFSOCK:
		return is_harmless_socket(fd)
			       ? NULL
			       : "a socket that could be connected to something else";
	case S_IFDIR:
		return "a directory";
	default:
		return "neither a file, a pipe nor a terminal";
	}
}

static int check_streams(struct err *e)
{
	static const char *const names[] = {"stdin", "stdout", "stderr"};

	for (int fd = 0; fd < 3; fd++) {
		const char *why = refuse_stream(fd);

		if (why)
			return err_set(
				e, ERR_DENIED,
				"%s is %s, which a sandbox cannot be given; put a pipe between "
				"(cat)",
				names[fd], why);
	}
	return 0;
}

static int watch_signals(struct keeper *k, int early_signal, struct err *e)
{
	static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
	sigset_t set;

	sigemptyset(&set);
	/* With a terminal inside, ctrl-Z is typed there. */
	if (!k->plan.spec->tty)
		sigaddset(&set, SIGTSTP);
	for (size_t i = 0; i < ARRAY_LEN(passed); i++)
		sigaddset(&set, passed[i]);
	signal(SIGPIPE, SIG_IGN);
	/* Under the caller's file size limit a write must fail, not kill us. */
	signal(SIGXFSZ, SIG_IGN);
	/* If it were ignored, the kernel would reap our child before we wait. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, &k->callers_mask);
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (early_signal)
		raise(early_signal);
	return k->signals < 0 ? err_sys(e, "cannot watch signals") : 0;
}

/* Opening /dev/stdout opens the pipe anew, which only its owner may. */
static void give_pipe(const struct keeper *k, int fd)
{
	struct statfs fs;

	/* Not a FIFO that has a name on the host. */
	if (!k->plan.rootless && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC)
		(void)!fchown(fd, plan_user_id(&k->plan), plan_user_id(&k->plan));
}

/*
 * Output is captured for the record. The keeper writes a regular file of the caller's: code inside
 * could truncate or read it, and the file size limit would apply to it.
 */
static int open_output(struct keeper *k, struct head_tail *s, int fd, int *ret_fd, struct err *e)
{
	const struct sandbox_spec *spec = k->plan.spec;
	struct stat st;
	int ends[2];

	*ret_fd = fd;
	if (!spec->json && (spec->tty || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		give_pipe(k, fd);
		return 0;
	}
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create pipes");
	head_tail_init(s, ends[0], (size_t)spec->limits.output_bytes);
	if (!spec->json)
		s->relay = fd;
	*ret_fd = ends[1];
	give_pipe(k, ends[1]);
	return 0;
}

static int open_input(struct keeper *k, int *ret_fd, struct err *e)
{
	struct stat st;
	int ends[2];

	*ret_fd = 0;
	if (!k->plan.rootless || k->plan.spec->tty || fstat(0, &st) < 0 || !S_ISREG(st.st_mode)) {
		give_pipe(k, 0);
		return 0;
	}
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	*ret_fd = ends[0];
	k->stdin_relay.to = ends[1];
	k->stdin_relay.from = fcntl(0, F_DUPFD_CLOEXEC, 3);
	if (k->stdin_relay.from < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, "cannot pass stdin on");
	return 0;
}

static int open_std_streams(struct keeper *k, struct inside_fds *fds, struct err *e)
{
	*fds = (struct inside_fds)INSIDE_FDS_NONE;
	if (open_input(k, &fds->in, e) < 0 || open_output(k, &k->out, 1, &fds->out, e) < 0)
		return -1;
	return open_output(k, &k->err, 2, &fds->err, e);
}

/* ---- while the command runs ---- */

/*
 * Asks pid 1 (or the init of level process) to kill and reap all processes, so that their usage is
 * counted. After this grace period pid 1 is killed, and the kernel kills all of its pid namespace.
 */
#define GRACE_NS 200000000LL

static void end_run(struct keeper *k, enum status reason, int sig)
{
	if (k->was_ended)
		return;
	k->was_ended = true;
	k->reason = reason;
	k->reason_signal = sig;
	k->kill_at_ns = now_ns() + GRACE_NS;
	/* To die takes processor time as well. */
	cgroup_lift_cpu(&k->cgroup);
	sys_pidfd_send_signal(k->pidfd, SIGTERM);
}

/*
 * Without their init the processes of level process would escape: init is killed only before the
 * command runs.
 */
static int check_grace(struct keeper *k)
{
	int64_t left_ms = (k->kill_at_ns - now_ns()) / 1000000 + 1;

	if (left_ms > 0)
		return (int)left_ms;
	if (k->plan.spec->level == LEVEL_PROCESS && k->plan.page->stage != STAGE_SETUP)
		return -1;
	cgroup_kill(&k->cgroup);
	sys_pidfd_send_signal(k->pidfd, SIGKILL);
	return (int)(GRACE_NS / 1000000);
}

/* ctrl-Z: the sandbox stops and continues together with us. Its clocks go on. */
static void stop_for_a_while(struct keeper *k)
{
	sigset_t stop;

	sys_pidfd_send_signal(k->pidfd, SIGTSTP);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, NULL);
	/* Stopped here until SIGCONT; an orphaned process group does not stop at all. */
	sigprocmask(SIG_BLOCK, &stop, NULL);
	sys_pidfd_send_signal(k->pidfd, SIGCONT);
}

static void pass_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int sig = (int)info.ssi_signo;

		if (sig == SIGTERM || sig == SIGHUP || (sig == SIGINT && k->interrupts++ > 0)) {
			k->told_to_end = true;
			end_run(k, STATUS_KILLED, sig);
		} else if (sig == SIGTSTP) {
			stop_for_a_while(k);
		} else if (sig != SIGWINCH) {
			sys_pidfd_send_signal(k->pidfd, sig);
		} else if (k->terminal.master >= 0) {
			terminal_resize(&k->terminal);
		}
	}
}

/* When to look at the clocks again, in ms; -1: never. */
static int check_clocks(struct keeper *k)
{
	const struct limits *l = &k->plan.spec->limits;
	int64_t wait_ms = INT32_MAX, left;

	if (!k->was_ended && l->timeout_ms) {
		wait_ms = (int64_t)l->timeout_ms - (now_ns() - k->started_ns) / 1000000;
		if (wait_ms <= 0)
			end_run(k, STATUS_TIMEOUT, SIGKILL);
	}
	if (!k->was_ended && l->cpu_time_ms && k->cgroup.version) {
		left = (int64_t)l->cpu_time_ms - (int64_t)(cgroup_cpu_us(&k->cgroup) / 1000);
		if (left <= 0)
			end_run(k, STATUS_CPU_TIME, SIGKILL);
		/* The rest cannot be used up faster than by all processors that the run may use. */
		left = left * 1000 / (int64_t)(l->cpus_milli > 1000 ? l->cpus_milli : 1000);
		wait_ms = left + 1 < wait_ms ? left + 1 : wait_ms;
	}
	if (k->was_ended)
		return check_grace(k);
	return wait_ms == INT32_MAX ? -1 : (int)(wait_ms < 3600000 ? wait_ms : 3600000);
}

enum {
	ON_DEATH,
	ON_SIGNALS,
	ON_OUT,
	ON_ERR,
	ON_BACK,
	ON_MASTER,
	ON_INPUT,
	ON_SCREEN,
	ON_STDIN_RELAY,
	ON_COUNT
};

static void fill_polls(const struct keeper *k, struct pollfd *polls)
{
	const struct terminal_relay *t = &k->terminal;
	bool wants_back = (k->plan.spec->tty || (k->network && k->plan.rootless)) && k->scratch < 0;
	bool types = t->master >= 0 && !t->in_ended && t->in_len < TERMINAL_ROOM;
	short events =
		(short)((t->out_len < TERMINAL_ROOM ? POLLIN : 0) | (t->in_len ? POLLOUT : 0));

	polls[ON_DEATH] = (struct pollfd){k->pidfd, POLLIN, 0};
	polls[ON_SIGNALS] = (struct pollfd){k->signals, POLLIN, 0};
	polls[ON_OUT] = (struct pollfd){k->out.fd, POLLIN, 0};
	polls[ON_ERR] = (struct pollfd){k->err.fd, POLLIN, 0};
	polls[ON_BACK] = (struct pollfd){wants_back ? k->control : -1, POLLIN, 0};
	polls[ON_STDIN_RELAY] =
		(struct pollfd){k->stdin_relay.from >= 0 ? k->stdin_relay.to : -1, POLLOUT, 0};
	polls[ON_MASTER] = (struct pollfd){events ? t->master : -1, events, 0};
	polls[ON_INPUT] = (struct pollfd){types ? 0 : -1, POLLIN, 0};
	polls[ON_SCREEN] =
		(struct pollfd){t->master >= 0 && t->out_len ? t->screen : -1, POLLOUT, 0};
}

/* Nothing here waits: a reader that stalls must not stop the clocks. */
static void serve_terminal(struct keeper *k, const struct pollfd *polls)
{
	struct terminal_relay *t = &k->terminal;
	int master = -1;

	if (polls[ON_BACK].revents && keeper_take_back(k, &master) == 0 && master >= 0)
		terminal_start(t, master);
	if (polls[ON_INPUT].revents)
		terminal_read_input(t);
	if (polls[ON_MASTER].revents & POLLOUT)
		terminal_write_input(t);
	if (polls[ON_MASTER].revents & POLLIN)
		terminal_read_output(t);
	if (polls[ON_SCREEN].revents && !terminal_write_output(t))
		terminal_stop(t);
	/* The command is dead, and all its output is printed. */
	if ((polls[ON_MASTER].revents & (POLLIN | POLLHUP)) == POLLHUP && t->out_len == 0)
		terminal_stop(t);
}

static int watch_run(struct keeper *k, struct err *e)
{
	struct pollfd polls[ON_COUNT + RUN_NET_POLLS];

	for (;;) {
		int wait_ms = check_clocks(k);
		size_t of_network = run_net_polls(k, polls + ON_COUNT);

		fill_polls(k, polls);
		if (poll(polls, ON_COUNT + of_network, wait_ms) < 0 && errno != EINTR) {
			/* The limit of open files is too low even for poll. */
			err_sys(e, "cannot watch the sandbox");
			sys_pidfd_send_signal(k->pidfd, SIGKILL);
			return -1;
		}
		if (polls[ON_SIGNALS].revents)
			pass_signals(k);
		if (polls[ON_OUT].revents)
			head_tail_read(&k->out);
		if (polls[ON_ERR].revents)
			head_tail_read(&k->err);
		if (polls[ON_STDIN_RELAY].revents)
			stdin_relay_move(&k->stdin_relay);
		serve_terminal(k, polls);
		if (of_network)
			run_net_serve(k, polls + ON_COUNT, of_network);
		if (head_tail_is_flood(&k->out) || head_tail_is_flood(&k->err))
			end_run(k, STATUS_OUTPUT_LIMIT, SIGKILL);
		if (polls[ON_DEATH].revents)
			return 0;
	}
}

/*
 * The same for the terminal. If the caller does not read it, a signal ends the wait, also one that
 * came earlier.
 */
static void drain_terminal(struct keeper *k)
{
	struct terminal_relay *t = &k->terminal;
	struct pollfd polls[] = {{t->screen, POLLOUT, 0}, {k->signals, POLLIN, 0}};
	int wait_ms = k->told_to_end ? 0 : -1;

	while (t->master >= 0 && (terminal_read_output(t) || t->out_len)) {
		if (poll(polls, 2, wait_ms) <= 0 || polls[1].revents)
			return;
		if (polls[0].revents && !terminal_write_output(t))
			return;
	}
}

/* All writers are dead: only the rest of the pipes is to be read. */
static void drain_output(struct keeper *k)
{
	head_tail_drain(&k->out);
	head_tail_drain(&k->err);
	drain_terminal(k);
	terminal_stop(&k->terminal);
}

/* ---- all of it ---- */

/* The reader of our stdout must see its end as soon as the command closes it. */
static void let_go_of_streams(const struct keeper *k, struct inside_fds *fds)
{
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int *const given[] = {&fds->in, &fds->out, &fds->err};

	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		if (*given[i] > 2)
			close_fd(given[i]);
	if (null < 0 || k->plan.spec->tty)
		return;
	dup2(null, 0);
	if (!k->plan.spec->json && k->out.relay < 0)
		dup2(null, 1);
}

static void name_cgroup(struct keeper *k)
{
	verify_read_namespaces(&k->plan.host.ns, false);
	cgroup_init(&k->cgroup, k->plan.host.ns.ids[NS_PID]);
}

static int start_sandbox(struct keeper *k, struct inside_fds *fds, struct err *e)
{
	bool unified = cgroup_may_be_unified();

	if (open_std_streams(k, fds, e) < 0)
		return -1;
	/* Only a v2 cgroup must exist before the clone. */
	if (unified)
		name_cgroup(k);
	if (launch_start(k, fds, e) < 0)
		return -1;
	/*
	 * Held, so that the death of pid 1 does not wait for its mounts to be torn down. Linux
	 * 6.11.
	 */
	if (k->plan.spec->level != LEVEL_PROCESS)
		k->mounts = ioctl(k->pidfd, PIDFD_GET_MNT_NAMESPACE, 0);
	if (!unified)
		name_cgroup(k);
	let_go_of_streams(k, fds);
	return 0;
}

static int run_sandbox(struct keeper *k, struct err *e)
{
	struct inside_fds fds;
	int rc, status = 0;

	if (start_sandbox(k, &fds, e) < 0)
		return -1;
	rc = launch_send(k, e);
	if (rc < 0)
		end_run(k, STATUS_KILLED, SIGKILL);
	else
		cgroup_sweep(&k->cgroup);
	launch_release(k);
	if (k->plan.page->processor)
		sched_go_to(k->plan.page->processor - 1);
	if (watch_run(k, e) < 0)
		rc = -1;
	wait4(k->pid, &status, __WALL, &k->usage);
	if (k->plan.spec->level == LEVEL_PROCESS && WIFSIGNALED(status))
		process_end_left(&k->plan, &k->cgroup);
	k->ended_ns = now_ns();
	drain_output(k);
	run_net_end(k);
	/* If pid 1 died while we were sending, its own error says why. */
	if (rc < 0 && k->plan.page->err.kind != ERR_NONE)
		*e = k->plan.page->err;
	return rc;
}

/*
 * All is cleaned up, and the last messages may go to a terminal that takes no more: let signals end
 * us there, and do not wait for it if one came already. (A record is always written completely.)
 */
static void speak_freely(const struct keeper *k)
{
	auto_close int fd = k->told_to_end ? terminal_reopen(2) : -1;

	if (fd >= 0)
		dup2(fd, 2);
	sigprocmask(SIG_SETMASK, &k->callers_mask, NULL);
}

int keeper_init(struct keeper *k, struct err *e)
{
	void *page = mmap(NULL, sizeof(struct status_page), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*k = (struct keeper)KEEPER_NONE;
	if (page == MAP_FAILED)
		return err_sys(e, "cannot map memory");
	k->plan.page = page;
	return 0;
}

int keeper_take_back(struct keeper *k, int *ret_terminal)
{
	if (message_receive_back(k->control, &k->scratch, ret_terminal, &k->net.made) < 0)
		return -1;
	if (k->plan.rootless)
		k->net.made.listeners.how = k->plan.page->redirect;
	return 0;
}

void keeper_done(struct keeper *k)
{
	struct status_page *page = k->plan.page;

	launch_release(k);
	run_net_done(k);
	net_made_close(&k->net.made);
	/*
	 * The kernel tears these down in the background; the earlier it starts, the more happens
	 * meanwhile.
	 */
	close_async((int[]){take_fd(&k->mounts), take_fd(&k->scratch)}, 2);
	cgroup_remove(&k->cgroup);
	process_dir_remove(k->plan.process_dir);
	if (k->signals >= 0 && !k->plan.spec->json)
		speak_freely(k);
	stdin_relay_done(&k->stdin_relay);
	head_tail_done(&k->out);
	head_tail_done(&k->err);
	close_fd(&k->control);
	close_fd(&k->signals);
	close_fd(&k->pidfd);
	plan_done(&k->plan);
	munmap(page, sizeof(*page));
}

#define STACK_NEEDED (36u << 10) /* until the clone, which would only copy any more */

void sandbox_fault_stack_in(void)
{
	uintptr_t top = (uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)4095;

	/* Linux 5.14; optional. */
	(void)!madvise((void *)(top - STACK_NEEDED), STACK_NEEDED, MADV_POPULATE_WRITE);
}

/*
 * For walks of deep trees at the end (SAFE_WALK_MAX_DEPTH), and for arguments and variables, which
 * lie on the stack as well.
 */
#define STACK_LIMIT_NEEDED (512u << 10)

int sandbox_check_stack(struct err *e)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_STACK, &now) < 0 || now.rlim_cur >= STACK_LIMIT_NEEDED)
		return 0;
	return err_set(e, ERR_LIMIT,
		       "stacks are limited to %llu kB here, cloche needs %u (ulimit -s)",
		       (unsigned long long)now.rlim_cur >> 10, STACK_LIMIT_NEEDED >> 10);
}

/* For a workspace that is written directly; *ret stays NULL if nothing is to be kept. */
static int keep_control_files(const struct plan *p, int *ret_dir, struct control_keep **ret,
			      struct err *e)
{
	if (!p->spec->keep_control)
		return 0;
	*ret_dir = io_reopen(p->workspace.fd, O_RDONLY | O_DIRECTORY);
	if (*ret_dir < 0)
		return err_sys(e, "cannot open the workspace to keep its control files");
	return control_keep_begin(*ret_dir, ret, e);
}

/* Puts control files back, after a run that failed to start as well. r: NULL if there is none. */
static int put_control_files_back(struct control_keep *kept, int dir, struct result *r,
				  struct err *e)
{
	struct change_list list = {0};

	if (!kept)
		return 0;
	if (control_keep_end(kept, dir, &list, e) < 0)
		return -1;
	if (!r) {
		change_list_done(&list);
		return 0;
	}
	r->changes = list.items;
	r->change_count = list.count;
	r->changes_cut = list.cut;
	r->changes_incomplete = list.incomplete;
	r->apply_failed = list.failed > 0 || list.incomplete;
	return 0;
}

int sandbox_run(const struct sandbox_request *request, struct result *ret, struct err *e)
{
	struct control_keep *kept = NULL;
	auto_close int workspace = -1;
	struct keeper k;
	int rc = -1;

	if (keeper_init(&k, e) < 0)
		return -1;
	k.started_ns = now_ns();
	if (sandbox_check_stack(e) == 0 && check_streams(e) == 0 &&
	    run_net_make(&k, request, e) == 0 && plan_make(&k.plan, request, e) == 0 &&
	    run_net_plan(&k, e) == 0 && keep_control_files(&k.plan, &workspace, &kept, e) == 0 &&
	    process_dir_make(&k, e) == 0 && watch_signals(&k, request->early_signal, e) == 0 &&
	    run_sandbox(&k, e) == 0)
		rc = outcome_collect(&k, ret, e);
	if (rc == 0 && request->saving && outcome_is_success(&ret->end) &&
	    save_root(&k, request->saving, e) < 0) {
		result_done(ret);
		rc = -1;
	}
	if (put_control_files_back(kept, workspace, rc == 0 ? ret : NULL, e) < 0 && rc == 0) {
		result_done(ret);
		rc = -1;
	}
	control_keep_free(kept);
	keeper_done(&k);
	return rc;
}
