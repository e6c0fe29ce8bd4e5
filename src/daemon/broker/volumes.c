/*
 * Volumes that clients make: disks (disk/disk.h) that outlive sandboxes, each one its owner's. <state>/volumes/ID.img
 * is the disk and ID.meta its description; a volume counts once that is there. Any number of sandboxes read a volume
 * at one time, or one reads and writes it: that is a lock of the file, which the loop device of each mount keeps. So
 * nothing has to be remembered, and it holds whoever was killed.
 */
#include "auth/tokens.h"
#include "base/budget.h"
#include "base/id.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "daemon/broker/check.h"
#include "disk/disk.h"
#include "kern/close_async.h"
#include "provider/snapshot_worker.h"

#include <sys/file.h>

#define MAGIC "clvolu1"
#define LEAST_BYTES (1u << 20)
#define MAKING 8       /* at once: each is a process */
#define OWN_MAKING 2   /* of one owner */
#define SHARE_WEIGHT 4 /* one owner alone may have four fifths */
#define MAKE_MS 900000
#define LOCK_TRIES 50 /* the kernel lets go of a lock a moment after the last mount */
#define LOCK_STEP_MS 10

struct meta {
	char magic[8];
	struct ipc_disk_volume info;
};

struct volume {
	struct ipc_disk_volume info;
	bool is_unfinished;
};

static void file_name(const char *id, const char *ending, char ret[IPC_ID + 8])
{
	snprintf(ret, IPC_ID + 8, "%.20s.%s", id, ending);
}

/* ---- those that there are ---- */

static struct volume *find(const struct daemon *d, const char *owner, const char *name)
{
	for (size_t i = 0; i < d->volumes.count; i++) {
		struct volume *v = d->volumes.items[i];

		if (str_equal(v->info.name, name) && str_equal(v->info.owner, owner))
			return v;
	}
	return NULL;
}

static struct volume *find_id(const struct daemon *d, const char *id)
{
	for (size_t i = 0; i < d->volumes.count; i++)
		if (str_equal(d->volumes.items[i]->info.id, id))
			return d->volumes.items[i];
	return NULL;
}

static struct volume *add(struct daemon *d, const struct ipc_disk_volume *info)
{
	struct volumes_side *all = &d->volumes;
	struct volume *v = must_alloc(calloc(1, sizeof(*v)));

	v->info = *info;
	all->items = array_room(all->items, all->count, &all->room, sizeof(*all->items));
	all->items[all->count++] = v;
	disk_key_use(d, info->key);
	return v;
}

