/*
 * The probes behind features.h. Each runs in a child of its own, so it may change namespaces, ids
 * and filters as it likes. It returns 0, or the errno of the step that failed; it may set state to
 * FEATURE_LIMITED and write a detail.
 */
#pragma once

#include "base/base.h"
#include "kern/features.h"

/* Writes the detail and returns errnum: `return probe_says(f, ENODEV, "too slow")`. */
int probe_says(struct feature *f, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for the error of a function of ours. */
int probe_error(struct feature *f, const struct err *e);
/* Notes what was being done, then returns errno: `return probe_failed(f, "unshare")`. */
int probe_failed(struct feature *f, const char *doing);
/* Becomes able to mount: with our own privileges, or in a user namespace of our own. */
int probe_enter_mounts(struct feature *f);
/* The same with a private, empty tmpfs as the current directory. */
int probe_enter_scratch(struct feature *f);

int probe_mount_api(struct feature *f);
int probe_overlay(struct feature *f);
int probe_idmap(struct feature *f);
int probe_cgroup(struct feature *f);
int probe_seccomp(struct feature *f);
int probe_seccomp_notify(struct feature *f);
int probe_landlock(struct feature *f);
int probe_clone3(struct feature *f);
int probe_pidfd(struct feature *f);
int probe_close_range(struct feature *f);
int probe_openat2(struct feature *f);
