/*
 * The lanes of a warm host: which request gets one, how many there are, and what happens when one
 * breaks.
 */
#include "guest/warm/host_internal.h"

#include "guest/exec/command.h"
#include "guest/link/server.h"
#include "kern/sys.h"
#include "sandbox/inside/message.h"

#include <sys/mman.h>
#include <sys/vfs.h>

#define FAILURES_MAX 16
#define REVIVE_FIRST_MS 500
#define REVIVE_MOST_MS 60000
#define SHRINK_MS 10000
#define SPARE_NS 30000000000LL /* an extra lane that was not used for so long is stopped */
#define WAIT_NS 2000000000LL   /* how long a request waits for a warm sandbox, at most */
#define HOLD_MS 60000	       /* how long the files of an ended task are kept, at most */
#define QUIET_NS 200000000LL   /* all have been taken for so long: do not wait */

void lane_set_ready(struct lane *s)
{
	s->host->why = (struct err){0};
	s->host->revive_ms = REVIVE_FIRST_MS;
	s->host->ready_ns[s->kind] = s->ready_ns = now_ns();
	s->host->is_jammed[s->kind] = false;
	s->state = LANE_READY;
	lane_begin_counts(s);
	loop_task_add(s->host->guest->loop, &s->host->ready);
}

void warm_host_revive_later(struct warm_host *n)
{
	if (n->revive.place)
		return;
	loop_timer_set(n->guest->loop, &n->revive, n->revive_ms);
	n->revive_ms = n->revive_ms * 2 < REVIVE_MOST_MS ? n->revive_ms * 2 : REVIVE_MOST_MS;
}

void lane_set_broken(struct lane *s)
{
	s->state = LANE_BROKEN;
	loop_task_add(s->host->guest->loop, &s->host->ready);
	warm_host_revive_later(s->host);
}

/* ---- warm sandboxes ---- */

int lane_watch(struct lane *s, struct loop_watch *w, int fd, void (*call)(void *, uint32_t))
{
	*w = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = call, .arg = s};
	return fd < 0 ? 0 : loop_watch(s->host->guest->loop, w);
}

void lane_unwatch(struct lane *s, struct loop_watch *w)
{
	if (w->fd < 0)
		return;
	loop_unwatch(s->host->guest->loop, w);
	close(w->fd);
	w->fd = -1;
}

static void clear_sandbox(struct lane *s)
{
	lane_unwatch(s, &s->report);
	lane_unwatch(s, &s->notify);
	lane_unwatch(s, &s->sandbox);
	close_fd(&s->scratch);
	close_fd(&s->stat);
	close_fd(&s->mounts);
	spawn_close(s->streams, 3);
	loop_timer_stop(s->host->guest->loop, &s->hold);
	s->task = 0;
	s->eid = 0;
	s->is_over = s->is_held = s->is_due = false;
	s->told = (struct warm_report){0};
	/* The zygote will still answer an order for this sandbox; the answer is then ignored. */
	if (s->host->zygote.asked == s)
		s->host->zygote.is_void = true;
}

static void stop_lane(struct lane *s);

#define SMALL (1 << 20)

