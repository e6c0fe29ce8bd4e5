/* Files about a CA in mounts of somebody else's, as the broker writes them (provider/ns/trust_enter.c). As root. */
#include "provider/ns/ns_internal.h"

#include "base/auto.h"
#include "kern/sys.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cmocka.h>

#define FIRST "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
#define SECOND "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n"
#define USER 60123
#define PLACE "/run/cloche/"

static bool put_file(const char *path, const char *text, mode_t mode)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
	       fchmod(fd, mode) == 0;
}

/* /run is empty, and the system's bundle is what the test says. */
static bool make_mounts(const char *bundle)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0 ||
	    mount("t", "/run", "tmpfs", 0, "mode=755") < 0 ||
	    mount("t", "/etc/ssl/certs", "tmpfs", 0, "mode=755") < 0 ||
	    !put_file("/run/hidden", "HIDDEN\n", 0600))
		return false;
	if (!bundle)
		return symlink("/run/hidden", "/etc/ssl/certs/ca-certificates.crt") == 0;
	return put_file("/etc/ssl/certs/ca-certificates.crt", bundle, 0644);
}

/* Something else lies in the place. */
static bool make_foreign(void)
{
	return mkdir("/run/cloche", 0755) == 0 &&
	       mount("t", "/run/cloche", "tmpfs", 0, NULL) == 0 &&
	       put_file(PLACE "ca.crt", "THEIRS\n", 0644) &&
	       put_file(PLACE "ca-certificates.crt", "THEIRS\n", 0644);
}

/* A process with mounts of its own; -1: this user cannot have any. */
static pid_t start_elsewhere(const char *bundle, bool is_foreign)
{
	int ready[2];
	char byte = 0;
	pid_t pid;

	if (geteuid() != 0 || access("/etc/ssl/certs", F_OK) < 0)
		return -1;
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		if (!make_mounts(bundle) || (is_foreign && !make_foreign()))
			_exit(1);
		(void)!write(ready[1], "r", 1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	(void)!read(ready[0], &byte, 1);
	close(ready[0]);
	return byte == 'r' ? pid : -1;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static uint64_t show(pid_t pid, const char *pem, uint64_t dev)
{
	auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	const struct trust_visit v = {
		.pidfd = pidfd, .uid = USER, .pem = pem, .len = strlen(pem), .dev = dev};
	struct err e = {0};

	if (trust_enter(&v, &dev, &e) < 0)
		fail_msg("%s", e.msg);
	return dev;
}

static int open_there(pid_t pid, const char *path)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "/proc/%d/root%s", pid, path);
	return open(whole, O_RDONLY | O_CLOEXEC);
}

static char *read_there(pid_t pid, const char *path)
{
	auto_close int fd = open_there(pid, path);
	char *text = NULL;
	size_t len;

	assert_int_equal(io_read_whole(fd, 1 << 20, &text, &len), 0);
	return text;
}

static void test_files(void **state)
{
	static const char *const places[] = {PLACE "ca-certificates.crt",
					     "/etc/ssl/certs/ca-certificates.crt"};
	pid_t pid = start_elsewhere("SYSTEM\n", false);
	uint64_t dev;

	(void)state;
	if (pid < 0)
		skip();
	dev = show(pid, FIRST, 0);
	/* Another CA takes the place of the first, in the same files. */
	assert_int_equal(show(pid, SECOND, dev), dev);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		auto_free char *text = read_there(pid, places[i]);

		assert_string_equal(text, "SYSTEM\n\n" SECOND);
	}
	auto_free char *alone = read_there(pid, PLACE "ca.crt");

	assert_string_equal(alone, SECOND);
	end(pid);
}

static void test_reads_what_the_user_may(void **state)
{
	pid_t pid = start_elsewhere(NULL, false);

	(void)state;
	if (pid < 0)
		skip();
	show(pid, FIRST, 0);
	auto_free char *text = read_there(pid, PLACE "ca-certificates.crt");

	assert_null(strstr(text, "HIDDEN"));
	assert_non_null(strstr(text, FIRST));
	end(pid);
}

static void test_writes_only_its_own(void **state)
{
	pid_t pid = start_elsewhere("SYSTEM\n", true);
	char byte;

	(void)state;
	if (pid < 0)
		skip();
	auto_close int theirs = open_there(pid, PLACE "ca.crt");

	assert_true(theirs >= 0);
	show(pid, FIRST, 12345);
	assert_int_equal(pread(theirs, &byte, 1, 0), 1);
	assert_int_equal(byte, 'T');
	auto_free char *text = read_there(pid, PLACE "ca.crt");

	assert_string_equal(text, FIRST);
	end(pid);
}

static void test_nobody_there(void **state)
{
	const struct trust_visit v = {.pidfd = -1, .pem = FIRST, .len = strlen(FIRST)};
	uint64_t dev = 0;
	struct err e = {0};

	(void)state;
	assert_int_equal(trust_enter(&v, &dev, &e), -1);
	assert_int_equal(e.kind, ERR_SYSTEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_reads_what_the_user_may),
		cmocka_unit_test(test_writes_only_its_own),
		cmocka_unit_test(test_nobody_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
