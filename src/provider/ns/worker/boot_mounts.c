/* Keeps a boot worker's mount namespace small and up to date with the host's. */
#include "provider/ns/worker/boot_mounts.h"

#include "kern/mount.h"
#include "sandbox/inside/root.h"

#include <poll.h>
#include <sched.h>
#include <sys/mount.h>

#define SETTLE_MS 500 /* mounts come and go by the dozen */

/* Exists on every host, holds half of the mounts, and no sandbox needs any of them. */
#define PLACE "/sys"

/* ---- the template ---- */

static uint64_t mix_hash(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* Timestamps are coarse: a file that has just changed may change again and keep its timestamp. */
static bool is_recent(const struct timespec *t, time_t since)
{
	return t->tv_sec >= since - 1;
}

/* 0: look again the next time. */
static uint64_t fingerprint_files(const struct list *seen, time_t since)
{
	uint64_t hash = 1;

	for (size_t i = 0; i < seen->count; i++) {
		struct stat st = {.st_ino = 0};

		(void)stat(seen->items[i], &st);
		if (since && is_recent(&st.st_ctim, since))
			return 0;
		hash = mix_hash(mix_hash(hash, st.st_ino), (uint64_t)st.st_size);
		hash = mix_hash(mix_hash(hash, (uint64_t)st.st_ctim.tv_sec),
				(uint64_t)st.st_ctim.tv_nsec);
	}
	return hash ? hash : 1;
}

static void forget_template(struct boot_mounts *w)
{
	if (w->has_template)
		(void)umount2(PLACE, MNT_DETACH);
	list_done(&w->template.mounts);
	list_done(&w->template.tops);
	list_done(&w->seen);
	w->has_template = false;
}

static int make_template(struct boot_mounts *w, struct err *e)
{
	static const char *const options[] = {"mode", "0755", "size", "16m", NULL};
	int fd = mount_new("tmpfs", MOUNT_DEVICES, options, e), rc;
	auto_close int root = -1;
	mode_t before;

	if (fd < 0 || mount_attach(fd, AT_FDCWD, PLACE, e) < 0)
		return -1;
	w->has_template = true;
	root = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(e, "cannot open the template");
	before = umask(0);
	rc = root_make_template(&w->template, root, &w->seen, e);
	umask(before);
	return rc < 0 ? -1 : mount_reflag(root, MOUNT_READ_ONLY | MOUNT_DEVICES, e);
}

static void make_anew(struct boot_mounts *w)
{
	time_t begun = time(NULL);
	struct err ignored;

	forget_template(w);
	w->template = (struct template){.path = PLACE, .hosts = "cloche"};
	if (make_template(w, &ignored) < 0)
		forget_template(w);
	w->fingerprint = fingerprint_files(&w->seen, begun);
}

/* ---- the namespace ---- */

/* No mount in here reaches the host; unmounts on the host propagate to here if its mounts are shared. */
static int leave_host(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		return -1;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -1;
	while (umount2(PLACE, MNT_DETACH) == 0)
		;
	return 0;
}

void boot_mounts_enter(struct boot_mounts *w)
{
	*w = (struct boot_mounts){.host = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC),
				  .host_mounts = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC)};
	if (w->host < 0 || w->host_mounts < 0) {
		close_fd(&w->host);
		return;
	}
	if (leave_host() == 0) {
		make_anew(w);
		return;
	}
	(void)!setns(w->host, CLONE_NEWNS);
	close_fd(&w->host);
}

/* The kernel reports each change once, so it is noted. */
static void look_at_mounts(struct boot_mounts *w, int sock, int timeout)
{
	struct pollfd polls[] = {{w->host_mounts, POLLPRI, 0}, {sock, POLLIN, 0}};

	if (poll(polls, ARRAY_LEN(polls), timeout) > 0 && polls[0].revents)
		w->is_behind = true;
}

/* The host's mounts have changed: starts again from its mount namespace. */
static void follow_host(struct boot_mounts *w)
{
	struct err ignored;
	int template = w->has_template ? mount_clone(AT_FDCWD, PLACE,
						     MOUNT_READ_ONLY | MOUNT_DEVICES, &ignored)
				       : -1;

	/* Neither namespace is usable now; the broker starts another boot worker. */
	if (setns(w->host, CLONE_NEWNS) < 0 || leave_host() < 0)
		_exit(125);
	w->has_template = template >= 0 && mount_attach(template, AT_FDCWD, PLACE, &ignored) == 0;
	if (!w->has_template)
		make_anew(w);
	w->is_behind = false;
}

void boot_mounts_wait(struct boot_mounts *w, int sock)
{
	struct pollfd job = {sock, POLLIN, 0};

	while (w->host >= 0) {
		if (!w->is_behind)
			look_at_mounts(w, sock, -1);
		if (poll(&job, 1, w->is_behind ? SETTLE_MS : 0) != 0)
			return;
		if (w->is_behind)
			follow_host(w);
	}
}

void boot_mounts_follow(struct boot_mounts *w)
{
	if (w->host < 0)
		return;
	look_at_mounts(w, -1, 0);
	if (w->is_behind)
		follow_host(w);
}

const struct template *boot_mounts_template(struct boot_mounts *w)
{
	if (w->host < 0)
		return NULL;
	if (!w->fingerprint || fingerprint_files(&w->seen, 0) != w->fingerprint)
		make_anew(w);
	return w->has_template ? &w->template : NULL;
}
