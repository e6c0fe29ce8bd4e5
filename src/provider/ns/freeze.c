/* Freezes and thaws a sandbox: to pause it, and to copy its files while nothing changes them. */
#include "provider/ns/ns_internal.h"

#include "base/log.h"

#define FREEZE_MS 5000
#define FREEZE_STEP_MS 2
#define COPY_MS 900000

/* ---- freezing ---- */

static void end_freezing(struct ns_sandbox *s, const struct err *e)
{
	void (*frozen)(struct ns_sandbox *, const struct err *) = take_ptr(s->frozen);

	frozen(s, e);
}

/* Checks once whether all tasks stand still, and helps those that do not. */
static bool stands_still(struct ns_sandbox *s)
{
	struct cgroup c;
	bool still;

	if (!s->i->info.cgroup_version)
		return stop_tree_step((pid_t)s->at.pid, s->at.identity.pid_ns) == 0;
	/* If the sandbox is gone, on_death reports it. */
	if (!ns_cgroup(s, &c))
		return false;
	still = cgroup_is_frozen(&c);
	/*
	 * A task that waits for the guest's answer to a reported call cannot be frozen, and the guest
	 * may have been frozen before it: let both go on for a moment.
	 */
	if (!still && ++s->freeze_tries % 32 <= 1)
		cgroup_freeze(&c, s->freeze_tries % 32 == 1);
	cgroup_close(&c);
	return still;
}

static int thaw_sandbox(struct ns_sandbox *s, struct err *e)
{
	struct cgroup c;
	int rc;

	if (!s->i->info.cgroup_version) {
		stop_tree_end(&s->stopped, (pid_t)s->at.pid, s->at.identity.pid_ns);
		return 0;
	}
	if (!ns_cgroup(s, &c))
		return err_set(e, ERR_CONFLICT, "the sandbox is gone");
	rc = cgroup_freeze(&c, false);
	if (rc < 0)
		err_sys(e, "cannot thaw the sandbox");
	cgroup_close(&c);
	return rc;
}

static void look_frozen(void *arg)
{
	struct ns_sandbox *s = arg;
	struct err e = {0}, ignored;

	if (stands_still(s)) {
		end_freezing(s, NULL);
	} else if (now_ns() > s->freeze_until_ns) {
		(void)thaw_sandbox(s, &ignored);
		err_set(&e, ERR_CONFLICT, "the sandbox could not be frozen in time");
		end_freezing(s, &e);
	} else {
		loop_timer_set(s->ns->host->loop, &s->timer, FREEZE_STEP_MS);
	}
}

static void freeze_sandbox(struct ns_sandbox *s,
			   void (*frozen)(struct ns_sandbox *s, const struct err *e))
{
	s->frozen = frozen;
	s->freeze_tries = 0;
	s->freeze_until_ns = now_ns() + FREEZE_MS * 1000000LL;
	s->timer = (struct loop_timer){.call = look_frozen, .arg = s};
	if (!s->i->info.cgroup_version)
		stop_tree_begin(&s->stopped, (pid_t)s->at.pid);
	look_frozen(s);
}

void ns_thaw_leftover(struct ns_sandbox *s)
{
	struct err ignored;

	/* Without a cgroup the state of pid 1 tells: it never stops by itself. */
	if (s->i->info.cgroup_version || stop_tree_is_stopped((pid_t)s->at.pid))
		(void)thaw_sandbox(s, &ignored);
}

void ns_stop_freezing(struct ns_sandbox *s)
{
	struct err gone = {0};

	loop_timer_stop(s->ns->host->loop, &s->timer);
	snapshot_worker_stop(&s->snapshot_worker);
	snapshot_worker_stop(&s->cleaner);
	if (s->frozen_disk >= 0)
		ns_disk_thaw(s);
	s->frozen = NULL;
	err_set(&gone, ERR_CONFLICT, "the sandbox is gone");
	ns_answer(s, NULL, &gone);
}

/* The broker asks for one change at a time. If it does not, refuses: the first one is not to be lost. */
static bool begin_change(struct ns_sandbox *s, provider_done done, void *arg)
{
	struct err e = {0};

	if (!s->done && !s->frozen) {
		s->done = done;
		s->arg = arg;
		return true;
	}
	err_set(&e, ERR_CONFLICT, "another change of the sandbox is under way");
	done(arg, NULL, &e);
	return false;
}

/* ---- pause and resume ---- */

static void on_paused(struct ns_sandbox *s, const struct err *e)
{
	ns_answer(s, NULL, e);
}

void ns_pause(struct instance *i, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);

	if (begin_change(s, done, arg))
		freeze_sandbox(s, on_paused);
}

void ns_resume(struct instance *i, provider_done done, void *arg)
{
	struct err e = {0};

	done(arg, NULL, thaw_sandbox(ns_sandbox(i), &e) < 0 ? &e : NULL);
}

/* ---- snapshots ---- */

/* The sandbox goes on, unless it was paused before. */
static void end_snapshot(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ns_sandbox *s = arg;
	struct err why = {0};

	if (!s->i->info.paused && thaw_sandbox(s, &why) < 0)
		log_error("sandbox stays frozen", "id", s->i->info.id, "error", why.msg);
	ns_answer(s, r, e);
}

static void copy_frozen(struct ns_sandbox *s, const struct err *e)
{
	struct err why = {0};
	auto_close int root = -1;

	if (e) {
		ns_answer(s, NULL, e);
		return;
	}
	root = s->snapshot_worker.work.root = ns_scratch(s, &why);
	if (root < 0 || snapshot_worker_start(&s->snapshot_worker, s->ns->host->loop, &why) < 0)
		end_snapshot(s, NULL, &why);
}

void ns_snapshot(struct instance *i, int file, uint64_t max_bytes, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);

	if (!begin_change(s, done, arg))
		return;
	if (i->info.has_disk & IPC_HAS_DISK) {
		ns_disk_snapshot(s, file, max_bytes);
		return;
	}
	s->snapshot_worker = (struct snapshot_worker){.work = {.verb = "pack",
							       .guest = i->host->guest,
							       .in = -1,
							       .out = -1,
							       .rootless = i->host->rootless,
							       .id_base = s->at.id_base},
						      .file = file,
						      .max_bytes = max_bytes,
						      .timeout_ms = COPY_MS,
						      .done = end_snapshot,
						      .arg = s};
	if (i->info.paused)
		copy_frozen(s, NULL);
	else
		freeze_sandbox(s, copy_frozen);
}
