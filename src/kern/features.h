/*
 * What this host can enforce: each feature is tried, in a child that does the thing and checks its
 * effect. Nothing is concluded from a version number or from the existence of a file, because a
 * sysctl, a security module or a filter below us may say no, or say yes and do nothing.
 *
 *   struct feature f;
 *   features_probe(FEATURE_OVERLAY, &f);
 *   if (f.state != FEATURE_OK) ... f.detail, f.errnum ...
 *
 * A probe never takes longer than a few seconds and leaves nothing behind. Not for a process that
 * has threads: it forks.
 */
#pragma once

enum feature_id {
	FEATURE_KERNEL,
	FEATURE_USER_NS,
	FEATURE_PID_NS,
	FEATURE_MOUNT_NS,
	FEATURE_NET_NS,
	FEATURE_IPC_NS,
	FEATURE_UTS_NS,
	FEATURE_CGROUP_NS,
	FEATURE_TIME_NS,
	FEATURE_MOUNT_API,
	FEATURE_PROC, /* a /proc of its own */
	FEATURE_OVERLAY,
	FEATURE_IDMAP,
	FEATURE_CGROUP,
	FEATURE_SECCOMP,
	FEATURE_SECCOMP_NOTIFY,
	FEATURE_LANDLOCK,
	FEATURE_CLONE3,
	FEATURE_PIDFD,
	FEATURE_CLOSE_RANGE,
	FEATURE_OPENAT2,
	FEATURE_ROOTLESS, /* user namespaces for ordinary users, asked by root */
	FEATURE_COUNT,
};

enum feature_state {
	FEATURE_OK,
	FEATURE_LIMITED, /* there, but not all of it */
	FEATURE_MISSING,
};

struct feature {
	enum feature_state state;
	int errnum;	  /* behind MISSING, or 0 */
	char detail[240]; /* one line, or empty */
};

void features_probe(enum feature_id id, struct feature *ret);

/* What stands in the way of user namespaces for ordinary users. */
enum userns_block {
	USERNS_NOT_BLOCKED,
	USERNS_CHROOT,
	USERNS_CLONE_SYSCTL, /* kernel.unprivileged_userns_clone is 0 */
	USERNS_MAX_ZERO,     /* user.max_user_namespaces is 0 */
	USERNS_APPARMOR,     /* kernel.apparmor_restrict_unprivileged_userns is 1 */
};

enum userns_block features_userns_block(void);
