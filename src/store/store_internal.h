/* What the files of the store share. */
#pragma once

#include "base/reserve.h"
#include "store/mail.h"
#include "store/store.h"

#include <sqlite3.h>

enum query {
	Q_PUT,
	Q_REMOVE,
	Q_EACH,
	/* mail.c */
	Q_MAIL_BEGIN,
	Q_MAIL_COMMIT,
	Q_MAIL_ROLLBACK,
	Q_MAIL_PUT,
	Q_MAIL_READ,
	Q_MAIL_DROP,
	Q_MAIL_DROP_ONE,
	Q_MAIL_EXPIRE,
	Q_MAIL_FROM,
	Q_MAIL_COUNTS,
	Q_SEEN_PUT,
	Q_SEEN_EXPIRE,
	Q_SEEN_COUNTS,
	Q_TASK_PUT,
	Q_TASK_FIND,
	Q_TASK_CLOSE,
	Q_TASK_DEPTH,
	Q_TASK_WAITS,
	Q_TASK_EXPIRE,
	Q_FLOOR,
	Q_COUNT
};

struct store {
	sqlite3 *db;
	struct reserve reserve; /* so that rows can be removed when the disk is full */
	bool is_lost;
	sqlite3_stmt *statements[Q_COUNT];
};

/* ---- store.c ---- */
int store_error(struct store *s, struct err *e, const char *what);
void store_bind_text(sqlite3_stmt *q, int place, const char *text);
/* Runs the statement to its end and clears its bindings. */
int store_finish(struct store *s, sqlite3_stmt *q, const char *what, struct err *e);
/* False: the text does not fit, so this program did not write it. */
bool store_copy_text(sqlite3_stmt *q, int column, char *dst, size_t size);