/* Do the files of the last task take little of the memory that the next one may have? */
static bool left_little(const struct lane *s)
{
	struct statfs fs;

	return s->scratch >= 0 && fstatfs(s->scratch, &fs) == 0 &&
	       (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize <= SMALL;
}

static int order_sandbox(struct lane *s, int old, bool is_small)
{
	s->host->pages[s->index].task = 0;
	return lane_process_make_sandbox(&s->process, old, is_small);
}

/*
 * The lane has buried the last warm sandbox: it makes the next one. Not while files of the last one are wanted: they
 * would take memory of the next one.
 */
static void renew(struct lane *s)
{
	bool is_small = left_little(s);
	int mounts;

	if (s->is_held) {
		s->is_due = true;
		s->hold = (struct loop_timer){.call = lane_release, .arg = s};
		loop_timer_set(s->host->guest->loop, &s->hold, HOLD_MS);
		return;
	}
	mounts = take_fd(&s->mounts);
	clear_sandbox(s);
	s->state = LANE_MAKING;
	if (s->kind == WARM_HOST_NODE && s->host->node_failures >= NODE_FAILURES_MAX) {
		close_fd(&mounts);
		stop_lane(s);
		s->state = LANE_ABSENT;
		return;
	}
	/* After too many failures in a row, trying again would only keep the processors busy. */
	if (s->host->failures > FAILURES_MAX) {
		close_fd(&mounts);
		lane_set_broken(s);
	} else if (order_sandbox(s, mounts, is_small) < 0) {
		lane_set_broken(s);
	}
}

void lane_release(void *lane)
{
	struct lane *s = lane;

	s->is_held = false;
	if (s->is_due)
		renew(s);
}

/* Kills the warm sandbox; its task is still to be reaped. */
static void take_down(struct lane *s)
{
	pid_t task = s->task;

	if (s->sandbox.fd >= 0)
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
	loop_unwatch(s->host->guest->loop, &s->control);
	clear_sandbox(s);
	s->task = task;
}

static void on_sandbox_death(void *arg, uint32_t events)
{
	struct lane *s = arg;

	lane_unwatch(s, &s->sandbox);
	lane_sandbox_died(s);
	if (s->state == LANE_BROKEN)
		clear_sandbox(s);
}

/*
 * The lane and its warm sandbox are gone, or of no use. The owner of a task is told when the warm
 * sandbox is dead: until then the task may still run, and how it ended is not known.
 */
void lane_break(struct lane *s, const struct err *e)
{
	s->host->why = *e;
	if (s->tell && s->sandbox.fd >= 0) {
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
		loop_unwatch(s->host->guest->loop, &s->control);
	} else {
		take_down(s);
	}
	lane_set_broken(s);
	if (s->sandbox.fd < 0 && !s->task)
		lane_tell_end(s, false);
}

static void on_dns(void *arg, uint32_t events)
{
	struct lane *s = arg;

	denials_take_query(s->host->guest, s->dns.fd, s->eid);
}

static void on_control(void *arg, uint32_t events)
{
	struct lane *s = arg;
	struct warm_message m;
	int fds[WARM_FDS];

	if (lane_process_receive(&s->process, &m, fds) < 0 || m.news == WARM_FAILED) {
		lane_break(s, &m.told.err);
	} else if (m.news == WARM_GONE) {
		lane_tell_end(s, m.exit_code == WARM_OUT_OF_MEMORY);
		renew(s);
	} else if (m.news == WARM_NETWORK) {
		lane_unwatch(s, &s->dns);
		s->process.dns = fds[0];
		lane_watch(s, &s->dns, fds[0], on_dns);
	} else if (m.news == WARM_TASK) {
		lane_take_task(s, &m.told, fds[0]);
	} else {
		lane_watch(s, &s->sandbox, fds[WARM_PIDFD], on_sandbox_death);
		s->scratch = fds[WARM_SCRATCH];
		s->mounts = fds[WARM_MOUNTS];
		if (s->kind == WARM_HOST_PYTHON) {
			zygote_order_next(s->host);
			return;
		}
		memcpy(s->streams, fds + WARM_STREAMS, sizeof(s->streams));
		s->state = LANE_ORDERED;
	}
}

static void on_notify(void *arg, uint32_t events)
{
	struct lane *s = arg;

	if (events & EPOLLIN) {
		denials_take_notify(s->host->guest, s->notify.fd, s->eid);
		return;
	}
	lane_filter_ended(s);
	/* Last: closing it makes the kernel free the filter at once, which takes time. */
	lane_unwatch(s, &s->notify);
}

int lane_watch_listener(struct lane *s, int listener)
{
	return lane_watch(s, &s->notify, listener, on_notify);
}

/* ---- spawning ---- */

static struct lane *find_ready(struct warm_host *n, enum warm_host_kind kind)
{
	struct lane *found = NULL;

	/* The one that has waited longest: an interpreter that was started last may not be up yet. */
	for (each_lane(s, n))
		if (s->kind == kind && s->state == LANE_READY &&
		    (!found || s->ready_ns < found->ready_ns))
			found = s;
	return found;
}

/* Is every lane ready, so that no task runs? */
static bool is_unused(const struct warm_host *n)
{
	for (each_lane(s, n))
		if (s->state != LANE_READY && s->state != LANE_ABSENT)
			return false;
	return true;
}

static int say_why_not(const struct warm_host *n, enum warm_host_kind kind, struct err *e)
{
	const char *why = kind == WARM_HOST_NODE && !task_node() ? "there is no node"
			  : n->why.kind != ERR_NONE		 ? n->why.msg
			  : kind == WARM_HOST_PYTHON && n->zygote.stage != ZYGOTE_READY
				  ? "the warm interpreter is loading its modules"
				  : "all are taken";

	if (n->is_stale)
		err_set(e, ERR_SYSTEM, "files of the image have changed");
	else
		err_set(e, ERR_SYSTEM, "no warm sandbox is ready (%.300s)", why);
	e->errnum = n->is_stale ? ESTALE : EAGAIN;
	return -1;
}

/* Interpreters that wait need memory: the first is started at the first request, the next when it is used. */
static void grow_ahead(struct warm_host *n, enum warm_host_kind kind)
{
	if (kind == WARM_HOST_NODE && task_node() && n->node_failures < NODE_FAILURES_MAX)
		warm_host_grow(n, kind);
}

int warm_host_take_task(struct warm_host *n, enum warm_host_kind kind, struct spawned *ret,
			struct warm_report *ret_report, struct err *e)
{
	struct lane *s;

	look_at_request(n, kind);
	s = n->is_stale ? NULL : find_ready(n, kind);
	if (!s) {
		grow_ahead(n, kind);
		warm_host_end_rest(n);
		return say_why_not(n, kind, e);
	}
	if (is_unused(n))
		n->burst_ns = now_ns();
	n->pages[s->index].exec_errno = 0;
	n->failures = 0;
	s->state = LANE_TAKEN;
	s->used_ns = now_ns();
	grow_ahead(n, kind);
	*ret = (struct spawned){.pid = s->task,
				.in = take_fd(&s->streams[0]),
				.out = take_fd(&s->streams[1]),
				.err = take_fd(&s->streams[2])};
	*ret_report = s->told;
	return 0;
}

/* ---- how many ---- */

static bool is_coming(const struct lane *s)
{
	return s->state == LANE_MAKING || s->state == LANE_ORDERED || s->state == LANE_LEAVING ||
	       s->state == LANE_RESTING;
}

bool warm_host_is_worth_waiting(struct warm_host *n, enum warm_host_kind kind, int64_t since_ns)
{
	int64_t now = now_ns();
	int64_t quiet_since = since_ns > n->ready_ns[kind] ? since_ns : n->ready_ns[kind];
	int taken = 0, coming = 0;

	for (int i = 0; i < n->lane_count; i++) {
		taken += n->lanes[i].kind == kind && n->lanes[i].state == LANE_TAKEN;
		coming += n->lanes[i].kind == kind && is_coming(&n->lanes[i]);
	}
	if (n->is_stale || taken + coming == 0 ||
	    (kind == WARM_HOST_PYTHON && n->zygote.stage != ZYGOTE_READY))
		return false;
	if (now - since_ns > WAIT_NS || (!coming && now - quiet_since > QUIET_NS))
		n->is_jammed[kind] = true;
	return !n->is_jammed[kind];
}

/* ---- beginning and end ---- */

static struct lane new_lane(struct warm_host *n, int index, enum warm_host_kind kind)
{
	return (struct lane){.host = n,
			     .index = index,
			     .kind = kind,
			     .state = LANE_ABSENT,
			     .sandbox.fd = -1,
			     .scratch = -1,
			     .stat = -1,
			     .mounts = -1,
			     .streams = {-1, -1, -1},
			     .report.fd = -1,
			     .notify.fd = -1,
			     .dns.fd = -1};
}

static void start_lane(struct lane *s)
{
	struct warm_host *n = s->host;
	const struct warm_host_options *o = &n->options;
	int files = warm_file_count(&o->settings), first = o->first_join + s->index * files;
	struct lane_page *page = &n->pages[s->index];

	*s = new_lane(n, s->index, s->kind);
	s->state = LANE_BROKEN;
	s->used_ns = now_ns();
	for (int i = 0; i < WARM_JOINS; i++)
		s->joins[i] = i < o->settings.join_count ? first + i : -1;
	for (int i = 0; i < WARM_FILES - WARM_JOINS; i++)
		s->events[i] = files ? first + o->settings.join_count + i : -1;
	s->spawner = (struct spawner_settings){.run = s->kind == WARM_HOST_NODE ? task_run_node
										: task_run,
					       .arg = page,
					       .task = &page->task,
					       .spawner = &page->spawner};
	if (lane_process_start(&o->settings, s->index, s->joins,
			       s->kind != WARM_HOST_PYTHON ? &s->spawner : NULL, &s->process,
			       &n->why) < 0)
		return;
	if (lane_watch(s, &s->control, s->process.control, on_control) == 0 &&
	    lane_watch(s, &s->dns, s->process.dns, on_dns) == 0 && order_sandbox(s, -1, true) == 0)
		s->state = LANE_MAKING;
}

static void stop_lane(struct lane *s)
{
	lane_unwatch(s, &s->dns);
	loop_unwatch(s->host->guest->loop, &s->control);
	s->control.fd = -1;
	s->process.dns = -1;
	lane_process_stop(&s->process);
}

void warm_host_grow(struct warm_host *n, enum warm_host_kind kind)
{
	struct lane *absent = NULL;

	for (each_lane(s, n)) {
		if (s->kind != kind)
			continue;
		if (s->state == LANE_READY || is_coming(s))
			return;
		if (!absent && s->state == LANE_ABSENT && !s->task)
			absent = s;
	}
	if (!absent)
		return;
	start_lane(absent);
	if (absent->state == LANE_BROKEN)
		warm_host_revive_later(n);
	if (!n->shrink.place)
		loop_timer_set(n->guest->loop, &n->shrink, SHRINK_MS);
}

/* Stops lanes that were added and have not been needed for a while. */
static void shrink(void *arg)
{
	struct warm_host *n = arg;
	unsigned counts[WARM_HOST_KINDS] = {0};
	bool more = false;

	for (each_lane(s, n)) {
		bool is_extra = counts[s->kind]++ >= n->options.first[s->kind];

		if (!is_extra || s->state == LANE_ABSENT)
			continue;
		if (s->state != LANE_READY || now_ns() - s->used_ns < SPARE_NS) {
			more = true;
			continue;
		}
		take_down(s);
		stop_lane(s);
		s->state = LANE_ABSENT;
	}
	if (more)
		loop_timer_set(n->guest->loop, &n->shrink, SHRINK_MS);
}

/* Starts broken lanes and a lost zygote again, less and less often. */
static void revive(void *arg)
{
	struct warm_host *n = arg;
	struct err e;

	n->failures = 0;
	for (each_lane(s, n)) {
		/* A lane whose last task is not reaped yet has to wait. */
		if (s->state != LANE_BROKEN)
			continue;
		if (s->task || s->sandbox.fd >= 0) {
			warm_host_revive_later(n);
			continue;
		}
		stop_lane(s);
		start_lane(s);
		if (s->state == LANE_BROKEN)
			warm_host_revive_later(n);
	}
	if (n->zygote.control.fd < 0 && n->options.lanes[WARM_HOST_PYTHON] &&
	    zygote_start(n, &e) < 0)
		zygote_lose(n);
}

struct warm_host *warm_host_new(struct guest *g, const struct warm_host_options *o)
{
	struct warm_host *n = must_alloc(calloc(1, sizeof(*n)));
	struct err e;
	int index = 0;

	n->guest = g;
	n->options = *o;
	n->zygote.control.fd = -1;
	task_find_node(g);
	look_init(n);
	n->ready = (struct loop_task){.call = warm_serve, .arg = g};
	n->revive = (struct loop_timer){.call = revive, .arg = n};
	n->shrink = (struct loop_timer){.call = shrink, .arg = n};
	n->revive_ms = REVIVE_FIRST_MS;
	warm_look_around(&n->options.settings);
	for (int kind = 0; kind < WARM_HOST_KINDS; kind++)
		n->lane_count += (int)o->lanes[kind];
	n->lanes = must_alloc(calloc((size_t)n->lane_count + 1, sizeof(*n->lanes)));
	n->pages = mmap(NULL, (size_t)n->lane_count * sizeof(*n->pages) + 1, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n->pages == MAP_FAILED)
		abort();
	for (int kind = 0; kind < WARM_HOST_KINDS; kind++)
		for (unsigned i = 0; i < o->lanes[kind]; i++, index++) {
			n->lanes[index] = new_lane(n, index, (enum warm_host_kind)kind);
			if (i < o->first[kind])
				start_lane(&n->lanes[index]);
		}
	/* After the lanes: a task is pid 2 in its warm sandbox, and OpenSSL, which detects a fork by a
	 * changed pid, must not find the interpreter's own pid there. */
	if (o->interpreter && o->lanes[WARM_HOST_PYTHON] && zygote_start(n, &e) < 0)
		zygote_lose(n);
	return n;
}
