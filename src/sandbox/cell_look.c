#include "sandbox/cell_look.h"

#include "base/auto.h"
#include "base/str.h"
#include "sandbox/cell.h"
#include "sandbox/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Every namespace is looked at by itself: they were entered by setns, not made by one clone. */
layer_set cell_look_at_namespaces(const struct cell_terms *t)
{
	static const struct {
		const char *name;
		enum layer layer;
	} rows[CELL_NAMESPACES] = {
		[NS_USER] = {"user", LAYER_USER_NS},	   [NS_PID] = {"pid", LAYER_PID_NS},
		[NS_MOUNT] = {"mnt", LAYER_MOUNT_NS},	   [NS_NET] = {"net", LAYER_NET_NS},
		[NS_IPC] = {"ipc", LAYER_IPC_NS},	   [NS_UTS] = {"uts", LAYER_UTS_NS},
		[NS_CGROUP] = {"cgroup", LAYER_CGROUP_NS}, [NS_TIME] = {NULL, LAYER_TIME_NS},
	};
	layer_set proven = 0;

	for (int i = 0; i < CELL_NAMESPACES; i++) {
		char path[64];
		struct stat st;

		if (!rows[i].name)
			continue;
		snprintf(path, sizeof(path), "/proc/self/ns/%s", rows[i].name);
		if (t->outside[i] && stat(path, &st) == 0 && st.st_ino != t->outside[i])
			proven |= LAYER_BIT(rows[i].layer);
	}
	return proven;
}

/* Of the lines of /proc/self/cgroup with a controller that limits: how many, and how many say "/". */
static int count_cgroups(int *ret_at_root)
{
	static const char *const wanted[] = {":memory:", ":pids:", ":cpu:", ":cpu,", ",cpu:"};
	char text[4096];
	auto_close int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int seen = 0;

	*ret_at_root = 0;
	text[n > 0 ? n : 0] = '\0';
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

bool cell_places_are_own(int scratch)
{
	static const char *const places[] = {"/tmp",	 SANDBOX_HOME, "/var/tmp",
					     "/dev/shm", "/workspace", CELL_HIDDEN_PROC};
	struct stat own, st;

	if (fstat(scratch, &own) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (stat(places[i], &st) < 0 || st.st_dev != own.st_dev)
			return false;
	return true;
}
