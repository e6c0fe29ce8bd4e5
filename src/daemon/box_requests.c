/* What the front asks of sandboxes. Every message is judged here, whatever the front thinks. */
#include "auth/tokens.h"
#include "base/auto.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/check.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "kern/sys.h"
#include "sandbox/root.h"
#include "sandbox/restrict.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>

#define POOL_MARGIN 16 /* while some are handed out and others made */

/* ---- boot ---- */

static int open_listener(struct box *b, struct err *e)
{
	struct sockaddr_un address;

	record_socket_address(b->d->boxes_dir, b->info.id, &address);
	b->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (b->listener < 0 || bind(b->listener, (void *)&address, sizeof(address)) < 0 ||
	    listen(b->listener, 16) < 0)
		return err_sys(e, "cannot make the socket of sandbox %s", b->info.id);
	return 0;
}

/* The ceiling that the operator gave this token. */
static int check_token(const struct daemon *d, const char *owner, const struct limits *l,
		       struct err *e)
{
	const struct token *t = daemon_token(d, owner);

	return t ? check_ceiling(l, &t->ceiling, e) : 0;
}

/* Kinds that are counted apart: what clients keep, what runs once, what is prepared. */
enum kind { KIND_KEPT, KIND_TRANSIENT, KIND_POOL, KIND_COUNT };

static enum kind kind_of(const char *owner, bool transient)
{
	return str_equal(owner, "-") ? KIND_POOL : transient ? KIND_TRANSIENT : KIND_KEPT;
}

static uint32_t count_kind(const struct daemon *d, enum kind kind)
{
	uint32_t n = 0;

	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (const struct box *b = d->boxes[i]; b; b = b->next)
			n += b->state != BOX_DYING && !b->is_doomed &&
			     kind_of(b->info.owner, b->info.transient) == kind;
	return n;
}

/* The front counts by its own books; these bounds hold whatever it says. */
static int check_count(const struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	enum kind kind = kind_of(boot->owner, boot->transient);
	uint32_t most = d->config->max_sandboxes;

	if (kind == KIND_POOL)
		most = d->config->pool_size + POOL_MARGIN;
	/* Not worth counting before there are so many in all. */
	if (!most || d->box_count < most || count_kind(d, kind) < most)
		return 0;
	return err_set(e, ERR_LIMIT, "this daemon has as many sandboxes as it may have, %u", most);
}

static int may_boot(struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	if (d->stopping)
		return err_set(e, ERR_CONFLICT, "the daemon is being stopped");
	if (check_boot(boot, d->config, daemon_owner_name(d, boot->owner), e) < 0 ||
	    check_token(d, boot->owner, &boot->limits, e) < 0)
		return -1;
	if (box_find(d, boot->id))
		return err_set(e, ERR_CONFLICT, "there is a sandbox %s already", boot->id);
	return check_count(d, boot, e);
}

void box_request_boot(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct err e = {0};
	struct box *b;

	if (may_boot(d, &m->boot, &e) < 0) {
		front_done(d, who, m->boot.id, &e);
		return;
	}
	b = box_new(d, m->boot.id);
	b->boot = must_alloc(malloc(sizeof(*b->boot)));
	*b->boot = m->boot;
	b->booter_asker = who;
	snprintf(b->info.owner, sizeof(b->info.owner), "%s", m->boot.owner);
	b->info.limits = m->boot.limits;
	b->info.transient = m->boot.transient != 0;
	b->info.level = m->boot.level;
	b->info.provider = m->boot.provider;
	b->info.of_host = str_equal(m->boot.image, "host");
	/* The host's files belong to root: only that can put a layer over them. */
	b->info.root = d->rootless ? ROOT_RO : m->boot.root;
	if (box_is_remote(b)) {
		remote_boot(b);
		return;
	}
	if (!d->rootless) {
		b->slot = box_take_slot(d);
		b->id_base = (uint32_t)(0x7000 + b->slot) << 16;
		if (b->slot < 0)
			err_set(&e, ERR_LIMIT, "no id range is left");
	}
	if (e.kind || open_listener(b, &e) < 0) {
		front_done(d, who, b->info.id, &e);
		record_remove(b);
		box_free(b);
		return;
	}
	booters_add(d, b);
}

