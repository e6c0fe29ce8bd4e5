/*
 * Checks what a daemon left in its directories, and repairs what no daemon could use. The database is checked
 * in a copy: opening the original would leave files of this user in the directory of the front.
 */
#include "daemon/daemon.h"

#include "daemon/broker/broker_internal.h"
#include "daemon/roles/front.h"
#include "store/store.h"

#include <stdarg.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>

struct check {
	const struct config *c;
	state_say *say;
	void *arg;
	struct daemon *d; /* only its directories are used */
	int db;
	bool is_idle;	  /* no daemon runs */
	struct list rows; /* ids in the database */
	bool has_rows;	  /* the database could be read */
};

__attribute__((format(printf, 4, 5))) static void say(struct check *k, enum state_verdict verdict,
						      const char *subject, const char *fmt, ...)
{
	struct state_finding f = {.verdict = verdict};
	va_list args;

	snprintf(f.subject, sizeof(f.subject), "%s", subject);
	va_start(args, fmt);
	vsnprintf(f.text, sizeof(f.text), fmt, args);
	va_end(args);
	k->say(k->arg, &f);
}

/* ---- the database ---- */

static const char *const db_files[] = {FRONT_DATABASE, FRONT_DATABASE "-wal"};

static int copy_database(struct check *k, const char *to, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(db_files); i++) {
		auto_free char *path = str_format("%s/%s", to, db_files[i]);
		auto_close int in = openat(k->db, db_files[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		auto_close int out = -1;
		ssize_t n = 0;

		if (in < 0)
			continue;
		out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		while (out >= 0 && (n = sendfile(out, in, NULL, 1 << 20)) > 0)
			continue;
		if (out < 0 || n < 0)
			return err_sys(e, "cannot copy the database");
	}
	return 0;
}

static void remove_copy(const char *dir)
{
	auto_list struct list names = {0};
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		list_names(fd, &names);
	for (size_t i = 0; i < names.count; i++)
		unlinkat(fd, names.items[i], 0);
	unlinkat(fd, ".reserve", 0);
	rmdir(dir);
}

static bool add_row(void *arg, const struct store_row *row)
{
	list_add(arg, row->id);
	return true;
}

/* A daemon does the same at its start; here the operator sees it before. */
static void set_database_aside(struct check *k, const char *why)
{
	char name[64];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(name, sizeof(name), FRONT_DATABASE ".damaged-%lld-%ld", (long long)now.tv_sec,
		 now.tv_nsec);
	for (size_t i = 0; i < ARRAY_LEN(db_files); i++) {
		auto_free char *to = str_format("%s%s", name, db_files[i] + strlen(FRONT_DATABASE));

		if (renameat(k->db, db_files[i], k->db, to) < 0 && errno != ENOENT) {
			say(k, STATE_PROBLEM, "database", "%s, and cannot be moved: %s", why,
			    strerror(errno));
			return;
		}
	}
	unlinkat(k->db, FRONT_DATABASE "-shm", 0);
	say(k, STATE_REPAIRED, "database",
	    "%s; moved to %s/db/%s; the next start makes a new one from the copies of its rows",
	    why, k->c->state_dir, name);
}

static void judge_copy(struct check *k, const char *dir)
{
	auto_free char *path = str_format("%s/" FRONT_DATABASE, dir);
	char note[512];
	struct err e = {0};
	struct store *s = store_open(path, note, sizeof(note), &e);

	if (!s && e.kind == ERR_UNSUPPORTED) {
		say(k, STATE_PROBLEM, "database", "%s", e.msg);
	} else if (!s) {
		say(k, STATE_PROBLEM, "database", "cannot be checked: %s", e.msg);
	} else if (note[0]) {
		set_database_aside(k, "is damaged");
	} else if (store_each(s, add_row, &k->rows, &e) < 0) {
		set_database_aside(k, e.msg);
	} else {
		k->has_rows = true;
		say(k, STATE_FINE, "database", "%zu sandboxes", k->rows.count);
	}
	store_close(s);
}

static void check_database(struct check *k)
{
	char dir[] = "/tmp/cloche-state-XXXXXX";
	struct err e = {0};

	if (!k->is_idle) {
		say(k, STATE_NOTE, "database", "in use: a daemon runs; it was whole at its start");
		return;
	}
	if (k->db < 0 || faccessat(k->db, FRONT_DATABASE, F_OK, 0) < 0) {
		say(k, STATE_NOTE, "database", "there is none; the next start makes one");
		return;
	}
	if (!mkdtemp(dir) || copy_database(k, dir, &e) < 0)
		say(k, STATE_PROBLEM, "database", "cannot be copied to be checked");
	else
		judge_copy(k, dir);
	remove_copy(dir);
}

static bool has_row(const struct check *k, const char *id)
{
	for (size_t i = 0; i < k->rows.count; i++)
		if (str_equal(k->rows.items[i], id))
			return true;
	return false;
}

/* ---- records ---- */

static bool is_listening(const struct check *k, const char *id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.20s.sock",
		 k->d->host.boxes_dir, id);
	return fd >= 0 && (connect(fd, (void *)&address, sizeof(address)) == 0 || errno == EAGAIN);
}

