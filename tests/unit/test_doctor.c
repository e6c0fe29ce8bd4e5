/*
 * Probing the host. The probes are run under filters that refuse a call, or let it succeed without
 * doing anything, or never answer: what they then say must be the truth.
 */
#include "base/auto.h"
#include "base/str.h"
#include "cli/operator/cloched.h"
#include "kern/caps.h"
#include "kern/features.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define REFUSED(errnum) (SECCOMP_RET_ERRNO | (errnum))
#define LIE SECCOMP_RET_ERRNO /* returns 0 and does nothing */

/* Filters one system call of this process for good. */
static int filter_call(long nr, uint32_t action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_LEN(code), .filter = code};
	unsigned flags = action == SECCOMP_RET_USER_NOTIF ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* Probes in a child in which that call is filtered. */
static struct feature probe_under(long nr, uint32_t action, enum feature_id id)
{
	struct feature *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0),
		       f;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (filter_call(nr, action) < 0)
			_exit(1);
		features_probe(id, shared);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f = *shared;
	munmap(shared, sizeof(*shared));
	return f;
}

static bool has(enum feature_id id)
{
	struct feature f;

	features_probe(id, &f);
	return f.state == FEATURE_OK;
}

static void test_refused_calls_are_missing(void **state)
{
	static const struct {
		enum feature_id id;
		long nr;
	} cases[] = {
		{FEATURE_PID_NS, SYS_unshare},
		{FEATURE_NET_NS, SYS_unshare},
		{FEATURE_TIME_NS, SYS_unshare},
		{FEATURE_MOUNT_API, SYS_fsopen},
		{FEATURE_MOUNT_API, SYS_move_mount},
		{FEATURE_MOUNT_API, SYS_mount_setattr},
		{FEATURE_OVERLAY, SYS_mount},
		{FEATURE_SECCOMP, SYS_seccomp},
		{FEATURE_OPENAT2, SYS_openat2},
		{FEATURE_CLOSE_RANGE, SYS_close_range},
		{FEATURE_CLONE3, SYS_clone3},
		{FEATURE_PIDFD, SYS_pidfd_open},
		{FEATURE_LANDLOCK, SYS_landlock_restrict_self},
		{FEATURE_SECCOMP_NOTIFY, SYS_seccomp},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct feature f;

		if (!has(cases[i].id)) {
			print_message("SKIP feature %d: not here\n", cases[i].id);
			continue;
		}
		f = probe_under(cases[i].nr, REFUSED(EPERM), cases[i].id);
		if (f.state != FEATURE_MISSING || f.errnum != EPERM)
			fail_msg("feature %d, call %ld: state %d, errno %d, %s", cases[i].id,
				 cases[i].nr, f.state, f.errnum, f.detail);
		assert_true(f.detail[0]);
		f = probe_under(cases[i].nr, REFUSED(ENOSYS), cases[i].id);
		assert_int_equal(f.state, FEATURE_MISSING);
		assert_int_equal(f.errnum, ENOSYS);
	}
}

/* A filter below us can make a call "succeed". */
static void test_lies_are_seen_through(void **state)
{
	static const struct {
		enum feature_id id;
		long nr;
	} cases[] = {
		{FEATURE_LANDLOCK, SYS_landlock_restrict_self},
		{FEATURE_NET_NS, SYS_unshare},
		{FEATURE_IPC_NS, SYS_unshare},
		{FEATURE_PID_NS, SYS_unshare},
		{FEATURE_SECCOMP, SYS_seccomp},
		{FEATURE_CLOSE_RANGE, SYS_close_range},
		{FEATURE_OPENAT2, SYS_openat2},
		{FEATURE_OVERLAY, SYS_mount},
		{FEATURE_OVERLAY, SYS_unshare},
		{FEATURE_MOUNT_NS, SYS_unshare},
		{FEATURE_MOUNT_API, SYS_mount_setattr},
		{FEATURE_MOUNT_API, SYS_move_mount},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct feature f;

		if (!has(cases[i].id)) {
			print_message("SKIP feature %d: not here\n", cases[i].id);
			continue;
		}
		f = probe_under(cases[i].nr, LIE, cases[i].id);
		if (f.state != FEATURE_MISSING)
			fail_msg("feature %d believes a false success of call %ld", cases[i].id,
				 cases[i].nr);
	}
}

