/*
 * Snapshots are made of sandboxes by their providers, or written by the front. The front gets the end of
 * a pipe, never the file: a snapshot worker reads from the pipe as much as there is room for, so that no
 * front can fill the disk, keep a deleted file open, or change a file after it was checked. Until a snapshot
 * is kept or given up it is a job, and counts against its owner.
 */
#include "base/budget.h"
#include "base/log.h"
#include "daemon/broker/check.h"
#include "daemon/broker/broker_internal.h"
#include "kern/close_async.h"
#include "provider/snapshot_worker.h"

#define MAGIC "clsnap1"
#define RUNNING 2	/* at once */
#define WRITING 32	/* at once: each is a process */
#define CHECK_MS 900000 /* for one */
#define PIPE_BYTES (1 << 20)
#define EXCLUDED "/tmp /var/tmp /dev/shm /run volumes tmpfs"

struct meta {
	char magic[8];
	struct ipc_snapshot info;
};

enum phase {
	WRITTEN, /* by the front, which has not asked to keep it, or is not done */
	WAITS,	 /* to be made or checked */
	RUNS,	 /* is being made or checked */
};

struct snapshot_job {
	struct snapshot_job *next;
	struct daemon *d;
	enum phase phase;
	struct requester who; /* wants to have it kept; serial 0: nobody does yet */
	struct ipc_snapshot info;
	char sandbox[IPC_ID]; /* "": the front writes it */
	uint64_t room;	      /* its largest size; 0 while it waits to be made */
	int file;
	struct snapshot_worker snapshot_worker; /* receives what the front writes, then checks it */
	struct err err;				/* why writing failed */
};

/* ---- files ---- */

static void file_name(const char *id, const char *ending, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.%s", id, ending);
}

int snapshot_meta_read(const struct daemon *d, const char *id, struct ipc_snapshot *ret)
{
	return snapshot_meta_read_at(d->snapshots_dir, id, ret);
}

int snapshot_meta_read_at(int dir, const char *id, struct ipc_snapshot *ret)
{
	char name[IPC_ID + 8];
	struct meta m = {.magic = ""};

	file_name(id, "meta", name);
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	/* Those of earlier versions end there. */
	if (fd < 0 || read(fd, &m, sizeof(m)) < (ssize_t)offsetof(struct meta, info.frozen_ms) ||
	    memcmp(m.magic, MAGIC, sizeof(m.magic)) != 0)
		return -1;
	*ret = m.info;
	ret->key[sizeof(ret->key) - 1] = '\0';
	ret->owner[sizeof(ret->owner) - 1] = ret->name[sizeof(ret->name) - 1] = '\0';
	ret->image[sizeof(ret->image) - 1] = '\0';
	return 0;
}

bool snapshot_is_of(const struct daemon *d, const char *id, const char *sandbox)
{
	struct ipc_snapshot s;

	return ipc_id_is_valid(id) && snapshot_meta_read(d, id, &s) == 0 &&
	       str_has_end(s.sandbox, sizeof(s.sandbox)) && str_equal(s.sandbox, sandbox);
}

int snapshot_meta_write(int dir, const struct ipc_snapshot *info, bool is_synced, struct err *e)
{
	struct meta m = {.magic = MAGIC, .info = *info};
	char draft[IPC_ID + 8], name[IPC_ID + 8];

	file_name(info->id, "new", draft);
	file_name(info->id, "meta", name);
	auto_close int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, &m, sizeof(m)) != (ssize_t)sizeof(m) ||
	    (is_synced ? fdatasync(fd) : sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE)) < 0 ||
	    renameat(dir, draft, dir, name) < 0 || (is_synced && fsync(dir) < 0))
		return err_sys(e, "cannot keep the snapshot");
	return 0;
}

static const char *ending_of(const struct ipc_snapshot *info)
{
	return info->kind == IPC_SNAPSHOT_DISK ? "img" : "tar";
}