static void remove_record(struct check *k, const char *id, const char *why)
{
	static const char *const endings[] = {"", ".row", ".sock", ".new"};
	char subject[64];

	snprintf(subject, sizeof(subject), "sandbox %s", id);
	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		auto_free char *name = str_format("%s%s", id, endings[i]);

		unlinkat(k->d->host.boxes_dir, name, 0);
	}
	say(k, STATE_REPAIRED, subject, "%s, and its processes are gone; the record was removed",
	    why);
}

static void check_record(struct check *k, const char *id)
{
	struct box *b = box_new(k->d, provider_row(PROVIDER_NS), id);
	bool is_alive = is_listening(k, id);
	char subject[64];
	struct err e = {0};

	snprintf(subject, sizeof(subject), "sandbox %s", id);
	if (record_read(b, &e) != RECORD_GOOD) {
		if (!is_alive && k->is_idle)
			remove_record(k, id, e.msg);
		else
			say(k, STATE_PROBLEM, subject,
			    "%s; the daemon leaves it alone; `cloche rm %s` ends it", e.msg, id);
	} else if (!is_alive && b->i.info.provider == PROVIDER_NS) {
		say(k, STATE_NOTE, subject,
		    "its processes are gone; the next start removes the rest");
	} else if (k->has_rows && !has_row(k, id) && !row_exists(b) && !b->i.info.transient &&
		   !str_equal(b->i.info.owner, "-")) {
		say(k, STATE_PROBLEM, subject,
		    "neither a row in the database nor a copy: the next start destroys it");
	} else {
		say(k, STATE_FINE, subject, "lives%s",
		    row_exists(b) ? "" : ", without a copy of its row");
	}
}

/* ---- snapshots ---- */

static void check_snapshot(struct check *k, const char *id)
{
	auto_free char *tar = str_format("%s.tar", id);
	struct ipc_snapshot s;
	struct stat st;
	char subject[64];

	snprintf(subject, sizeof(subject), "snapshot %s", id);
	if (snapshot_meta_read(k->d, id, &s) < 0)
		say(k, STATE_PROBLEM, subject, "its description cannot be read; it is left alone");
	else if (fstatat(k->d->snapshots_dir, tar, &st, AT_SYMLINK_NOFOLLOW) < 0)
		say(k, STATE_PROBLEM, subject, "its files are missing");
	else if ((uint64_t)st.st_size != s.size_bytes)
		say(k, STATE_PROBLEM, subject, "has %lld bytes and should have %llu",
		    (long long)st.st_size, (unsigned long long)s.size_bytes);
	else
		say(k, STATE_FINE, subject, "%llu bytes", (unsigned long long)s.size_bytes);
}

/* ---- all of it ---- */

static int open_dirs(struct check *k, struct err *e)
{
	struct daemon *d = k->d;
	auto_free char *boxes = str_format("%s/boxes", k->c->runtime_dir);
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

	d->state = open(k->c->state_dir, flags);
	if (d->state < 0)
		return err_sys(e, "cannot open %s", k->c->state_dir);
	d->host.boxes_dir = open(boxes, flags);
	d->snapshots_dir = openat(d->state, "snapshots", flags);
	k->db = openat(d->state, "db", flags);
	if (k->db < 0 && errno != ENOENT)
		return err_sys(e, "cannot open %s/db", k->c->state_dir);
	d->lock = openat(d->state, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	k->is_idle = d->lock < 0 ? errno == ENOENT : flock(d->lock, LOCK_EX | LOCK_NB) == 0;
	return 0;
}

static void check_each(struct check *k, int dir, size_t len,
		       void (*one)(struct check *, const char *))
{
	auto_list struct list names = {0};

	if (dir >= 0)
		list_names(dir, &names);
	for (size_t i = 0; i < names.count; i++) {
		char id[IPC_ID] = "";

		if (strlen(names.items[i]) != len ||
		    (len > 20 && !str_equal(names.items[i] + 20, ".meta")))
			continue;
		memcpy(id, names.items[i], 20);
		if (ipc_id_is_valid(id))
			one(k, id);
	}
}

int daemon_check_state(const struct config *c, state_say *call, void *arg, struct err *e)
{
	struct check k = {.c = c, .say = call, .arg = arg, .db = -1};
	int rc;

	k.d = must_alloc(calloc(1, sizeof(*k.d)));
	k.d->host.boxes_dir = k.d->snapshots_dir = k.d->state = k.d->lock = -1;
	rc = open_dirs(&k, e);
	if (rc == 0) {
		check_database(&k);
		check_each(&k, k.d->host.boxes_dir, 20, check_record);
		check_each(&k, k.d->snapshots_dir, 25, check_snapshot);
	}
	close_fd(&k.db);
	close_fd(&k.d->lock);
	close_fd(&k.d->state);
	close_fd(&k.d->snapshots_dir);
	close_fd(&k.d->host.boxes_dir);
	list_done(&k.rows);
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = k.d->boxes[i], *next; b; b = next) {
			next = b->next;
			free(b);
		}
	free(k.d);
	return rc;
}
