/*
 * What must outlive the daemon: one row for each sandbox, in SQLite (WAL). The only SQL is here. The
 * database is a file in the front's own directory. One that is damaged is moved aside and begun anew: the
 * broker has a copy of each row (manager/recover.c).
 */
#pragma once

#include "base/base.h"
#include "wire/ipc.h"

struct store;

struct store_row {
	char id[IPC_ID];
	char owner[IPC_ID];
	char name[IPC_NAME];
	char state[16];
	uint64_t created_ms, expires_ms; /* unix; 0: never */
	const char *options;		 /* JSON text; the manager's own */
};

/* note (or "") says what happened to a damaged database. ERR_UNSUPPORTED: a later version wrote it. */
struct store *store_open(const char *path, char *note, size_t note_size, struct err *e);
/*
 * There was no database, or a damaged one; or rows are missing in it. It stays so, also for later processes, until
 * store_is_whole says that the missing rows were put back.
 */
bool store_is_lost(const struct store *s);
void store_is_whole(struct store *s);
void store_close(struct store *s);
/* Puts a row in place of the one with the same id, if there is one. */
int store_put(struct store *s, const struct store_row *row, struct err *e);
int store_remove(struct store *s, const char *id, struct err *e);
/*
 * Each row, oldest first; its strings are valid during the call only. call: false if the row makes no sense.
 * Rows that cannot be read are missing from then on.
 */
int store_each(struct store *s, bool (*call)(void *arg, const struct store_row *row), void *arg,
	       struct err *e);
