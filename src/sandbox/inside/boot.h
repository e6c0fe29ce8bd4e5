/*
 * Boots a sandbox that lives on: like sandbox_run, but pid 1 executes cloche-guest (static, handed
 * over as an fd, never shown inside), nothing dies with the caller, and all that is needed to find
 * it again later is handed back. Level container only.
 */
#pragma once

#include "base/base.h"
#include "kern/cgroup.h"
#include "model/spec.h"
#include "sandbox/plan/plan.h"

struct boot_volume {
	int fd; /* O_PATH of the directory, opened by the broker beneath the operator's volume */
	char target[PATH_MAX];
	bool writable;
};

/* A warm host (warm sandbox.h): it keeps capabilities over its own user namespace, and has lanes. */
struct boot_warm_host {
	unsigned lanes[2];		   /* for commands, for the interpreter */
	unsigned first[2];		   /* of them, from the beginning */
	struct limits limits;		   /* of each warm sandbox */
	layer_set required;		   /* of whatever runs in it */
	struct list modules;		   /* loaded by the interpreter */
	const struct injected_file *files; /* below /run: the interpreter's */
	size_t file_count;
};

struct boot_request {
	const struct sandbox_spec
		*spec; /* finished; empty workspace; image is "host" or a path of the operator's */
	const char *id;
	uint32_t
		id_base; /* as root: first host id; one range per live sandbox, the broker keeps count */
	int guest;	 /* fd of the cloche-guest program */
	int listener; /* becomes GUEST_FD_LISTENER */
	const struct boot_volume *volumes;
	size_t volume_count;
	const char *cgroup_name;	    /* below the daemon's own cgroup, */
	const struct cgroup_place *cgroups; /* which is here */
	bool dies_with_caller;
	const struct template *template; /* or NULL */
	const struct host *host;
	const struct boot_warm_host *warm_host; /* or NULL */
};

/* What tells a process from another one that got its number later. */
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
	char seccomp[96];
	struct boot_identity identity;
	char note[256];
};

/*
 * Blocks for the few milliseconds that it takes. Required and missing layers are errors. The caller must
 * ignore no signal: the guest would, too.
 */
int boot_sandbox(const struct boot_request *r, struct booted *ret, struct err *e);
/* The cgroups of a warm host's lanes, once everything in them is dead; false: not all of that is. */
bool boot_remove_lanes(const struct cgroup_place *cgroups, const char *cgroup_name);
/* What the kernel did in them, added to ret. */
void boot_add_lane_stats(const struct cgroup_place *cgroups, const char *cgroup_name,
			 struct cgroup_stats *ret);
/* Of a process that runs now. */
int boot_identify(pid_t pid, struct boot_identity *ret, struct err *e);
