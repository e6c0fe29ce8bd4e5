/*
 * The profile compiler, from outside: what it says about bad profiles, and whether the programs
 * that it makes, of both architectures, decide every number as its list says.
 */
#include "base/auto.h"
#include "kern/cbpf.h"

#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_TEXT = 1 << 20, MAX_INSNS = 4096, NUMBERS = 601 };

static char tool[PATH_MAX + 64], dir[] = "/tmp/cloche-profile-XXXXXX";

struct output {
	int status;
	char *text; /* to be freed */
};

/* Runs the tool with arguments for the shell; stdout and stderr in one. */
static struct output compile(const char *args)
{
	struct output o = {.text = test_calloc(1, MAX_TEXT)};
	char command[2 * PATH_MAX];
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "'%s' %s 2>&1", tool, args);
	f = popen(command, "r");
	assert_non_null(f);
	assert_true(fread(o.text, 1, MAX_TEXT - 1, f) < MAX_TEXT - 1);
	status = pclose(f);
	assert_true(WIFEXITED(status));
	o.status = WEXITSTATUS(status);
	return o;
}

static void write_profile(const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static struct output compile_text(const char *verb, const char *text)
{
	char args[PATH_MAX + 64];

	write_profile("p.txt", text);
	snprintf(args, sizeof(args), "%s %s/p.txt", verb, dir);
	return compile(args);
}

/* ---- bad profiles ---- */

static const struct {
	const char *text, *complaint;
} bad[] = {
	{"allow read\n", "no `default`"},
	{"default errno ENOSYS\nallow reed\n", "p.txt:2: unknown system call 'reed'"},
	{"default errno ENOSYS\n\n# x\nallow\n", "p.txt:4: no system call"},
	{"default errno ENOSYS\nallow read\n\twrite\n  rite\n",
	 "p.txt:2: unknown system call 'rite'"},
	{"default allow\n", "p.txt:1: the default must be"},
	{"default errno EFOO\n", "p.txt:1: unknown errno 'EFOO'"},
	{"default errno ENOSYS\npermit read\n", "p.txt:2: 'permit' is no statement"},
	{"default errno ENOSYS\nallow read\nerrno EPERM read\n",
	 "p.txt:3: 'read' is decided already"},
	{"default errno ENOSYS\nallow read if arg0:int == 1\n", "'read' has conditions only"},
	{"default errno ENOSYS\nallow read\nforget read\n", "'read' was forgotten"},
	{"default errno ENOSYS\nforget read\n", "p.txt:2: 'read' has no rule yet"},
	{"default errno ENOSYS\nreport EPERM mount\n", "p.txt:2: `report` needs a reason"},
	{"default errno ENOSYS\nallow mount -- why\n", "p.txt:2: only `report` has a reason"},
	{"default errno ENOSYS\nallow read if arg0 == 1\n", "a test begins with"},
	{"default errno ENOSYS\nallow read if arg6:int == 1\n", "a test begins with"},
	{"default errno ENOSYS\nallow read if arg0:int < 1\n", "==, != or in expected"},
	{"default errno ENOSYS\nallow read if arg0:int == 0x100000000\n", "it can never match"},
	{"default errno ENOSYS\nallow read if arg0:int & 6 == 1\n", "it can never match"},
	{"default errno ENOSYS\nallow read if arg0:int & 0 == 0\n", "a mask of 0"},
	{"default errno ENOSYS\nallow read if arg0:int in { 1 2\n", "'}' expected"},
	{"default errno ENOSYS\nallow read if arg0:int in { }\n", "an empty set"},
	{"default errno ENOSYS\nallow read if arg0:int == TIOCFOO\n", "unknown constant 'TIOCFOO'"},
	{"default errno ENOSYS\nallow read if arg0:int == 1x\n", "is not a number"},
	{"default errno ENOSYS\nallow read if arg0:int == 1 2\n", "'2' was not expected"},
	{"include p.txt\n", "too many includes"},
	{"include absent.txt\n", "absent.txt: No such file"},
};

static void test_bad(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		struct output o = compile_text("--list", bad[i].text);

		if (o.status != 1 || !strstr(o.text, bad[i].complaint))
			fail_msg("'%s' gave status %d, '%s'", bad[i].text, o.status, o.text);
		test_free(o.text);
	}
}

/* ---- programs against lists ---- */

struct decision {
	char name[32], text[2000];
};

static const struct {
	const char *name;
	uint32_t audit;
} archs[] = {{"x86_64", AUDIT_ARCH_X86_64}, {"aarch64", AUDIT_ARCH_AARCH64}};

static unsigned read_program(const char *text, struct sock_filter *ret)
{
	unsigned n = 0, code, jt, jf, k;
	int used;

	for (; sscanf(text, "%u %u %u %u\n%n", &code, &jt, &jf, &k, &used) == 4; text += used) {
		assert_true(n < MAX_INSNS);
		ret[n++] = (struct sock_filter){(uint16_t)code, (uint8_t)jt, (uint8_t)jf, k};
	}
	assert_int_equal(*text, '\0');
	return n;
}

