/*
 * libcloche, mostly against a launcher that is a shell script: it prints what the test wants. Some
 * tests need the real one, from the build directory, and say so when it is not there.
 */
#include "base/auto.h"
#include "base/base64.h"
#include "cloche.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RECORD(fields)                                                                             \
	"{\"status\":\"exited\",\"exit_code\":0,\"signal\":null,\"success\":true,"                 \
	"\"stdout\":\"a\\u0000b\\n\",\"stderr\":\"\",\"stdout_truncated\":false," fields "}"

struct world {
	struct cloche *c;
	char dir[64];
	char script[96];
};

static int make_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	strcpy(w->dir, "/tmp/cloche-lib-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->script, sizeof(w->script), "%s/cloche", w->dir);
	w->c = cloche_new();
	assert_non_null(w->c);
	*state = w;
	return 0;
}

static int drop_world(void **state)
{
	struct world *w = *state;

	cloche_free(w->c);
	unlink(w->script);
	rmdir(w->dir);
	unsetenv("CLOCHE");
	free(w);
	return 0;
}

/* From now on the launcher is this shell script. */
static void pretend(struct world *w, const char *script)
{
	FILE *f = fopen(w->script, "we");

	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n%s\n", script);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(w->script, 0755), 0);
	setenv("CLOCHE", w->script, 1);
}

/* The real launcher, from the build directory, or a skip by name. */
static void need_launcher(const char *test)
{
	const char *build = getenv("B");
	char path[256];

	snprintf(path, sizeof(path), "%s/cloche", build ? build : "build");
	if (access(path, X_OK) < 0) {
		print_message("SKIP %s: %s is not built\n", test, path);
		skip();
	}
	setenv("CLOCHE", path, 1);
}

static const char *const hello[] = {"echo", "hello", NULL};

static struct cloche_result *run_ok(struct world *w, const char *const *argv)
{
	struct cloche_result *r = NULL;

	if (cloche_run(w->c, argv, &r) < 0)
		fail_msg("%s", cloche_error_message(w->c));
	assert_non_null(r);
	return r;
}

static void expect_error(struct world *w, enum cloche_error_kind kind, const char *message)
{
	struct cloche_result *untouched = (struct cloche_result *)w, *r = untouched;

	assert_int_equal(cloche_run(w->c, hello, &r), -1);
	assert_ptr_equal(r, untouched);
	assert_int_equal(cloche_error(w->c), kind);
	assert_non_null(strstr(cloche_error_message(w->c), message));
}

/* ---- with a script ---- */

static void test_record(void **state)
{
	struct world *w = *state;
	struct cloche_result *r;
	size_t len = 0;

	pretend(w, "cat <<'X'\n" RECORD("\"duration_ms\":2.5,\"files\":[{\"path\":\"o\",\"size\":3,"
					"\"content_base64\":\"AP8K\"}]") "\nX");
	r = run_ok(w, hello);
	assert_string_equal(cloche_result_status(r), "exited");
	assert_int_equal(cloche_result_success(r), 1);
	assert_int_equal(cloche_result_exit_code(r), 0);
	assert_int_equal(cloche_result_signal(r), 0);
	assert_int_equal(cloche_result_truncated(r), 0);
	assert_memory_equal(cloche_result_stdout(r, &len), "a\0b\n", 5);
	assert_int_equal(len, 4);
	assert_string_equal(cloche_result_stderr(r, NULL), "");
	assert_true(cloche_result_number(r, "duration_ms") == 2.5);
	assert_true(cloche_result_number(r, "nothing") == -1);
	assert_int_equal(cloche_result_file_count(r), 1);
	assert_string_equal(cloche_result_file_path(r, 0), "o");
	assert_memory_equal(cloche_result_file_data(r, 0, &len), "\0\xff\n", 3);
	assert_int_equal(len, 3);
	assert_null(cloche_result_file_path(r, 1));
	assert_null(cloche_result_file_data(r, 1, &len));
	assert_int_equal(strlen(cloche_result_json(r)), strcspn(cloche_result_json(r), "\n"));
	cloche_result_free(r);
	cloche_result_free(NULL);
}

