/*
 * Rows of sandboxes in SQLite. A database of an older version is brought up to date, a newer one is refused,
 * and a damaged one is moved aside and begun anew.
 */
#include "store/store_internal.h"

#include <assert.h>
#include <libgen.h>

#define BUSY_MS 2000

/*
 * The steps from each version of the schema (user_version) to the next. A released step never changes; a new
 * version is one more line. Version 0 is an empty file.
 */
static const char *const steps[] = {
	/* 1: released with 0.1.0 */
	"CREATE TABLE sandboxes (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
	" name TEXT NOT NULL, state TEXT NOT NULL, created INTEGER NOT NULL,"
	" expires INTEGER NOT NULL, options TEXT NOT NULL) WITHOUT ROWID",
	/* 2: mail of agents (mail.c); `floor` is when its memory of messages began */
	"CREATE TABLE mail (seq INTEGER PRIMARY KEY AUTOINCREMENT, box TEXT NOT NULL,"
	" sender TEXT NOT NULL, sender_uid TEXT NOT NULL, recipient TEXT NOT NULL,"
	" id TEXT NOT NULL, reply_to TEXT NOT NULL, kind INTEGER NOT NULL,"
	" trust INTEGER NOT NULL, depth INTEGER NOT NULL, epoch INTEGER NOT NULL,"
	" time INTEGER NOT NULL, expires INTEGER NOT NULL, content BLOB NOT NULL,"
	" signature BLOB NOT NULL);"
	"CREATE INDEX mail_box ON mail (box, seq); CREATE INDEX mail_age ON mail (expires);"
	"CREATE TABLE seen (who TEXT, id TEXT, expires INTEGER NOT NULL, PRIMARY KEY (who, id))"
	" WITHOUT ROWID; CREATE INDEX seen_age ON seen (expires);"
	"CREATE TABLE tasks (sender TEXT, id TEXT, recipient TEXT NOT NULL,"
	" depth INTEGER NOT NULL, expires INTEGER NOT NULL, PRIMARY KEY (sender, id))"
	" WITHOUT ROWID; CREATE INDEX tasks_recipient ON tasks (recipient);"
	"CREATE TABLE floor (ms INTEGER NOT NULL);"
	"INSERT INTO floor VALUES (CAST(strftime('%s', 'now') AS INTEGER) * 1000)",
};
#define SCHEMA ((int)ARRAY_LEN(steps))

static const char *const queries[] = {
	[Q_PUT] = "INSERT OR REPLACE INTO sandboxes (id, owner, name, state, created, expires, "
		  "options)"
		  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	[Q_REMOVE] = "DELETE FROM sandboxes WHERE id = ?1",
	[Q_EACH] = ("SELECT id, owner, name, state, created, expires, options FROM sandboxes"
		    " ORDER BY created, id"),
	[Q_MAIL_BEGIN] = "BEGIN IMMEDIATE",
	[Q_MAIL_COMMIT] = "COMMIT",
	[Q_MAIL_ROLLBACK] = "ROLLBACK",
	[Q_MAIL_PUT] =
		"INSERT INTO mail (box, sender, sender_uid, recipient, id, reply_to, kind, trust,"
		" depth, epoch, time, expires, content, signature)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
	[Q_MAIL_READ] =
		"SELECT seq, box, sender, sender_uid, recipient, id, reply_to, kind, trust, depth,"
		" epoch, time, content, signature FROM mail"
		" WHERE box = ?1 AND seq > ?2 AND expires > ?3 ORDER BY seq LIMIT ?4",
	[Q_MAIL_DROP] = "DELETE FROM mail WHERE box = ?1 AND seq <= ?2 RETURNING length(content)",
	[Q_MAIL_DROP_ONE] = "DELETE FROM mail WHERE seq = ?1",
	[Q_MAIL_EXPIRE] = "DELETE FROM mail WHERE seq IN (SELECT seq FROM mail WHERE expires <= ?1"
			  " LIMIT ?2) RETURNING box, 1, length(content)",
	[Q_MAIL_FROM] = "SELECT count(*) FROM mail WHERE box = ?1 AND sender_uid = ?2",
	[Q_MAIL_COUNTS] = "SELECT box, count(*), sum(length(content)) FROM mail GROUP BY box",
	[Q_SEEN_PUT] = "INSERT INTO seen (who, id, expires) VALUES (?1, ?2, ?3)",
	[Q_SEEN_EXPIRE] = "DELETE FROM seen WHERE (who, id) IN (SELECT who, id FROM seen"
			  " WHERE expires <= ?1 LIMIT ?2) RETURNING who, 1, 0",
	[Q_SEEN_COUNTS] = "SELECT who, count(*), 0 FROM seen GROUP BY who",
	[Q_TASK_PUT] = "INSERT INTO tasks (sender, id, recipient, depth, expires)"
		       " VALUES (?1, ?2, ?3, ?4, ?5)",
	[Q_TASK_FIND] = "SELECT 1 FROM tasks WHERE sender = ?1 AND id = ?2 AND recipient = ?3"
			" AND expires > ?4",
	[Q_TASK_CLOSE] = "DELETE FROM tasks WHERE sender = ?1 AND id = ?2 AND recipient = ?3",
	[Q_TASK_DEPTH] =
		"SELECT ifnull(max(depth), 0) FROM tasks WHERE recipient = ?1 AND expires > ?2",
	[Q_TASK_WAITS] = "WITH RECURSIVE up(who) AS (SELECT ?1 UNION SELECT t.sender FROM tasks t"
			 " JOIN up ON t.recipient = up.who WHERE t.expires > ?3)"
			 " SELECT 1 FROM up WHERE who = ?2",
	[Q_TASK_EXPIRE] = "DELETE FROM tasks WHERE (sender, id) IN (SELECT sender, id FROM tasks"
			  " WHERE expires <= ?1 LIMIT ?2) RETURNING sender, 1, 0",
	[Q_FLOOR] = "SELECT max(ms) FROM floor",
};
static_assert(ARRAY_LEN(queries) == Q_COUNT, "a text per query");