/* The files get their name when they are complete. A snapshot counts once its description exists. */
static int keep_files(const struct daemon *d, const struct ipc_snapshot *info, struct err *e)
{
	char part[IPC_ID + 8], name[IPC_ID + 8];

	file_name(info->id, "part", part);
	file_name(info->id, ending_of(info), name);
	if (images_hold_for_snapshot(d, info, e) < 0)
		return -1;
	if (renameat(d->snapshots_dir, part, d->snapshots_dir, name) < 0)
		return err_sys(e, "cannot keep the snapshot");
	return snapshot_meta_write(d->snapshots_dir, info, true, e);
}

static void remove_files(struct daemon *d, const char *id)
{
	static const char *const endings[] = {"meta", "img", "names", "new", "part", "row", "tar"};

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		char name[IPC_ID + 8];
		int fd;

		file_name(id, endings[i], name);
		/* A large file takes a while to remove: a kernel thread does that. */
		fd = openat(d->snapshots_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		unlinkat(d->snapshots_dir, name, 0);
		close_async(&fd, 1);
	}
	images_leave_snapshot(d, id);
}

static bool file_exists(const struct daemon *d, const char *id, const char *ending)
{
	char name[IPC_ID + 8];

	file_name(id, ending, name);
	return faccessat(d->snapshots_dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Calls each for every kept snapshot. */
static void for_each(struct daemon *d,
		     void (*each)(struct daemon *d, struct ipc_snapshot *s, void *), void *arg)
{
	auto_list struct list names = {0};

	list_names(d->snapshots_dir, &names);
	for (size_t i = 0; i < names.count; i++) {
		struct ipc_snapshot s;

		if (strlen(names.items[i]) != 25 || !str_equal(names.items[i] + 20, ".meta"))
			continue;
		if (snapshot_meta_read(d, names.items[i], &s) == 0)
			each(d, &s, arg);
		else
			d->disk_keys.unknown = true;
	}
}

void snapshot_remove_unfinished(struct daemon *d)
{
	auto_list struct list names = {0};

	list_names(d->snapshots_dir, &names);
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.items[i];

		if (strlen(name) < 21 || str_equal(name + 20, ".meta") ||
		    file_exists(d, name, "meta"))
			continue;
		unlinkat(d->snapshots_dir, name, 0);
		log_info("unfinished snapshot removed", "file", name);
	}
}

/* ---- checks ---- */

#define OVERHEAD (64u << 10) /* of a snapshot, so that empty ones are not free */
#define SHARE_WEIGHT 4	     /* one owner alone may have four fifths */

struct count {
	const char *owner;
	uint32_t n;
	uint64_t bytes, own_bytes;
};

static void count_one(struct daemon *d, struct ipc_snapshot *s, void *arg)
{
	struct count *c = arg;

	bool is_own = str_equal(s->owner, c->owner);

	c->n += is_own;
	c->bytes += s->size_bytes + OVERHEAD;
	c->own_bytes += is_own ? s->size_bytes + OVERHEAD : 0;
}

/* Snapshots that are being made or written count like kept ones. */
static struct count count_all(struct daemon *d, const char *owner)
{
	struct count c = {.owner = owner};

	for (const struct snapshot_job *j = d->snapshot_jobs; j; j = j->next) {
		bool is_own = str_equal(j->info.owner, owner);

		c.n += is_own;
		c.bytes += j->room;
		c.own_bytes += is_own ? j->room : 0;
	}
	for_each(d, count_one, &c);
	return c;
}

/* How large another snapshot may become now: a fair share of what is left (base/budget.h). */
static int find_room(struct daemon *d, const struct count *c, uint64_t *ret, struct err *e)
{
	uint64_t most = d->config->snapshot_total_bytes, left;
	struct budget_pool all = {
		.used = c->bytes, .max = most ? most : UINT64_MAX / 16, .weight = SHARE_WEIGHT};
	const struct budget own = {
		.used = c->own_bytes, .max = UINT64_MAX, .pool = &all, .is_operator = !*c->owner};

	left = budget_left(&own);
	if (left <= OVERHEAD && c->bytes + OVERHEAD >= all.max)
		return err_set(e, ERR_LIMIT,
			       "snapshots: all together are as large as they may be "
			       "(snapshots.max_total); delete some");
	if (left <= OVERHEAD)
		return err_set(e, ERR_LIMIT,
			       "snapshots: this token's share of snapshots.max_total is used up; "
			       "delete some");
	left -= OVERHEAD;
	*ret = left < d->config->snapshot_max_bytes ? left : d->config->snapshot_max_bytes;
	return 0;
}

/*
 * Checks the count of the owner and the bytes of all owners together: a front could invent owners.
 */
static int may_add(struct daemon *d, const struct ipc_snapshot *s, uint64_t *ret_room,
		   struct err *e)
{
	struct count c;

	if (!ipc_id_is_valid(s->id) || !check_owner(s->owner))
		return err_set(e, ERR_INVALID, "not a snapshot's id or owner");
	if (!check_name(s->name))
		return err_field(e, ERR_INVALID, "name",
				 "name: no slashes and no control characters");
	if (file_exists(d, s->id, "meta") || file_exists(d, s->id, "part"))
		return err_set(e, ERR_CONFLICT, "there is such a snapshot already");
	c = count_all(d, s->owner);
	if (d->config->snapshot_max_count && c.n >= d->config->snapshot_max_count)
		return err_set(e, ERR_LIMIT, "snapshots: there are %u already", c.n);
	return find_room(d, &c, ret_room, e);
}

/* A snapshot of another owner answers like one that does not exist (rule 28). */
static int find_kept(struct daemon *d, const struct ipc_snapshot *asked, struct ipc_snapshot *ret,
		     struct err *e)
{
	if (ipc_id_is_valid(asked->id) && snapshot_meta_read(d, asked->id, ret) == 0 &&
	    str_equal(ret->owner, asked->owner))
		return 0;
	return err_set(e, ERR_NOT_FOUND, "there is no such snapshot");
}

/* ---- jobs ---- */

static void start_next(struct daemon *d);

static void end_job(struct snapshot_job *j, const struct err *e)
{
	struct ipc m = {.type = IPC_SNAPSHOT_IS, .snapshot = j->info};
	struct daemon *d = j->d;
	struct snapshot_job **place = &d->snapshot_jobs;
	struct box *b = j->sandbox[0] ? box_find_live(d, j->sandbox) : NULL;

	while (*place != j)
		place = &(*place)->next;
	*place = j->next;
	d->snapshot_running -= j->phase == RUNS;
	snapshot_worker_stop(&j->snapshot_worker);
	close_fd(&j->file);
	if (b)
		b->is_busy = false;
	if (e) {
		remove_files(d, j->info.id);
		front_done(d, j->who, j->info.id, e);
	} else {
		front_answer(d, j->who, &m, -1);
	}
	free(j);
	start_next(d);
}

/* The snapshot was made, or checked. */
static void on_snapshot(void *arg, const struct provider_result *r, const struct err *failed)
{
	struct snapshot_job *j = arg;
	struct err e = {0};

	if (failed) {
		end_job(j, failed);
		return;
	}
	j->info.size_bytes = r->size_bytes;
	j->info.kind = r->is_disk ? IPC_SNAPSHOT_DISK : IPC_SNAPSHOT_TAR;
	j->info.is_shared = r->is_shared;
	if (r->is_disk)
		memcpy(j->info.key, box_find_live(j->d, j->sandbox)->disk_key, sizeof(j->info.key));
	j->info.frozen_ms = r->frozen_ms;
	memcpy(j->info.digest, r->digest, sizeof(j->info.digest));
	network_names_save(j->d, j->info.sandbox, j->info.id);
	if (keep_files(j->d, &j->info, &e) == 0)
		disk_key_use(j->d, j->info.key);
	end_job(j, e.kind ? &e : NULL);
}

static int open_part(struct snapshot_job *j, int flags, struct err *e)
{
	char part[IPC_ID + 8];

	file_name(j->info.id, "part", part);
	close_fd(&j->file);
	j->file = openat(j->d->snapshots_dir, part, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	return j->file < 0 ? err_sys(e, "cannot open the snapshot's file") : 0;
}

/*
 * The sandbox is about to be destroyed: what it consists of then is its disk itself. Nothing is frozen and nothing
 * copied. The disk counts as one of a sandbox, not among the bytes of snapshots.
 */
static int link_disk(struct snapshot_job *j, struct err *e)
{
	const struct provider_result r = {.fd = -1, .is_disk = true};

	if (disk_link_to_snapshot(j->d, j->sandbox, j->info.id, "part", e) < 0)
		return -1;
	on_snapshot(j, &r, NULL);
	return 0;
}

static int make_snapshot(struct snapshot_job *j, struct err *e)
{
	struct box *b = box_find_live(j->d, j->sandbox);
	struct count c;

	if (!b)
		return err_set(e, ERR_CONFLICT, "the sandbox is gone");
	if (b->i.info.has_disk && str_equal(j->info.name, SNAPSHOT_OF_STOP))
		return link_disk(j, e);
	c = count_all(j->d, j->info.owner);
	if (find_room(j->d, &c, &j->room, e) < 0 || open_part(j, O_CREAT | O_EXCL, e) < 0)
		return -1;
	b->i.row->snapshot(&b->i, j->file, j->room, on_snapshot, j);
	return 0;
}

static int check_snapshot(struct snapshot_job *j, struct err *e)
{
	struct daemon *d = j->d;
	auto_close int root = openat(d->runtime, "empty", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return err_sys(e, "cannot open an empty directory");
	if (open_part(j, 0, e) < 0)
		return -1;
	j->snapshot_worker = (struct snapshot_worker){.work = {.verb = "check",
							       .guest = d->host.guest,
							       .root = root,
							       .in = -1,
							       .out = -1,
							       .rootless = d->rootless,
							       .id_base = 0x7ffeu << 16},
						      .file = j->file,
						      .max_bytes = j->room,
						      .timeout_ms = CHECK_MS,
						      .done = on_snapshot,
						      .arg = j};
	return snapshot_worker_start(&j->snapshot_worker, d->loop, e);
}

/* When the owner's last turn began. An owner that has no other snapshot running goes first. */
static uint64_t last_turn(const struct daemon *d, const char *owner)
{
	uint64_t turn = 0;

	for (size_t i = 0; i < ARRAY_LEN(d->snapshot_turns); i++)
		if (d->snapshot_turns[i].number > turn &&
		    str_equal(d->snapshot_turns[i].owner, owner))
			turn = d->snapshot_turns[i].number;
	for (const struct snapshot_job *j = d->snapshot_jobs; j; j = j->next)
		if (j->phase == RUNS && str_equal(j->info.owner, owner))
			return UINT64_MAX;
	return turn;
}

/* The owners take turns; the snapshots of one owner are made in the order of the requests. */
static struct snapshot_job *find_next(struct daemon *d)
{
	struct snapshot_job *best = NULL;
	uint64_t best_turn = 0;

	for (struct snapshot_job *j = d->snapshot_jobs; j; j = j->next) {
		uint64_t turn = j->phase == WAITS ? last_turn(d, j->info.owner) : 0;

		if (j->phase == WAITS && (!best || turn < best_turn)) {
			best = j;
			best_turn = turn;
		}
	}
	return best;
}

static void note_turn(struct daemon *d, const char *owner)
{
	size_t place = d->snapshot_turn++ % ARRAY_LEN(d->snapshot_turns);

	d->snapshot_turns[place].number = d->snapshot_turn;
	snprintf(d->snapshot_turns[place].owner, IPC_ID, "%s", owner);
}

static void start_next(struct daemon *d)
{
	struct snapshot_job *j = d->snapshot_running < RUNNING ? find_next(d) : NULL;
	struct err e = {0};

	if (!j)
		return;
	note_turn(d, j->info.owner);
	j->phase = RUNS;
	d->snapshot_running++;
	if ((j->sandbox[0] ? make_snapshot(j, &e) : check_snapshot(j, &e)) < 0)
		end_job(j, &e);
}

static struct snapshot_job *add_job(struct daemon *d, const struct ipc_snapshot *info,
				    enum phase phase, uint64_t room)
{
	struct snapshot_job *j = must_alloc(calloc(1, sizeof(*j))), **last = &d->snapshot_jobs;

	*j = (struct snapshot_job){.d = d, .phase = phase, .info = *info, .room = room, .file = -1};
	while (*last)
		last = &(*last)->next;
	*last = j;
	return j;
}

/* ---- snapshots that the front writes ---- */

static struct snapshot_job *find_written(const struct daemon *d, const struct ipc_snapshot *s)
{
	struct snapshot_job *j = d->snapshot_jobs;

	while (j && (j->phase != WRITTEN || !str_equal(j->info.id, s->id) ||
		     !str_equal(j->info.owner, s->owner)))
		j = j->next;
	return j;
}

/* Checks it once all of it has arrived and the front asked to keep it. */
static void check_written(struct snapshot_job *j)
{
	if (j->snapshot_worker.loop || !j->who.serial)
		return;
	if (j->err.kind) {
		end_job(j, &j->err);
		return;
	}
	j->info.created_ms = unix_ms();
	j->phase = WAITS;
	start_next(j->d);
}

static void on_taken(void *arg, const struct provider_result *r, const struct err *e)
{
	struct snapshot_job *j = arg;

	if (e)
		j->err = *e;
	check_written(j);
}

/* Returns the end of the pipe that the front writes to. */
static int begin_to_take(struct snapshot_job *j, struct err *e)
{
	int ends[2];
	auto_close int ours = -1;
	auto_close int fronts = -1;

	if (open_part(j, O_CREAT | O_EXCL, e) < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	ours = ends[0];
	fronts = ends[1];
	(void)fcntl(fronts, F_SETPIPE_SZ, PIPE_BYTES);
	/* Only the front's end: the snapshot worker may wait, the front must not. */
	if (fcntl(fronts, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, "cannot set up a pipe");
	j->snapshot_worker =
		(struct snapshot_worker){.work = {.verb = "take", .in = ours, .out = -1},
					 .file = j->file,
					 .unwanted = fronts,
					 .max_bytes = j->room,
					 .done = on_taken,
					 .arg = j};
	return snapshot_worker_start(&j->snapshot_worker, j->d->loop, e) < 0 ? -1
									     : take_fd(&fronts);
}

/* An owner has a share of the places. */
static int may_write(const struct daemon *d, const char *owner, struct err *e)
{
	struct budget_pool all = {.max = WRITING, .weight = 1};
	struct budget own = {.max = UINT64_MAX, .pool = &all, .is_operator = !*owner};

	for (const struct snapshot_job *j = d->snapshot_jobs; j; j = j->next) {
		all.used += j->phase == WRITTEN;
		own.used += j->phase == WRITTEN && str_equal(j->info.owner, owner);
	}
	if (budget_has(&own, 1))
		return 0;
	err_set(e, ERR_SYSTEM, "too many snapshots are being written just now");
	e->errnum = EAGAIN;
	return -1;
}

void snapshots_drop_waiting(struct daemon *d, const char *sandbox)
{
	struct snapshot_job *j = d->snapshot_jobs;
	struct err gone = {0};

	err_set(&gone, ERR_CONFLICT, "the sandbox is gone");
	while (j) {
		if (j->phase == WAITS && str_equal(j->sandbox, sandbox)) {
			end_job(j, &gone);
			j = d->snapshot_jobs;
		} else {
			j = j->next;
		}
	}
}

void snapshots_drop_written(struct daemon *d)
{
	struct snapshot_job *j = d->snapshot_jobs;
	struct err gone = {0};

	err_set(&gone, ERR_CONFLICT, "the snapshot was given up");
	while (j) {
		if (j->phase == WRITTEN) {
			end_job(j, &gone);
			j = d->snapshot_jobs;
		} else {
			j = j->next;
		}
	}
}

/* ---- requests ---- */

void snapshot_request_make(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct ipc_snapshot *s = &m->snapshot;
	struct box *b = box_find_live(d, s->sandbox);
	struct snapshot_job *j;
	uint64_t room = 0;
	struct err e = {0};

	if (!b)
		err_set(&e, ERR_NOT_FOUND, "there is no such sandbox");
	else if (b->is_busy)
		err_set(&e, ERR_CONFLICT, "the sandbox is being paused or copied just now");
	if (e.kind || provider_check(b->i.info.provider, CAN_SNAPSHOT, &e) < 0 ||
	    may_add(d, s, &room, &e) < 0) {
		front_done(d, who, s->id, &e);
		return;
	}
	b->is_busy = true;
	j = add_job(d, s, WAITS, 0);
	j->who = who;
	j->info.created_ms = unix_ms();
	memcpy(j->sandbox, b->i.info.id, sizeof(j->sandbox));
	memcpy(j->info.image, b->i.info.image, sizeof(j->info.image));
	snprintf(j->info.excluded, sizeof(j->info.excluded), EXCLUDED);
	start_next(d);
}

static void list_one(struct daemon *d, struct ipc_snapshot *s, void *arg)
{
	const struct requester *who = arg;
	struct ipc m = {.type = IPC_SNAPSHOT_IS, .snapshot = *s};

	front_answer(d, *who, &m, -1);
}

void snapshot_request_list(struct daemon *d, struct requester who, const struct ipc *m)
{
	for_each(d, list_one, &who);
	front_done(d, who, "", NULL);
}

void snapshot_request_delete(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct snapshot_job *j = find_written(d, &m->snapshot);
	struct ipc_snapshot s;
	struct err e = {0}, given_up = {0};

	err_set(&given_up, ERR_CONFLICT, "the snapshot was given up");
	if (j)
		end_job(j, &given_up);
	else if (find_kept(d, &m->snapshot, &s, &e) == 0) {
		remove_files(d, m->snapshot.id);
		disk_key_drop(d, s.key);
	}
	front_done(d, who, m->snapshot.id, e.kind ? &e : NULL);
}

static int open_tar(struct daemon *d, const struct ipc_snapshot *s, struct err *e)
{
	char name[IPC_ID + 8];
	int fd;

	file_name(s->id, "tar", name);
	fd = openat(d->snapshots_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "cannot open the snapshot") : fd;
}

void snapshot_request_read(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc reply = {.type = IPC_SNAPSHOT_IS};
	struct err e = {0};
	auto_close int fd = -1;

	if (find_kept(d, &m->snapshot, &reply.snapshot, &e) == 0) {
		if (reply.snapshot.kind == IPC_SNAPSHOT_DISK) {
			disk_read_snapshot(d, who, &reply.snapshot);
			return;
		}
		fd = open_tar(d, &reply.snapshot, &e);
	}
	if (fd < 0)
		front_done(d, who, m->snapshot.id, &e);
	else
		front_answer(d, who, &reply, fd);
}

static void count_key(struct daemon *d, struct ipc_snapshot *s, void *arg)
{
	disk_key_use(d, s->key);
}

void snapshots_count_keys(struct daemon *d)
{
	for_each(d, count_key, NULL);
}

static void tell_stopped(struct daemon *d, struct ipc_snapshot *s, void *arg)
{
	struct ipc m = {.type = IPC_SNAPSHOT_IS, .snapshot = *s};

	if (str_equal(s->name, SNAPSHOT_OF_STOP))
		front_news_early(d, &m, -1);
}

void snapshots_tell_stopped(struct daemon *d)
{
	for_each(d, tell_stopped, NULL);
}

void snapshot_request_write(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc reply = {.type = IPC_SNAPSHOT_IS, .snapshot = m->snapshot};
	struct snapshot_job *j;
	uint64_t room;
	struct err e = {0};
	auto_close int fd = -1;

	if (may_add(d, &m->snapshot, &room, &e) < 0 || may_write(d, m->snapshot.owner, &e) < 0) {
		front_done(d, who, m->snapshot.id, &e);
		return;
	}
	j = add_job(d, &m->snapshot, WRITTEN, room);
	j->info.sandbox[0] = j->info.image[0] = '\0';
	fd = begin_to_take(j, &e);
	if (fd >= 0) {
		front_answer(d, who, &reply, fd);
		return;
	}
	j->who = who;
	end_job(j, &e);
}

void snapshot_request_keep(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct ipc_snapshot *s = &m->snapshot;
	struct snapshot_job *j = ipc_id_is_valid(s->id) ? find_written(d, s) : NULL;
	struct err e = {0};

	/* The name may differ from the one that was checked at the beginning. */
	if (!j || j->who.serial || !check_name(s->name)) {
		err_set(&e, ERR_NOT_FOUND, "there is no such unfinished snapshot");
		front_done(d, who, s->id, &e);
		return;
	}
	j->who = who;
	memcpy(j->info.name, s->name, sizeof(j->info.name));
	check_written(j);
}
