#include "daemon/box.h"

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "kern/sys.h"
#include "wire/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- the table ---- */

static struct box **bucket(struct daemon *d, const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return &d->boxes[hash % BOX_BUCKETS];
}

struct box *box_find(struct daemon *d, const char *id)
{
	struct box *b = *bucket(d, id);

	while (b && !str_equal(b->info.id, id))
		b = b->next;
	return b;
}

struct box *box_new(struct daemon *d, const char *id)
{
	struct box *b = must_alloc(calloc(1, sizeof(*b)));
	struct box **place = bucket(d, id);

	b->d = d;
	b->pidfd = b->listener = b->slot = -1;
	snprintf(b->info.id, sizeof(b->info.id), "%s", id);
	b->next = *place;
	*place = b;
	d->box_count++;
	return b;
}

void box_free(struct box *b)
{
	struct daemon *d = b->d;
	struct box **place = bucket(d, b->info.id);

	while (*place != b)
		place = &(*place)->next;
	*place = b->next;
	d->box_count--;
	loop_unwatch(d->loop, &b->death);
	loop_timer_stop(d->loop, &b->timer);
	if (b->slot >= 0)
		d->slots[b->slot] = 0;
	close_fd(&b->pidfd);
	close_fd(&b->listener);
	free(b->boot);
	free(b->destroyers);
	free(b->cgroup_table);
	free(b->halt.own);
	free(b);
}

int32_t box_take_slot(struct daemon *d)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t slot = (d->next_slot + i) % SLOTS;

		if (d->slots[slot])
			continue;
		d->slots[slot] = 1;
		/* The one after it next time: an id range rests before it is used again. */
		d->next_slot = slot + 1;
		return (int32_t)slot;
	}
	return -1;
}

/* ---- its cgroup ---- */

void box_cgroup_name(const struct box *b, char *ret, size_t size)
{
	snprintf(ret, size, "cloche-box-%s-%s", b->d->tag, b->info.id);
}

bool box_cgroup(const struct box *b, struct cgroup *ret)
{
	char name[64];

	box_cgroup_name(b, name, sizeof(name));
	return b->cgroup_table ? cgroup_open(ret, b->cgroup_table, name)
			       : cgroup_open_at(ret, &b->d->cgroups, name);
}

/* ---- life ---- */

/* Why it died, as far as the kernel tells from outside. */
static void tell_death(struct box *b)
{
	struct ipc m = {.type = IPC_DIED};
	struct cgroup_stats stats;
	struct cgroup c;

	snprintf(m.died.id, sizeof(m.died.id), "%s", b->info.id);
	if (box_cgroup(b, &c)) {
		cgroup_read_stats(&c, &stats);
		m.died.by_oom = stats.oom_kills > 0;
		cgroup_close(&c);
	}
	snprintf(m.died.why, sizeof(m.died.why), "%s",
		 m.died.by_oom ? "its pid 1 is gone; the kernel killed in it for memory"
			       : "its pid 1 is gone");
	log_info("sandbox ended", "id", b->info.id, "oom", m.died.by_oom ? "yes" : "no");
	front_news(b->d, &m, -1);
}

static void on_death(void *arg, uint32_t events)
{
	struct box *b = arg;

	(void)events;
	loop_unwatch(b->d->loop, &b->death);
	close_fd(&b->pidfd);
	if (b->state == BOX_LIVE)
		tell_death(b);
	box_clear(b);
}

int box_watch(struct box *b, struct err *e)
{
	b->death =
		(struct loop_watch){.fd = b->pidfd, .events = EPOLLIN, .call = on_death, .arg = b};
	if (loop_watch(b->d->loop, &b->death) < 0)
		return err_sys(e, "cannot watch sandbox %s", b->info.id);
	return 0;
}

int box_connect(struct box *b, struct err *e)
{
	struct sockaddr_un address;
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(e, "cannot create a socket");
	record_socket_address(b->d->boxes_dir, b->info.id, &address);
	if (connect(fd, (void *)&address, sizeof(address)) < 0)
		return err_sys(e, "cannot connect to the guest of %s", b->info.id);
	b->info.generation++;
	if (record_write(b, e) < 0)
		return -1;
	return take_fd(&fd);
}