#define RESERVE ".reserve"
#define RESERVE_BYTES (1 << 20)
#define RESERVE_STEP (32 << 10) /* for a few pages of the log that SQLite appends to */

int store_error(struct store *s, struct err *e, const char *what)
{
	err_set(e, ERR_SYSTEM, "the database: cannot %s: %s", what,
		s->db ? sqlite3_errmsg(s->db) : "out of memory");
	if (s->db && (sqlite3_errcode(s->db) & 0xff) == SQLITE_FULL)
		e->errnum = ENOSPC;
	return -1;
}

bool store_copy_text(sqlite3_stmt *q, int column, char *dst, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(q, column);

	return text && (size_t)snprintf(dst, size, "%s", text) < size;
}

/* ---- opening ---- */

static int run_sql(struct store *s, const char *sql, struct err *e)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK
		       ? 0
		       : store_error(s, e, "prepare it");
}

/* The one value that a query gives; false: there is none. */
static bool read_value(struct store *s, const char *sql, char ret[16])
{
	sqlite3_stmt *q = NULL;
	bool has_row = sqlite3_prepare_v2(s->db, sql, -1, &q, NULL) == SQLITE_OK &&
		       sqlite3_step(q) == SQLITE_ROW && store_copy_text(q, 0, ret, 16);

	sqlite3_finalize(q);
	return has_row;
}

/* The application id, which nothing else uses, says that rows are missing. */
#define IS_LOST "PRAGMA application_id = 1"
#define IS_WHOLE "PRAGMA application_id = 0"

/* Damage shows here and not at the first request. */
static int check_whole(struct store *s, struct err *e)
{
	char answer[16];

	return read_value(s, "PRAGMA quick_check(1)", answer) && str_equal(answer, "ok")
		       ? 0
		       : err_set(e, ERR_SYSTEM, "the database is damaged");
}

static int migrate(struct store *s, struct err *e)
{
	char text[16];
	int version;

	if (!read_value(s, "PRAGMA user_version", text))
		return store_error(s, e, "read it");
	version = atoi(text);
	if (version > SCHEMA || version < 0)
		return err_set(
			e, ERR_UNSUPPORTED,
			"the database has schema %d, and this version of cloche knows %d; use "
			"the version that wrote it, or a later one",
			version, SCHEMA);
	s->is_lost =
		version == 0 || (read_value(s, "PRAGMA application_id", text) && text[0] != '0');
	for (; version < SCHEMA; version++) {
		auto_free char *sql =
			str_format("BEGIN IMMEDIATE; %s; %s; PRAGMA user_version = %d; COMMIT",
				   steps[version], version ? "SELECT 1" : IS_LOST, version + 1);

		if (run_sql(s, sql, e) < 0) {
			sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
			return -1;
		}
	}
	return 0;
}

static int open_db(struct store *s, const char *path, struct err *e)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;

	if (sqlite3_open_v2(path, &s->db, flags, NULL) != SQLITE_OK)
		return store_error(s, e, "open it");
	sqlite3_busy_timeout(s->db, BUSY_MS);
	/* NORMAL: a killed process loses nothing; a power failure may lose the last rows, and with
	 * them go the sandboxes themselves. */
	if (run_sql(s,
		    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = "
		    "MEMORY;",
		    e) < 0 ||
	    check_whole(s, e) < 0 || migrate(s, e) < 0)
		return -1;
	for (int i = 0; i < Q_COUNT; i++)
		if (sqlite3_prepare_v3(s->db, queries[i], -1, SQLITE_PREPARE_PERSISTENT,
				       &s->statements[i], NULL) != SQLITE_OK)
			return store_error(s, e, "use it");
	return 0;
}

static void close_db(struct store *s)
{
	for (int i = 0; i < Q_COUNT; i++) {
		sqlite3_finalize(s->statements[i]);
		s->statements[i] = NULL;
	}
	sqlite3_close(s->db);
	s->db = NULL;
}