static void describe(struct box *b, const struct booted *r)
{
	struct ipc_booted *i = &b->info;

	b->pid = r->pid;
	b->identity = r->identity;
	i->rootless = r->rootless;
	i->cgroup_version = r->proven & LAYER_BIT(LAYER_CGROUP) ? (uint8_t)r->cgroup.version : 0;
	i->memory_by_cgroup = (r->proven & LAYER_BIT(LAYER_MEMORY)) != 0;
	i->listening = r->listening;
	i->landlock_abi = r->landlock_abi;
	i->proven = r->proven;
	i->missing = r->missing;
	memcpy(i->seccomp, r->seccomp, sizeof(i->seccomp));
	snprintf(i->disk, sizeof(i->disk), "%s",
		 r->proven & LAYER_BIT(LAYER_DISK) ? "tmpfs" : "none");
	memcpy(i->note, r->note, sizeof(i->note));
	if (b->boot->root == ROOT_OVERLAY && i->root == ROOT_RO && !i->note[0])
		snprintf(i->note, sizeof(i->note),
			 "The root is read-only, since a layer over the host's files needs a "
			 "daemon that is root; home, /tmp and the workspace can be written.");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	i->started_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void answer_booted(struct box *b, int link)
{
	struct ipc m = {.type = IPC_BOOTED, .booted = b->info};

	/* A front that was restarted meanwhile hears of it as of one that was there before. */
	if (b->booter_asker.epoch != b->d->front.epoch) {
		if (b->info.transient)
			box_destroy(b, (struct asker){0});
		else
			box_announce(b);
		return;
	}
	front_answer(b->d, b->booter_asker, &m, link);
}

static void give_up(struct box *b, const struct err *e)
{
	front_done(b->d, b->booter_asker, b->info.id, e);
	log_warn("sandbox not booted", "id", b->info.id, "error", e->msg);
	box_clear(b);
}

void box_booted(struct box *b, const struct booted *result, int pidfd, const struct err *error)
{
	struct err e = {0};
	auto_close int link = -1;

	close_fd(&b->listener);
	if (error) {
		give_up(b, error);
		return;
	}
	describe(b, result);
	b->pidfd = pidfd;
	box_note_scratch(b);
	b->state = BOX_LIVE;
	free(take_ptr(b->boot));
	if (b->is_doomed) {
		err_set(&e, ERR_CONFLICT, "it was destroyed meanwhile");
	} else {
		/* The record first: whoever hears of this sandbox will find it again (rule 21). */
		link = box_connect(b, &e);
	}
	if (box_watch(b, &e) < 0 || link < 0) {
		front_done(b->d, b->booter_asker, b->info.id, &e);
		box_destroy(b, (struct asker){0});
		return;
	}
	answer_booted(b, link);
}

/* ---- what is there ---- */

/* A live one, or who asks is told that there is none. */
static struct box *find_live(struct daemon *d, struct asker who, const char *id)
{
	struct box *b = ipc_id_is_valid(id) ? box_find(d, id) : NULL;
	struct err e = {0};

	if (b && b->state == BOX_LIVE)
		return b;
	err_set(&e, ERR_NOT_FOUND, "there is no such sandbox");
	front_done(d, who, id, &e);
	return NULL;
}

/* The same, and nothing else is being done to it. */
static struct box *find_idle(struct daemon *d, struct asker who, const char *id)
{
	struct box *b = find_live(d, who, id);
	struct err e = {0};

	if (!b || !b->is_busy)
		return b;
	err_set(&e, ERR_CONFLICT, "the sandbox is being paused or copied just now");
	front_done(d, who, id, &e);
	return NULL;
}

void box_request_connect(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_live(d, who, m->id);
	struct ipc reply = {.type = IPC_BOOTED};
	struct err e = {0};

	if (!b)
		return;
	if (box_is_remote(b)) {
		remote_connect(b, who);
		return;
	}
	auto_close int link = box_connect(b, &e);

	if (link < 0) {
		front_done(d, who, m->id, &e);
		return;
	}
	reply.booted = b->info;
	front_answer(d, who, &reply, link);
}

void box_request_destroy(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = ipc_id_is_valid(m->id) ? box_find(d, m->id) : NULL;

	if (b)
		box_destroy(b, who);
	else
		front_done(d, who, m->id, NULL);
}

/* ---- pause ---- */

static void on_frozen(struct box *b, const struct err *e)
{
	struct err ignored;

	b->is_busy = false;
	if (!e) {
		b->info.paused = 1;
		(void)record_write(b, &ignored);
	}
	front_done(b->d, b->op_asker, b->info.id, e);
}

void box_request_pause(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_idle(d, who, m->id);

	if (!b)
		return;
	if (b->info.paused) {
		front_done(d, who, m->id, NULL);
		return;
	}
	if (box_is_remote(b)) {
		remote_pause(b, who);
		return;
	}
	b->is_busy = true;
	b->op_asker = who;
	box_freeze(b, on_frozen);
}

void box_request_resume(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_idle(d, who, m->id);
	struct err e = {0};
	int rc = 0;

	if (!b)
		return;
	if (box_is_remote(b) && b->info.paused) {
		remote_resume(b, who);
		return;
	}
	if (b->info.paused)
		rc = box_thaw(b, &e);
	if (rc == 0) {
		b->info.paused = 0;
		(void)record_write(b, &e);
	}
	front_done(d, who, m->id, rc < 0 ? &e : NULL);
}

/* ---- limits ---- */

/* Of a tmpfs that is mounted nowhere any more: by the fd that the guest keeps. */
static int resize_disk(struct box *b, uint64_t bytes, struct err *e)
{
	auto_close int scratch = box_scratch(b, e);
	char size[32];

	if (scratch < 0)
		return -1;
	auto_close int fs =
		(int)syscall(SYS_fspick, scratch, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

	snprintf(size, sizeof(size), "%llu", (unsigned long long)(bytes + ROOT_SKELETON_BYTES));
	if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", size) < 0 ||
	    sys_fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL) < 0)
		return err_field(e, errno == EPERM ? ERR_UNSUPPORTED : ERR_SYSTEM, "disk",
				 "disk: cannot be changed while the sandbox runs: %s",
				 strerror(errno));
	return 0;
}

