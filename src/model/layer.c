#include "model/layer.h"

#include <assert.h>

static const char *const names[] = {
	[LAYER_USER_NS] = "user_ns",
	[LAYER_PID_NS] = "pid_ns",
	[LAYER_MOUNT_NS] = "mount_ns",
	[LAYER_NET_NS] = "net_ns",
	[LAYER_IPC_NS] = "ipc_ns",
	[LAYER_UTS_NS] = "uts_ns",
	[LAYER_CGROUP_NS] = "cgroup_ns",
	[LAYER_TIME_NS] = "time_ns",
	[LAYER_ROOT] = "root",
	[LAYER_IDS] = "ids",
	[LAYER_CAPS] = "caps",
	[LAYER_NO_NEW_PRIVS] = "no_new_privs",
	[LAYER_SECCOMP] = "seccomp",
	[LAYER_LANDLOCK] = "landlock",
	[LAYER_FDS] = "fds",
	[LAYER_CGROUP] = "cgroup",
	[LAYER_MEMORY] = "memory",
	[LAYER_CPU] = "cpu",
	[LAYER_PIDS] = "pids",
	[LAYER_DISK] = "disk",
	[LAYER_NETWORK] = "network",
};
static_assert(sizeof(names) / sizeof(names[0]) == LAYER_COUNT, "a name per layer");

const char *layer_name(enum layer l)
{
	return l < LAYER_COUNT ? names[l] : "unknown";
}

int layer_find(const char *name)
{
	for (int i = 0; i < LAYER_COUNT; i++)
		if (str_equal(name, names[i]))
			return i;
	return -1;
}

const char *layer_names(void)
{
	return "user_ns pid_ns mount_ns net_ns ipc_ns uts_ns cgroup_ns time_ns root ids caps "
	       "no_new_privs seccomp landlock fds cgroup memory cpu pids disk network";
}
