/*
 * The only code that turns a wait status into the status that users see. The launcher, the daemon and
 * its client verbs all use it, so the same end has the same name everywhere.
 */
#include "model/outcome.h"

#include <assert.h>
#include <sys/wait.h>

static const char *const status_names[] = {
	[STATUS_EXITED] = "exited",	[STATUS_SIGNALED] = "signaled",
	[STATUS_TIMEOUT] = "timeout",	[STATUS_OOM] = "oom",
	[STATUS_CPU_TIME] = "cpu_time", [STATUS_OUTPUT_LIMIT] = "output_limit",
	[STATUS_KILLED] = "killed",
};
static_assert(ARRAY_LEN(status_names) == STATUS_COUNT, "a name per status");

const char *status_name(enum status s)
{
	return s < STATUS_COUNT ? status_names[s] : "unknown";
}

bool status_find(const char *name, enum status *ret)
{
	for (int i = 0; i < STATUS_COUNT; i++)
		if (str_equal(name, status_names[i])) {
			*ret = (enum status)i;
			return true;
		}
	return false;
}

const char *limit_hit_name(enum limit_hit bit)
{
	static const char *const names[] = {[HIT_PIDS] = "pids",
					    [HIT_DISK] = "disk",
					    [HIT_FILE_SIZE] = "file_size",
					    [HIT_OUTPUT] = "output_limit",
					    [HIT_MEMORY] = "memory"};

	return bit < ARRAY_LEN(names) ? names[bit] : NULL;
}

static void judge_wait_status(const struct ending *from, struct outcome *o)
{
	if (WIFEXITED(from->wait_status)) {
		o->status = STATUS_EXITED;
		o->exit_code = WEXITSTATUS(from->wait_status);
		return;
	}
	o->signal = WTERMSIG(from->wait_status);
	o->status = o->signal == SIGXCPU && from->has_cpu_limit ? STATUS_CPU_TIME : STATUS_SIGNALED;
}

void outcome_judge(const struct ending *from, struct outcome *ret)
{
	*ret = (struct outcome){.exit_code = -1, .pids_peak = -1, .disk_bytes = -1};
	if (from->exec_errno) {
		ret->status = STATUS_EXITED;
		ret->exec_errno = from->exec_errno;
		ret->exit_code =
			from->exec_errno == ENOENT || from->exec_errno == ENOTDIR ? 127 : 126;
		return;
	}
	judge_wait_status(from, ret);
	if (from->was_ended) {
		ret->status = from->reason;
		ret->exit_code = -1;
		if (from->reason_signal)
			ret->signal = from->reason_signal;
		else if (!ret->signal)
			ret->signal = SIGKILL;
	}
	/* A shell exits with 128 + SIGXFSZ if its child was killed by that signal. */
	if (ret->signal == SIGXFSZ || ret->exit_code == 128 + SIGXFSZ)
		ret->limits_hit |= HIT_FILE_SIZE;
}

static void set_killed(struct outcome *o, enum status why)
{
	o->status = why;
	o->signal = SIGKILL;
	o->exit_code = -1;
}

void outcome_add_oom(struct outcome *o, bool was_ended)
{
	bool failed = o->status == STATUS_SIGNALED || o->status == STATUS_KILLED ||
		      (o->status == STATUS_EXITED && o->exit_code != 0 && !o->exec_errno);

	o->oom_killed = true;
	if (failed && !was_ended)
		set_killed(o, STATUS_OOM);
	else if (o->status != STATUS_OOM)
		o->limits_hit |= HIT_MEMORY;
}

void outcome_add_flood(struct outcome *o)
{
	set_killed(o, STATUS_OUTPUT_LIMIT);
}

bool outcome_is_success(const struct outcome *o)
{
	return o->status == STATUS_EXITED && o->exit_code == 0;
}

const char *outcome_fault(const struct outcome *o)
{
	if (outcome_is_success(o))
		return NULL;
	if (o->exec_errno)
		return o->exec_errno == ENOMEM || o->exec_errno == EAGAIN || o->exec_errno == EIO
			       ? "cloche"
			       : "caller";
	return o->status == STATUS_KILLED ? "caller" : "program";
}

int outcome_exit_status(const struct outcome *o)
{
	enum { TIMED_OUT = 124, CANNOT = 125, KILLED = 128 + SIGKILL };

	switch (o->status) {
	case STATUS_EXITED:
		return o->exit_code;
	case STATUS_SIGNALED:
		return 128 + o->signal;
	case STATUS_TIMEOUT:
		return TIMED_OUT;
	case STATUS_CPU_TIME:
		return o->signal == SIGXCPU ? 128 + SIGXCPU : KILLED;
	case STATUS_KILLED:
		return o->signal ? 128 + o->signal : KILLED;
	case STATUS_OOM:
	case STATUS_OUTPUT_LIMIT:
		return KILLED;
	case STATUS_COUNT:
		break;
	}
	return CANNOT;
}
