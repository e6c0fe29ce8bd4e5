/* The SQL of mail.h is in store.c, with all other statements. */
#include "store/store_internal.h"

#define EXPIRE_ROWS 500		 /* at a time: nothing holds up the front for long */
#define SEEN_MS (3600 * 1000ull) /* how long a message that was sent is remembered */

static void bind_number(sqlite3_stmt *q, int place, uint64_t n)
{
	sqlite3_bind_int64(q, place, (sqlite3_int64)n);
}

/* ---- one transaction ---- */

static int begin(struct store *s, struct err *e)
{
	return store_finish(s, s->statements[Q_MAIL_BEGIN], "begin", e);
}

/* rc < 0: undoes it all, and keeps the error. */
static int end(struct store *s, int rc, struct err *e)
{
	struct err ignored;

	if (rc == 0)
		rc = store_finish(s, s->statements[Q_MAIL_COMMIT], "write a message", e);
	if (rc < 0)
		(void)!store_finish(s, s->statements[Q_MAIL_ROLLBACK], "undo", &ignored);
	return rc;
}

int store_mail_see(struct store *s, const char *who, const char *id, uint64_t until_ms,
		   struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_SEEN_PUT];
	int rc;

	store_bind_text(q, 1, who);
	store_bind_text(q, 2, id);
	bind_number(q, 3, until_ms);
	rc = sqlite3_step(q);
	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	if (rc == SQLITE_CONSTRAINT)
		return err_field(e, ERR_CONFLICT, "id", "id: a message of this id was sent before");
	return rc == SQLITE_DONE ? 0 : store_error(s, e, "write a message");
}

static int put_mail(struct store *s, const struct agent_message *m, const void *content,
		    uint64_t now_ms, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_MAIL_PUT];
	const char *const texts[] = {m->to_uid, m->from, m->from_uid, m->to, m->id, m->reply_to};
	const uint64_t numbers[] = {m->kind,  m->trust,	  m->depth,
				    m->epoch, m->time_ms, now_ms + AGENT_MESSAGE_LIFE_MS};
	int place = 1;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		store_bind_text(q, place++, texts[i]);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		bind_number(q, place++, numbers[i]);
	sqlite3_bind_blob(q, place++, m->size ? content : "", (int)m->size, SQLITE_STATIC);
	sqlite3_bind_blob(q, place, m->signature, sizeof(m->signature), SQLITE_STATIC);
	return store_finish(s, q, "write a message", e);
}

static int put_task(struct store *s, const struct agent_message *m, uint64_t now_ms, struct err *e)
{
	bool is_task = m->kind == AGENT_TASK;
	sqlite3_stmt *q = s->statements[is_task ? Q_TASK_PUT : Q_TASK_CLOSE];

	if (m->kind == AGENT_NOTE)
		return 0;
	/* A reply's recipient is the task's sender. */
	store_bind_text(q, 1, is_task ? m->from_uid : m->to_uid);
	store_bind_text(q, 2, is_task ? m->id : m->reply_to);
	store_bind_text(q, 3, is_task ? m->to_uid : m->from_uid);
	if (is_task) {
		bind_number(q, 4, m->depth);
		bind_number(q, 5, now_ms + AGENT_MESSAGE_LIFE_MS);
	}
	return store_finish(s, q, "write a task", e);
}

/* Two replies to one task may both have been signed; only the first one finds it open. */
static int check_reply(struct store *s, const struct agent_message *m, uint64_t now_ms,
		       struct err *e)
{
	if (m->kind != AGENT_REPLY ||
	    store_task_is_open(s, m->to_uid, m->reply_to, m->from_uid, now_ms))
		return 0;
	return err_field(e, ERR_CONFLICT, "reply_to", "reply_to: that task is not open");
}

int store_mail_put(struct store *s, const struct agent_message *m, const void *content,
		   uint64_t now_ms, struct err *e)
{
	int rc;

	if (begin(s, e) < 0)
		return -1;
	rc = store_mail_see(s, m->from_uid, m->id, now_ms + SEEN_MS, e);
	if (rc == 0)
		rc = check_reply(s, m, now_ms, e);
	if (rc == 0)
		rc = put_task(s, m, now_ms, e);
	if (rc == 0)
		rc = put_mail(s, m, content, now_ms, e);
	return end(s, rc, e);
}

/* ---- reading ---- */

/* False: this program did not write it. */
static bool read_row(sqlite3_stmt *q, struct stored_mail *ret)
{
	struct agent_message *m = &ret->m;
	int size = sqlite3_column_bytes(q, 12);

	*ret = (struct stored_mail){.seq = (uint64_t)sqlite3_column_int64(q, 0)};
	if (!store_copy_text(q, 1, m->to_uid, sizeof(m->to_uid)) ||
	    !store_copy_text(q, 2, m->from, sizeof(m->from)) ||
	    !store_copy_text(q, 3, m->from_uid, sizeof(m->from_uid)) ||
	    !store_copy_text(q, 4, m->to, sizeof(m->to)) ||
	    !store_copy_text(q, 5, m->id, sizeof(m->id)) ||
	    !store_copy_text(q, 6, m->reply_to, sizeof(m->reply_to)) ||
	    sqlite3_column_bytes(q, 13) != AGENT_MESSAGE_SIGNATURE || size > AGENT_MESSAGE_CONTENT)
		return false;
	m->kind = (uint8_t)sqlite3_column_int(q, 7);
	m->trust = (uint8_t)sqlite3_column_int(q, 8);
	m->depth = (uint8_t)sqlite3_column_int(q, 9);
	m->epoch = (uint32_t)sqlite3_column_int64(q, 10);
	m->time_ms = (uint64_t)sqlite3_column_int64(q, 11);
	m->size = (uint32_t)size;
	memcpy(m->signature, sqlite3_column_blob(q, 13), sizeof(m->signature));
	ret->content = size ? sqlite3_column_blob(q, 12) : "";
	return true;
}