static void read_list(char *text, const char *arch, struct decision *ret)
{
	char *line, *rest = text;

	while ((line = strsep(&rest, "\n"))) {
		struct decision d;
		char a[16];
		int nr;

		if (sscanf(line, "%15s %d %31s %1999[^\n]", a, &nr, d.name, d.text) != 4 ||
		    strcmp(a, arch) != 0)
			continue;
		assert_in_range(nr, 0, NUMBERS - 1);
		ret[nr] = d;
	}
}

/* The list's words for a SECCOMP_RET_ value. */
static bool is_decision(uint32_t result, const char *text)
{
	static const struct {
		const char *text;
		uint32_t result;
	} words[] = {
		{"allow", SECCOMP_RET_ALLOW},
		{"errno EPERM", SECCOMP_RET_ERRNO | EPERM},
		{"errno ENOSYS", SECCOMP_RET_ERRNO | ENOSYS},
		{"errno EACCES", SECCOMP_RET_ERRNO | EACCES},
		{"errno EINVAL", SECCOMP_RET_ERRNO | EINVAL},
		{"errno EOPNOTSUPP", SECCOMP_RET_ERRNO | EOPNOTSUPP},
		{"notify", SECCOMP_RET_USER_NOTIF},
		{"report EPERM", SECCOMP_RET_USER_NOTIF | 1},
		{"report EACCES", SECCOMP_RET_USER_NOTIF | 1},
	};

	for (unsigned i = 0; i < ARRAY_LEN(words); i++)
		if (strcmp(text, words[i].text) == 0)
			return result == words[i].result;
	return false;
}

static unsigned check_numbers(const struct sock_filter *insns, unsigned count, uint32_t audit,
			      const struct decision *list)
{
	unsigned plain = 0;

	for (int nr = 0; nr < NUMBERS; nr++) {
		struct seccomp_data d = {.nr = nr, .arch = audit};
		uint32_t result = cbpf_run(insns, count, &d);
		const char *text = list[nr].name[0] ? list[nr].text : "errno ENOSYS";

		if (strchr(text, ';'))
			continue; /* depends on arguments */
		plain++;
		if (!is_decision(result, text))
			fail_msg("%d %s: %x is not '%s'", nr, list[nr].name, result, text);
		d.arch = audit ^ 1;
		assert_int_equal(cbpf_run(insns, count, &d), SECCOMP_RET_KILL_PROCESS);
	}
	return plain;
}

static void check_profile(const char *path)
{
	static struct decision list[NUMBERS];
	static struct sock_filter insns[MAX_INSNS];
	char args[PATH_MAX];

	for (unsigned a = 0; a < ARRAY_LEN(archs); a++) {
		struct output o;
		unsigned count;

		memset(list, 0, sizeof(list));
		snprintf(args, sizeof(args), "--list %s", path);
		o = compile(args);
		assert_int_equal(o.status, 0);
		read_list(o.text, archs[a].name, list);
		test_free(o.text);
		snprintf(args, sizeof(args), "--dump %s %s", archs[a].name, path);
		o = compile(args);
		assert_int_equal(o.status, 0);
		count = read_program(o.text, insns);
		test_free(o.text);
		assert_true(check_numbers(insns, count, archs[a].audit, list) > 400);
	}
}

static void test_programs(void **state)
{
	(void)state;
	check_profile("policies/seccomp/default.txt");
	check_profile("policies/seccomp/process.txt");
}

/* ---- arguments: halves, masks, order, far jumps ---- */

static const char argument_profile[] =
	"default errno ENOSYS\n"
	"define LOW 0x0f\n"
	"errno EPERM read if arg0:int == 5\n"
	"errno EACCES read if arg0:long == 0x500000006\n"
	"errno EINVAL read if arg1:long & ~LOW == 0 and arg2:int not in { 1 2 3 }\n"
	"errno ENODEV read if arg1:int & 0xf0|LOW in { 0x13 0x14 0x15 0x40 }\n"
	"errno EBUSY read if arg3:long != 0xffffffffffffffff\n"
	"allow read\n";

static const struct {
	uint64_t args[4];
	uint32_t result;
} argument_cases[] = {
	{{5, 99}, SECCOMP_RET_ERRNO | EPERM},
	{{0x100000005, 99}, SECCOMP_RET_ERRNO | EPERM},
	{{0x500000006, 99}, SECCOMP_RET_ERRNO | EACCES},
	{{0x500000005, 99}, SECCOMP_RET_ERRNO | EPERM},
	{{6, 0, 9}, SECCOMP_RET_ERRNO | EINVAL},
	{{0, 15, 9}, SECCOMP_RET_ERRNO | EINVAL},
	{{0, 16, 9}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 1, 2}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 1, 0x700000002}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 0x100000001, 9}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 0xf13}, SECCOMP_RET_ERRNO | ENODEV},
	{{0, 0x9900000014}, SECCOMP_RET_ERRNO | ENODEV},
	{{0, 0x15}, SECCOMP_RET_ERRNO | ENODEV},
	{{0, 0x40}, SECCOMP_RET_ERRNO | ENODEV},
	{{0, 0x16}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 0x12, 0, UINT64_MAX}, SECCOMP_RET_ALLOW},
	{{0, 0x12, 0, UINT32_MAX}, SECCOMP_RET_ERRNO | EBUSY},
	{{0, 0x12, 0, UINT64_MAX << 32}, SECCOMP_RET_ERRNO | EBUSY},
};

