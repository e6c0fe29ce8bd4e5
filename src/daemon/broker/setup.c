/* Prepares what the broker needs before it serves: directories, locks, programs, volumes. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "sandbox/plan/plan.h"

#include <dirent.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>

/* ---- directories ---- */

/* As mkdir -p; only the last directory gets this mode. */
static int make_path(const char *path, mode_t mode, struct err *e)
{
	char part[CONFIG_PATH];

	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return err_sys(e, "cannot create %s", part);
		*slash = '/';
	}
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return err_sys(e, "cannot create %s", path);
	return 0;
}

static int open_dir(int at, const char *path, mode_t mode, struct err *e)
{
	auto_close int fd = -1;
	struct stat st;

	if (at == AT_FDCWD && make_path(path, mode, e) < 0)
		return -1;
	if (at != AT_FDCWD && mkdirat(at, path, mode) < 0 && errno != EEXIST)
		return err_sys(e, "cannot create %s", path);
	fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot open %s", path);
	if (st.st_uid != geteuid())
		return err_set(e, ERR_DENIED, "%s belongs to somebody else", path);
	if (fchmod(fd, mode) < 0)
		return err_sys(e, "cannot set the mode of %s", path);
	return take_fd(&fd);
}

#define LOCK_TRIES 100
#define LOCK_STEP_MS 20

static int lock_dir(int dir, const char *path, struct err *e)
{
	auto_close int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(e, "cannot create a lock in %s", path);
	/* Children of a daemon that was killed may hold the lock a moment longer. */
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES)
			return err_set(e, ERR_CONFLICT, "another daemon uses %s", path);
		poll(NULL, 0, LOCK_STEP_MS);
	}
	return take_fd(&fd);
}

void list_names(int dir, struct list *ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *at; d && (at = readdir(d));)
		if (at->d_name[0] != '.')
			list_add(ret, at->d_name);
	if (d)
		closedir(d);
}

static int prepare_dirs(struct daemon *d, struct err *e)
{
	const struct config *c = d->config;
	auto_close int empty = -1;
	struct stat st;

	/* Each step only if the one before it succeeded. */
	d->state = open_dir(AT_FDCWD, c->state_dir, 0700, e);
	d->runtime = d->state < 0
			     ? -1
			     : open_dir(AT_FDCWD, c->runtime_dir, d->rootless ? 0700 : 0755, e);
	d->lock = d->runtime < 0 ? -1 : lock_dir(d->state, c->state_dir, e);
	d->runtime_lock = d->lock < 0 ? -1 : lock_dir(d->runtime, c->runtime_dir, e);
	d->host.boxes_dir = d->runtime_lock < 0 ? -1 : open_dir(d->runtime, "boxes", 0700, e);
	/* The root of the process that checks a snapshot. */
	empty = d->host.boxes_dir < 0 ? -1 : open_dir(d->runtime, "empty", 0755, e);
	d->snapshots_dir = empty < 0 ? -1 : open_dir(d->state, "snapshots", 0700, e);
	d->host.disks_dir = d->snapshots_dir < 0 ? -1 : open_dir(d->state, "disks", 0700, e);
	d->volumes.dir = d->host.disks_dir < 0 ? -1 : open_dir(d->state, "volumes", 0700, e);
	d->names_dir = d->volumes.dir < 0 ? -1 : open_dir(d->state, "names", 0700, e);
	if (d->names_dir < 0 || fstat(d->state, &st) < 0)
		return -1;
	/* The tag depends on the state directory only, so a later daemon has the same one. */
	snprintf(d->host.tag, sizeof(d->host.tag), "%08x",
		 (uint32_t)(st.st_ino * 2654435761u) ^ (uint32_t)(st.st_dev * 40503u));
	return 0;
}

/* ---- programs ---- */

int open_program(const char *name, const char *variable, struct err *e)
{
	const char *named = variable ? getenv(variable) : NULL;
	char path[PATH_MAX + 32];
	int fd;

	if (named)
		snprintf(path, sizeof(path), "%s", named);
	else if (io_beside_program(name, path, sizeof(path)) < 0)
		return err_sys(e, "cannot find our own program");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "cannot open %s", path) : fd;
}

/*
 * A sealed copy in memory: an upgrade does not change it under running sandboxes, no file system shows it,
 * and Landlock lets it be executed.
 */
static int load_guest(struct daemon *d, struct err *e)
{
	auto_close int from = open_program("cloche-guest", "CLOCHE_GUEST", e);
	auto_close int to = -1;

	if (from < 0)
		return -1;
	to = io_sealed_copy(from, "cloche-guest");
	if (to < 0)
		return err_sys(e, "cannot copy the guest");
	d->host.guest = io_reopen(to, O_RDONLY);
	if (d->host.guest < 0)
		return err_sys(e, "cannot open the guest");
	/*
	 * As root nobody inside may even read it. An ordinary user's daemon must be able to look into
	 * pid 1, which the kernel would refuse of a program that its user cannot read.
	 */
	if (fchmod(to, d->rootless ? 0555 : 0111) < 0)
		return err_sys(e, "cannot set the mode of the guest");
	return 0;
}

/* The operator's profile, compiled once: sandboxes get it as it is now. */
static int load_seccomp(struct daemon *d, struct err *e)
{
	const char *file = d->config->sandbox.seccomp;
	char compiler[PATH_MAX + 32];
	int fd;

	if (!file[0])
		return 0;
	if (io_beside_program("cloche-seccomp", compiler, sizeof(compiler)) < 0)
		return err_sys(e, "sandbox.seccomp: cannot find cloche-seccomp");
	fd = own_seccomp_file(compiler, file, e);
	if (fd < 0)
		return err_wrap(e, "sandbox.seccomp");
	d->host.own_seccomp = fd;
	return 0;
}

int prepare_volumes(struct daemon *d, const struct config *c, struct err *e)
{
	int fds[CONFIG_ITEMS];

	for (uint32_t i = 0; i < c->volume_count; i++) {
		fds[i] = open(c->volumes[i].path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fds[i] >= 0)
			continue;
		err_sys(e, "volume %s: cannot open %s", c->volumes[i].name, c->volumes[i].path);
		while (i > 0)
			close(fds[--i]);
		return -1;
	}
	for (uint32_t i = 0; i < CONFIG_ITEMS; i++) {
		close_fd(&d->host.volumes[i]);
		d->host.volumes[i] = i < c->volume_count ? fds[i] : -1;
	}
	return 0;
}

/* Each sandbox needs a file descriptor; the front needs more. */
static void raise_limits(void)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
		most.rlim_cur = most.rlim_max;
		setrlimit(RLIMIT_NOFILE, &most);
	}
}

int prepare(struct daemon *d, struct err *e)
{
	raise_limits();
	umask(077);
	d->self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (d->self < 0)
		return err_sys(e, "cannot open our own program");
	d->host.boot_worker = open_program("cloche-boot", NULL, e);
	if (d->host.boot_worker < 0)
		return -1;
	if (prepare_dirs(d, e) < 0 || load_guest(d, e) < 0)
		return -1;
	if (images_prepare(d, e) < 0 || load_seccomp(d, e) < 0)
		return -1;
	return prepare_volumes(d, d->config, e);
}