/* Nobody ever answers the notification, so the call never returns. */
static void test_a_hanging_probe_ends(void **state)
{
	struct feature f;

	(void)state;
	if (!has(FEATURE_SECCOMP_NOTIFY)) {
		print_message("SKIP hang: no seccomp notification here\n");
		skip();
	}
	f = probe_under(SYS_openat2, SECCOMP_RET_USER_NOTIF, FEATURE_OPENAT2);
	assert_int_equal(f.state, FEATURE_MISSING);
	assert_int_equal(f.errnum, ETIMEDOUT);
}

static void test_probes_leave_no_child(void **state)
{
	struct feature f;

	(void)state;
	for (int id = 0; id < FEATURE_COUNT; id++)
		features_probe((enum feature_id)id, &f);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

/* ---- the verb ---- */

/* Runs the verb with its stdout in a file; returns its exit status and what it printed. */
static int run_doctor(char *const *args, char *out, size_t size)
{
	int argc = 0, status, fd = memfd_create("out", MFD_CLOEXEC);
	ssize_t n;
	pid_t pid;

	while (args[argc])
		argc++;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(fd, 1);
		exit(cmd_doctor(argc, (char **)args));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	n = pread(fd, out, size - 1, 0);
	assert_true(n >= 0);
	out[n] = '\0';
	close(fd);
	return WEXITSTATUS(status);
}

static void test_json(void **state)
{
	static char out[65536];
	char *const args[] = {(char *)"doctor", (char *)"--json", NULL};
	int status = run_doctor(args, out, sizeof(out));
	json_t *o = json_loads(out, JSON_REJECT_DUPLICATES, NULL), *row, *levels;
	size_t i;

	(void)state;
	assert_non_null(o);
	levels = json_object_get(o, "levels");
	assert_int_equal(status, json_is_true(json_object_get(levels, "container")) ? 0 : 1);
	assert_true(json_array_size(json_object_get(o, "checks")) >= FEATURE_COUNT);
	json_array_foreach (json_object_get(o, "checks"), i, row) {
		bool ok = str_equal(json_string_value(json_object_get(row, "state")), "ok");

		assert_int_equal(json_is_null(json_object_get(row, "remedy")), ok);
		assert_int_equal(json_is_null(json_object_get(row, "consequence")), ok);
		assert_non_null(json_string_value(json_object_get(row, "name")));
	}
	json_decref(o);
}

static void test_table_without_a_terminal_is_plain(void **state)
{
	static char out[65536];
	char *const args[] = {(char *)"doctor", NULL};

	(void)state;
	run_doctor(args, out, sizeof(out));
	assert_null(strchr(out, '\033'));
	assert_non_null(strstr(out, "Landlock"));
	assert_non_null(strstr(out, "level container"));
}

static void test_bad_arguments(void **state)
{
	static char out[4096];
	char *const args[] = {(char *)"doctor", (char *)"--jsn", NULL};
	char *const help[] = {(char *)"doctor", (char *)"--help", NULL};

	(void)state;
	assert_int_equal(run_doctor(args, out, sizeof(out)), 125);
	assert_int_equal(run_doctor(help, out, sizeof(out)), 0);
	assert_true(str_starts(out, "usage: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_calls_are_missing),
		cmocka_unit_test(test_lies_are_seen_through),
		cmocka_unit_test(test_a_hanging_probe_ends),
		cmocka_unit_test(test_probes_leave_no_child),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_table_without_a_terminal_is_plain),
		cmocka_unit_test(test_bad_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