/* The description goes first: without it the rest is what the next start removes. */
static void remove_volume(struct daemon *d, struct volume *v)
{
	static const char *const endings[] = {"meta", "img", "part", "new"};
	size_t i = 0;

	for (size_t k = 0; k < ARRAY_LEN(endings); k++) {
		char name[IPC_ID + 8];
		int fd;

		file_name(v->info.id, endings[k], name);
		/* A large file takes a while to remove: a kernel thread does that. */
		fd = openat(d->volumes.dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		unlinkat(d->volumes.dir, name, 0);
		close_async(&fd, 1);
	}
	disk_key_drop(d, v->info.key);
	while (d->volumes.items[i] != v)
		i++;
	d->volumes.items[i] = d->volumes.items[--d->volumes.count];
	free(v);
}

static int read_meta(const struct daemon *d, const char *name, struct ipc_disk_volume *ret)
{
	auto_close int fd = openat(d->volumes.dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct meta m = {.magic = ""};

	if (fd < 0 || read(fd, &m, sizeof(m)) != (ssize_t)sizeof(m) ||
	    memcmp(m.magic, MAGIC, sizeof(m.magic)) != 0 || !ipc_id_is_valid(m.info.id) ||
	    strncmp(m.info.id, name, 20) != 0 || !str_has_end(m.info.owner, IPC_ID) ||
	    !str_has_end(m.info.name, IPC_NAME) || !str_has_end(m.info.from, IPC_NAME) ||
	    !str_has_end(m.info.key, IPC_ID))
		return -1;
	*ret = m.info;
	return 0;
}

static int write_meta(const struct daemon *d, const struct ipc_disk_volume *info, struct err *e)
{
	struct meta m = {.magic = MAGIC, .info = *info};
	char draft[IPC_ID + 8], name[IPC_ID + 8];

	file_name(info->id, "new", draft);
	file_name(info->id, "meta", name);
	auto_close int fd =
		openat(d->volumes.dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, &m, sizeof(m)) != (ssize_t)sizeof(m) || fdatasync(fd) < 0 ||
	    renameat(d->volumes.dir, draft, d->volumes.dir, name) < 0 || fsync(d->volumes.dir) < 0)
		return err_sys(e, "cannot keep the volume");
	return 0;
}

void volumes_load(struct daemon *d)
{
	auto_list struct list names = {0};

	list_names(d->volumes.dir, &names);
	for (size_t i = 0; i < names.count; i++) {
		struct ipc_disk_volume info;

		if (strlen(names.items[i]) != 25 || !str_equal(names.items[i] + 20, ".meta"))
			continue;
		if (read_meta(d, names.items[i], &info) == 0) {
			add(d, &info);
		} else {
			log_error("a volume with an unreadable description is left alone", "file",
				  names.items[i]);
			d->disk_keys.unknown = true;
		}
	}
	for (size_t i = 0; i < names.count && !d->disk_keys.unknown; i++) {
		char id[IPC_ID] = "";

		memcpy(id, names.items[i], strnlen(names.items[i], 20));
		if (find_id(d, id))
			continue;
		unlinkat(d->volumes.dir, names.items[i], 0);
		log_info("unfinished volume removed", "file", names.items[i]);
	}
}

void volumes_done(struct daemon *d)
{
	for (size_t i = 0; i < d->volumes.count; i++)
		free(d->volumes.items[i]);
	free(d->volumes.items);
	close_fd(&d->volumes.dir);
}

/* ---- locks ---- */

typedef void lock_done(void *arg, int file, const struct err *e);

/* A volume's file that is locked as a mount would lock it; done takes it. */
struct lock {
	struct daemon *d;
	bool alone;
	int file, tries;
	struct loop_timer timer;
	lock_done *done;
	void *arg;
};

static void lock_end(struct lock *l, const struct err *e)
{
	lock_done *done = l->done;
	void *arg = l->arg;
	int file = e ? -1 : take_fd(&l->file);

	close_fd(&l->file);
	free(l);
	done(arg, file, e);
}

static void try_lock(void *arg)
{
	struct lock *l = arg;
	struct stat st = {.st_nlink = 0};
	struct err e = {0};

	if (flock(l->file, (l->alone ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
		/* It may have been deleted while we waited, and another one made with its name. */
		if (fstat(l->file, &st) < 0 || st.st_nlink == 0)
			err_set(&e, ERR_NOT_FOUND, "there is no such volume");
		lock_end(l, e.kind ? &e : NULL);
	} else if (errno == EWOULDBLOCK && ++l->tries < LOCK_TRIES) {
		loop_timer_set(l->d->loop, &l->timer, LOCK_STEP_MS);
	} else {
		err_field(&e, ERR_CONFLICT, "volumes",
			  "volumes: it is attached %s; several sandboxes may read a volume, or one "
			  "may write it",
			  l->alone ? "already" : "for writing");
		lock_end(l, &e);
	}
}

static void lock_volume(struct daemon *d, const struct volume *v, bool alone, lock_done *done,
			void *arg)
{
	struct lock *l = must_alloc(calloc(1, sizeof(*l)));
	char name[IPC_ID + 8];
	struct err e = {0};

	*l = (struct lock){.d = d, .alone = alone, .done = done, .arg = arg};
	l->timer = (struct loop_timer){.call = try_lock, .arg = l};
	file_name(v->info.id, "img", name);
	l->file = openat(d->volumes.dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (l->file >= 0) {
		try_lock(l);
		return;
	}
	err_sys(&e, "cannot open a volume");
	lock_end(l, &e);
}

/* ---- making one ---- */

struct making {
	struct daemon *d;
	struct requester who;
	char id[IPC_ID];
	int from; /* what it is to be a copy of; or -1 */
	struct snapshot_worker worker;
};

static void making_end(struct making *k, const struct err *e)
{
	struct volume *v = find_id(k->d, k->id);
	struct ipc m = {.type = IPC_VOLUME_IS, .volume = v->info};

	snapshot_worker_stop(&k->worker);
	explicit_bzero(k->worker.disk_key, sizeof(k->worker.disk_key));
	close_fd(&k->worker.file);
	close_fd(&k->from);
	v->is_unfinished = false;
	if (e) {
		remove_volume(k->d, v);
		front_done(k->d, k->who, k->id, e);
	} else {
		front_answer(k->d, k->who, &m, -1);
	}
	free(k);
}

/* The description goes last. */
static int keep(struct making *k, struct err *e)
{
	char part[IPC_ID + 8], name[IPC_ID + 8];

	file_name(k->id, "part", part);
	file_name(k->id, "img", name);
	if (fdatasync(k->worker.file) < 0 ||
	    renameat(k->d->volumes.dir, part, k->d->volumes.dir, name) < 0)
		return err_sys(e, "cannot keep the volume");
	return write_meta(k->d, &find_id(k->d, k->id)->info, e);
}

static void on_made(void *arg, const struct provider_result *r, const struct err *error)
{
	struct making *k = arg;
	struct err e = {0};

	if (error)
		e = *error;
	else
		find_id(k->d, k->id)->info.is_shared = r->is_shared;
	if (!e.kind)
		(void)keep(k, &e);
	making_end(k, e.kind ? &e : NULL);
}

static void start_making(struct making *k)
{
	struct volume *v = find_id(k->d, k->id);
	char part[IPC_ID + 8];
	struct err e = {0};

	file_name(k->id, "part", part);
	k->worker.work = (struct confined_helper){
		.verb = k->from < 0 ? "volume" : "copy", .root = -1, .in = k->from, .out = -1};
	k->worker.file = openat(k->d->volumes.dir, part,
				O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	k->worker.max_bytes = v->info.bytes;
	k->worker.timeout_ms = MAKE_MS;
	k->worker.done = on_made;
	k->worker.arg = k;
	if (k->worker.file < 0)
		err_sys(&e, "cannot create a volume");
	if (e.kind || snapshot_worker_start(&k->worker, k->d->loop, &e) < 0)
		making_end(k, &e);
	explicit_bzero(k->worker.disk_key, sizeof(k->worker.disk_key));
}

static void on_new_key(void *arg, const struct ipc_disk_key *key, const struct err *e)
{
	struct making *k = arg;

	if (e) {
		making_end(k, e);
		return;
	}
	memcpy(find_id(k->d, k->id)->info.key, key->id, IPC_ID);
	disk_key_use(k->d, key->id);
	memcpy(k->worker.disk_key, key->key, sizeof(k->worker.disk_key));
	k->worker.has_disk_key = true;
	start_making(k);
}

static void on_source(void *arg, int file, const struct err *e)
{
	struct making *k = arg;

	k->from = file;
	if (e)
		making_end(k, e);
	else
		start_making(k);
}

/* ---- may it be made? ---- */

static int check_name_of_volume(const char *name, struct err *e)
{
	if (str_only(name, STR_ALNUM "._-", 1, IPC_NAME - 1) && name[0] != '.' && name[0] != '-')
		return 0;
	return err_field(e, ERR_INVALID, "name",
			 "name: 1 to %d letters, digits, '_', '-', '.'; it begins with neither "
			 "'.' nor '-'",
			 IPC_NAME - 1);
}

/* Of a tenant the largest bound of its tokens counts, as for sandboxes (totals.c). 0: no bound. */
static uint64_t most_of(const struct daemon *d, const char *owner)
{
	uint64_t most = 0;

	for (size_t i = 0; owner[0] && i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (!token_is_of(t, owner))
			continue;
		if (!t->disk_total)
			return 0;
		most = t->disk_total > most ? t->disk_total : most;
	}
	return most;
}

/* The number of each owner's, and the bytes of all: as with snapshots, each owner has a share of these. */
static int check_ceilings(const struct daemon *d, const struct ipc_disk_volume *new, struct err *e)
{
	const struct config *c = d->config;
	uint64_t total = c->volume_total_bytes, most = most_of(d, new->owner);
	struct budget_pool all = {.max = total ? total : UINT64_MAX / 16, .weight = SHARE_WEIGHT};
	struct budget own = {
		.max = most ? most : UINT64_MAX, .pool = &all, .is_operator = !*new->owner};
	size_t count = 0, making = 0, own_making = 0;

	for (size_t i = 0; i < d->volumes.count; i++) {
		const struct volume *v = d->volumes.items[i];
		bool is_own = str_equal(v->info.owner, new->owner);

		making += v->is_unfinished;
		own_making += v->is_unfinished && is_own;
		count += is_own;
		all.used += v->info.bytes;
		own.used += is_own ? v->info.bytes : 0;
	}
	if (c->volume_max_count && count >= c->volume_max_count)
		return err_set(e, ERR_LIMIT,
			       "volumes: there are %zu already (disks.volume_max_count); delete "
			       "some",
			       count);
	if (c->volume_max_bytes && new->bytes > c->volume_max_bytes)
		return err_field(e, ERR_LIMIT, "size",
				 "size: more than the operator allows one volume, %" PRIu64 " MB",
				 c->volume_max_bytes >> 20);
	if (most && new->bytes > budget_left(&(struct budget){.used = own.used, .max = most}))
		return err_field(e, ERR_LIMIT, "size",
				 "size: the volumes of this token may have %" PRIu64
				 " MB together (disk_total)",
				 most >> 20);
	if (!budget_has(&own, new->bytes))
		return err_field(e, ERR_LIMIT, "size",
				 "size: this token's share of all volumes has %" PRIu64
				 " MB left (disks.volume_max_total)",
				 budget_left(&own) >> 20);
	/* The last place is the operator's. */
	if (own.is_operator ? making < MAKING : making < MAKING - 1 && own_making < OWN_MAKING)
		return 0;
	err_set(e, ERR_SYSTEM, "too many volumes are being made just now");
	e->errnum = EAGAIN;
	return -1;
}

/* Sets what a copy has of its source. */
static int judge(struct daemon *d, struct ipc_disk_volume *new, struct err *e)
{
	const struct volume *from = new->from[0] ? find(d, new->owner, new->from) : NULL;
	const struct config_volume *offered = config_volume_find(d->config, new->name);

	if (!check_owner(new->owner) || str_equal(new->owner, "-"))
		return err_set(e, ERR_INVALID, "not an owner");
	if (check_name_of_volume(new->name, e) < 0)
		return -1;
	if (d->rootless)
		return err_set(
			e, ERR_UNSUPPORTED,
			"volumes: making one needs a daemon that is root (loop devices); the "
			"operator may offer directories");
	if (disk_probe(e) < 0)
		return -1;
	if (new->from[0] && (!from || from->is_unfinished))
		return err_field(e, ERR_NOT_FOUND, "from", "from: there is no volume '%.63s'",
				 new->from);
	if (from) {
		new->bytes = from->info.bytes;
		memcpy(new->key, from->info.key, sizeof(new->key));
	}
	if (new->bytes < LEAST_BYTES)
		return err_field(e, ERR_INVALID, "size", "size: a volume has at least 1M");
	if (find(d, new->owner, new->name) ||
	    (offered &&
	     config_volume_allows(offered, new->owner, daemon_owner_name(d, new->owner))))
		return err_field(e, ERR_CONFLICT, "name", "name: there is a volume '%s' already",
				 new->name);
	return check_ceilings(d, new, e);
}

void volume_request_make(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc_disk_volume info = m->volume;
	struct err e = {0};
	struct making *k;
	struct volume *v;

	info.key[0] = '\0';
	info.is_shared = false;
	info.created_ms = unix_ms();
	if (id_letters(info.id, ID_LETTERS) < 0)
		err_sys(&e, "cannot get random bytes");
	if (e.kind || judge(d, &info, &e) < 0) {
		front_done(d, who, "", &e);
		return;
	}
	v = add(d, &info);
	v->is_unfinished = true;
	k = must_alloc(calloc(1, sizeof(*k)));
	*k = (struct making){.d = d, .who = who, .from = -1, .worker.file = -1};
	memcpy(k->id, info.id, sizeof(k->id));
	if (info.from[0])
		lock_volume(d, find(d, info.owner, info.from), false, on_source, k);
	else if (disk_keys_are_wanted(d))
		disk_key_get(d, info.owner, "", on_new_key, k);
	else
		start_making(k);
}

/* ---- listing and deleting ---- */

void volume_request_list(struct daemon *d, struct requester who, const struct ipc *m)
{
	for (size_t i = 0; i < d->volumes.count; i++) {
		struct ipc one = {.type = IPC_VOLUME_IS, .volume = d->volumes.items[i]->info};

		if (!d->volumes.items[i]->is_unfinished)
			front_answer(d, who, &one, -1);
	}
	front_done(d, who, "", NULL);
}

struct deletion {
	struct daemon *d;
	struct requester who;
	char id[IPC_ID];
};

/* With its lock nobody has it mounted or copies it; another deletion may have come first. */
static void on_alone(void *arg, int file, const struct err *e)
{
	struct deletion *k = arg;
	struct volume *v = find_id(k->d, k->id);

	if (!e && v)
		remove_volume(k->d, v);
	close_fd(&file);
	front_done(k->d, k->who, k->id, e);
	free(k);
}

void volume_request_delete(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct volume *v = ipc_id_is_valid(m->volume.id) ? find_id(d, m->volume.id) : NULL;
	struct deletion *k;
	struct err e = {0};

	/* A volume of another owner answers like one that does not exist (rule 28). */
	if (!v || v->is_unfinished || !str_equal(v->info.owner, m->volume.owner)) {
		err_set(&e, ERR_NOT_FOUND, "there is no such volume");
		front_done(d, who, m->volume.id, &e);
		return;
	}
	k = must_alloc(calloc(1, sizeof(*k)));
	*k = (struct deletion){.d = d, .who = who};
	memcpy(k->id, v->info.id, sizeof(k->id));
	lock_volume(d, v, true, on_alone, k);
}

/* ---- attaching ---- */

static int check_one(const struct daemon *d, const struct ipc_boot *boot, uint32_t number,
		     struct err *e)
{
	const struct ipc_volume *v = &boot->volumes[number];
	const struct volume *own = find(d, boot->owner, v->name);

	if (!own || own->is_unfinished)
		return check_offered_volume(v, boot->owner, daemon_owner_name(d, boot->owner),
					    d->config, e);
	if (v->sub[0])
		return err_field(e, ERR_INVALID, "volumes",
				 "volumes: sub is for directories of the operator's; '%s' is shown "
				 "whole",
				 v->name);
	for (uint32_t i = 0; i < number; i++)
		if (str_equal(boot->volumes[i].name, v->name))
			return err_field(e, ERR_INVALID, "volumes", "volumes: '%s' is there twice",
					 v->name);
	return 0;
}

int volumes_check(const struct daemon *d, const struct ipc_boot *boot, struct err *e)
{
	for (uint32_t i = 0; i < boot->volume_count; i++)
		if (check_one(d, boot, i, e) < 0)
			return -1;
	return 0;
}

struct attaching {
	struct box *b;
	struct ipc_boot boot;
	uint32_t at;
	provider_done done;
	void *arg;
};

static void attach_next(struct attaching *a);

static void attach_fail(struct attaching *a, const struct err *e)
{
	a->done(a->arg, NULL, e);
	free(a);
}

static void on_key(void *arg, const struct ipc_disk_key *key, const struct err *e)
{
	struct attaching *a = arg;
	struct instance_volume *v = &a->b->i.volumes[a->at];

	if (e) {
		attach_fail(a, e);
		return;
	}
	memcpy(v->key, key->key, sizeof(v->key));
	v->has_key = true;
	a->at++;
	attach_next(a);
}

static void on_locked(void *arg, int file, const struct err *e)
{
	struct attaching *a = arg;
	struct instance_volume *v = &a->b->i.volumes[a->at];
	const struct ipc_volume *asked = &a->boot.volumes[a->at];
	const struct volume *own = find(a->b->d, a->boot.owner, asked->name);
	struct err gone = {0};

	v->file = file;
	if (!e && !own) {
		err_field(&gone, ERR_NOT_FOUND, "volumes", "volumes: there is no '%s'",
			  asked->name);
		e = &gone;
	}
	if (e) {
		attach_fail(a, e);
		return;
	}
	v->bytes = own->info.bytes;
	if (own->info.key[0]) {
		disk_key_get(a->b->d, own->info.owner, own->info.key, on_key, a);
		return;
	}
	a->at++;
	attach_next(a);
}

static void attach_next(struct attaching *a)
{
	struct box *b = a->b;
	struct err e = {0};

	for (; a->at < a->boot.volume_count; a->at++) {
		const struct ipc_volume *asked = &a->boot.volumes[a->at];
		const struct volume *own = find(b->d, a->boot.owner, asked->name);

		/* It may be another one than when the request was checked. */
		if (check_one(b->d, &a->boot, a->at, &e) < 0) {
			attach_fail(a, &e);
			return;
		}
		if (own && !own->is_unfinished) {
			lock_volume(b->d, own, asked->writable, on_locked, a);
			return;
		}
	}
	disk_boot(b, &a->boot, a->done, a->arg);
	free(a);
}

void volumes_boot(struct box *b, const struct ipc_boot *boot, provider_done done, void *arg)
{
	struct attaching *a;

	if (boot->volume_count == 0) {
		disk_boot(b, boot, done, arg);
		return;
	}
	b->i.volumes = must_alloc(calloc(boot->volume_count, sizeof(*b->i.volumes)));
	b->i.volume_count = boot->volume_count;
	for (uint32_t i = 0; i < boot->volume_count; i++)
		b->i.volumes[i].file = -1;
	a = must_alloc(calloc(1, sizeof(*a)));
	*a = (struct attaching){b, *boot, 0, done, arg};
	attach_next(a);
}

void volumes_drop(struct instance *i)
{
	for (uint32_t k = 0; k < i->volume_count; k++)
		close_fd(&i->volumes[k].file);
	if (i->volume_count)
		explicit_bzero(i->volumes, i->volume_count * sizeof(*i->volumes));
	free(i->volumes);
	i->volumes = NULL;
	i->volume_count = 0;
}