/* What reaches the launcher: its arguments, one per line, as the program's output. */
static void test_arguments(void **state)
{
	struct world *w = *state;
	struct cloche_result *r;
	const char *const argv[] = {"-x", "two words", "", NULL};

	pretend(w, "printf '{\"status\":\"exited\",\"stderr\":\"\",\"stdout\":\"'\n"
		   "for a; do printf '<%s>' \"$a\"; done\nprintf '\"}'");
	assert_int_equal(cloche_set(w->c, "memory", "512M"), 0);
	assert_int_equal(cloche_set(w->c, "env", "A=--b c"), 0);
	r = run_ok(w, argv);
	assert_string_equal(cloche_result_stdout(r, NULL),
			    "<run><--json><--memory=512M><--env=A=--b c><--><-x><two words><>");
	cloche_result_free(r);
	cloche_reset(w->c);
	r = run_ok(w, hello);
	assert_string_equal(cloche_result_stdout(r, NULL), "<run><--json><--><echo><hello>");
	cloche_result_free(r);
}

static void test_names_that_are_refused(void **state)
{
	static const char *const bad[] = {"",	  "-m",	 "a b", "memory=1",
					  "json", "tty", "Mem", "a\nb"};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(cloche_set(w->c, bad[i], "x"), -1);
		assert_int_equal(cloche_error(w->c), CLOCHE_INVALID);
	}
	assert_int_equal(cloche_set(w->c, "memory", NULL), -1);
	assert_int_equal(cloche_set(w->c, NULL, "1"), -1);
	assert_int_equal(cloche_run(w->c, (const char *const[]){NULL}, NULL), -1);
	assert_int_equal(cloche_code(w->c, "python", NULL, NULL), -1);
}

static void test_errors(void **state)
{
	struct world *w = *state;

	pretend(w, "echo \"cloche: memory: '12Q' is not a size\" >&2; exit 125");
	expect_error(w, CLOCHE_SYSTEM, "memory: '12Q' is not a size");
	assert_null(strstr(cloche_error_message(w->c), "cloche: "));
	pretend(w, "echo '{\"error\":{\"kind\":\"denied\",\"message\":\"no\"}}'; exit 125");
	expect_error(w, CLOCHE_DENIED, "no");
	pretend(w, "exit 0");
	expect_error(w, CLOCHE_SYSTEM, "without a record");
	pretend(w, "echo '{\"status\":'");
	expect_error(w, CLOCHE_SYSTEM, "cannot be read");
	pretend(w, "echo '{\"status\":\"exited\",\"stdout\":\"\",\"stderr\":\"\",\"files\":[{}]}'");
	expect_error(w, CLOCHE_SYSTEM, "cannot be read");
	pretend(w, "kill -9 $$");
	expect_error(w, CLOCHE_SYSTEM, "without a record");
	setenv("CLOCHE", "/nonexistent/cloche", 1);
	expect_error(w, CLOCHE_NOT_FOUND, "set CLOCHE");
}

static void test_much_noise_on_stderr(void **state)
{
	struct world *w = *state;

	pretend(w, "dd if=/dev/zero bs=1024 count=500 2>/dev/null | tr '\\0' x >&2\n"
		   "cat <<'X'\n" RECORD("\"x\":1") "\nX");
	cloche_result_free(run_ok(w, hello));
}

/* The record may be followed by a process that keeps the pipes open. */
static void test_pipes_held_open(void **state)
{
	struct world *w = *state;

	pretend(w, "cat <<'X'\n" RECORD("\"x\":1") "\nX\nsleep 60 & echo $! >\"$0.pid\"");
	cloche_result_free(run_ok(w, hello));
	char path[128], pid[16] = "";

	snprintf(path, sizeof(path), "%s.pid", w->script);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0 && read(fd, pid, sizeof(pid) - 1) > 0);
	close(fd);
	unlink(path);
	assert_int_equal(kill(atoi(pid), SIGKILL), 0);
}

