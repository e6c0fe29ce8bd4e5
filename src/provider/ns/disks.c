/* The disks of sandboxes, <state>/disks/ID.img: made or taken from a pool before a boot, copied for snapshots. */
#include "provider/ns/ns_internal.h"

#include "base/log.h"
#include "disk/disk.h"
#include "kern/close_async.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#define READ_MS 900000 /* for what is brought back */

static void file_name(const char *id, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.img", id);
}

static void pool_name(size_t n, const char *ending, char ret[32])
{
	snprintf(ret, 32, "pool-%zu%s", n, ending);
}

static int open_new(const struct ns *ns, const char *name, struct err *e)
{
	int fd = openat(ns->host->disks_dir, name,
			O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_sys(e, "cannot create a disk") : fd;
}

/* ---- the pool ---- */

static void fill_pool(struct ns *ns);

static void on_pool_made(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ns *ns = arg;
	struct ns_disk_pool *p = &ns->disks;
	char part[32], name[32];

	close_fd(&p->file);
	pool_name(p->making, ".part", part);
	pool_name(p->making, "", name);
	if (e || renameat(ns->host->disks_dir, part, ns->host->disks_dir, name) < 0) {
		/* Who asks for a disk will be told why. */
		log_warn("no disk was prepared", "error", e ? e->msg : strerror(errno));
		unlinkat(ns->host->disks_dir, part, 0);
		return;
	}
	p->ready[p->making] = p->maker.max_bytes;
	fill_pool(ns);
}

/* One at a time, in place of those of another size. */
static void fill_pool(struct ns *ns)
{
	struct ns_disk_pool *p = &ns->disks;
	struct err e = {0};
	char part[32];
	size_t i = 0;

	while (i < DISK_POOL && p->ready[i] == p->limit)
		i++;
	if (p->maker.loop || i == DISK_POOL)
		return;
	pool_name(i, "", part);
	if (p->ready[i])
		unlinkat(ns->host->disks_dir, part, 0);
	p->ready[i] = 0;
	p->making = i;
	pool_name(i, ".part", part);
	p->file = open_new(ns, part, &e);
	p->maker = (struct snapshot_worker){
		.work = {.verb = "format", .root = -1, .in = -1, .out = -1},
		.file = p->file,
		.max_bytes = p->limit,
		.done = on_pool_made,
		.arg = ns};
	if (p->file < 0 || snapshot_worker_start(&p->maker, ns->host->loop, &e) < 0) {
		close_fd(&p->file);
		log_warn("no disk can be prepared", "error", e.msg);
	}
}

static bool take_from_pool(struct ns_sandbox *s, uint64_t limit)
{
	struct ns_disk_pool *p = &s->ns->disks;
	int dir = s->ns->host->disks_dir;
	char from[32], to[IPC_ID + 8];

	file_name(s->i->info.id, to);
	for (size_t i = 0; i < DISK_POOL; i++) {
		if (p->ready[i] != limit)
			continue;
		p->ready[i] = 0;
		pool_name(i, "", from);
		if (renameat(dir, from, dir, to) == 0)
			return true;
	}
	return false;
}

void ns_disks_stop(struct ns *ns)
{
	snapshot_worker_stop(&ns->disks.maker);
	close_fd(&ns->disks.file);
}

/* ---- before a boot ---- */

static uint64_t limit_of(const struct ns_sandbox *s)
{
	const struct limits *l = &s->boot->limits;

	return l->disk_bytes ? l->disk_bytes : l->memory_bytes / 2;
}

static void on_made(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ns_sandbox *s = arg;

	close_fd(&s->snapshot_worker.file);
	close_fd(&s->i->disk_from);
	if (e)
		ns_booted(s, NULL, -1, e);
	else
		boot_workers_add(s);
}

static void make_disk(struct ns_sandbox *s)
{
	struct err e = {0};
	char name[IPC_ID + 8];

	file_name(s->i->info.id, name);
	s->disk_has_files = s->i->disk_from >= 0;
	s->snapshot_worker =
		(struct snapshot_worker){.work = {.verb = s->disk_has_files ? "copy" : "format",
						  .root = -1,
						  .in = s->i->disk_from,
						  .out = -1},
					 .file = open_new(s->ns, name, &e),
					 .max_bytes = limit_of(s),
					 .done = on_made,
					 .arg = s};
	if (s->snapshot_worker.file < 0 ||
	    snapshot_worker_start(&s->snapshot_worker, s->ns->host->loop, &e) < 0)
		on_made(s, NULL, &e);
}

void ns_disk_begin(struct ns_sandbox *s)
{
	struct ns_disk_pool *p = &s->ns->disks;
	struct err e = {0};
	char name[IPC_ID + 8];

	file_name(s->i->info.id, name);
	if (s->ns->host->rootless)
		err_field(&e, ERR_UNSUPPORTED, "disk_type",
			  "disk_type: a disk needs a daemon that is root");
	if (e.kind || disk_probe(&e) < 0) {
		ns_booted(s, NULL, -1, &e);
		return;
	}
	if (faccessat(s->ns->host->disks_dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		s->disk_has_files = true;
		boot_workers_add(s);
		return;
	}
	if (s->i->disk_from >= 0) {
		make_disk(s);
		return;
	}
	p->limit = limit_of(s);
	if (take_from_pool(s, p->limit))
		boot_workers_add(s);
	else
		make_disk(s);
	fill_pool(s->ns);
}

static void on_cleaned(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ns_sandbox *s = arg;

	if (e)
		log_warn("a disk is not cleared yet", "id", s->i->info.id, "error", e->msg);
}

void ns_disk_clean(struct ns_sandbox *s)
{
	struct err e = {0};
	auto_close int root = s->disk_has_files ? ns_scratch(s, &e) : -1;

	if (root < 0)
		return;
	s->cleaner = (struct snapshot_worker){
		.work = {.verb = "empty", .root = root, .in = -1, .out = -1},
		.file = -1,
		.done = on_cleaned,
		.arg = s};
	if (snapshot_worker_start(&s->cleaner, s->ns->host->loop, &e) < 0)
		on_cleaned(s, NULL, &e);
}

int ns_disk_open(const struct ns_sandbox *s, struct err *e)
{
	char name[IPC_ID + 8];
	int fd;

	file_name(s->i->info.id, name);
	fd = openat(s->ns->host->disks_dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "cannot open the disk of %s", s->i->info.id) : fd;
}

/* A large file takes a while to remove: a kernel thread does that. */
void ns_disk_remove(const struct ns_sandbox *s)
{
	struct err ignored;
	char name[IPC_ID + 8];
	int fd = ns_disk_open(s, &ignored);

	file_name(s->i->info.id, name);
	unlinkat(s->ns->host->disks_dir, name, 0);
	close_async(&fd, 1);
}

/* ---- snapshots ---- */

/* A directory on it, by which it can be frozen. */
static int open_mounted(const struct ns_sandbox *s, struct err *e)
{
	auto_close int scratch = ns_scratch(s, e);
	int fd = scratch < 0 ? -1 : openat(scratch, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return scratch >= 0 && fd < 0 ? err_sys(e, "cannot open the sandbox's disk") : fd;
}

void ns_disk_thaw(struct ns_sandbox *s)
{
	struct err ignored;

	if (!(s->i->info.has_disk & IPC_HAS_DISK))
		return;
	if (s->frozen_disk < 0)
		s->frozen_disk = open_mounted(s, &ignored);
	if (s->frozen_disk >= 0)
		(void)ioctl(s->frozen_disk, FITHAW, 0);
	close_fd(&s->frozen_disk);
}

static void on_cloned(void *arg, const struct provider_result *r, const struct err *e)
{
	struct ns_sandbox *s = arg;

	/* The worker has thawed it, unless it was killed. */
	ns_disk_thaw(s);
	close_fd(&s->snapshot_worker.work.in);
	ns_answer(s, r, e);
}

void ns_disk_snapshot(struct ns_sandbox *s, int file, uint64_t max_bytes)
{
	struct err e = {0};

	s->frozen_disk = open_mounted(s, &e);
	s->snapshot_worker = (struct snapshot_worker){
		.work = {.verb = "clone", .root = s->frozen_disk, .in = -1, .out = -1},
		.file = file,
		.max_bytes = max_bytes,
		.timeout_ms = READ_MS,
		.done = on_cloned,
		.arg = s};
	if (s->frozen_disk >= 0)
		s->snapshot_worker.work.in = ns_disk_open(s, &e);
	if (s->snapshot_worker.work.in < 0 ||
	    snapshot_worker_start(&s->snapshot_worker, s->ns->host->loop, &e) < 0)
		on_cloned(s, NULL, &e);
}

/* ---- what must be brought back ---- */

static void on_read(void *arg, const struct provider_result *r, const struct err *e)
{
	ns_answer(arg, NULL, e);
}

void ns_disk_read(struct instance *i, int file, provider_done done, void *arg)
{
	struct ns_sandbox *s = ns_sandbox(i);
	struct err e = {0};
	auto_close int root = -1;

	if (s->done || s->frozen) {
		err_set(&e, ERR_CONFLICT, "another change of the sandbox is under way");
		done(arg, NULL, &e);
		return;
	}
	s->done = done;
	s->arg = arg;
	root = ns_scratch(s, &e);
	s->snapshot_worker = (struct snapshot_worker){.work = {.verb = "pack-was",
							       .guest = i->host->guest,
							       .root = root,
							       .in = -1,
							       .out = -1,
							       .id_base = s->at.id_base},
						      .file = file,
						      .timeout_ms = READ_MS,
						      .done = on_read,
						      .arg = s};
	if (root < 0 || snapshot_worker_start(&s->snapshot_worker, s->ns->host->loop, &e) < 0)
		ns_answer(s, NULL, &e);
}

int ns_disk_done(struct instance *i, struct err *e)
{
	auto_close int scratch = ns_scratch(ns_sandbox(i), e);

	return scratch < 0 ? -1 : disk_was_is_back(scratch, e);
}
