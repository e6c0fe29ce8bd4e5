/*
 * Where a control runs that would leave marks on the host (mounts, host name, set ids): namespaces
 * of its own, as root of a user namespace or, started as root, with root's own power.
 */
#include "probe.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

static int become_root_inside(uid_t uid, gid_t gid)
{
	char map[40];

	if (put("/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
	if (put("/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)gid);
	return put("/proc/self/gid_map", map);
}

/* Looks, and does not believe: in the host's own namespaces the controls would do harm. */
static ino_t mount_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/mnt", &st) == 0 ? st.st_ino : 0;
}

int control_enter(void)
{
	int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	ino_t before = mount_namespace();
	uid_t uid = geteuid();
	gid_t gid = getegid();
	pid_t pid;

	if (unshare(uid == 0 ? flags : flags | CLONE_NEWUSER) < 0)
		return -1;
	if (!before || mount_namespace() == before) {
		errno = ENOSYS;
		return -1;
	}
	if (uid != 0 && become_root_inside(uid, gid) < 0)
		return -1;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0 && getpid() != 1)
		_exit(0);
	if (pid > 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	return 0;
}
