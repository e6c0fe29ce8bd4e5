/*
 * Limits: each case asks for a few times more than its sandbox has, and no more than that, so that
 * a host without the limit survives it. The options of its sandbox are in the row: they and the
 * goals below belong together.
 */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MB (1ul << 20)
#define MEMORY_GOAL (192 * MB) /* of 64M */
#define DISK_GOAL (64 * MB)    /* of 16M */
#define PIDS_GOAL 300	       /* of 40 */
#define TERMINALS_GOAL 300     /* of 256 */
#define TIMERS_GOAL 9000       /* of 8192 */
#define FILES_GOAL 6000	       /* of 4096 */

static void touch(char *at, size_t size)
{
	for (size_t i = 0; i < size; i += 4096)
		at[i] = 1;
}

static void took_all(struct probe *p, const char *what)
{
	got_through(p, "%s: took %lu MB of 64", what, MEMORY_GOAL / MB);
}

static void memory_anonymous(struct probe *p)
{
	char *at =
		mmap(NULL, MEMORY_GOAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		refused(p, "mmap: %s", errno_name(errno));
		return;
	}
	touch(at, MEMORY_GOAL);
	took_all(p, "private memory");
}

/* Takes its share, says so, and keeps it. */
static void take_share(int say)
{
	char *at = mmap(NULL, MEMORY_GOAL / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	if (at == MAP_FAILED)
		_exit(1);
	touch(at, MEMORY_GOAL / 8);
	if (write(say, "x", 1) != 1)
		_exit(1);
	pause();
	_exit(0);
}

/* In children that each stay below the limit: all have their share at once, or one died of it. */
static void memory_children(struct probe *p)
{
	pid_t pids[8];
	int fds[2], made = 0, done = 0, dead = 0;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
		cannot_tell(p, "pipe: %s", errno_name(errno));
		return;
	}
	for (; made < (int)ARRAY_LEN(pids) && (pids[made] = fork()) >= 0; made++)
		if (pids[made] == 0)
			take_share(fds[1]);
	for (int ms = 0; ms < 3000 && !dead && done < made; ms += 5) {
		char c;

		while (read(fds[0], &c, 1) == 1)
			done++;
		dead = waitpid(-1, NULL, WNOHANG) > 0;
		msleep(5);
	}
	for (int i = 0; i < made; i++)
		kill(pids[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	if (!dead && done == (int)ARRAY_LEN(pids))
		took_all(p, "eight children");
	else
		refused(p, "%d of 8 children had their share%s", done, dead ? ", one died" : "");
}

static bool fill(int fd, size_t goal, size_t *ret_done)
{
	static char block[MB];

	memset(block, 1, sizeof(block));
	for (*ret_done = 0; *ret_done < goal;) {
		ssize_t n = write(fd, block, sizeof(block));

		if (n <= 0)
			return false;
		*ret_done += (size_t)n;
	}
	return true;
}

static void memory_file(struct probe *p)
{
	static const char *const places[] = {"/dev/shm", "/tmp", "/var/tmp", "/run"};
	unsigned long total = 0;

	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		const char *path = fmt_path("%s/cloche-fill-%d", places[i], (int)getpid());
		auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		size_t done;

		unlink(path);
		if (fd < 0)
			continue;
		if (fill(fd, MEMORY_GOAL, &done))
			took_all(p, places[i]);
		total += done;
		if (p->control && done == MEMORY_GOAL)
			return;
	}
	refused(p, "stopped after %lu MB: %s", total / MB, errno_name(errno));
}

static void memory_memfd(struct probe *p)
{
	auto_close int fd = memfd_create("cloche-fill", MFD_CLOEXEC);
	size_t done;

	signal(SIGXFSZ, SIG_IGN);
	if (fd < 0 || !fill(fd, MEMORY_GOAL, &done))
		refused(p, "%s", errno_name(errno));
	else
		took_all(p, "memfd");
}

static void memory_sysv(struct probe *p)
{
	int id = shmget(IPC_PRIVATE, MEMORY_GOAL, IPC_CREAT | 0600);
	char *at;

	if (id < 0) {
		refused(p, "shmget: %s", errno_name(errno));
		return;
	}
	at = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	if (at == (char *)-1) {
		refused(p, "shmat: %s", errno_name(errno));
		return;
	}
	touch(at, MEMORY_GOAL);
	took_all(p, "System V memory");
}

static void memory_locked(struct probe *p)
{
	char *at =
		mmap(NULL, MEMORY_GOAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mlock(at, MEMORY_GOAL) < 0)
		refused(p, "mlock: %s", errno_name(errno));
	else
		took_all(p, "locked memory");
}

static void memory_huge(struct probe *p)
{
	void *at = mmap(NULL, MEMORY_GOAL, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (at == MAP_FAILED) {
		refused(p, "mmap: %s", errno_name(errno));
		return;
	}
	touch(at, MEMORY_GOAL);
	took_all(p, "huge pages");
}

/* Kernel memory: what is stuck in pipes and sockets. */
static void memory_pipes(struct probe *p)
{
	static char block[MB];
	unsigned long total = 0;

	for (int i = 0; i < 500 && total < MEMORY_GOAL; i++) {
		int fds[2];
		ssize_t n;

		if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0)
			break;
		fcntl(fds[1], F_SETPIPE_SZ, MB);
		while ((n = write(fds[1], block, sizeof(block))) > 0)
			total += (size_t)n;
	}
	for (int i = 0; i < 400 && total < MEMORY_GOAL; i++) {
		int fds[2], size = 1 << 22;
		ssize_t n;

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
			break;
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		while ((n = send(fds[0], block, sizeof(block), MSG_NOSIGNAL)) > 0)
			total += (size_t)n;
	}
	if (total >= MEMORY_GOAL)
		took_all(p, "pipes and sockets");
	else
		refused(p, "stopped after %lu MB: %s", total / MB, errno_name(errno));
}

static void pids(struct probe *p)
{
	static pid_t made[PIDS_GOAL];
	int n = 0;

	for (; n < PIDS_GOAL; n++) {
		made[n] = fork();
		if (made[n] == 0) {
			pause();
			_exit(0);
		}
		if (made[n] < 0)
			break;
	}
	if (n == PIDS_GOAL)
		got_through(p, "made %d processes of 40", n);
	else
		judge(p, fmt_path("fork after %d", n), -1, ERRS(EAGAIN, ENOMEM));
	for (int i = 0; i < n; i++)
		kill(made[i], SIGKILL);
	for (int i = 0; i < n; i++)
		waitpid(made[i], NULL, 0);
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_of_children(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/*
 * Two busy children for some of the scheduler's periods of 100 ms: with 0.2 processors they get a
 * tenth of what they want.
 */
static void cpus(struct probe *p)
{
	double start = now(CLOCK_MONOTONIC), used = cpu_of_children(), wall;

	for (int i = 0; i < 2; i++) {
		if (fork() == 0) {
			while (now(CLOCK_MONOTONIC) < start + 0.3)
				;
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	wall = now(CLOCK_MONOTONIC) - start;
	used = cpu_of_children() - used;
	if (used / wall > 0.5)
		got_through(p, "used %.2f processors of 0.2", used / wall);
	else
		refused(p, "used %.2f processors", used / wall);
}

/* Everything that looks writable, one after the other, and the names are gone while it is open. */
static void disk(struct probe *p)
{
	const char *home = getenv("HOME"), *ws = given("ws");
	const char *const places[] = {"/tmp", "/var/tmp",	 "/dev/shm",	"/run",
				      "/dev", home ? home : "/", ws ? ws : ".", "."};
	bool deleted = p->c->arg != NULL;
	char names[ARRAY_LEN(places)][300];
	int fds[ARRAY_LEN(places)];
	unsigned long total = 0;

	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		size_t done = 0;

		snprintf(names[i], sizeof(names[i]), "%.200s/cloche-fill-%d", places[i],
			 (int)getpid());
		fds[i] = open(names[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (deleted)
			unlink(names[i]);
		if (fds[i] >= 0 && fill(fds[i], DISK_GOAL, &done))
			got_through(p, "%s: wrote %lu MB of 16", places[i], DISK_GOAL / MB);
		total += done;
		if (p->control && done == DISK_GOAL) {
			unlink(names[i]);
			return;
		}
	}
	refused(p, "stopped after %lu MB in all", total / MB);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		unlink(names[i]);
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

/* Empty files cost memory, too. */
static void inodes(struct probe *p)
{
	const char *dir = scratch_dir(p);
	unsigned long n;

	if (!dir)
		return;
	for (n = 0; n < 400000; n++) {
		int fd = open(fmt_path("%s/%lu", dir, n), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			break;
		close(fd);
	}
	if (n == 400000)
		got_through(p, "made %lu files", n);
	else
		refused(p, "stopped after %lu files: %s", n, errno_name(errno));
	remove_tree(dir);
}

static void file_size(struct probe *p)
{
	const char *dir = scratch_dir(p);
	auto_close int fd = -1;
	size_t done;

	if (!dir)
		return;
	signal(SIGXFSZ, SIG_IGN);
	fd = open(fmt_path("%s/f", dir), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		cannot_tell(p, "create: %s", errno_name(errno));
	else if (fill(fd, 4 * MB, &done))
		got_through(p, "wrote 4 MB of 1");
	else
		judge(p, "write", -1, ERRS(EFBIG));
	if (fd >= 0 && ftruncate(fd, 1l << 40) == 0)
		got_through(p, "made a sparse file of 1 TB");
	remove_tree(dir);
}

static void open_files(struct probe *p)
{
	struct rlimit r;
	int n = 0;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	while (n < FILES_GOAL && dup(2) >= 0)
		n++;
	if (n == FILES_GOAL)
		got_through(p, "opened %d files", n);
	else
		judge(p, fmt_path("dup after %d", n), -1, ERRS(EMFILE, ENFILE));
}

/* One of each kind of object, over and over: the open files limit must stop them all. */
static void objects(struct probe *p)
{
	int n = 0;

	for (; n < FILES_GOAL; n += 4)
		if (eventfd(0, 0) < 0 || timerfd_create(CLOCK_MONOTONIC, 0) < 0 ||
		    epoll_create1(0) < 0 || memfd_create("cloche", 0) < 0)
			break;
	if (n >= FILES_GOAL)
		got_through(p, "made %d kernel objects", n);
	else
		judge(p, fmt_path("stopped after %d", n), -1, ERRS(EMFILE, ENFILE, ENOMEM, EPERM));
}

/* They are counted for the whole host (kernel.pty.max). */
static void terminals(struct probe *p)
{
	int n = 0;

	while (n < TERMINALS_GOAL && open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
		n++;
	if (n == TERMINALS_GOAL)
		got_through(p, "opened %d terminals", n);
	else
		judge(p, fmt_path("open after %d", n), -1, ERRS(ENOSPC, ENOENT, EACCES, EIO));
}

/* POSIX timers count as pending signals, for a user and for the owners of user namespaces above. */
static void timers(struct probe *p)
{
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	int n = 0, id;

	while (n < TIMERS_GOAL && syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id) == 0)
		n++;
	if (n == TIMERS_GOAL)
		got_through(p, "made %d timers", n);
	else
		judge(p, fmt_path("timer_create after %d", n), -1, ERRS(EAGAIN, ENOMEM));
}

/* A filter is compiled into memory that is bounded for the whole host only. */
static void socket_filters(struct probe *p)
{
	static const int options[] = {26 /* SO_ATTACH_FILTER */, 51 /* SO_ATTACH_REUSEPORT_CBPF */};
	struct sock_filter all = {BPF_RET | BPF_K, 0, 0, 0xffff};
	struct sock_fprog prog = {1, &all};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 &&
	    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) {
		cannot_tell(p, "socketpair: %s", errno_name(errno));
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		int rc = setsockopt(pair[0], SOL_SOCKET, options[i], &prog, sizeof(prog));

		/* A Unix socket is never in a group of sockets that share a port. */
		if (i == 1 && rc < 0 && errno == EINVAL)
			got_through(p, "SO_ATTACH_REUSEPORT_CBPF reached the kernel");
		else
			judge(p, i ? "SO_ATTACH_REUSEPORT_CBPF" : "SO_ATTACH_FILTER", rc,
			      ERRS(EPERM));
	}
	close(pair[0]);
	close(pair[1]);
}

#define MEM(name, title, fn)                                                                       \
	{                                                                                          \
		"memory-" name, 34, "more memory than allowed: " title, SAFE | WEAK | KILL_OK,     \
			L(MEMORY) | L(CGROUP), "solo --memory 64M", fn, 0                          \
	}

static const struct probe_case cases[] = {
	MEM("private", "private pages", memory_anonymous),
	MEM("children", "spread over children", memory_children),
	MEM("files", "files in tmpfs", memory_file),
	MEM("memfd", "a file in memory", memory_memfd),
	MEM("sysv", "System V memory", memory_sysv),
	MEM("locked", "locked pages", memory_locked),
	MEM("huge", "huge pages", memory_huge),
	MEM("pipes", "pipes and sockets", memory_pipes),
	{"pids", 33, "more processes than allowed", SAFE | WEAK, L(PIDS) | L(CGROUP),
	 "solo --pids 40", pids, 0},
	{"cpus", 33, "more processors than allowed", SAFE | WEAK, L(CPU) | L(CGROUP),
	 "solo --cpus 0.2", cpus, 0},
	{"disk", 18, "more disk than allowed", SAFE | WEAK | KILL_OK, L(DISK),
	 "solo --disk 16M --memory 256M", disk, 0},
	{"disk-deleted", 18, "more disk by open files without a name", SAFE | WEAK | KILL_OK,
	 L(DISK), "solo --disk 16M --memory 256M", disk, ""},
	{"inodes", 18, "more files than memory has room for", CONTAINER_ONLY | KILL_OK | NO_CONTROL,
	 L(DISK) | L(MEMORY), "solo --disk 16M --memory 64M", inodes, 0},
	{"file-size", 33, "a larger file than allowed", SAFE, L(DISK), "solo --file-size 1M",
	 file_size, 0},
	{"open-files", 33, "more open files than allowed", SAFE, L(FDS), "solo", open_files, 0},
	{"objects", 33, "more kernel objects than allowed", SAFE, L(FDS), "solo", objects, 0},
	{"terminals", 33, "more terminals than allowed", SAFE | CONTAINER_ONLY, L(MOUNT_NS), "solo",
	 terminals, 0},
	{"timers", 33, "more timers and pending signals than allowed", SAFE, L(FDS), "solo", timers,
	 0},
	{"socket-filter", 33, "a filter on a socket", SAFE, L(SECCOMP), 0, socket_filters, 0},
};
const struct case_group group_limits = {cases, ARRAY_LEN(cases)};
