/* guest: commands, their streams, trees, sessions, and links that come and go. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static int setup(void **state)
{
	struct driver *d = calloc(1, sizeof(*d));

	driver_start(d);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	driver_stop(*state);
	free(*state);
	return 0;
}

static void one_word(struct buf *b, uint32_t word)
{
	*b = (struct buf){0};
	pack_u32(b, word);
}

/* ---- one command ---- */

static void test_output_and_status(void **state)
{
	struct ran r;

	driver_shell(*state, "echo out; echo err >&2; exit 7", &r);
	assert_string_equal(buf_head(&r.out), "out\n");
	assert_string_equal(buf_head(&r.err), "err\n");
	assert_true(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 7);
	assert_int_equal(r.exec_errno, 0);
	ran_done(&r);
	driver_shell(*state, "kill -TERM $$", &r);
	assert_true(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGTERM);
	ran_done(&r);
}

static void test_not_executed(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_NO_STDIN, ARGV("cloche-no-such-program"));
	struct ran r = {0};

	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_int_equal(r.exec_errno, ENOENT);
	ran_done(&r);
	b = driver_exec(GUEST_EXEC_NO_STDIN, ARGV("/etc/passwd"));
	r = (struct ran){0};
	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_int_equal(r.exec_errno, EACCES);
	ran_done(&r);
	b = driver_exec_with(&(struct exec_terms){.cwd = "/cloche-no-such-dir"}, ARGV("true"));
	assert_int_equal(driver_refused(d, G_EXEC, &b), ENOENT);
	b = driver_exec_with(&(struct exec_terms){.user = "nobody-here"}, ARGV("true"));
	assert_int_equal(driver_refused(d, G_EXEC, &b), EINVAL);
	b = driver_exec(0, (const char *const[]){NULL});
	assert_int_equal(driver_refused(d, G_EXEC, &b), EINVAL);
}

static void test_environment(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec_with(
		&(struct exec_terms){.flags = GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN,
				     .env = "USER=me",
				     .cwd = "/"},
		ARGV("echo $CONFIGURED $USER $OMP_NUM_THREADS $LANG; pwd; umask"));
	struct ran r = {0};

	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_string_equal(buf_head(&r.out), "yes me 1 C.UTF-8\n/\n0022\n");
	ran_done(&r);
}

/* Also where the guest has a file open that an exec would not close. */
static void test_children_hold_three_fds(void **state)
{
	struct ran r;

	driver_stop(*state);
	assert_int_equal(dup2(2, 25), 25);
	driver_start(*state);
	close(25);
	driver_shell(*state, "ls /proc/$$/fd | tr '\\n' ' '; cat /proc/$$/stat | cut -d' ' -f5,6",
		     &r);
	assert_true(strncmp(buf_head(&r.out), "0 1 2 ", 6) == 0);
	ran_done(&r);
}

static void test_input(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(0, ARGV("wc", "-c"));
	static char bytes[1 << 20];
	uint32_t stream = driver_open(d, G_EXEC, &b);
	struct ran r = {0};

	free(driver_expect(d, stream, G_OK));
	driver_feed(d, stream, bytes, sizeof(bytes));
	driver_collect(d, stream, &r);
	assert_int_equal(atoi(buf_head(&r.out)), sizeof(bytes));
	ran_done(&r);
}

/* Input that a command does not read is refused at some point, and the guest goes on. */
static void test_input_that_nobody_reads(void **state)
{
	struct driver *d = *state;
	static char bytes[16 << 10];
	struct buf b = driver_exec(GUEST_EXEC_BACKGROUND, ARGV("sleep", "5"));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	struct frame *f = driver_expect(d, stream, G_OK);
	struct unpack u = unpack_from(f->payload, f->len);
	uint32_t eid = unpack_u32(&u);
	uint8_t answer = G_OK;
	struct ran r;

	free(f);
	for (int i = 0; i < 200 && answer == G_OK; i++) {
		struct buf input = {0};

		pack_u32(&input, eid);
		pack_bytes(&input, bytes, sizeof(bytes));
		pack_u8(&input, 0);
		f = driver_next(d, driver_open(d, G_INPUT, &input));
		answer = f->type;
		free(f);
	}
	assert_int_equal(answer, G_ERROR);
	driver_shell(d, "echo alive", &r);
	assert_true(strncmp(buf_head(&r.out), "alive", 5) == 0);
	ran_done(&r);
}