static void move_aside(const char *path, char *ret_name, size_t size)
{
	static const char *const parts[] = {"", "-wal", "-shm"};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(ret_name, size, "%s.damaged-%lld-%ld", path, (long long)now.tv_sec, now.tv_nsec);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		auto_free char *from = str_format("%s%s", path, parts[i]);
		auto_free char *to = str_format("%s%s", ret_name, parts[i]);

		rename(from, to);
	}
}

/* A database that is only busy or unreachable is not moved aside. */
static bool is_useless(const struct store *s)
{
	int code = s->db ? sqlite3_errcode(s->db) & 0xff : SQLITE_NOMEM;

	return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_OK ||
	       code == SQLITE_ROW || code == SQLITE_DONE;
}

static void open_reserve(struct store *s, const char *path)
{
	auto_free char *copy = str_copy(path);
	auto_close int dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	s->reserve.fd = -1;
	if (dir >= 0)
		reserve_open(&s->reserve, dir, RESERVE, RESERVE_BYTES);
}

struct store *store_open(const char *path, char *note, size_t note_size, struct err *e)
{
	struct store *s = must_alloc(calloc(1, sizeof(*s)));
	char aside[4096];
	struct err why = {0};

	note[0] = '\0';
	open_reserve(s, path);
	if (open_db(s, path, &why) == 0)
		return s;
	/* A later version wrote it: nothing of it is damaged. */
	if (why.kind == ERR_UNSUPPORTED || !is_useless(s)) {
		*e = why;
		store_close(s);
		return NULL;
	}
	close_db(s);
	move_aside(path, aside, sizeof(aside));
	snprintf(note, note_size, "%s; it was moved to %s and begun anew", why.msg, aside);
	if (open_db(s, path, e) == 0)
		return s;
	store_close(s);
	return NULL;
}

bool store_is_lost(const struct store *s)
{
	return s->is_lost;
}

void store_is_whole(struct store *s)
{
	/* If this fails, nothing is swept at the next start either. */
	if (s->is_lost)
		sqlite3_exec(s->db, IS_WHOLE, NULL, NULL, NULL);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	close_db(s);
	reserve_close(&s->reserve);
	free(s);
}

/* ---- rows ---- */

void store_bind_text(sqlite3_stmt *q, int place, const char *text)
{
	sqlite3_bind_text(q, place, text, -1, SQLITE_STATIC);
}

int store_finish(struct store *s, sqlite3_stmt *q, const char *what, struct err *e)
{
	int rc = sqlite3_step(q) == SQLITE_DONE ? 0 : store_error(s, e, what);

	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	return rc;
}

int store_put(struct store *s, const struct store_row *row, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_PUT];

	store_bind_text(q, 1, row->id);
	store_bind_text(q, 2, row->owner);
	store_bind_text(q, 3, row->name);
	store_bind_text(q, 4, row->state);
	sqlite3_bind_int64(q, 5, (sqlite3_int64)row->created_ms);
	sqlite3_bind_int64(q, 6, (sqlite3_int64)row->expires_ms);
	store_bind_text(q, 7, row->options ? row->options : "{}");
	if (store_finish(s, q, "write a sandbox", e) < 0)
		return -1;
	reserve_refill(&s->reserve);
	return 0;
}

static int remove_row(struct store *s, const char *id, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_REMOVE];

	store_bind_text(q, 1, id);
	return store_finish(s, q, "remove a sandbox", e);
}

int store_remove(struct store *s, const char *id, struct err *e)
{
	int rc = remove_row(s, id, e);

	while (rc < 0 && e->errnum == ENOSPC && reserve_spend(&s->reserve, RESERVE_STEP))
		rc = remove_row(s, id, e);
	return rc;
}

int store_each(struct store *s, bool (*call)(void *arg, const struct store_row *row), void *arg,
	       struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_EACH];
	bool missing = false;
	int rc;

	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		struct store_row row = {0};

		row.created_ms = (uint64_t)sqlite3_column_int64(q, 4);
		row.expires_ms = (uint64_t)sqlite3_column_int64(q, 5);
		row.options = (const char *)sqlite3_column_text(q, 6);
		if (!store_copy_text(q, 0, row.id, sizeof(row.id)) ||
		    !store_copy_text(q, 1, row.owner, sizeof(row.owner)) ||
		    !store_copy_text(q, 2, row.name, sizeof(row.name)) ||
		    !store_copy_text(q, 3, row.state, sizeof(row.state)) || !call(arg, &row))
			missing = true;
	}
	if (rc != SQLITE_DONE)
		store_error(s, e, "read the sandboxes");
	sqlite3_reset(q);
	if (missing || rc != SQLITE_DONE) {
		s->is_lost = true;
		sqlite3_exec(s->db, IS_LOST, NULL, NULL, NULL);
	}
	return rc == SQLITE_DONE ? 0 : -1;
}
