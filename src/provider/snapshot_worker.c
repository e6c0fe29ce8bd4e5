/* Copies snapshots in processes of their own, so that the broker never waits for a disk. */
#include "provider/snapshot_worker.h"

#include "kern/sys.h"

#include "disk/disk.h"
#include "sandbox/plan/plan.h"

#include <linux/fs.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- in the snapshot worker ---- */

/* What a worker sends to the broker in the end. */
struct snapshot_worker_result {
	struct err err;
	struct provider_result made;
};

/* Moves everything from one to the other (to -1: only reads), and counts and hashes it. */
static int copy_bytes(const struct snapshot_worker *c, int from, int to,
		      struct snapshot_worker_result *r)
{
	static char buf[256 << 10];
	unsigned char hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state state;
	uint64_t *size = &r->made.size_bytes;
	ssize_t n;

	crypto_hash_sha256_init(&state);
	while ((n = read(from, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(&r->err, "cannot read the snapshot");
		*size += (uint64_t)n;
		if (c->max_bytes && *size > c->max_bytes)
			return err_set(&r->err, ERR_LIMIT,
				       "the snapshot is larger than this daemon allows");
		if (to >= 0 && io_write_all(to, buf, (size_t)n) < 0)
			return err_sys(&r->err, "cannot write the snapshot");
		crypto_hash_sha256_update(&state, (unsigned char *)buf, (unsigned long long)n);
	}
	crypto_hash_sha256_final(&state, hash);
	memcpy(r->made.digest, "sha256:", 8);
	sodium_bin2hex(r->made.digest + 7, sizeof(r->made.digest) - 7, hash, sizeof(hash));
	return to >= 0 && fdatasync(to) < 0 ? err_sys(&r->err, "cannot write the snapshot") : 0;
}

static int await_worker(pid_t pid, const char *what, struct snapshot_worker_result *r)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(&r->err, "cannot wait");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return err_set(&r->err, ERR_INVALID, "%s (%s %d)", what,
		       WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int pack_files(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	int ends[2], rc;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(&r->err, "cannot create a pipe");
	c->work.out = ends[1];
	pid = confined_helper_start(&c->work, &r->err);
	close(ends[1]);
	if (pid < 0)
		return -1;
	rc = copy_bytes(c, ends[0], c->file, r);
	close(ends[0]);
	if (rc < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -1;
	}
	return await_worker(pid, "the sandbox's files could not be packed", r);
}

static int check_tar(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	pid_t pid;

	if (copy_bytes(c, c->file, -1, r) < 0 || lseek(c->file, 0, SEEK_SET) < 0)
		return -1;
	c->work.in = c->file;
	pid = confined_helper_start(&c->work, &r->err);
	if (pid < 0)
		return -1;
	return await_worker(pid, "this tar cannot be restored", r);
}

static int take_tar(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	close(c->unwanted);
	return copy_bytes(c, c->work.in, c->file, r);
}

/* ---- disks ---- */

static int format_disk(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	return disk_format(c->file, c->max_bytes, &r->err);
}

static int copy_disk(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	struct disk_copy copy = {.from = c->work.in, .to = c->file, .reserves = true};

	int rc = disk_copy(&copy, &r->err);

	r->made.is_shared = copy.shared;
	return rc;
}

/* What was written before is written out first, so that the file system stands still for a short time only. */
static int clone_disk(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	struct disk_copy copy = {.from = c->work.in, .to = c->file, .max_bytes = c->max_bytes};
	int64_t since;
	int rc;

	(void)syncfs(c->work.root);
	/* A file system that nobody thaws would stay for ever: this goes on even if the broker dies. */
	prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
	since = now_ns();
	if (ioctl(c->work.root, FIFREEZE, 0) < 0)
		return err_sys(&r->err, "cannot freeze the sandbox's disk");
	rc = disk_copy(&copy, &r->err);
	(void)ioctl(c->work.root, FITHAW, 0);
	r->made.frozen_ms = (uint32_t)((now_ns() - since) / 1000000);
	r->made.is_disk = true;
	r->made.is_shared = copy.shared;
	r->made.size_bytes = copy.bytes;
	return rc < 0 || fdatasync(c->file) == 0 ? rc : err_sys(&r->err, "cannot write a disk");
}

static int pack_disk(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	const struct disk_use use = {
		.file = c->work.in, .read_only = true, .key = c->has_disk_key ? c->disk_key : NULL};

	c->work.verb = "pack";
	c->work.in = -1;
	c->work.root = disk_mount(&use, &r->err);
	c->work.mapped = true;
	return c->work.root < 0 ? -1 : pack_files(c, r);
}

/* The first mount makes its top directory, sets who owns that, and how it is encrypted. */
static int make_volume(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	const struct disk_use use = {
		.file = c->file, .owner = SANDBOX_UID, .key = c->has_disk_key ? c->disk_key : NULL};
	auto_close int top = -1;

	if (disk_format(c->file, c->max_bytes, &r->err) < 0)
		return -1;
	top = disk_mount(&use, &r->err);
	if (top < 0)
		return -1;
	close_fd(&top);
	return fsync(c->file) < 0 ? err_sys(&r->err, "cannot write a disk") : 0;
}

static int empty_trash(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	disk_empty_trash(c->work.root);
	return 0;
}

static int do_work(struct snapshot_worker *c, struct snapshot_worker_result *r)
{
	static const struct {
		const char *verb;
		int (*work)(struct snapshot_worker *c, struct snapshot_worker_result *r);
	} verbs[] = {
		{"pack", pack_files},	 {"pack-was", pack_files}, {"check", check_tar},
		{"take", take_tar},	 {"format", format_disk},  {"copy", copy_disk},
		{"clone", clone_disk},	 {"pack-disk", pack_disk}, {"empty", empty_trash},
		{"volume", make_volume},
	};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (str_equal(c->work.verb, verbs[i].verb))
			return verbs[i].work(c, r);
	return -1;
}

static void snapshot_worker_main(struct snapshot_worker *c, pid_t broker, int sock)
{
	static struct snapshot_worker_result r = {.made.fd = -1};
	sigset_t none;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != broker)
		_exit(1);
	prctl(PR_SET_NAME, "cloche-snapshot", 0, 0, 0);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	rc = do_work(c, &r);
	if (rc < 0 && r.err.kind == ERR_NONE)
		err_set(&r.err, ERR_SYSTEM, "the snapshot failed");
	(void)!send(sock, &r, sizeof(r), MSG_NOSIGNAL);
	_exit(0);
}

/* ---- in the broker ---- */

void snapshot_worker_stop(struct snapshot_worker *c)
{
	if (!c->loop)
		return;
	loop_unwatch(c->loop, &c->watch);
	loop_timer_stop(c->loop, &c->timer);
	sys_pidfd_send_signal(c->pidfd, SIGKILL);
	close_fd(&c->pidfd);
	close_fd(&c->watch.fd);
	c->loop = NULL;
}

static void on_copied(void *arg, uint32_t events)
{
	struct snapshot_worker *c = arg;
	struct snapshot_worker_result r = {.made.fd = -1};

	if (recv(c->watch.fd, &r, sizeof(r), MSG_DONTWAIT) != (ssize_t)sizeof(r))
		err_set(&r.err, ERR_SYSTEM, "the process that made the snapshot died");
	snapshot_worker_stop(c);
	c->done(c->arg, &r.made, r.err.kind ? &r.err : NULL);
}

static void on_too_late(void *arg)
{
	struct snapshot_worker *c = arg;
	struct err e = {0};

	snapshot_worker_stop(c);
	err_set(&e, ERR_LIMIT, "the snapshot takes too long");
	c->done(c->arg, NULL, &e);
}

int snapshot_worker_start(struct snapshot_worker *c, struct loop *l, struct err *e)
{
	pid_t broker = getpid(), pid;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		snapshot_worker_main(c, broker, pair[1]);
	}
	close(pair[1]);
	c->pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	c->watch =
		(struct loop_watch){.fd = pair[0], .events = EPOLLIN, .call = on_copied, .arg = c};
	c->timer = (struct loop_timer){.call = on_too_late, .arg = c};
	if (c->pidfd < 0 || loop_watch(l, &c->watch) < 0) {
		err_sys(e, "cannot create a process");
		if (pid > 0)
			kill(pid, SIGKILL);
		close_fd(&c->pidfd);
		close(pair[0]);
		return -1;
	}
	c->loop = l;
	if (c->timeout_ms)
		loop_timer_set(l, &c->timer, c->timeout_ms);
	return 0;
}
