/* store: rows survive, a damaged database does not stop the daemon, a busy one is left alone. */
#include "store/store.h"

#include "base/auto.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	char dir[64], path[96], note[512];
	struct store *store;
	struct err err;
};

struct found {
	size_t count;
	struct store_row last;
	char options[256];
};

static bool take(void *arg, const struct store_row *row)
{
	struct found *f = arg;

	f->count++;
	f->last = *row;
	snprintf(f->options, sizeof(f->options), "%s", row->options);
	return !str_equal(row->options, "nonsense");
}

static void reopen(struct fixture *f)
{
	store_close(f->store);
	f->store = store_open(f->path, f->note, sizeof(f->note), &f->err);
	assert_non_null(f->store);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/cloche-store-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	snprintf(f->path, sizeof(f->path), "%s/state.db", f->dir);
	reopen(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	DIR *d = opendir(f->dir);

	store_close(f->store);
	for (struct dirent *e; (e = readdir(d));)
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(f->dir);
	free(f);
	return 0;
}

static void put(struct fixture *f, const char *id, uint64_t created, const char *options)
{
	struct store_row row = {.created_ms = created, .expires_ms = 5, .options = options};

	snprintf(row.id, sizeof(row.id), "%s", id);
	snprintf(row.owner, sizeof(row.owner), "me");
	snprintf(row.name, sizeof(row.name), "it's \"named\"");
	snprintf(row.state, sizeof(row.state), "running");
	assert_int_equal(0, store_put(f->store, &row, &f->err));
}

static struct found look(struct fixture *f)
{
	struct found found = {0};

	assert_int_equal(0, store_each(f->store, take, &found, &f->err));
	return found;
}

static void keeps_rows(void **state)
{
	struct fixture *f = *state;
	struct found found;

	put(f, "b", 2, "{\"a\":\"'); DROP TABLE sandboxes; --\"}");
	put(f, "a", 1, "{}");
	put(f, "b", 3, "{\"a\":\"'); DROP TABLE sandboxes; --\"}");
	reopen(f);
	assert_string_equal("", f->note);
	found = look(f);
	assert_int_equal(2, found.count);
	assert_string_equal("b", found.last.id);
	assert_string_equal("it's \"named\"", found.last.name);
	assert_int_equal(3, found.last.created_ms);
	assert_int_equal(5, found.last.expires_ms);
	assert_string_equal("{\"a\":\"'); DROP TABLE sandboxes; --\"}", found.options);
	assert_int_equal(0, store_remove(f->store, "b", &f->err));
	assert_int_equal(0, store_remove(f->store, "nobody", &f->err));
	assert_int_equal(1, look(f).count);
}

static void survives_a_killed_process(void **state)
{
	struct fixture *f = *state;
	pid_t child;
	int status;

	store_close(take_ptr(f->store));
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		reopen(f);
		for (int i = 0; i < 100; i++) {
			char id[16];

			snprintf(id, sizeof(id), "id%d", i);
			put(f, id, (uint64_t)i, "{}");
		}
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(child, waitpid(child, &status, 0));
	reopen(f);
	assert_int_equal(100, look(f).count);
}

/* The schema and a row as version 0.1.0 wrote them. */
static const char released_0_1[] =
	"CREATE TABLE sandboxes (id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL,"
	" state TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,"
	" options TEXT NOT NULL) WITHOUT ROWID;"
	"INSERT INTO sandboxes VALUES ('old', 'me', 'n', 'stopped', 7, 8, '{\"ttl_ms\":9}');"
	"PRAGMA user_version = 1";

static void write_database(struct fixture *f, const char *sql)
{
	static const char *const ends[] = {"", "-wal", "-shm"};
	sqlite3 *db;

	store_close(take_ptr(f->store));
	for (size_t i = 0; i < 3; i++) {
		auto_free char *path = str_format("%s%s", f->path, ends[i]);

		unlink(path);
	}
	assert_int_equal(SQLITE_OK, sqlite3_open(f->path, &db));
	assert_int_equal(SQLITE_OK, sqlite3_exec(db, sql, NULL, NULL, NULL));
	sqlite3_close(db);
}

static void reads_every_released_version(void **state)
{
	static const char *const released[] = {released_0_1};
	struct fixture *f = *state;
	struct found found;

	for (size_t i = 0; i < ARRAY_LEN(released); i++) {
		write_database(f, released[i]);
		reopen(f);
		assert_string_equal("", f->note);
		assert_false(store_is_lost(f->store));
		found = look(f);
		assert_int_equal(1, found.count);
		assert_string_equal("stopped", found.last.state);
		assert_int_equal(8, found.last.expires_ms);
		assert_string_equal("{\"ttl_ms\":9}", found.options);
		put(f, "new", 9, "{}");
		assert_int_equal(2, look(f).count);
	}
}

static void refuses_a_later_version(void **state)
{
	struct fixture *f = *state;
	char head[100], again[100];
	int fd;

	write_database(f, "CREATE TABLE later (x); PRAGMA user_version = 999");
	fd = open(f->path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(sizeof(head), read(fd, head, sizeof(head)));
	close(fd);
	assert_null(store_open(f->path, f->note, sizeof(f->note), &f->err));
	assert_int_equal(ERR_UNSUPPORTED, f->err.kind);
	assert_non_null(strstr(f->err.msg, "999"));
	assert_string_equal("", f->note);
	fd = open(f->path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(sizeof(again), read(fd, again, sizeof(again)));
	close(fd);
	/* user_version is at byte 60 of the file. */
	assert_memory_equal(head + 60, again + 60, 4);
}

static void begins_anew_if_damaged(void **state)
{
	static const char garbage[8192] = "this is no database";
	struct fixture *f = *state;
	int fd;

	put(f, "a", 1, "{}");
	store_close(take_ptr(f->store));
	fd = open(f->path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(sizeof(garbage), write(fd, garbage, sizeof(garbage)));
	close(fd);
	reopen(f);
	assert_non_null(strstr(f->note, "moved to"));
	assert_int_equal(0, look(f).count);
	put(f, "b", 1, "{}");
	assert_int_equal(1, look(f).count);
}

/* Whole in its head and its schema, so that only a check of all pages finds the damage. */
static void finds_damage_in_the_middle(void **state)
{
	struct fixture *f = *state;
	static const char nothing[4096];
	char id[24];
	int fd;

	for (int i = 0; i < 2000; i++) {
		snprintf(id, sizeof(id), "id%d", i);
		put(f, id, (uint64_t)i, "{\"a\":\"some text that takes up room in its page\"}");
	}
	store_close(take_ptr(f->store));
	fd = open(f->path, O_RDWR | O_CLOEXEC);
	assert_true(lseek(fd, 0, SEEK_END) > 40 * 4096);
	assert_int_equal(sizeof(nothing), pwrite(fd, nothing, sizeof(nothing), 30 * 4096));
	close(fd);
	reopen(f);
	assert_non_null(strstr(f->note, "moved to"));
}

static void leaves_a_busy_one_alone(void **state)
{
	struct fixture *f = *state;
	struct store_row row = {.id = "x", .state = "running"};
	sqlite3 *other;

	assert_int_equal(SQLITE_OK, sqlite3_open(f->path, &other));
	assert_int_equal(SQLITE_OK, sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL));
	assert_int_equal(-1, store_put(f->store, &row, &f->err));
	assert_int_equal(ERR_SYSTEM, f->err.kind);
	assert_int_equal(SQLITE_OK, sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL));
	assert_int_equal(0, store_put(f->store, &row, &f->err));
	sqlite3_close(other);
}

/* A process that is killed before it has put the rows back leaves that to the next one. */
static void remembers_that_rows_are_missing(void **state)
{
	struct fixture *f = *state;

	assert_true(store_is_lost(f->store));
	reopen(f);
	assert_true(store_is_lost(f->store));
	store_is_whole(f->store);
	reopen(f);
	assert_false(store_is_lost(f->store));
	for (int i = 0; i < 2; i++) {
		put(f, "bad", 1, "nonsense");
		look(f);
		assert_true(store_is_lost(f->store));
		put(f, "bad", 1, "{}");
		reopen(f);
		assert_true(store_is_lost(f->store));
		store_is_whole(f->store);
		reopen(f);
		look(f);
		assert_false(store_is_lost(f->store));
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(keeps_rows),
		TEST(survives_a_killed_process),
		TEST(reads_every_released_version),
		TEST(refuses_a_later_version),
		TEST(begins_anew_if_damaged),
		TEST(finds_damage_in_the_middle),
		TEST(leaves_a_busy_one_alone),
		TEST(remembers_that_rows_are_missing),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