static uint64_t disk_of(const struct limits *l)
{
	return l->disk_bytes ? l->disk_bytes : l->memory_bytes / 2;
}

/* pid 1 hands it on to every command that it starts from now on. */
static int resize_files(const struct box *b, const struct limits *l, struct err *e)
{
	uint64_t size = restrict_file_size(l);
	struct rlimit r = {size, size};

	if (size == restrict_file_size(&b->info.limits) ||
	    prlimit(b->pid, RLIMIT_FSIZE, &r, NULL) == 0)
		return 0;
	return err_field(e, errno == EPERM ? ERR_UNSUPPORTED : ERR_SYSTEM, "file_size",
			 "file_size: cannot be changed while the sandbox runs: %s",
			 strerror(errno));
}

/* One of the pool mostly has what is asked for: its cgroup was read back when it was booted. */
static bool has_limits(const struct box *b, const struct limits *wanted)
{
	struct limits now = b->info.limits;

	now.disk_bytes = disk_of(&now);
	static_assert(sizeof(now) == 9 * sizeof(uint64_t), "no bytes that say nothing");
	return memcmp(&now, wanted, sizeof(now)) == 0;
}

static int apply_limits(struct box *b, const struct limits *wanted, struct err *e)
{
	struct limits l = *wanted;
	struct cgroup c;
	int rc = 0;

	if (box_is_remote(b))
		return err_set(e, ERR_UNSUPPORTED,
			       "limits: a sandbox of provider e2b has those of its service");
	l.disk_bytes = disk_of(wanted);
	if (has_limits(b, &l))
		return 0;
	if (l.open_files != b->info.limits.open_files ||
	    l.cpu_time_ms != b->info.limits.cpu_time_ms)
		return err_set(e, ERR_UNSUPPORTED,
			       "open_files and cpu_time cannot be changed while the sandbox runs");
	if (l.disk_bytes > l.memory_bytes)
		return err_field(e, ERR_INVALID, "disk",
				 "disk: more than memory, which holds what is written");
	if (l.disk_bytes != disk_of(&b->info.limits) && resize_disk(b, l.disk_bytes, e) < 0)
		return -1;
	if (resize_files(b, &l, e) < 0)
		return -1;
	if (b->info.cgroup_version && box_cgroup(b, &c)) {
		rc = cgroup_update(&c, &l);
		if (rc < 0)
			err_sys(e, "cannot change the limits");
		cgroup_close(&c);
	} else if (l.memory_bytes != b->info.limits.memory_bytes ||
		   l.cpus_milli != b->info.limits.cpus_milli || l.pids != b->info.limits.pids) {
		return err_set(e, ERR_UNSUPPORTED,
			       "limits cannot be changed while the sandbox runs: it has no cgroup");
	}
	if (rc == 0)
		b->info.limits = l;
	return rc;
}

