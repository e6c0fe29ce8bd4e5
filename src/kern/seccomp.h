/*
 * Seccomp: load a filter that was compiled at build time, and serve its notifications.
 *
 * The profiles are text (policies/seccomp/...), compiled by tools/seccomp-compile into
 * build/gen/seccomp_profiles.c. Classes: allow; errno (quiet); report (the call fails as well, but
 * through a notification, so that it can be told what was refused); notify (pid 1 looks at the
 * call, then lets it go on).
 */
#pragma once

#include "base/base.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

struct seccomp_report {
	int nr;
	const char *name;   /* of the system call */
	const char *reason; /* from the profile, in words that a model can act on */
	int errnum;	    /* the answer that the profile asks for */
	unsigned rule;	    /* 1, 2, ...: tells several reports of one call apart */
};

struct seccomp_profile {
	const char *name;   /* "default" */
	const char *digest; /* "sha256:..." of the profile's text */
	const struct sock_filter *insns;
	unsigned short count;
	const struct seccomp_report *reports;
	unsigned report_count;
};

#define SECCOMP_OWN_MAX 4096 /* instructions; the kernel takes no more */
/* A profile of the caller's own answers setns of this number, which is no fd, with EXFULL. */
#define SECCOMP_NARROW_CANARY 0x636c6f64

/* Such a profile, compiled, in a file: as much of it as there are instructions. */
struct seccomp_own {
	char digest[72]; /* "sha256:..." */
	struct sock_filter insns[SECCOMP_OWN_MAX];
};

/* Generated. */
extern const struct seccomp_profile seccomp_profile_default; /* level container */
extern const struct seccomp_profile seccomp_profile_root;    /* root inside; see plan_profile */
extern const struct seccomp_profile seccomp_profile_root_shared;
extern const struct seccomp_profile seccomp_profile_answered;
extern const struct seccomp_profile seccomp_profile_answered_shared;
extern const struct seccomp_profile seccomp_profile_process; /* level process */
extern const struct seccomp_profile seccomp_profile_front;   /* roles of the daemon */
extern const struct seccomp_profile seccomp_profile_audit;
extern const struct seccomp_profile seccomp_profile_remote;
extern const struct seccomp_profile seccomp_profile_egress;
extern const struct seccomp_profile seccomp_profile_signer;
extern const struct seccomp_profile seccomp_profile_tls;
extern const struct seccomp_profile seccomp_profile_warm_host; /* see warm/warm.h */
extern const struct seccomp_profile seccomp_profile_reaper;
extern const struct seccomp_profile seccomp_profile_watcher;
extern const struct seccomp_profile seccomp_profile_zygote;
extern const struct seccomp_profile seccomp_profile_unpack; /* see kern/confined_helper.h */
extern const struct seccomp_profile seccomp_profile_parse;  /* see image/worker */
extern const struct seccomp_profile seccomp_profile_mark;   /* see guest/files/tree.h */

/*
 * Loads the filter into this thread; no_new_privs must be on. With ret_listener, also makes the
 * notification fd (CLOEXEC); without it, reported and notified calls fail with ENOSYS. Who serves
 * the listener lives under the filter, too, and must not make such a call: it would wait for
 * itself. errnum EBUSY: an outer sandbox has a listener already. Async-signal-safe.
 */
int seccomp_load(const struct seccomp_profile *p, int *ret_listener, struct err *e);

/* The same for a profile of the caller's own, on top of the built-in one; then tries whether it acts. */
int seccomp_narrow(const struct seccomp_profile *p, struct err *e);
/*
 * One profile of the operator's for all commands that this process will start: read from the end of a file, and
 * loaded by each command (without a profile nothing happens). The second function is async-signal-safe.
 */
int seccomp_own_take(int fd, off_t at, struct err *e);
int seccomp_own_apply(struct err *e);

/* Fetches one notification; 0, or -1 on error, or if its caller has died meanwhile (ENOENT). */
int seccomp_notify_get(int listener, struct seccomp_notif *ret);
/* Is the caller that waits behind this id still the same? */
bool seccomp_notify_alive(int listener, uint64_t id);
/* Answers with an errno (positive), or lets the call go on when errnum is 0. */
void seccomp_notify_answer(int listener, uint64_t id, int errnum);

/* Which report is behind this notification? NULL for class notify. */
const struct seccomp_report *seccomp_report_match(const struct seccomp_profile *p,
						  const struct seccomp_data *data);