static void test_fds_do_not_leak(void **state)
{
	struct world *w = *state;
	int before = dup(0), after, leak = open("/dev/null", O_RDONLY);
	struct cloche_result *r;

	close(before);
	/* The launcher sees 0, 1, 2 and the one with which it lists them (and its script). */
	pretend(w,
		"printf '{\"status\":\"exited\",\"stderr\":\"\",\"stdout\":\"'\n"
		"for f in 3 4 5 6 7 8 9; do (eval \": <&$f\") 2>/dev/null && printf \"$f \"; done\n"
		"printf '\"}'");
	for (int i = 0; i < 3; i++) {
		r = run_ok(w, hello);
		assert_string_equal(cloche_result_stdout(r, NULL), "");
		cloche_result_free(r);
	}
	close(leak);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static volatile sig_atomic_t child_signals;

static void reap_all(int sig)
{
	(void)sig;
	child_signals++;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void test_callers_that_reap_everything(void **state)
{
	struct sigaction action = {.sa_handler = reap_all, .sa_flags = SA_RESTART}, old;
	struct world *w = *state;

	sigaction(SIGCHLD, &action, &old);
	pretend(w, "cat <<'X'\n" RECORD("\"x\":1") "\nX");
	for (int i = 0; i < 5; i++)
		cloche_result_free(run_ok(w, hello));
	signal(SIGCHLD, SIG_IGN);
	for (int i = 0; i < 5; i++)
		cloche_result_free(run_ok(w, hello));
	sigaction(SIGCHLD, &old, NULL);
	assert_true(child_signals > 0);
}

static void test_input(void **state)
{
	struct world *w = *state;
	size_t len = 3 << 20;
	char *big = malloc(len);
	struct cloche_result *r;

	memset(big, 'x', len);
	pretend(w, "n=$(wc -c)\nprintf '{\"status\":\"exited\",\"stderr\":\"\",\"stdout\":\"%s\"}' "
		   "$n");
	cloche_set_input(w->c, big, len);
	r = run_ok(w, hello);
	assert_string_equal(cloche_result_stdout(r, NULL), "3145728");
	cloche_result_free(r);
	cloche_set_input(w->c, NULL, 5);
	r = run_ok(w, hello);
	assert_string_equal(cloche_result_stdout(r, NULL), "0");
	cloche_result_free(r);
	/* Nobody reads it: no SIGPIPE, no wait. */
	pretend(w, "exec <&-\ncat <<'X'\n" RECORD("\"x\":1") "\nX");
	cloche_set_input(w->c, big, len);
	cloche_result_free(run_ok(w, hello));
	free(big);
}

static void test_code_ways(void **state)
{
	struct world *w = *state;
	struct cloche_result *r;

	pretend(w, "file=$5\n[ \"$file\" = - ] && file=/dev/stdin\ncode=$(cat $file)\n"
		   "in=$([ \"$5\" = - ] || cat)\n"
		   "printf '{\"status\":\"exited\",\"stderr\":\"\",\"stdout\":\"%s|%s|%s\"}' "
		   "\"$1 $2 $3\" \"$code\" \"$in\"");
	assert_int_equal(cloche_code(w->c, NULL, "print(1)", &r), 0);
	assert_string_equal(cloche_result_stdout(r, NULL), "code --json --lang=python|print(1)|");
	cloche_result_free(r);
	cloche_set_input(w->c, "data", 4);
	assert_int_equal(cloche_code(w->c, "sh", "cat", &r), 0);
	assert_string_equal(cloche_result_stdout(r, NULL), "code --json --lang=sh|cat|data");
	cloche_result_free(r);
}

/* ---- cancelling ---- */

static void *cancel_soon(void *c)
{
	/* Until the other thread is there it has no effect, so again and again. */
	for (int i = 0; i < 200; i++) {
		usleep(20000);
		cloche_cancel(c);
	}
	return NULL;
}

static void expect_cancelled(struct world *w, const char *script)
{
	pthread_t thread;

	pretend(w, script);
	assert_int_equal(pthread_create(&thread, NULL, cancel_soon, w->c), 0);
	expect_error(w, CLOCHE_CANCELLED, "cancelled");
	assert_int_equal(pthread_cancel(thread), 0);
	pthread_join(thread, NULL);
	/* And the handle can be used again. */
	pretend(w, "cat <<'X'\n" RECORD("\"x\":1") "\nX");
	cloche_result_free(run_ok(w, hello));
}

static void test_cancel(void **state)
{
	expect_cancelled(*state, "exec sleep 60");
}

static void test_cancel_of_a_stubborn_launcher(void **state)
{
	expect_cancelled(*state, "trap '' TERM; exec sleep 60");
}

static void test_cancel_without_a_run(void **state)
{
	struct world *w = *state;

	cloche_cancel(w->c);
	pretend(w, "cat <<'X'\n" RECORD("\"x\":1") "\nX");
	cloche_result_free(run_ok(w, hello));
}

/* ---- threads ---- */

static void *run_many(void *arg)
{
	struct cloche *c = cloche_new();
	long bad = 0;

	(void)arg;
	for (int i = 0; i < 10; i++) {
		struct cloche_result *r = NULL;

		bad += cloche_run(c, hello, &r) < 0 || !cloche_result_success(r);
		cloche_result_free(r);
	}
	cloche_free(c);
	return (void *)bad;
}

static void test_threads(void **state)
{
	pthread_t threads[4];
	void *bad;

	pretend(*state, "cat <<'X'\n" RECORD("\"x\":1") "\nX");
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_many, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
}

/* ---- with the real launcher ---- */

static void test_real_command(void **state)
{
	struct world *w = *state;
	const char *const argv[] = {"/bin/sh", "-c", "cat; echo err >&2; exit 7", NULL};
	struct cloche_result *r;

	need_launcher("real command");
	cloche_set(w->c, "empty", "true");
	cloche_set_input(w->c, "through stdin", 13);
	r = run_ok(w, argv);
	assert_string_equal(cloche_result_status(r), "exited");
	assert_int_equal(cloche_result_exit_code(r), 7);
	assert_string_equal(cloche_result_stdout(r, NULL), "through stdin");
	assert_string_equal(cloche_result_stderr(r, NULL), "err\n");
	assert_non_null(strstr(cloche_result_json(r), "\"layers\":{"));
	cloche_result_free(r);
}

static void test_real_code(void **state)
{
	struct world *w = *state;
	struct cloche_result *r = NULL;
	size_t len = 0;

	need_launcher("real code");
	cloche_set(w->c, "empty", "true");
	cloche_set(w->c, "capture", "*.txt");
	for (int i = 0; i < 2; i++) {
		if (cloche_code(w->c, "sh", "cat; echo 42; printf kept >out.txt", &r) < 0)
			fail_msg("%s", cloche_error_message(w->c));
		assert_string_equal(cloche_result_stdout(r, NULL), i ? "input42\n" : "42\n");
		assert_int_equal(cloche_result_file_count(r), 1);
		assert_memory_equal(cloche_result_file_data(r, 0, &len), "kept", 4);
		cloche_result_free(r);
		cloche_set_input(w->c, "input", 5);
	}
}

static void test_real_timeout_and_error(void **state)
{
	struct world *w = *state;
	const char *const argv[] = {"sleep", "60", NULL};
	struct cloche_result *r;

	need_launcher("real time-out");
	cloche_set(w->c, "timeout", "300ms");
	cloche_set(w->c, "empty", "true");
	r = run_ok(w, argv);
	assert_string_equal(cloche_result_status(r), "timeout");
	assert_int_equal(cloche_result_exit_code(r), -1);
	cloche_result_free(r);
	cloche_set(w->c, "memory", "12Q");
	assert_int_equal(cloche_run(w->c, argv, &r), -1);
	assert_non_null(strstr(cloche_error_message(w->c), "12Q"));
	cloche_reset(w->c);
	cloche_set(w->c, "no_such_setting", "1");
	assert_int_equal(cloche_run(w->c, argv, &r), -1);
	assert_non_null(strstr(cloche_error_message(w->c), "no_such_setting"));
}

static void test_real_cancel(void **state)
{
	struct world *w = *state;
	const char *const argv[] = {"sleep", "60", NULL};
	struct cloche_result *r;
	pthread_t thread;

	need_launcher("real cancel");
	cloche_set(w->c, "empty", "true");
	assert_int_equal(pthread_create(&thread, NULL, cancel_soon, w->c), 0);
	assert_int_equal(cloche_run(w->c, argv, &r), -1);
	assert_int_equal(cloche_error(w->c), CLOCHE_CANCELLED);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

static void test_base64_round_trip(void **state)
{
	char data[64], text[96], back[96];
	size_t len;

	(void)state;
	for (size_t n = 0; n < sizeof(data); n++) {
		for (size_t i = 0; i < n; i++)
			data[i] = (char)(i * 41 + n);
		assert_int_equal(base64_decode(back, text, base64_encode(text, data, n), &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(back, data, n);
	}
	assert_int_equal(base64_decode(back, "abc", 3, &len), -1);
	assert_int_equal(base64_decode(back, "ab=c", 4, &len), -1);
	assert_int_equal(base64_decode(back, "a===", 4, &len), -1);
	assert_int_equal(base64_decode(back, "ab\ncd===", 8, &len), -1);
}

static void test_versions(void **state)
{
	(void)state;
	assert_int_equal(cloche_api_version(), CLOCHE_API_VERSION);
	assert_true(strlen(cloche_version()) > 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_world, drop_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_record),
		TEST(test_arguments),
		TEST(test_names_that_are_refused),
		TEST(test_errors),
		TEST(test_much_noise_on_stderr),
		TEST(test_pipes_held_open),
		TEST(test_fds_do_not_leak),
		TEST(test_callers_that_reap_everything),
		TEST(test_input),
		TEST(test_code_ways),
		TEST(test_cancel),
		TEST(test_cancel_of_a_stubborn_launcher),
		TEST(test_cancel_without_a_run),
		TEST(test_threads),
		TEST(test_real_command),
		TEST(test_real_code),
		TEST(test_real_timeout_and_error),
		TEST(test_real_cancel),
		cmocka_unit_test(test_base64_round_trip),
		cmocka_unit_test(test_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