void box_request_update(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_idle(d, who, m->boot.id);
	struct err e = {0};

	if (!b)
		return;
	if (check_limits(&m->boot.limits, d->config, &e) < 0 ||
	    check_token(d, b->info.owner, &m->boot.limits, &e) < 0 ||
	    apply_limits(b, &m->boot.limits, &e) < 0 || record_write(b, &e) < 0)
		front_done(d, who, m->boot.id, &e);
	else
		front_done(d, who, m->boot.id, NULL);
}

static int claim(struct box *b, const struct ipc_boot *boot, struct err *e)
{
	if (!str_equal(b->info.owner, "-"))
		return err_set(e, ERR_CONFLICT, "the sandbox has an owner already");
	if (check_boot(boot, b->d->config, daemon_owner_name(b->d, boot->owner), e) < 0 ||
	    check_token(b->d, boot->owner, &boot->limits, e) < 0)
		return -1;
	if (str_equal(boot->owner, "-"))
		return err_set(e, ERR_INVALID, "the pool claims nothing");
	/* It is no longer counted with the pool, but with what clients have. */
	if (check_count(b->d, boot, e) < 0)
		return -1;
	if (boot->volume_count)
		return err_set(e, ERR_CONFLICT, "a prepared sandbox cannot be given volumes");
	if (apply_limits(b, &boot->limits, e) < 0)
		return -1;
	snprintf(b->info.owner, sizeof(b->info.owner), "%s", boot->owner);
	b->info.transient = boot->transient != 0;
	return record_write(b, e);
}

void box_request_claim(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_idle(d, who, m->boot.id);
	struct err e = {0};

	if (b)
		front_done(d, who, m->boot.id, claim(b, &m->boot, &e) < 0 ? &e : NULL);
}

/* ---- stats ---- */

static void add_cgroup(const struct box *b, struct ipc_stats *s)
{
	struct cgroup_usage usage;
	struct cgroup_stats stats;
	struct cgroup c;

	if (!box_cgroup(b, &c))
		return;
	cgroup_read_usage(&c, &usage);
	cgroup_read_stats(&c, &stats);
	cgroup_close(&c);
	if (b->nest_slots) {
		char name[64];

		box_cgroup_name(b, name, sizeof(name));
		boot_add_slot_stats(&b->d->cgroups, name, &stats);
	}
	s->memory_bytes = usage.memory_bytes;
	s->memory_peak_bytes = stats.memory_peak_bytes;
	s->cpu_us = stats.cpu_us;
	/* Not counting our own pid 1. */
	s->pids = usage.pids ? usage.pids - 1 : 0;
	s->io_read_bytes = usage.io_read_bytes;
	s->io_write_bytes = usage.io_write_bytes;
	s->oom_kills = stats.oom_kills;
	s->pids_refused = stats.pids_refused;
	s->pids_peak = stats.pids_peak;
}

void box_request_stats(struct daemon *d, struct asker who, const struct ipc *m)
{
	struct box *b = find_live(d, who, m->id);
	struct ipc reply = {.type = IPC_STATS_ARE};
	struct ipc_stats *s = &reply.stats;
	struct err ignored;
	struct statfs fs;

	if (!b)
		return;
	snprintf(s->id, sizeof(s->id), "%s", b->info.id);
	s->pids_peak = -1;
	/* What the guest tells is all there is. */
	if (box_is_remote(b)) {
		front_answer(d, who, &reply, -1);
		return;
	}
	s->memory_limit_bytes = b->info.limits.memory_bytes;
	s->disk_limit_bytes = disk_of(&b->info.limits);
	add_cgroup(b, s);
	auto_close int scratch = box_scratch(b, &ignored);

	if (scratch >= 0 && fstatfs(scratch, &fs) == 0)
		s->disk_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	front_answer(d, who, &reply, -1);
}
