/* The audit log: the chain, faults, tampering, and the road from client to file. */
#include "audit/audit.h"
#include "audit/chain.h"
#include "audit/log.h"
#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	char dir[64], file[96], key[96];
	int fd;
	struct audit_log_settings s;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/cloche-audit-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->file, sizeof(f->file), "%s/audit.log", f->dir);
	snprintf(f->key, sizeof(f->key), "%s/key", f->dir);
	f->fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->s = (struct audit_log_settings){.dir = f->fd, .name = "audit.log"};
	assert_true(sodium_init() >= 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	auto_free char *command = str_format("rm -rf %s", f->dir);

	close(f->fd);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

/* ---- helpers ---- */

static struct audit_entry entry_of(const char *target)
{
	struct audit_entry entry = {
		.who = "tok1", .what = "exec", .verdict = "allow", .why = "scope run"};

	snprintf(entry.target, sizeof(entry.target), "%s", target);
	return entry;
}

static struct audit_log *opened(const struct fixture *f)
{
	struct err e = {0};
	struct audit_log *l = audit_log_open(&f->s, &e);

	if (!l)
		fail_msg("%s", e.msg);
	return l;
}

static void append(struct audit_log *l, const char *target)
{
	struct audit_entry entry = entry_of(target);
	struct err e = {0};

	if (audit_log_append(l, &entry, 1, &e) < 0)
		fail_msg("%s", e.msg);
}

/* A log of n records, closed. */
static void fill(const struct fixture *f, int n)
{
	struct audit_log *l = opened(f);

	for (int i = 0; i < n; i++) {
		auto_free char *target = str_format("t%d", i);

		append(l, target);
	}
	audit_log_close(l);
}

static char *text_of(const char *file)
{
	char *text = calloc(1, 1 << 20);
	FILE *in = fopen(file, "re");

	assert_non_null(in);
	assert_true(fread(text, 1, (1 << 20) - 1, in) < (1 << 20) - 1);
	fclose(in);
	return text;
}

static void put_text(const char *file, const char *text)
{
	FILE *out = fopen(file, "we");

	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static int verify(const struct fixture *f, const char *head, struct audit_verdict *v, struct err *e)
{
	char *files[] = {(char *)(uintptr_t)f->file};

	memset(v, 0, sizeof(*v));
	memset(e, 0, sizeof(*e));
	return audit_verify(files, 1, f->s.key.is_set ? f->key : NULL, head, v, e);
}

static void assert_verifies(const struct fixture *f, uint64_t records)
{
	struct audit_verdict v;
	struct err e;

	if (verify(f, NULL, &v, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(v.records, records);
}

static void assert_refused(const struct fixture *f, const char *head, const char *why)
{
	struct audit_verdict v;
	struct err e;

	assert_int_equal(verify(f, head, &v, &e), -1);
	if (!strstr(e.msg, why))
		fail_msg("'%s' is not in '%s'", why, e.msg);
}

static void set_key(struct fixture *f)
{
	struct err e;

	put_text(f->key, "0123456789abcdef0123456789abcdef\n");
	chmod(f->key, 0600);
	assert_int_equal(chain_key_load(f->key, &f->s.key, &e), 0);
}

/* ---- the chain ---- */

static void test_chain_continues_after_a_restart(void **state)
{
	struct fixture *f = *state;

	fill(f, 3);
	fill(f, 2);
	assert_verifies(f, 5);
}

static void test_records_are_json(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL;
	json_t *record;

	fill(f, 1);
	text = text_of(f->file);
	record = json_loads(text, 0, NULL);
	assert_non_null(record);
	assert_int_equal(json_integer_value(json_object_get(record, "seq")), 1);
	assert_string_equal(json_string_value(json_object_get(record, "what")), "exec");
	assert_string_equal(json_string_value(json_object_get(record, "target")), "t0");
	assert_non_null(json_object_get(record, "time"));
	json_decref(record);
}

static void test_foreign_strings_forge_nothing(void **state)
{
	static const char *const nasty[] = {"a\"}\n{\"seq\":2,\"who\":\"operator\"}\n",
					    "x\",\"prev\":\"sha256:00\",\"hash\":\"",
					    "\x1b[2J\r\n",
					    "\xff\xfe\x80",
					    "\\",
					    "\",\"torn\":\"sha256:",
					    "\xe2\x80\xa8"};
	struct fixture *f = *state;
	struct audit_log *l = opened(f);
	auto_free char *text = NULL;
	struct audit_entry whole;
	size_t lines = 0;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(nasty); i++)
		append(l, nasty[i]);
	/* Not even ended. */
	memset(&whole, '"', sizeof(whole));
	assert_int_equal(audit_log_append(l, &whole, 1, &e), 0);
	memset(&whole, 1, sizeof(whole));
	assert_int_equal(audit_log_append(l, &whole, 1, &e), 0);
	audit_log_close(l);
	assert_verifies(f, ARRAY_LEN(nasty) + 2);
	text = text_of(f->file);
	for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1, lines++) {
		json_t *record = json_loadb(p, (size_t)(end - p), JSON_REJECT_DUPLICATES, NULL);

		assert_non_null(record);
		assert_true(json_is_string(json_object_get(record, "who")));
		json_decref(record);
	}
	assert_int_equal(lines, ARRAY_LEN(nasty) + 2);
}

/* ---- tampering ---- */

static void test_edit_is_found(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL;
	char *at;

	fill(f, 4);
	text = text_of(f->file);
	at = strstr(text, "\"t1\"");
	assert_non_null(at);
	at[2] = '7';
	put_text(f->file, text);
	assert_refused(f, NULL, ":2: record 2 was changed");
}

static void test_delete_is_found(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL, *joined = NULL;
	char *second, *third;

	fill(f, 4);
	text = text_of(f->file);
	second = strchr(text, '\n') + 1;
	third = strchr(second, '\n') + 1;
	joined = str_format("%.*s%s", (int)(second - text), text, third);
	put_text(f->file, joined);
	assert_refused(f, NULL, "record 3 follows 1");
}

static void test_reorder_is_found(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL, *joined = NULL;
	char *second, *third;

	fill(f, 3);
	text = text_of(f->file);
	second = strchr(text, '\n') + 1;
	third = strchr(second, '\n') + 1;
	joined = str_format("%.*s%s%.*s", (int)(second - text), text, third, (int)(third - second),
			    second);
	put_text(f->file, joined);
	assert_refused(f, NULL, "record 3 follows 1");
}

static void test_truncation_is_found_by_the_head(void **state)
{
	struct fixture *f = *state;
	struct audit_verdict v;
	auto_free char *text = NULL;
	struct err e;

	fill(f, 3);
	assert_int_equal(verify(f, NULL, &v, &e), 0);
	text = text_of(f->file);
	*(strchr(strchr(text, '\n') + 1, '\n') + 1) = '\0';
	put_text(f->file, text);
	assert_verifies(f, 2); /* nothing to see without the head */
	assert_refused(f, v.head, "wanted head is not in the log");
	put_text(f->file, "");
	assert_refused(f, v.head, "wanted head is not in the log");
}

/* The whole log made anew, with the plain hash that anybody can compute. */
static void test_forgery_needs_the_key(void **state)
{
	struct fixture *f = *state;
	const struct chain_key none = {0};
	struct chain_key key;

	set_key(f);
	key = f->s.key;
	fill(f, 2);
	assert_verifies(f, 2);
	unlink(f->file);
	f->s.key = none;
	fill(f, 2);
	f->s.key = key;
	assert_refused(f, NULL, "no record was made with this key");
}

static void test_a_key_may_come_later(void **state)
{
	struct fixture *f = *state;
	struct audit_verdict v;
	const struct chain_key none = {0};
	struct chain_key key;
	struct err e;

	fill(f, 2);
	set_key(f);
	key = f->s.key;
	fill(f, 2);
	assert_int_equal(verify(f, NULL, &v, &e), 0);
	assert_int_equal(v.unkeyed, 2);
	f->s.key = none;
	assert_refused(f, NULL, "--key-file");
	fill(f, 1); /* the daemon itself may go on without it; verify says so */
	f->s.key = key;
	assert_refused(f, NULL, "has no key, but those before it have");
}

static void test_a_key_must_be_secret(void **state)
{
	struct fixture *f = *state;
	struct chain_key key;
	struct err e;

	put_text(f->key, "0123456789abcdef0123456789abcdef\n");
	chmod(f->key, 0644);
	assert_int_equal(chain_key_load(f->key, &key, &e), -1);
	assert_int_equal(e.kind, ERR_DENIED);
	put_text(f->key, "short\n");
	chmod(f->key, 0600);
	assert_int_equal(chain_key_load(f->key, &key, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
}

static void test_start_refuses_an_edited_end(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL;
	struct err e = {0};
	char *at;

	fill(f, 2);
	text = text_of(f->file);
	at = strstr(text, "\"t1\"");
	at[2] = '7';
	put_text(f->file, text);
	assert_null(audit_log_open(&f->s, &e));
	assert_int_equal(e.kind, ERR_CONFLICT);
}

static void test_cutting_a_live_log_shows(void **state)
{
	struct fixture *f = *state;
	struct audit_log *l = opened(f);
	auto_free char *text = NULL;

	append(l, "a");
	append(l, "b");
	text = text_of(f->file);
	assert_int_equal(truncate(f->file, strchr(text, '\n') + 1 - text), 0);
	append(l, "c");
	audit_log_close(l);
	assert_refused(f, NULL, "record 3 follows 1");
}

/* ---- faults ---- */

static void test_every_torn_end_is_mended(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL;
	size_t len, second;

	fill(f, 2);
	text = text_of(f->file);
	len = strlen(text);
	second = (size_t)(strchr(text, '\n') + 1 - text);
	for (size_t cut = second + 1; cut < len; cut += cut + 7 < len ? 7 : 1) {
		struct audit_verdict v;
		struct err e;

		put_text(f->file, text);
		assert_int_equal(truncate(f->file, (off_t)cut), 0);
		assert_verifies(f, cut == len - 1 ? 2 : 1);
		fill(f, 1);
		if (verify(f, NULL, &v, &e) < 0)
			fail_msg("cut at %zu: %s", cut, e.msg);
		assert_int_equal(v.repairs, cut < len - 1);
		assert_int_equal(v.records, 3); /* the first, the second or the repair, the new */
	}
}

static void test_a_torn_line_needs_its_note(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL, *joined = NULL;

	fill(f, 2);
	text = text_of(f->file);
	joined = str_format("%.*sgarbage\n%s", (int)(strchr(text, '\n') + 1 - text), text,
			    strchr(text, '\n') + 1);
	put_text(f->file, joined);
	assert_refused(f, NULL, "nothing says why");
}

/* In a child: a limit on file size stands in for a full disk. */
static int append_when_full(struct fixture *f)
{
	struct rlimit limit;
	struct audit_entry entries[3];
	struct audit_log *l = opened(f);
	struct stat st;
	struct err e = {0};

	signal(SIGXFSZ, SIG_IGN);
	append(l, "before");
	getrlimit(RLIMIT_FSIZE, &limit);
	stat(f->file, &st);
	limit.rlim_cur = (rlim_t)st.st_size + 600;
	setrlimit(RLIMIT_FSIZE, &limit);
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		entries[i] = entry_of("lost");
	if (audit_log_append(l, entries, 3, &e) == 0 || e.kind != ERR_SYSTEM)
		return 1;
	if (audit_log_append(l, entries, 3, &e) == 0)
		return 2;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	append(l, "after");
	audit_log_close(l);
	return 0;
}

static void test_full_is_an_error_and_passes(void **state)
{
	struct fixture *f = *state;
	auto_free char *text = NULL;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(append_when_full(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_verifies(f, 2);
	text = text_of(f->file);
	assert_null(strstr(text, "lost"));
}

static void test_a_removed_file_is_made_anew(void **state)
{
	struct fixture *f = *state;
	struct audit_log *l = opened(f);
	auto_free char *text = NULL;

	append(l, "a");
	unlink(f->file);
	append(l, "b");
	audit_log_close(l);
	text = text_of(f->file);
	assert_true(str_starts(text, "{\"seq\":2,")); /* that something is missing shows */
}

static void test_no_symlink_is_followed(void **state)
{
	struct fixture *f = *state;
	auto_free char *elsewhere = str_format("%s/elsewhere", f->dir);
	struct err e = {0};

	assert_int_equal(symlink(elsewhere, f->file), 0);
	assert_null(audit_log_open(&f->s, &e));
	assert_int_not_equal(access(elsewhere, F_OK), 0);
}

/* ---- rotation ---- */

static size_t older_files(const struct fixture *f, char *ret_files[15])
{
	auto_free char *command = str_format("ls %s/audit.log.* 2>/dev/null", f->dir);
	FILE *p = popen(command, "re");
	char line[256];
	size_t n = 0;

	while (n < 15 && fgets(line, sizeof(line), p)) {
		line[strcspn(line, "\n")] = '\0';
		ret_files[n++] = str_copy(line);
	}
	pclose(p);
	return n;
}

static void test_rotation_keeps_the_chain(void **state)
{
	struct fixture *f = *state;
	char *files[16] = {(char *)(uintptr_t)f->file};
	struct audit_verdict v;
	struct err e = {0};
	size_t n;

	f->s.max_bytes = 1000;
	fill(f, 5);
	fill(f, 5);
	n = older_files(f, files + 1);
	assert_true(n >= 2);
	if (audit_verify(files, n + 1, NULL, NULL, &v, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(v.records, 10);
	assert_int_equal(v.first_seq, 1);
	/* Without the oldest the rest still holds; one taken out of the middle is missed. */
	assert_int_equal(audit_verify((char *[]){files[n], files[0]}, 2, NULL, NULL, &v, &e), 0);
	assert_int_equal(audit_verify((char *[]){files[1], files[0]}, 2, NULL, NULL, &v, &e), -1);
	for (size_t i = 1; i <= n; i++)
		free(files[i]);
}

static void test_rotation_keeps_so_many(void **state)
{
	struct fixture *f = *state;
	char *files[15] = {NULL};

	f->s.max_bytes = 500;
	f->s.keep = 2;
	fill(f, 9);
	assert_int_equal(older_files(f, files), 2);
	free(files[0]);
	free(files[1]);
}

static void test_an_empty_file_continues_the_older(void **state)
{
	struct fixture *f = *state;
	auto_free char *older = str_format("%s.%020d", f->file, 1), *text = NULL;

	fill(f, 2);
	assert_int_equal(rename(f->file, older), 0);
	fill(f, 1);
	text = text_of(f->file);
	assert_true(str_starts(text, "{\"seq\":3,"));
}

/* ---- from client to file ---- */

struct talk {
	struct loop *loop;
	struct audit *audit;
	int sock[2];
	pid_t role;
	int left, errors, fd;
	char order[256];
};

static void talk_open(struct talk *t, const struct fixture *f)
{
	static struct config c;

	memset(t, 0, sizeof(*t));
	t->fd = -1;
	config_init(&c);
	snprintf(c.audit.file, sizeof(c.audit.file), "%s", f->file);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, t->sock), 0);
	t->role = fork();
	if (t->role == 0) {
		close(t->sock[0]);
		struct err e;
		struct audit_role *r = audit_role_new(f->fd, &c, &e);

		_exit(r ? audit_role_run(r, &t->sock[1], 1) : 125);
	}
	close(t->sock[1]);
	t->loop = loop_new();
	t->audit = audit_open(t->loop, t->sock[0]);
}

static int talk_close(struct talk *t)
{
	int status;

	audit_close(t->audit);
	loop_free(t->loop);
	assert_int_equal(waitpid(t->role, &status, 0), t->role);
	return status;
}

static void on_done(void *arg, const struct err *e)
{
	struct talk *t = arg;

	t->errors += e != NULL;
	if (--t->left == 0)
		loop_stop(t->loop);
}

static void on_found(void *arg, int fd, uint64_t next_seq, const struct err *e)
{
	struct talk *t = arg;

	t->fd = fd;
	t->errors += e != NULL;
	loop_stop(t->loop);
}

static void write_many(struct talk *t, int n)
{
	t->left = n;
	t->errors = 0;
	for (int i = 0; i < n; i++) {
		auto_free char *target = str_format("box%d", i % 10);
		struct audit_entry entry = entry_of(target);

		audit_write(t->audit, &entry, on_done, t);
	}
	loop_run(t->loop);
}

static void test_receipts(void **state)
{
	struct fixture *f = *state;
	struct talk t;

	talk_open(&t, f);
	write_many(&t, 2000);
	assert_int_equal(t.errors, 0);
	/* A receipt means that it is in the file, killed or not. */
	kill(t.role, SIGKILL);
	talk_close(&t);
	assert_verifies(f, 2000);
}

static void test_query(void **state)
{
	struct audit_query q = {.limit = 3, .target = "box7"};
	struct fixture *f = *state;
	char text[8192] = "";
	struct talk t;

	talk_open(&t, f);
	write_many(&t, 100);
	audit_query(t.audit, &q, on_found, &t);
	loop_run(t.loop);
	assert_int_equal(t.errors, 0);
	assert_true(t.fd >= 0);
	assert_true(read(t.fd, text, sizeof(text) - 1) > 0);
	close(t.fd);
	assert_true(str_starts(text, "{\"seq\":78,"));
	assert_non_null(strstr(text, "\n{\"seq\":88,"));
	assert_non_null(strstr(text, "\n{\"seq\":98,"));
	assert_null(strstr(text, "box1"));
	q = (struct audit_query){.after_seq = 99};
	audit_query(t.audit, &q, on_found, &t);
	loop_run(t.loop);
	memset(text, 0, sizeof(text));
	assert_true(read(t.fd, text, sizeof(text) - 1) > 0);
	close(t.fd);
	assert_true(str_starts(text, "{\"seq\":100,"));
	assert_int_equal(strchr(text, '\n')[1], '\0');
	assert_int_equal(talk_close(&t), 0);
}

/* Reads a log page by page, and checks that each of `count` records from `seq` on comes once. */
static void page_through(struct audit_log *l, struct audit_query q, uint64_t seq, uint64_t count)
{
	q.is_forward = true;
	q.after_seq = seq - 1;
	do {
		char line[CHAIN_LINE];
		uint64_t next = 0, at;
		struct err e = {0};
		int fd = audit_log_query(l, &q, &next, &e);
		FILE *in = fdopen(fd, "r");

		assert_non_null(in);
		while (fgets(line, sizeof(line), in)) {
			assert_int_equal(1, sscanf(line, "{\"seq\":%" SCNu64 ",", &at));
			assert_int_equal(at, seq++);
			count--;
		}
		fclose(in);
		assert_true(next == 0 || next > q.after_seq);
		q.after_seq = next;
	} while (q.after_seq);
	assert_int_equal(count, 0);
}

static void test_pages(void **state)
{
	struct fixture *f = *state;
	struct audit_entry entries[250];
	struct audit_log *l;
	struct err e = {0};

	memset(entries, 'w', sizeof(entries));
	/* One file that is longer than a query reads, then several short ones. */
	for (int round = 0; round < 2; round++) {
		f->s.max_bytes = round ? 1 << 20 : 0;
		l = opened(f);
		for (int i = 0; i < 80 - 60 * round; i++)
			assert_int_equal(0, audit_log_append(l, entries, ARRAY_LEN(entries), &e));
		audit_log_close(l);
	}
	l = opened(f);
	page_through(l, (struct audit_query){.limit = 10000}, 1, 25000);
	page_through(l, (struct audit_query){.limit = 997}, 19998, 5003);
	page_through(l, (struct audit_query){.limit = 10000, .target = "nothing"}, 1, 0);
	audit_log_close(l);
}

static void test_a_dead_role_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct talk t;

	talk_open(&t, f);
	write_many(&t, 1);
	kill(t.role, SIGKILL);
	write_many(&t, 10);
	assert_true(t.errors > 0);
	write_many(&t, 10);
	assert_int_equal(t.errors, 10);
	talk_close(&t);
}

/* The end of the log is not as it was: every entry is refused until somebody looks. */
static void test_a_bad_log_refuses_work(void **state)
{
	struct fixture *f = *state;
	struct talk t;

	put_text(f->file, "this is no record\n");
	talk_open(&t, f);
	write_many(&t, 2);
	assert_int_equal(t.errors, 2);
	assert_int_equal(unlink(f->file), 0);
	write_many(&t, 2);
	assert_int_equal(t.errors, 0);
	assert_int_equal(talk_close(&t), 0);
	assert_verifies(f, 2);
}

/* A client that speaks nonsense is dropped, and the role ends with its last client. */
static void test_nonsense_ends_a_client(void **state)
{
	struct fixture *f = *state;
	char junk[3000];
	struct talk t;

	memset(junk, 0x5a, sizeof(junk));
	talk_open(&t, f);
	assert_true(send(t.sock[0], junk, sizeof(junk), 0) > 0);
	assert_int_equal(poll(&(struct pollfd){.fd = t.sock[0], .events = POLLIN}, 1, 10000), 1);
	assert_int_equal(recv(t.sock[0], junk, sizeof(junk), 0), 0);
	assert_int_equal(talk_close(&t), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_chain_continues_after_a_restart),
		TEST(test_records_are_json),
		TEST(test_foreign_strings_forge_nothing),
		TEST(test_edit_is_found),
		TEST(test_delete_is_found),
		TEST(test_reorder_is_found),
		TEST(test_truncation_is_found_by_the_head),
		TEST(test_forgery_needs_the_key),
		TEST(test_a_key_may_come_later),
		TEST(test_a_key_must_be_secret),
		TEST(test_start_refuses_an_edited_end),
		TEST(test_cutting_a_live_log_shows),
		TEST(test_every_torn_end_is_mended),
		TEST(test_a_torn_line_needs_its_note),
		TEST(test_full_is_an_error_and_passes),
		TEST(test_a_removed_file_is_made_anew),
		TEST(test_no_symlink_is_followed),
		TEST(test_rotation_keeps_the_chain),
		TEST(test_rotation_keeps_so_many),
		TEST(test_an_empty_file_continues_the_older),
		TEST(test_receipts),
		TEST(test_query),
		TEST(test_pages),
		TEST(test_a_dead_role_is_an_error),
		TEST(test_a_bad_log_refuses_work),
		TEST(test_nonsense_ends_a_client),
	};

	return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