static void test_arguments(void **state)
{
	static struct sock_filter insns[MAX_INSNS];
	struct output o = compile_text("--dump x86_64", argument_profile);
	unsigned count;

	(void)state;
	assert_int_equal(o.status, 0);
	count = read_program(o.text, insns);
	test_free(o.text);
	for (unsigned i = 0; i < ARRAY_LEN(argument_cases); i++) {
		struct seccomp_data d = {.nr = 0, .arch = AUDIT_ARCH_X86_64};
		uint32_t result;

		memcpy(d.args, argument_cases[i].args, sizeof(argument_cases[i].args));
		result = cbpf_run(insns, count, &d);
		if (result != argument_cases[i].result)
			fail_msg("case %u: %x, not %x", i, result, argument_cases[i].result);
	}
}

/* A profile whose checks are far longer than a jump can reach. */
static void write_long(char *text, size_t size)
{
	static const char *const calls[] = {"read", "write", "lseek", "readv", "writev", "getpid",
					    "kill", "mmap",  "brk",   "ioctl", "fcntl",	 "flock"};
	size_t len = (size_t)snprintf(text, size, "default errno ENOSYS\n");

	for (unsigned i = 0; i < ARRAY_LEN(calls); i++) {
		len += (size_t)snprintf(text + len, size - len, "errno EPERM %s if arg0:long in {",
					calls[i]);
		for (unsigned k = 0; k < 20; k++)
			len += (size_t)snprintf(text + len, size - len, " 0x%x%08x", k + i + 1,
						k * 7);
		len += (size_t)snprintf(text + len, size - len,
					" }\nreport EACCES %s if arg1:int == %u -- because of %u\n"
					"allow %s\n",
					calls[i], i, i, calls[i]);
	}
}

static int load(const struct sock_filter *insns, unsigned count)
{
	const struct sock_fprog prog = {(unsigned short)count, (struct sock_filter *)insns};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		/* Nothing else is allowed then, such as what a sanitizer does in _exit. */
		syscall(SYS_exit_group,
			syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void test_long(void **state)
{
	static struct sock_filter insns[MAX_INSNS];
	static char text[32768];
	struct seccomp_data d = {.nr = 0, .arch = AUDIT_ARCH_X86_64};
	unsigned count, far = 0;
	struct output o;

	(void)state;
	write_long(text, sizeof(text));
	o = compile_text("--dump x86_64",
			 text); /* the tool has checked the program itself by now */
	assert_int_equal(o.status, 0);
	count = read_program(o.text, insns);
	test_free(o.text);
	assert_true(count > 700);
	for (unsigned i = 0; i < count; i++)
		far += insns[i].code == (BPF_JMP | BPF_JA) && insns[i].k > 200;
	assert_true(far > 0);
	d.args[0] = 0x1400000000 | 19 * 7;
	assert_int_equal(cbpf_run(insns, count, &d), SECCOMP_RET_ERRNO | EPERM);
	d.args[0] = 0;
	assert_int_equal(cbpf_run(insns, count, &d), SECCOMP_RET_USER_NOTIF | 1);
	d.args[1] = 1;
	assert_int_equal(cbpf_run(insns, count, &d), SECCOMP_RET_ALLOW);
	/* exit_group is not allowed there, so the kernel's yes can only be seen in another program.
	 */
	insns[0] = (struct sock_filter){BPF_LD | BPF_W | BPF_ABS, 0, 0, 0};
	insns[1] = (struct sock_filter){BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_exit_group};
	insns[2] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	assert_int_equal(load(insns, count), 0);
}

static void test_include(void **state)
{
	struct output o;

	(void)state;
	write_profile("base.txt", "default errno ENOSYS\ndefine X 7\nallow read write\n");
	o = compile_text("--list",
			 "include base.txt\nforget read\nerrno EPERM read if arg0:int == X\n"
			 "allow read\n");
	assert_int_equal(o.status, 0);
	assert_non_null(strstr(o.text, "errno EPERM if arg0:int == X; allow\n"));
	test_free(o.text);
}

static int set_up(void **state)
{
	ssize_t len = readlink("/proc/self/exe", tool, PATH_MAX);

	(void)state;
	if (len < 0 || !mkdtemp(dir))
		return -1;
	tool[len] = '\0';
	for (int i = 0; i < 3; i++) /* build/tests/unit/test_... */
		*strrchr(tool, '/') = '\0';
	strcat(tool, "/tools/seccomp-compile");
	return 0;
}

static int tear_down(void **state)
{
	static const char *const files[] = {"p.txt", "base.txt"};
	char path[PATH_MAX];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		unlink(path);
	}
	return rmdir(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad),	  cmocka_unit_test(test_programs),
		cmocka_unit_test(test_arguments), cmocka_unit_test(test_long),
		cmocka_unit_test(test_include),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