void box_announce(struct box *b)
{
	struct ipc m = {.type = IPC_ADOPTED};
	struct err e = {0};
	auto_close int fd = box_is_remote(b) ? -1 : box_connect(b, &e);

	/* Without a link it is still there; the front asks for another. */
	if (fd < 0 && e.kind)
		log_warn("no link to a sandbox", "id", b->info.id, "error", e.msg);
	m.booted = b->info;
	front_news(b->d, &m, fd);
}

/* ---- freezing ---- */

#define FREEZE_MS 5000
#define FREEZE_STEP_MS 2

static void end_freezing(struct box *b, const struct err *e)
{
	void (*done)(struct box *, const struct err *) = b->frozen;

	b->frozen = NULL;
	done(b, e);
}

/* One look at whether it stands still; what does not is pushed on. */
static bool is_frozen(struct box *b, struct cgroup *c)
{
	bool frozen = cgroup_is_frozen(c);

	/*
	 * A task that waits for the guest's answer to a reported call cannot be frozen, and the guest
	 * may have been frozen before it: let both go on for a moment.
	 */
	if (!frozen && ++b->freeze_tries % 32 == 0)
		cgroup_freeze(c, false);
	else if (!frozen && b->freeze_tries % 32 == 1)
		cgroup_freeze(c, true);
	return frozen;
}

static bool stands_still(struct box *b)
{
	struct cgroup c;
	bool still;

	if (!b->info.cgroup_version)
		return halt_step(b->pid, b->identity.pid_ns) == 0;
	/* If it is gone, its death tells. */
	if (!box_cgroup(b, &c))
		return false;
	still = is_frozen(b, &c);
	cgroup_close(&c);
	return still;
}

static void look_frozen(void *arg)
{
	struct box *b = arg;
	struct err e = {0}, ignored;

	if (stands_still(b)) {
		end_freezing(b, NULL);
	} else if (now_ns() > b->freeze_until_ns) {
		(void)box_thaw(b, &ignored);
		err_set(&e, ERR_CONFLICT, "the sandbox could not be frozen in time");
		end_freezing(b, &e);
	} else {
		loop_timer_set(b->d->loop, &b->timer, FREEZE_STEP_MS);
	}
}

void box_freeze(struct box *b, void (*done)(struct box *b, const struct err *e))
{
	b->frozen = done;
	b->freeze_tries = 0;
	b->freeze_until_ns = now_ns() + FREEZE_MS * 1000000LL;
	b->timer = (struct loop_timer){.call = look_frozen, .arg = b};
	if (!b->info.cgroup_version)
		halt_begin(&b->halt, b->pid);
	look_frozen(b);
}

int box_thaw(struct box *b, struct err *e)
{
	struct cgroup c;
	int rc;

	if (!b->info.cgroup_version) {
		halt_end(&b->halt, b->pid, b->identity.pid_ns);
		return 0;
	}
	if (!box_cgroup(b, &c))
		return err_set(e, ERR_CONFLICT, "the sandbox is gone");
	rc = cgroup_freeze(&c, false);
	if (rc < 0)
		err_sys(e, "cannot thaw the sandbox");
	cgroup_close(&c);
	return rc;
}

void box_thaw_leftover(struct box *b)
{
	struct err ignored;

	/* Without a cgroup pid 1 itself says so; it never stops by itself. */
	if (b->info.cgroup_version || halt_is_stopped(b->pid))
		(void)box_thaw(b, &ignored);
}

static int get_scratch(const struct box *b, struct stat *ret)
{
	auto_close int fd = (int)syscall(SYS_pidfd_getfd, b->pidfd, GUEST_FD_SCRATCH, 0);

	return fd < 0 || fstat(fd, ret) < 0 ? -1 : take_fd(&fd);
}

void box_note_scratch(struct box *b)
{
	struct stat st;
	auto_close int fd = get_scratch(b, &st);

	b->scratch_dev = fd < 0 ? 0 : (uint64_t)st.st_dev;
}

