/*
 * Layers: the protections a run can have, one bit each. `--require` and `--optional` name them, the
 * child proves them before exec (sandbox/inside/verify.c), and the record lists those that are missing.
 */
#pragma once

#include "base/base.h"

enum layer {
	LAYER_USER_NS,
	LAYER_PID_NS,
	LAYER_MOUNT_NS,
	LAYER_NET_NS,
	LAYER_IPC_NS,
	LAYER_UTS_NS,
	LAYER_CGROUP_NS,
	LAYER_TIME_NS,
	LAYER_ROOT, /* own root, host's tree out of reach */
	LAYER_IDS,  /* runs as an ordinary user; as root without supplementary groups */
	LAYER_CAPS, /* every capability set is empty */
	LAYER_NO_NEW_PRIVS,
	LAYER_SECCOMP,
	LAYER_LANDLOCK,
	LAYER_FDS,     /* nothing open but 0, 1, 2 */
	LAYER_CGROUP,  /* in a cgroup of its own */
	LAYER_MEMORY,  /* memory limited by the cgroup */
	LAYER_CPU,     /* cpus limited by the cgroup */
	LAYER_PIDS,    /* tasks limited by the cgroup, or by RLIMIT_NPROC in the user namespace */
	LAYER_DISK,    /* what it can write is bounded */
	LAYER_NETWORK, /* no way to a network but what was asked for */
	LAYER_COUNT,
};

typedef uint32_t layer_set;

#define LAYER_BIT(l) ((layer_set)1 << (l))

const char *layer_name(enum layer l);
/* Finds a layer by its name; -1 if there is none. */
int layer_find(const char *name);
/* All names, separated by blanks: for messages and the manual. */
const char *layer_names(void);
