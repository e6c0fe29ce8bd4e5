/*
 * How a command ended. One judgement for all doors and levels: wait status and the supervisor's
 * reason become a status, an exit code, a signal and the limits that were met; these become the
 * fields of the result record and the exit status of `cloche`.
 *
 *   outcome_judge(&(struct ending){.wait_status = ...}, &o);
 *   if (oom_kills)
 *           outcome_add_oom(&o, was_ended);
 *   return outcome_exit_status(&o);
 */
#pragma once

#include "base/base.h"

enum status {
	STATUS_EXITED,
	STATUS_SIGNALED,
	STATUS_TIMEOUT,
	STATUS_OOM,
	STATUS_CPU_TIME,
	STATUS_OUTPUT_LIMIT,
	STATUS_KILLED,
	STATUS_COUNT,
};

enum limit_hit { HIT_PIDS = 1, HIT_DISK = 2, HIT_FILE_SIZE = 4, HIT_OUTPUT = 16, HIT_MEMORY = 32 };

struct outcome {
	enum status status;
	int exit_code;	 /* -1: none */
	int signal;	 /* 0: none */
	int exec_errno;	 /* the command could not be executed: why; exit_code is 126 or 127 */
	bool oom_killed; /* something inside was killed for memory */
	unsigned limits_hit;
	double duration_ms, cpu_ms;
	uint64_t max_rss_bytes;
	int64_t pids_peak, disk_bytes; /* -1: not known */
	uint32_t denials_seen;	       /* by the guest of a sandbox, which can be asked for them */
};

/* What the kernel and the supervisor report. */
struct ending {
	int wait_status;    /* as of waitpid */
	int exec_errno;	    /* not 0: the command was never executed */
	bool was_ended;	    /* by the supervisor, and: */
	enum status reason; /* why */
	int reason_signal;  /* 0: the signal of the wait status, or SIGKILL */
	bool has_cpu_limit; /* SIGXCPU is this limit, not a signal like others */
};

/* Fills status, exit_code, signal, exec_errno and limits_hit; the rest is set to "not known". */
void outcome_judge(const struct ending *from, struct outcome *ret);
/* The kernel killed something for memory. If the command failed by itself, that is the reason. */
void outcome_add_oom(struct outcome *o, bool was_ended);
/* So much was printed that the command was killed. */
void outcome_add_flood(struct outcome *o);
bool outcome_is_success(const struct outcome *o);
/*
 * Who must change something: "program" (it failed, or met a limit), "caller" (the command cannot be executed,
 * or was ended on request), "cloche". NULL: nobody, it succeeded.
 */
const char *outcome_fault(const struct outcome *o);
/* The exit status of `cloche run` and `cloche exec` for it. */
int outcome_exit_status(const struct outcome *o);

const char *status_name(enum status s);
/* False: no status has this name. */
bool status_find(const char *name, enum status *ret);
/* The limit's name, as that of the spec's field. NULL: the bit is unknown. */
const char *limit_hit_name(enum limit_hit bit);
