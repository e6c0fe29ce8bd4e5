#include "sandbox/cell_look.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/str.h"
#include "kern/sys.h"
#include "sandbox/cell.h"
#include "sandbox/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

/* 0: not known. Whatever else a call that lies may give us is on another file system. */
static ino_t inode_of(const struct cell_terms *t, const struct stat *st)
{
	return st->st_dev == t->outside_dev ? st->st_ino : 0;
}

/* Our own one. By pidfd (Linux 6.11) no file of /proc has to be made first. */
static ino_t ask_for_inode(const struct cell_terms *t, int self, unsigned what)
{
	auto_close int fd = self < 0 ? -1 : ioctl(self, what, 0);
	struct stat st = {.st_dev = 0};

	return fd > 2 && fstat(fd, &st) == 0 ? inode_of(t, &st) : 0;
}

static ino_t look_for_inode(const struct cell_terms *t, const char *name)
{
	struct stat st = {.st_dev = 0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &st) == 0 ? inode_of(t, &st) : 0;
}

/* Every namespace is looked at by itself: they were entered by setns, not made by one clone. */
layer_set cell_look_at_namespaces(const struct cell_terms *t)
{
	static const struct {
		const char *name;
		unsigned ask;
		enum layer layer;
	} rows[CELL_NAMESPACES] = {
		[NS_USER] = {"user", PIDFD_GET_USER_NAMESPACE, LAYER_USER_NS},
		[NS_PID] = {"pid", PIDFD_GET_PID_NAMESPACE, LAYER_PID_NS},
		[NS_MOUNT] = {"mnt", PIDFD_GET_MNT_NAMESPACE, LAYER_MOUNT_NS},
		[NS_NET] = {"net", PIDFD_GET_NET_NAMESPACE, LAYER_NET_NS},
		[NS_IPC] = {"ipc", PIDFD_GET_IPC_NAMESPACE, LAYER_IPC_NS},
		[NS_UTS] = {"uts", PIDFD_GET_UTS_NAMESPACE, LAYER_UTS_NS},
		[NS_CGROUP] = {"cgroup", PIDFD_GET_CGROUP_NAMESPACE, LAYER_CGROUP_NS},
		[NS_TIME] = {NULL, 0, LAYER_TIME_NS},
	};
	auto_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	layer_set proven = 0;

	for (int i = 0; i < CELL_NAMESPACES; i++) {
		ino_t own = rows[i].name ? ask_for_inode(t, self, rows[i].ask) : 0;

		if (rows[i].name && !own)
			own = look_for_inode(t, rows[i].name);
		if (own && t->outside[i] && own != t->outside[i])
			proven |= LAYER_BIT(rows[i].layer);
	}
	return proven;
}

/* Of the lines of /proc/self/cgroup with a controller that limits: how many, and how many say "/". */
static int count_cgroups(int *ret_at_root)
{
	static const char *const wanted[] = {":memory:", ":pids:", ":cpu:", ":cpu,", ",cpu:"};
	char text[4096];
	int seen = 0;

	*ret_at_root = 0;
	io_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		bool counts = false;

		*end = '\0';
		for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
			counts = counts || strstr(line, wanted[i]);
		/* On v2 there is nothing but this one. */
		counts = counts ||
			 (str_starts(line, "0::") && line == text && !strchr(end + 1, '\n'));
		seen += counts;
		*ret_at_root += counts && str_equal(strrchr(line, ':'), ":/");
	}
	return seen;
}

bool cell_is_in_cgroup(void)
{
	int at_root, seen = count_cgroups(&at_root);

	return seen > 0 && at_root == seen;
}

bool cell_left_cgroup(void)
{
	int at_root, seen = count_cgroups(&at_root);

	return seen > 0 && at_root == 0;
}

bool cell_places_are_own(const struct cell_terms *t, int scratch)
{
	static const char *const places[] = {"/tmp", SANDBOX_HOME, "/var/tmp", "/dev/shm",
					     "/workspace"};
	struct stat own, st = {.st_dev = t->outside_proc};

	if (fstat(scratch, &own) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (stat(places[i], &st) < 0 || st.st_dev != own.st_dev)
			return false;
	/* In the nest's own root the one that cells start from is seen, with all the nest's processes. */
	if (stat(CELL_ROOT "/proc", &st) == 0 || errno != ENOENT)
		return false;
	/* The scratch itself lies below it, and the nest's below that. */
	return t->outside_proc && stat("/proc", &st) == 0 && st.st_dev != t->outside_proc &&
	       st.st_dev != own.st_dev;
}