int store_mail_read(struct store *s, const char *box, uint64_t after, uint32_t limit,
		    uint64_t now_ms, void (*call)(void *arg, const struct stored_mail *mail),
		    void *arg, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_MAIL_READ];
	struct stored_mail mail;
	int rc;

	store_bind_text(q, 1, box);
	bind_number(q, 2, after);
	bind_number(q, 3, now_ms);
	bind_number(q, 4, limit);
	while ((rc = sqlite3_step(q)) == SQLITE_ROW)
		if (read_row(q, &mail))
			call(arg, &mail);
	if (rc != SQLITE_DONE)
		store_error(s, e, "read a mailbox");
	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	return rc == SQLITE_DONE ? 0 : -1;
}

int store_mail_drop(struct store *s, const char *box, uint64_t through, uint64_t *ret_count,
		    uint64_t *ret_bytes, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_MAIL_DROP];
	uint64_t count = 0, bytes = 0;
	int rc;

	store_bind_text(q, 1, box);
	bind_number(q, 2, through);
	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		count++;
		bytes += (uint64_t)sqlite3_column_int64(q, 0);
	}
	if (rc != SQLITE_DONE)
		store_error(s, e, "remove messages");
	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	if (rc != SQLITE_DONE)
		return -1;
	*ret_count = count;
	*ret_bytes = bytes;
	return 0;
}

int store_mail_drop_one(struct store *s, uint64_t seq, struct err *e)
{
	sqlite3_stmt *q = s->statements[Q_MAIL_DROP_ONE];

	bind_number(q, 1, seq);
	return store_finish(s, q, "remove a message", e);
}

/* Rows of who, count and bytes. Returns how many there were, or -1. */
static int tell_counts(struct store *s, sqlite3_stmt *q, store_mail_count *call, void *arg,
		       struct err *e)
{
	char who[2 * IPC_ID];
	int rc, n = 0;

	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		n++;
		if (store_copy_text(q, 0, who, sizeof(who)))
			call(arg, who, (uint64_t)sqlite3_column_int64(q, 1),
			     (uint64_t)sqlite3_column_int64(q, 2));
	}
	if (rc != SQLITE_DONE)
		store_error(s, e, "count messages");
	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	return rc == SQLITE_DONE ? n : -1;
}

int store_mail_counts(struct store *s, enum store_mail_kind kind, store_mail_count *call, void *arg,
		      struct err *e)
{
	return tell_counts(s, s->statements[kind == STORED_SEEN ? Q_SEEN_COUNTS : Q_MAIL_COUNTS],
			   call, arg, e) < 0
		       ? -1
		       : 0;
}

int store_mail_expire(struct store *s, enum store_mail_kind kind, uint64_t now_ms,
		      store_mail_count *call, void *arg, struct err *e)
{
	static const enum query queries[] = {[STORED_MAIL] = Q_MAIL_EXPIRE,
					     [STORED_SEEN] = Q_SEEN_EXPIRE,
					     [STORED_TASKS] = Q_TASK_EXPIRE};
	sqlite3_stmt *q = s->statements[queries[kind]];
	int n;

	bind_number(q, 1, now_ms);
	bind_number(q, 2, EXPIRE_ROWS);
	n = tell_counts(s, q, call, arg, e);
	return n < 0 ? -1 : n == EXPIRE_ROWS;
}

/* ---- single values ---- */

/* dflt: there is no row, or it cannot be read. */
static uint64_t one_value(sqlite3_stmt *q, uint64_t dflt)
{
	uint64_t value =
		sqlite3_step(q) == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 0) : dflt;

	sqlite3_reset(q);
	sqlite3_clear_bindings(q);
	return value;
}

uint64_t store_mail_from(struct store *s, const char *box, const char *sender_uid)
{
	sqlite3_stmt *q = s->statements[Q_MAIL_FROM];

	store_bind_text(q, 1, box);
	store_bind_text(q, 2, sender_uid);
	return one_value(q, UINT64_MAX);
}

uint64_t store_mail_floor(struct store *s)
{
	/* Without an answer everything may have been seen. */
	return one_value(s->statements[Q_FLOOR], UINT64_MAX);
}

int store_task_depth(struct store *s, const char *who, uint64_t now_ms)
{
	sqlite3_stmt *q = s->statements[Q_TASK_DEPTH];

	store_bind_text(q, 1, who);
	bind_number(q, 2, now_ms);
	return (int)one_value(q, INT32_MAX);
}

bool store_task_waits(struct store *s, const char *who, const char *other, uint64_t now_ms)
{
	sqlite3_stmt *q = s->statements[Q_TASK_WAITS];

	store_bind_text(q, 1, who);
	store_bind_text(q, 2, other);
	bind_number(q, 3, now_ms);
	return one_value(q, 0) != 0;
}

bool store_task_is_open(struct store *s, const char *sender, const char *id, const char *recipient,
			uint64_t now_ms)
{
	sqlite3_stmt *q = s->statements[Q_TASK_FIND];

	store_bind_text(q, 1, sender);
	store_bind_text(q, 2, id);
	store_bind_text(q, 3, recipient);
	bind_number(q, 4, now_ms);
	return one_value(q, 0) != 0;
}