static void test_large_request(void **state)
{
	struct driver *d = *state;
	char *big = malloc(100001);
	struct ran r = {0};
	struct buf b;

	memset(big, 'x', 100000);
	big[100000] = '\0';
	b = driver_exec(GUEST_EXEC_NO_STDIN, ARGV("sh", "-c", "echo ${#0}${#1}", big, big));
	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_string_equal(buf_head(&r.out), "100000100000\n");
	ran_done(&r);
	free(big);
}

/* The reader gives nothing back: so much comes and no more, until it does. */
static void test_slow_reader(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_NO_STDIN, ARGV("head", "-c", "3000000", "/dev/zero"));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	size_t got = 0, seq = 0, owed = 0;
	bool ended = false;

	d->stingy = true;
	free(driver_expect(d, stream, G_OK));
	while (!ended) {
		struct frame *f = driver_next(d, stream);
		struct unpack u = unpack_from(f->payload, f->len);

		ended = f->type == G_END;
		if (f->type == G_OUT) {
			assert_int_equal(unpack_u64(&u), seq);
			seq += f->len - 8;
			got += f->len - 8;
			owed += f->len;
			assert_true(owed <= GUEST_WINDOW);
		}
		if (owed > GUEST_WINDOW - 100) {
			/* Nothing comes now but the answer to this. */
			driver_do(d, G_PING, NULL);
			one_word(&b, (uint32_t)owed);
			driver_send(d, stream, G_CREDIT, buf_head(&b), b.len);
			buf_done(&b);
			owed = 0;
		}
		free(f);
	}
	assert_int_equal(got, 3000000);
}

static void test_background_keeps_the_end(void **state)
{
	struct driver *d = *state;
	struct buf b =
		driver_exec(GUEST_EXEC_NO_STDIN | GUEST_EXEC_BACKGROUND,
			    ARGV("sh", "-c", "head -c 5000000 /dev/zero; echo; echo end; : >done"));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	struct frame *f = driver_expect(d, stream, G_OK);
	struct unpack u = unpack_from(f->payload, f->len);
	uint32_t eid = unpack_u32(&u);
	struct ran r = {0};

	free(f);
	/* It ends although nobody reads. */
	driver_send(d, stream, G_END, NULL, 0);
	for (int i = 0; access(driver_path(d, "done"), F_OK) < 0; i++) {
		assert_true(i < DRIVER_WAIT_MS / 10);
		poll(NULL, 0, 10);
	}
	pack_u32(&b, eid);
	pack_u64(&b, 0);
	driver_collect(d, driver_open(d, G_ATTACH, &b), &r);
	assert_true(r.out.len < 2 << 20);
	assert_string_equal(buf_head(&r.out) + r.out.len - 6, "\nend\n");
	ran_done(&r);
}

/* ---- trees ---- */

static pid_t pid_from(struct driver *d, uint32_t stream)
{
	struct frame *f = driver_expect(d, stream, G_OUT);
	pid_t pid;

	f->payload[f->len] = '\0';
	pid = atoi(f->payload + 8);
	free(f);
	assert_true(pid > 1);
	return pid;
}

static const char deserter[] = "(setsid sh -c 'env -i sleep 1000 >/dev/null 2>&1 & echo $!' &) ; "
			       "sleep 1000";

static void test_tree_is_killed(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN, ARGV(deserter));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	struct frame *f = driver_expect(d, stream, G_OK);
	struct unpack u = unpack_from(f->payload, f->len);
	uint32_t eid = unpack_u32(&u);
	pid_t pid = pid_from(d, stream);
	struct ran r = {0};

	free(f);
	pack_u32(&b, eid);
	pack_u32(&b, SIGKILL);
	pack_u8(&b, 1);
	driver_do(d, G_SIGNAL, &b);
	driver_collect(d, stream, &r);
	assert_int_equal(r.why, GUEST_WHY_KILLED);
	assert_true(driver_gone(pid));
	ran_done(&r);
}

static void test_timeout(void **state)
{
	struct driver *d = *state;
	struct buf b =
		driver_exec_with(&(struct exec_terms){.timeout_ms = 100}, ARGV("sleep", "5"));
	struct ran r = {0};

	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_int_equal(r.why, GUEST_WHY_TIMEOUT);
	assert_true(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
	ran_done(&r);
}

static void test_end_kills_if_asked(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN | GUEST_EXEC_KILL,
				   ARGV(deserter));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	pid_t pid;

	free(driver_expect(d, stream, G_OK));
	pid = pid_from(d, stream);
	driver_send(d, stream, G_END, NULL, 0);
	assert_true(driver_gone(pid));
}

