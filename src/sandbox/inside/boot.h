/*
 * Boots a sandbox that lives on: like sandbox_run, but pid 1 executes cloche-guest (static, passed
 * as an fd, never visible inside), the sandbox survives the caller, and the result identifies it
 * later. Level container only.
 */
#pragma once

#include "kern/cgroup.h"
#include "sandbox/plan/plan.h"

struct boot_volume {
	int fd; /* O_PATH of the directory, opened by the broker beneath the operator's volume; or */
	uint64_t disk_bytes; /* not 0: a detached mount of a disk for so much (disk/disk.h) */
	char target[PATH_MAX];
	bool writable;
};

/* A warm host (warm/warm.h): it keeps capabilities over its own user namespace, and has lanes. */
struct boot_warm_host {
	unsigned lanes[WARM_KINDS];	   /* for commands, for Python, for Node */
	unsigned first[WARM_KINDS];	   /* of these, how many are made at the start */
	struct limits limits;		   /* of each warm sandbox */
	layer_set required;		   /* for every task that runs in it */
	struct list modules;		   /* loaded by the interpreter */
	const struct injected_file *files; /* below /run: the interpreter's */
	size_t file_count;
};

struct boot_request {
	const struct sandbox_spec *
		spec; /* finished; empty workspace; image is "host", a path that the operator set, or an id */
	const char *images; /* the store that has the id */
	const char *id;
	uint32_t
		id_base; /* as root: first host id; one range per live sandbox, the broker keeps count */
	int guest;	 /* fd of the cloche-guest program */
	int listener; /* becomes GUEST_FD_LISTENER */
	const struct boot_volume *volumes;
	size_t volume_count;
	const char *cgroup_name;	    /* below the daemon's own cgroup */
	const struct cgroup_place *cgroups; /* the daemon's own cgroup */
	bool dies_with_caller;
	const struct template *template; /* or NULL */
	const struct host *host;
	const struct boot_warm_host *warm_host; /* or NULL */
	const struct net_setup *net;		/* or NULL: no network */
	int own_seccomp; /* > 0: a profile that every command loads (struct seccomp_own) */
	const int *disk; /* a detached mount for its files (disk/disk.h); NULL: a tmpfs */
};

/* Tells a process from a later one with the same pid. */
struct boot_identity {
	uint64_t start_time; /* field 22 of /proc/PID/stat */
	ino_t pid_ns, mount_ns;
};

struct booted {
	pid_t pid; /* of pid 1, in our pid namespace */
	int pidfd;
	struct cgroup cgroup; /* open; the caller removes it */
	layer_set proven, missing;
	int landlock_abi;
	bool listening, rootless;
	enum root_inside root_inside;
	char seccomp[96];
	struct boot_identity identity;
	char note[256];
	struct net_made net; /* the caller's: listeners and anchor, if the network is redirected */
};

/*
 * Blocks for a few milliseconds. A required layer that is missing is an error. The caller must not
 * ignore any signal, because the guest would inherit that.
 */
int boot_sandbox(const struct boot_request *r, struct booted *ret, struct err *e);
/*
 * Removes the cgroups of a warm host's lanes once all their processes are dead; false: some are not
 * yet.
 */
bool boot_remove_lanes(const struct cgroup_place *cgroups, const char *cgroup_name);
/* Adds the kernel's counts for these cgroups to ret. */
void boot_add_lane_stats(const struct cgroup_place *cgroups, const char *cgroup_name,
			 struct cgroup_stats *ret);
/* Of a process that is running. */
int boot_identify(pid_t pid, struct boot_identity *ret, struct err *e);
