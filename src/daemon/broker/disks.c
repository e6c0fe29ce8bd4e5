/*
 * Disks of sandboxes that clients keep: <state>/disks/ID.img, and beside it ID.meta, the description of the snapshot
 * that the disk becomes if its sandbox is gone when the daemon comes back, as after a reboot. A snapshot that is a
 * disk is <state>/snapshots/ID.img. Stopping and starting are links: no byte is copied.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "disk/disk.h"
#include "provider/snapshot_worker.h"

static void file_name(const char *id, const char *ending, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.%s", id, ending);
}

/* The name belongs to a file of the second directory from now on. */
static int link_disk(int from_dir, const char *from, int to_dir, const char *to, struct err *e)
{
	unlinkat(to_dir, to, 0);
	if (linkat(from_dir, from, to_dir, to, 0) < 0 || fsync(to_dir) < 0)
		return err_sys(e, "cannot link the disk");
	return 0;
}

/* ---- while its sandbox lives ---- */

bool disk_is_described(const struct daemon *d, const char *id)
{
	char meta[IPC_ID + 8];

	file_name(id, "meta", meta);
	return faccessat(d->host.disks_dir, meta, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int disk_describe(const struct box *b, struct err *e)
{
	struct ipc_snapshot s = {.created_ms = unix_ms(), .kind = IPC_SNAPSHOT_DISK};

	memcpy(s.id, b->i.info.id, sizeof(s.id));
	memcpy(s.sandbox, b->i.info.id, sizeof(s.sandbox));
	memcpy(s.owner, b->i.info.owner, sizeof(s.owner));
	memcpy(s.image, b->i.info.image, sizeof(s.image));
	memcpy(s.key, b->disk_key, sizeof(s.key));
	snprintf(s.name, sizeof(s.name), "%s", SNAPSHOT_OF_STOP);
	return snapshot_meta_write(b->d->host.disks_dir, &s, false, e);
}

void disk_forget(const struct box *b)
{
	char name[IPC_ID + 8];

	file_name(b->i.info.id, "meta", name);
	unlinkat(b->d->host.disks_dir, name, 0);
	disk_key_drop(b->d, b->disk_key);
}

int disk_link_to_snapshot(const struct daemon *d, const char *sandbox, const char *snapshot,
			  const char *ending, struct err *e)
{
	char from[IPC_ID + 8], to[IPC_ID + 8];

	file_name(sandbox, "img", from);
	file_name(snapshot, ending, to);
	return link_disk(d->host.disks_dir, from, d->snapshots_dir, to, e);
}

/* ---- starting with a snapshot ---- */

/* Other sizes and snapshots that are tars are copied into the sandbox when it is there. */
static bool suits(int fd, const struct ipc_boot *b)
{
	uint64_t limit = b->limits.disk_bytes ? b->limits.disk_bytes : b->limits.memory_bytes / 2;
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size == disk_file_bytes(limit);
}

static int find_source(struct box *b, const struct ipc_boot *boot, struct err *e)
{
	struct daemon *d = b->d;
	struct ipc_snapshot s;
	char from[IPC_ID + 8], to[IPC_ID + 8];
	auto_close int fd = -1;

	file_name(boot->id, "img", to);
	/* A front gives an id once only, so nothing is there but what a boot that failed has left. */
	unlinkat(d->host.disks_dir, to, 0);
	if (boot->disk_type != DISK_IMAGE || !boot->snapshot[0])
		return 0;
	if (snapshot_meta_read(d, boot->snapshot, &s) < 0 || !str_equal(s.owner, boot->owner))
		return err_set(e, ERR_NOT_FOUND, "there is no such snapshot");
	if (s.kind != IPC_SNAPSHOT_DISK)
		return 0;
	file_name(s.id, "img", from);
	fd = openat(d->snapshots_dir, from, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cannot open the snapshot");
	if (!suits(fd, boot))
		return 0;
	memcpy(b->disk_key, s.key, sizeof(b->disk_key));
	disk_key_use(d, s.key);
	b->has_used_disk = true;
	if (str_equal(s.name, SNAPSHOT_OF_STOP) && str_equal(s.sandbox, boot->id))
		return link_disk(d->snapshots_dir, from, d->host.disks_dir, to, e);
	b->i.disk_from = take_fd(&fd);
	return 0;
}

struct boot_wish {
	struct box *b;
	struct ipc_boot boot;
	provider_done done;
	void *arg;
};

static void on_boot_key(void *arg, const struct ipc_disk_key *key, const struct err *e)
{
	struct boot_wish *w = arg;
	struct box *b = w->b;

	if (e) {
		w->done(w->arg, NULL, e);
		free(w);
		return;
	}
	if (!b->disk_key[0]) {
		memcpy(b->disk_key, key->id, sizeof(b->disk_key));
		disk_key_use(b->d, key->id);
	}
	memcpy(b->i.disk_key, key->key, sizeof(b->i.disk_key));
	b->i.has_disk_key = true;
	b->i.row->boot(&b->i, &w->boot, w->done, w->arg);
	free(w);
}

void disk_boot(struct box *b, const struct ipc_boot *boot, provider_done done, void *arg)
{
	struct boot_wish *w;
	struct err e = {0};

	if (find_source(b, boot, &e) < 0) {
		done(arg, NULL, &e);
		return;
	}
	if (boot->disk_type != DISK_IMAGE ||
	    (!b->disk_key[0] && (b->has_used_disk || !disk_keys_are_wanted(b->d)))) {
		b->i.row->boot(&b->i, boot, done, arg);
		return;
	}
	w = must_alloc(malloc(sizeof(*w)));
	*w = (struct boot_wish){b, *boot, done, arg};
	disk_key_get(b->d, boot->owner, b->disk_key, on_boot_key, w);
}

/* ---- when the daemon comes back ---- */

/* The description goes last: from then on it is a snapshot. */
void disk_keep(struct daemon *d, const char *id)
{
	char image[IPC_ID + 8], meta[IPC_ID + 8];
	struct ipc_snapshot s;
	struct err e = {0};

	file_name(id, "img", image);
	file_name(id, "meta", meta);
	if (!disk_is_described(d, id))
		return;
	if (snapshot_meta_read_at(d->host.disks_dir, id, &s) < 0) {
		log_error("a disk with an unreadable description is left alone", "id", id);
		d->disk_keys.unknown = true;
		return;
	}
	if (disk_link_to_snapshot(d, id, id, "img", &e) < 0 ||
	    renameat(d->host.disks_dir, meta, d->snapshots_dir, meta) < 0) {
		log_error("the disk of a sandbox that is gone cannot be kept", "id", id, "error",
			  e.kind ? e.msg : strerror(errno));
		return;
	}
	unlinkat(d->host.disks_dir, image, 0);
	log_info("the disk of a sandbox that is gone is kept", "id", id);
	daemon_note(d, "sandbox.keep", id, "done", "its disk is there, its processes are not");
}

/* The description of a disk whose sandbox lives. */
static void take_up(struct box *b)
{
	struct ipc_snapshot s;

	if (snapshot_meta_read_at(b->d->host.disks_dir, b->i.info.id, &s) < 0) {
		b->d->disk_keys.unknown = true;
		return;
	}
	memcpy(b->disk_key, s.key, sizeof(b->disk_key));
	disk_key_use(b->d, s.key);
}

void disks_sweep(struct daemon *d)
{
	auto_list struct list names = {0};

	list_names(d->host.disks_dir, &names);
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.items[i];
		struct box *b = NULL;
		char id[IPC_ID] = "";

		memcpy(id, name, strnlen(name, 20));
		if (ipc_id_is_valid(id))
			b = box_find(d, id);
		if (b && str_equal(name + 20, ".meta"))
			take_up(b);
		if (b)
			continue;
		if (ipc_id_is_valid(id))
			disk_keep(d, id);
		/* Kept, or neither described nor used: of a boot that did not finish, or of the pool. */
		if (!ipc_id_is_valid(id) || !disk_is_described(d, id))
			unlinkat(d->host.disks_dir, name, 0);
	}
	snapshots_count_keys(d);
	d->disk_keys.were_counted = true;
	disk_keys_tell(d);
}

/* ---- requests ---- */

#define READERS 16 /* at once: each is two processes, and may be a mount */
#define READ_MS 900000

/* What is on a disk is packed into a file without a name, so that the front never waits for a pipe. */
struct disk_reading {
	struct daemon *d;
	struct requester who;
	struct ipc answer;
	struct snapshot_worker worker; /* of a snapshot */
	int tar;
};

static void reading_end(struct disk_reading *k, const struct err *e)
{
	auto_close int fd = e ? -1 : io_reopen(k->tar, O_RDONLY);
	struct err why = {0};

	if (!e && fd < 0) {
		err_sys(&why, "cannot open what was read");
		e = &why;
	}
	if (e)
		front_done(k->d, k->who, k->answer.id, e);
	else
		front_answer(k->d, k->who, &k->answer, fd);
	k->d->disk_readings--;
	close_fd(&k->tar);
	close_fd(&k->worker.work.in);
	free(k);
}

static void on_read(void *arg, const struct provider_result *r, const struct err *e)
{
	reading_end(arg, e);
}

/* NULL: the requester was told why not. The answer begins with the id. */
static struct disk_reading *reading_new(struct daemon *d, struct requester who,
					const struct ipc *answer)
{
	struct disk_reading *k = must_alloc(calloc(1, sizeof(*k)));
	struct err e = {0};

	*k = (struct disk_reading){.d = d, .who = who, .answer = *answer, .worker.work.in = -1};
	k->tar = openat(d->snapshots_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	d->disk_readings++;
	if (d->disk_readings > READERS) {
		err_set(&e, ERR_SYSTEM, "too many disks are being read just now");
		e.errnum = EAGAIN;
	} else if (k->tar < 0) {
		err_sys(&e, "cannot create a file");
	}
	if (!e.kind)
		return k;
	reading_end(k, &e);
	return NULL;
}

static void start_reading(struct disk_reading *k)
{
	struct err e = {0};
	int rc = snapshot_worker_start(&k->worker, k->d->loop, &e);

	explicit_bzero(k->worker.disk_key, sizeof(k->worker.disk_key));
	if (rc < 0)
		reading_end(k, &e);
}

static void on_reading_key(void *arg, const struct ipc_disk_key *key, const struct err *e)
{
	struct disk_reading *k = arg;

	if (e) {
		reading_end(k, e);
		return;
	}
	memcpy(k->worker.disk_key, key->key, sizeof(k->worker.disk_key));
	k->worker.has_disk_key = true;
	start_reading(k);
}

void disk_read_snapshot(struct daemon *d, struct requester who, const struct ipc_snapshot *s)
{
	struct ipc answer = {.type = IPC_SNAPSHOT_IS, .snapshot = *s};
	struct disk_reading *k = reading_new(d, who, &answer);
	struct err e = {0};
	char name[IPC_ID + 8];

	if (!k)
		return;
	file_name(s->id, "img", name);
	k->worker = (struct snapshot_worker){
		.work = {.verb = "pack-disk",
			 .guest = d->host.guest,
			 .root = -1,
			 .in = openat(d->snapshots_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC),
			 .out = -1,
			 .id_base = 0x7ffeu << 16},
		.file = k->tar,
		.max_bytes = d->config->snapshot_max_bytes,
		.timeout_ms = READ_MS,
		.done = on_read,
		.arg = k};
	if (k->worker.work.in < 0)
		err_sys(&e, "cannot open the snapshot");
	if (e.kind)
		reading_end(k, &e);
	else if (s->key[0])
		disk_key_get(d, s->owner, s->key, on_reading_key, k);
	else
		start_reading(k);
}

void disk_request_read(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = box_find_live(d, m->id);
	struct ipc answer = {.type = IPC_DONE};
	struct disk_reading *k;
	struct err e = {0};

	if (!b || !(b->i.info.has_disk & IPC_DISK_HAS_WAS)) {
		err_set(&e, ERR_NOT_FOUND, "there is no such disk");
		front_done(d, who, m->id, &e);
		return;
	}
	memcpy(answer.id, m->id, sizeof(answer.id));
	k = reading_new(d, who, &answer);
	if (k)
		b->i.row->disk_read(&b->i, k->tar, on_read, k);
}

void disk_request_done(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct box *b = box_find_live(d, m->id);
	struct err e = {0};

	if (!b || !(b->i.info.has_disk & IPC_HAS_DISK))
		err_set(&e, ERR_NOT_FOUND, "there is no such disk");
	else
		(void)b->i.row->disk_done(&b->i, &e);
	front_done(d, who, m->id, e.kind ? &e : NULL);
}