/* ---- sessions, terminals ---- */

static void run_in_session(struct driver *d, const char *line, const char *expected)
{
	struct buf b = driver_exec_with(
		&(struct exec_terms){.flags = GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN,
				     .session = "it's one"},
		ARGV(line));
	struct ran r = {0};

	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_string_equal(buf_head(&r.out), expected);
	ran_done(&r);
}

static void test_session(void **state)
{
	struct driver *d = *state;
	struct buf b;
	uint32_t stream;

	if (access("/bin/bash", X_OK) < 0)
		skip();
	run_in_session(d, "cd /usr; export A='b  c'; f() { echo f:$1; }; unset CONFIGURED", "");
	run_in_session(d, "pwd; echo \"$A\"; f 1; echo -$CONFIGURED-; exit 3",
		       "/usr\nb  c\nf:1\n--\n");
	run_in_session(d, "pwd; cd /; f 2", "/usr\nf:2\n");
	run_in_session(d, "pwd", "/\n");
	b = driver_exec_with(&(struct exec_terms){.session = "busy"}, ARGV("cat"));
	stream = driver_open(d, G_EXEC, &b);
	free(driver_expect(d, stream, G_OK));
	b = driver_exec_with(&(struct exec_terms){.session = "busy"}, ARGV("cat"));
	assert_int_equal(driver_refused(d, G_EXEC, &b), EBUSY);
}

static void test_terminal(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_SHELL | GUEST_EXEC_TTY,
				   ARGV("test -t 0 && test -t 2 && echo yes; read x; stty size"));
	uint32_t stream = driver_open(d, G_EXEC, &b);
	struct frame *f = driver_expect(d, stream, G_OK);
	struct unpack u = unpack_from(f->payload, f->len);
	uint32_t eid = unpack_u32(&u);
	struct ran r = {0};

	free(f);
	pack_u32(&b, eid);
	pack_u32(&b, 33);
	pack_u32(&b, 44);
	driver_do(d, G_RESIZE, &b);
	driver_send(d, stream, G_DATA, "go\n", 3);
	driver_collect(d, stream, &r);
	assert_non_null(strstr(buf_head(&r.out), "yes\r\n"));
	assert_non_null(strstr(buf_head(&r.out), "33 44\r\n"));
	ran_done(&r);
}

/* ---- attaching, lists ---- */

static uint32_t start_reader(struct driver *d, uint32_t *ret_stream)
{
	struct buf b =
		driver_exec_with(&(struct exec_terms){.flags = GUEST_EXEC_SHELL, .tag = "reader"},
				 ARGV("printf abc; read x; printf $x"));
	struct frame *f;
	struct unpack u;
	uint32_t eid;

	*ret_stream = driver_open(d, G_EXEC, &b);
	f = driver_expect(d, *ret_stream, G_OK);
	u = unpack_from(f->payload, f->len);
	eid = unpack_u32(&u);
	free(f);
	f = driver_expect(d, *ret_stream, G_OUT);
	assert_int_equal(f->len, 8 + 3);
	free(f);
	return eid;
}

static void finish_reader(struct driver *d, uint32_t eid)
{
	struct buf b = {0};

	pack_u32(&b, eid);
	pack_str(&b, "def\n");
	pack_u8(&b, 1);
	driver_do(d, G_INPUT, &b);
}

static void test_attach(void **state)
{
	struct driver *d = *state;
	uint32_t stream, eid = start_reader(d, &stream), second;
	struct ran r = {0}, again = {0};
	struct buf b = {0};

	pack_u32(&b, eid);
	pack_u64(&b, 1);
	second = driver_open(d, G_ATTACH, &b);
	free(driver_expect(d, second, G_OK));
	finish_reader(d, eid);
	driver_collect(d, second, &r);
	assert_string_equal(buf_head(&r.out), "bcdef");
	driver_collect(d, stream, &again);
	assert_string_equal(buf_head(&again.out), "def");
	ran_done(&r);
	ran_done(&again);
	/* Also after its end. */
	pack_u32(&b, eid);
	pack_u64(&b, 0);
	r = (struct ran){0};
	driver_collect(d, driver_open(d, G_ATTACH, &b), &r);
	assert_string_equal(buf_head(&r.out), "abcdef");
	ran_done(&r);
	one_word(&b, eid);
	driver_do(d, G_ACK, &b);
	one_word(&b, eid + 100);
	assert_int_equal(driver_refused(d, G_ACK, &b), ESRCH);
}