/* Whoever took pid 1 over may have put another directory there, of the host's file systems even. */
int box_scratch(const struct box *b, struct err *e)
{
	struct stat st;
	auto_close int fd = get_scratch(b, &st);

	if (fd < 0)
		return err_sys(e, "cannot reach the files of sandbox %s", b->info.id);
	if ((uint64_t)st.st_dev != b->scratch_dev)
		return err_set(e, ERR_CONFLICT, "the files of sandbox %s are not where they were",
			       b->info.id);
	return take_fd(&fd);
}

/* ---- death ---- */

#define CLEAR_STEP_MS 3
#define CLEAR_MS 30000

static void finish(struct box *b)
{
	record_remove(b);
	for (size_t i = 0; i < b->destroyer_count; i++)
		front_done(b->d, b->destroyers[i], b->info.id, NULL);
	box_free(b);
}

/* Its tasks leave a cgroup a moment after they are dead. */
static bool clear_cgroups(const struct box *b)
{
	struct cgroup c;
	char name[64];

	box_cgroup_name(b, name, sizeof(name));
	if (b->nest_slots && !boot_remove_slots(&b->d->cgroups, name))
		return false;
	if (!b->cgroup_table && cgroup_try_remove_at(&b->d->cgroups, name))
		return true;
	if (!box_cgroup(b, &c) || cgroup_try_remove(&c))
		return true;
	cgroup_kill(&c);
	cgroup_close(&c);
	return false;
}

static void clear(void *arg)
{
	struct box *b = arg;

	if (!clear_cgroups(b)) {
		if (now_ns() - b->dying_since_ns < CLEAR_MS * 1000000LL) {
			loop_timer_set(b->d->loop, &b->timer, CLEAR_STEP_MS);
			return;
		}
		log_error("cgroup cannot be removed", "id", b->info.id);
	}
	finish(b);
}

static void stop_freezing(struct box *b)
{
	struct err gone = {0};

	loop_timer_stop(b->d->loop, &b->timer);
	if (!b->frozen)
		return;
	err_set(&gone, ERR_CONFLICT, "the sandbox is gone");
	end_freezing(b, &gone);
}

void box_clear(struct box *b)
{
	b->state = BOX_DYING;
	if (!b->dying_since_ns)
		b->dying_since_ns = now_ns();
	stop_freezing(b);
	b->timer = (struct loop_timer){.call = clear, .arg = b};
	clear(b);
}

#define INSIST_MS 50

static void insist(void *arg)
{
	struct box *b = arg;
	struct cgroup c;

	if (!box_cgroup(b, &c))
		return;
	/* On v1 what is frozen dies only when it is thawed (rule 23); dying takes cpu, too. */
	cgroup_lift_cpu(&c);
	cgroup_kill(&c);
	cgroup_freeze(&c, false);
	cgroup_close(&c);
}

/*
 * With pid 1 goes all of its pid namespace; usually that is all there is to do. It takes its mounts down
 * before it is dead, and who asked waits for that: a client that was answered before found the
 * next sandbox later, and among many by more than it had gained.
 */
static void kill_all(struct box *b)
{
	sys_pidfd_send_signal(b->pidfd, SIGKILL);
	b->timer = (struct loop_timer){.call = insist, .arg = b};
	loop_timer_set(b->d->loop, &b->timer, b->info.paused || b->is_busy ? 0 : INSIST_MS);
}

void box_destroy(struct box *b, struct asker who)
{
	if (who.serial) {
		b->destroyers = must_alloc(
			realloc(b->destroyers, (b->destroyer_count + 1) * sizeof(*b->destroyers)));
		b->destroyers[b->destroyer_count++] = who;
	}
	if (b->state == BOX_WAITING || b->state == BOX_BOOTING) {
		b->is_doomed = true;
		return;
	}
	if (b->state == BOX_DYING)
		return;
	b->state = BOX_DYING;
	b->dying_since_ns = now_ns();
	/* Nobody shall freeze again what is to die. */
	stop_freezing(b);
	if (box_is_remote(b))
		remote_destroy(b);
	else
		kill_all(b);
}