static void test_list(void **state)
{
	struct driver *d = *state;
	uint32_t stream, eid = start_reader(d, &stream), list = driver_open(d, G_EXECS, NULL);
	struct frame *f;
	struct unpack u;
	char tag[32];

	free(driver_expect(d, list, G_OK));
	f = driver_expect(d, list, G_ITEM);
	u = unpack_from(f->payload, f->len);
	assert_int_equal(unpack_u32(&u), eid);
	unpack_u32(&u);
	assert_int_equal(unpack_u8(&u), 1);
	assert_int_equal(unpack_u8(&u), GUEST_EXEC_SHELL);
	unpack_str(&u, tag, sizeof(tag));
	assert_string_equal(tag, "reader");
	free(f);
	free(driver_expect(d, list, G_END));
	finish_reader(d, eid);
}

/* A child that lives on holds the pipe; the command has ended all the same. */
static void test_end_does_not_wait_for_children(void **state)
{
	struct ran r;

	driver_shell(*state, "sleep 1000 & echo $!", &r);
	kill(atoi(buf_head(&r.out)), SIGKILL);
	assert_int_equal(r.status, 0);
	ran_done(&r);
}

/* ---- links ---- */

static void test_takeover(void **state)
{
	struct driver *d = *state;
	uint32_t stream, eid = start_reader(d, &stream);
	struct ran r = {0};
	struct buf b = {0};
	int old = d->fd;
	char byte;

	assert_int_equal(driver_connect(d, 1), -1);
	d->fd = driver_connect(d, 5);
	assert_true(d->fd >= 0);
	while (read(old, &byte, 1) > 0)
		;
	close(old);
	assert_int_equal(driver_connect(d, 4), -1);
	/* The command is still there. */
	pack_u32(&b, eid);
	pack_u64(&b, 0);
	d->last = 0;
	buf_done(&d->in);
	stream = driver_open(d, G_ATTACH, &b);
	finish_reader(d, eid);
	driver_collect(d, stream, &r);
	assert_string_equal(buf_head(&r.out), "abcdef");
	ran_done(&r);
}

/* What breaks the protocol breaks the link, and only that. */
static void expect_lost(struct driver *d, uint64_t generation)
{
	assert_null(driver_next(d, 0));
	close(d->fd);
	buf_done(&d->in);
	d->last = 0;
	d->fd = driver_connect(d, generation);
	assert_true(d->fd >= 0);
	driver_do(d, G_PING, NULL);
}

static void test_protocol_is_kept(void **state)
{
	static const char zeros[60000];
	struct driver *d = *state;
	struct buf b = driver_exec(0, ARGV("sleep", "5"));
	uint32_t stream = driver_open(d, G_EXEC, &b);

	/* More than the window. */
	free(driver_expect(d, stream, G_OK));
	for (int i = 0; i < 8; i++)
		driver_send(d, stream, G_DATA, zeros, sizeof(zeros));
	expect_lost(d, 2);
	/* A header that cannot be. */
	assert_int_equal(send(d->fd, "\377\377\377\377\1\0\0\0\1\0\0\0", 12, 0), 12);
	expect_lost(d, 3);
	/* An unknown request, a malformed one, a stream number that was used. */
	driver_send(d, 7, 60, NULL, 0);
	expect_lost(d, 4);
	driver_send(d, 7, G_STAT, "abc", 3);
	expect_lost(d, 5);
	driver_send(d, 7, G_PING, NULL, 0);
	free(driver_expect(d, 7, G_OK));
	driver_send(d, 7, G_PING, NULL, 0);
	expect_lost(d, 6);
	/* Credit that was never owed. */
	stream = driver_open(d, G_EVENTS, NULL);
	free(driver_expect(d, stream, G_OK));
	one_word(&b, 1);
	driver_send(d, stream, G_CREDIT, buf_head(&b), b.len);
	buf_done(&b);
	expect_lost(d, 7);
	/* Frames of streams that are not there are nothing. */
	driver_send(d, 99, G_DATA, "x", 1);
	driver_send(d, 99, G_END, NULL, 0);
	driver_do(d, G_PING, NULL);
}

static void test_ttl(void **state)
{
	struct driver *d = *state;
	uint32_t events = driver_open(d, G_EVENTS, NULL);
	struct buf b = {0};
	struct frame *f;
	int status;

	free(driver_expect(d, events, G_OK));
	pack_u64(&b, 200);
	pack_u64(&b, 1 << 20);
	pack_u32(&b, 0);
	pack_str(&b, "/");
	pack_u32(&b, 1000);
	driver_do(d, G_CONFIGURE, &b);
	f = driver_expect(d, events, G_ITEM);
	assert_int_equal(f->payload[0], 3);
	free(f);
	assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
	assert_int_equal(status, 0);
	d->pid = 0;
}

static void test_stats(void **state)
{
	struct frame *f = driver_ask(*state, G_STATS, NULL);
	struct unpack u = unpack_from(f->payload, f->len);

	assert_true(unpack_u32(&u) > 0);
	for (int i = 0; i < 6; i++)
		unpack_u64(&u);
	assert_int_equal(unpack_u32(&u), 0);
	assert_true(unpack_is_done(&u));
	free(f);
}

/* ---- copies of a parked process ---- */

static struct buf fork_of(uint32_t eid, const struct exec_terms *terms)
{
	struct buf whole = {0}, exec = driver_exec_with(terms, ARGV("copy"));

	pack_u32(&whole, eid);
	buf_add(&whole, buf_head(&exec), exec.len);
	buf_done(&exec);
	return whole;
}

/* Which of its numbers are open, and what the third is. */
static void test_parked_has_a_socket(void **state)
{
	struct driver *d = *state;
	struct buf b = driver_exec(GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN | GUEST_EXEC_PREFORK,
				   ARGV("readlink /proc/$$/fd/3 | cut -d: -f1; ls /proc/$$/fd"));
	struct ran r = {0};

	driver_collect(d, driver_open(d, G_EXEC, &b), &r);
	assert_true(strncmp(buf_head(&r.out), "socket\n0\n1\n2\n3\n", 15) == 0);
	ran_done(&r);
}

static void test_copies_are_refused(void **state)
{
	struct driver *d = *state;
	struct exec_terms plain = {0}, nowhere = {.cwd = "/cloche-no-such-dir"};
	struct buf b = driver_exec(0, ARGV("sleep", "5")), signal = {0};
	struct frame *ok;
	uint32_t prefork, not_parked, waiting;

	ok = driver_expect(d, driver_open(d, G_EXEC, &b), G_OK);
	memcpy(&not_parked, ok->payload, 4);
	free(ok);
	b = driver_exec(GUEST_EXEC_PREFORK, ARGV("sleep", "5"));
	ok = driver_expect(d, driver_open(d, G_EXEC, &b), G_OK);
	memcpy(&prefork, ok->payload, 4);
	free(ok);

	b = fork_of(12345, &plain);
	assert_int_equal(driver_refused(d, G_FORK, &b), EAGAIN);
	b = fork_of(not_parked, &plain);
	assert_int_equal(driver_refused(d, G_FORK, &b), EAGAIN);
	b = fork_of(prefork, &(struct exec_terms){.flags = GUEST_EXEC_TTY});
	assert_int_equal(driver_refused(d, G_FORK, &b), EAGAIN);
	b = fork_of(prefork, &nowhere);
	assert_int_equal(driver_refused(d, G_FORK, &b), ENOENT);
	/* It takes orders, and dies of them. */
	b = fork_of(prefork, &plain);
	waiting = driver_open(d, G_FORK, &b);
	pack_u32(&signal, prefork);
	pack_u32(&signal, SIGKILL);
	pack_u8(&signal, 1);
	driver_do(d, G_SIGNAL, &signal);
	ok = driver_expect(d, waiting, G_ERROR);
	memcpy(&prefork, ok->payload, 4);
	assert_int_equal(prefork, EAGAIN);
	free(ok);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_output_and_status),
		T(test_not_executed),
		T(test_environment),
		T(test_children_hold_three_fds),
		T(test_input),
		T(test_input_that_nobody_reads),
		T(test_large_request),
		T(test_slow_reader),
		T(test_background_keeps_the_end),
		T(test_tree_is_killed),
		T(test_timeout),
		T(test_end_kills_if_asked),
		T(test_session),
		T(test_terminal),
		T(test_attach),
		T(test_list),
		T(test_end_does_not_wait_for_children),
		T(test_takeover),
		T(test_protocol_is_kept),
		T(test_ttl),
		T(test_stats),
		T(test_parked_has_a_socket),
		T(test_copies_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
