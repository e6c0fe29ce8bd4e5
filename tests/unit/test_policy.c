/* Policy files: what is taken, what is refused and where the blame goes. */
#include "base/auto.h"
#include "base/str.h"
#include "policy/policy.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int parse(const char *text, struct policy *p, struct err *e)
{
	return policy_parse(&(struct policy_text){"p.yaml", "/srv/p", text, strlen(text)}, p, e);
}

static int parse_bytes(const char *text, size_t len, struct policy *p, struct err *e)
{
	return policy_parse(&(struct policy_text){"p", "/", text, len}, p, e);
}

static struct policy parsed(const char *text)
{
	struct policy p;
	struct err e = {0};

	if (parse(text, &p, &e) < 0)
		fail_msg("%s", e.msg);
	return p;
}

struct bad_case {
	const char *text;
	const char *start; /* of the message */
	const char *part;  /* in the message */
};

static void check_bad(const struct bad_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct policy p = {.file = (char *)"untouched"};
		struct err e = {0};

		if (parse(cases[i].text, &p, &e) == 0)
			fail_msg("taken: %s", cases[i].text);
		assert_string_equal(p.file, "untouched");
		if (!str_starts(e.msg, cases[i].start) || !strstr(e.msg, cases[i].part))
			fail_msg("'%s': %s", cases[i].text, e.msg);
		assert_null(strchr(e.msg, '\n'));
	}
}

static void assert_pair(const struct policy *p, size_t i, const char *name, const char *value)
{
	assert_true(i < p->names.count);
	assert_string_equal(p->names.items[i], name);
	assert_string_equal(p->values.items[i], value);
}

static void test_whole_file(void **state)
{
	struct policy p = parsed("# comment\n"
				 "description: a test\n"
				 "level: container\n"
				 "limits:\n"
				 "  memory: 512M\n"
				 "  timeout: 1.5s\n"
				 "pids: 32\n"
				 "cpus: 0.5\n"
				 "empty: true\n"
				 "require: [cgroup, landlock]\n"
				 "env: {A: '1', B: \"x\\ny\"}\n");

	(void)state;
	assert_string_equal(p.description, "a test");
	assert_int_equal(p.spec.limits.memory_bytes, 512 << 20);
	assert_int_equal(p.spec.limits.timeout_ms, 1500);
	assert_int_equal(p.spec.limits.pids, 32);
	assert_int_equal(p.spec.limits.cpus_milli, 500);
	assert_true(p.spec.empty);
	assert_int_equal(p.names.count, 10);
	assert_pair(&p, 0, "level", "container");
	assert_pair(&p, 1, "memory", "512M");
	assert_int_equal(p.lines[1], 5);
	assert_pair(&p, 6, "require", "cgroup");
	assert_pair(&p, 7, "require", "landlock");
	assert_pair(&p, 8, "env", "A=1");
	assert_pair(&p, 9, "env", "B=x\ny");
	assert_true(p.spec.required_layers & LAYER_BIT(LAYER_CGROUP));
	policy_done(&p);
}

/* The serialised form, fed to spec_set again, gives the same spec. */
static void test_pairs_rebuild_spec(void **state)
{
	struct policy p = parsed("memory: 300M\nmounts: [a:/b]\nenv: [A=1, HOME]\ntools: true\n");
	struct sandbox_spec s;
	struct err e = {0};
	char one[4096], two[4096];

	(void)state;
	spec_init(&s);
	for (size_t i = 0; i < p.names.count; i++)
		assert_int_equal(spec_set(&s, p.names.items[i], p.values.items[i], &e), 0);
	assert_int_equal(spec_finish(&s, &e), 0);
	for (size_t i = 0; i < spec_field_count; i++) {
		bool a = spec_format(&p.spec, &spec_fields[i], one, sizeof(one));

		assert_int_equal(spec_format(&s, &spec_fields[i], two, sizeof(two)), a);
		if (a)
			assert_string_equal(one, two);
	}
	spec_done(&s);
	policy_done(&p);
}

static void test_lists(void **state)
{
	struct policy p = parsed("mounts:\n"
				 "  - /data:/data\n"
				 "  - {source: /a b, target: /c/, mode: rw}\n"
				 "  - source: rel\n"
				 "    target: /d\n"
				 "forbid: /one\n"
				 "optional: []\n"
				 "env: [A=1, B]\n"
				 "files: {in.txt: /etc/hosts, b: c}\n");

	(void)state;
	assert_pair(&p, 0, "mount", "/data:/data:ro");
	assert_pair(&p, 1, "mount", "/a b:/c:rw");
	assert_pair(&p, 2, "mount", "/srv/p/rel:/d:ro");
	assert_pair(&p, 3, "forbid", "/one");
	assert_pair(&p, 4, "env", "A=1");
	assert_pair(&p, 5, "env", "B");
	assert_pair(&p, 6, "file", "in.txt=/etc/hosts");
	assert_pair(&p, 7, "file", "b=/srv/p/c");
	assert_int_equal(p.names.count, 8);
	policy_done(&p);
	p = parsed("mount: {source: /x, target: /y}\n");
	assert_pair(&p, 0, "mount", "/x:/y:ro");
	policy_done(&p);
}

static void test_relative_paths(void **state)
{
	struct policy p =
		parsed("workspace: ../work\nimage: ./root\nmount_read: [a]\nmount_write: b\n"
		       "forbid: [.env]\nmount: ./x:/x:rw\nworkdir: sub\n");

	(void)state;
	assert_pair(&p, 0, "workspace", "/srv/p/../work");
	assert_pair(&p, 1, "image", "/srv/p/./root");
	assert_pair(&p, 2, "mount_read", "/srv/p/a");
	assert_pair(&p, 3, "mount_write", "/srv/p/b");
	assert_pair(&p, 4, "forbid", "/srv/p/.env");
	assert_pair(&p, 5, "mount", "/srv/p/./x:/x:rw");
	/* a path inside the sandbox is not the host's */
	assert_pair(&p, 6, "workdir", "sub");
	policy_done(&p);
	p = parsed("image: debian:12\n");
	assert_pair(&p, 0, "image", "debian:12");
	policy_done(&p);
	p = parsed("image: host\n");
	assert_pair(&p, 0, "image", "host");
	policy_done(&p);
}

static void test_capture_without_json(void **state)
{
	struct policy p = parsed("capture: ['*.csv']\n");

	(void)state;
	assert_false(p.spec.json);
	policy_done(&p);
}

static void test_bad_keys(void **state)
{
	static const struct bad_case cases[] = {
		{"memroy: 1G\n", "p.yaml:1: ", "did you mean 'memory'?"},
		{"\n\nzzzzzzzzzz: 1\n", "p.yaml:3: ", "unknown key 'zzzzzzzzzz'"},
		{"json: true\n", "p.yaml:1: ", "command line only"},
		{"policy: other\n", "p.yaml:1: ", "command line only"},
		{"cpu-time: 1s\n", "p.yaml:1: ", "did you mean 'cpu_time'?"},
		{"Memory: 1G\n", "p.yaml:1: ", "unknown key"},
		{"memory: 1G\nmemory: 1G\n", "p.yaml:2: ", "memory: is given twice"},
		{"memory: 1G\nlimits:\n  memory: 1G\n", "p.yaml:3: ", "given twice"},
		{"mount: a:/b\nmounts: a:/c\n", "p.yaml:2: ", "mount: is given twice"},
		{"limits: {pids: 1}\nlimits: {cpus: 1}\n", "p.yaml:2: ", "limits: is given twice"},
		{"description: a\ndescription: b\n", "p.yaml:2: ", "given twice"},
		{"limits:\n  net: none\n", "p.yaml:2: ", "'net' is not a limit"},
		{"limits:\n  limits: {}\n", "p.yaml:2: ", "unknown key 'limits'"},
		{"limits:\n  description: x\n", "p.yaml:2: ", "unknown key 'description'"},
		{"? [a]\n: b\n", "p.yaml:1: ", "a key must be a word, not a list"},
		{"? {a: b}\n: b\n", "p.yaml:1: ", "a key must be a word, not a mapping"},
		{"\"\\e[31m\": b\n", "p.yaml:1: ", "control bytes"},
	};

	(void)state;
	check_bad(cases, ARRAY_LEN(cases));
}

static void test_bad_types(void **state)
{
	static const struct bad_case cases[] = {
		{"memory: [1G]\n", "p.yaml:1: ", "memory: must be a single value, not a list"},
		{"memory: {a: 1}\n", "p.yaml:1: ", "not a mapping"},
		{"memory:\n", "p.yaml:1: ", "memory: has no value"},
		{"memory: ~\n", "p.yaml:1: ", "memory: has no value"},
		{"net: null\n", "p.yaml:1: ", "net: has no value"},
		{"workspace: ''\n", "p.yaml:1: ", "must not be empty"},
		{"allow:\n  - \n", "p.yaml:2: ", "allow: has no value"},
		{"env: [[a]]\n", "p.yaml:1: ", "not a list"},
		{"env: [{A: b}]\n", "p.yaml:1: ", "not a mapping"},
		{"env: {A: [b]}\n", "p.yaml:1: ", "not a list"},
		{"env: {A: }\n", "p.yaml:1: ", "not nothing"},
		{"env: {A: 1, A: 2}\n", "p.yaml:1: ", "A is given twice"},
		{"env: {'': x}\n", "p.yaml:1: ", "name cannot be used"},
		{"env: {'A=B': x}\n", "p.yaml:1: ", "name cannot be used"},
		{"env: ['=x']\n", "p.yaml:1: ", "env"},
		{"require: {a: b}\n", "p.yaml:1: ", "require: must be a list, not a mapping"},
		{"limits: 5\n", "p.yaml:1: ", "limits: must be a mapping, not a single value"},
		{"limits:\n", "p.yaml:1: ", "not nothing"},
		{"description: [a]\n", "p.yaml:1: ", "description: must be a single value"},
		{"mounts:\n  - {source: /a}\n", "p.yaml:2: ", "needs source and target"},
		{"mounts:\n  - {source: /a, target: /b, x: y}\n",
		 "p.yaml:2: ", "source, target and mode"},
		{"mounts:\n  - {source: /a, source: /b, target: /b}\n", "p.yaml:2: ", "once"},
		{"mounts:\n  - {source: /a, target: /b, mode: wr}\n",
		 "p.yaml:2: ", "neither ro nor rw"},
		{"mounts:\n  - {source: /a, target: '/b:/c'}\n", "p.yaml:2: ", "contain ':'"},
		{"mounts:\n  - {source: [a], target: /b}\n", "p.yaml:2: ", "source: must be"},
		{"mounts: [[a]]\n", "p.yaml:1: ", "not a list"},
		{"- a\n", "p.yaml:1: ", "a policy is a mapping of keys, not a list"},
		{"word\n", "p.yaml:1: ", "not a single value"},
		{"", "p.yaml:1: ", "empty"},
		{"# only a comment\n", "p.yaml:1: ", "empty"},
		{"---\n", "p.yaml:", "not nothing"},
	};

	(void)state;
	check_bad(cases, ARRAY_LEN(cases));
}

static void test_bad_values(void **state)
{
	static const struct bad_case cases[] = {
		{"memory: 12Q\n", "p.yaml:1: ", "memory: '12Q' is not a size; try 512M"},
		{"\nmemory: 1K\n", "p.yaml:2: ", "too small"},
		{"memory: -1\n", "p.yaml:1: ", "not a size"},
		{"pids: 0\n", "p.yaml:1: ", "too small"},
		{"pids: true\n", "p.yaml:1: ", "not a whole number"},
		{"tty: yes\n", "p.yaml:1: ", "neither true nor false"},
		{"tty: 1\n", "p.yaml:1: ", "neither true nor false"},
		{"level: jail\n", "p.yaml:1: ", "container"},
		{"level: vm\n", "p.yaml:1: ", "not built yet"},
		{"net: public\nnet_group: g\n", "p.yaml:2: ", "net_group: needs net isolated"},
		{"net: isolated\nnet_group: a b\n", "p.yaml:2: ", "net_group: wants"},
		{"net_rate: 1Mbyte\n", "p.yaml:1: ", "net_rate: '1Mbyte' is not a rate"},
		{"net: none\nnet_rate: 1M\n", "p.yaml:2: ", "net_rate: net is none"},
		{"deny: [a.com]\n", "p.yaml:1: ", "deny: net is none"},
		{"net_log: true\n", "p.yaml:1: ", "net_log"},
		{"memory: 1G\nrequire: [a]\n", "p.yaml:2: ", "'a' is not a layer"},
		{"empty: true\nworkspace: /x\n", "p.yaml:1: ", "cannot be combined"},
		{"net: none\nallow: [a.com]\n", "p.yaml:2: ", "allow: net is none"},
		{"mount: /a\n", "p.yaml:1: ", "SRC:DST"},
		{"mount: /a:/proc\n", "p.yaml:1: ", "belongs to the sandbox"},
		{"mount: /a:/b/../c\n", "p.yaml:1: ", "without '..'"},
		{"mount: ~/x:/y\n", "p.yaml:1: ", "'~' is not expanded"},
		{"workspace: ~/x\n", "p.yaml:1: ", "'~' is not expanded"},
		{"files: [a]\n", "p.yaml:1: ", "NAME=PATH"},
		{"hostname: 'a b'\n", "p.yaml:1: ", "hostname"},
		{"hostname: |\n  a\n  b\n", "p.yaml:1: ", "must be one line"},
		{"hostname: \"a\\0b\"\n", "p.yaml:1: ", "control bytes"},
		{"hostname: \"a\\x1b\"\n", "p.yaml:1: ", "control bytes"},
	};

	(void)state;
	check_bad(cases, ARRAY_LEN(cases));
}

static void test_bad_yaml(void **state)
{
	static const struct bad_case cases[] = {
		{"memory: &a 1G\n", "p.yaml:1: ", "anchors"},
		{"memory: 1G\nenv: &a [x]\n", "p.yaml:2: ", "anchors"},
		{"memory: *a\n", "p.yaml:1: ", "anchors"},
		{"memory: !!str 1G\n", "p.yaml:1: ", "tags"},
		{"memory: !foo 1G\n", "p.yaml:1: ", "tags"},
		{"<<: *x\n", "p.yaml:1: ", ""},
		{"memory: 1G\n---\npids: 1\n", "p.yaml:2: ", "one document"},
		{"env: [A=1\n", "p.yaml:2: ", "not YAML"},
		{"memory: 1G\n pids: 1\n", "p.yaml:1: ", "'1G pids' is not a size"},
		{"\tmemory: 1G\n", "p.yaml:1: ", "not YAML"},
		{"memory: 'x\n", "p.yaml:", "not YAML"},
		{"memory: \x01\n", "p.yaml:1: ", "control characters"},
		{"memory: \xff\xfe\n", "p.yaml:1: ", "UTF-8"},
		{"%TAG ! x\n---\nmemory: 1G\n", "p.yaml:", "tags"},
	};

	(void)state;
	check_bad(cases, ARRAY_LEN(cases));
}

static void test_nul_and_utf16(void **state)
{
	static const char nul[] = "memory: 1G\n\0pids: 1\n";
	static const char wide[] = "\xff\xfem\0e\0m\0:\0 \0"
				   "1\0";
	struct policy p;
	struct err e = {0};

	(void)state;
	assert_int_equal(parse_bytes(nul, sizeof(nul) - 1, &p, &e), -1);
	assert_int_equal(parse_bytes(wide, sizeof(wide) - 1, &p, &e), -1);
}

/* Nesting and aliases are refused where they begin, so neither can cost anything. */
static void test_bombs(void **state)
{
	size_t size = 1 << 20;
	auto_free char *text = must_alloc(malloc(size));
	struct policy p;
	struct err e = {0};

	(void)state;
	memset(text, '[', size);
	memcpy(text, "env: ", 5);
	assert_int_equal(parse_bytes(text, size, &p, &e), -1);
	assert_non_null(strstr(e.msg, "p:1: "));
	memset(text, '{', size);
	assert_int_equal(parse_bytes(text, size, &p, &e), -1);
	assert_int_equal(parse("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", &p, &e), -1);
}

static void test_long_value_in_message(void **state)
{
	static char text[20000];
	struct policy p;
	struct err e = {0};

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "memory: ", 8);
	assert_int_equal(parse(text, &p, &e), -1);
	assert_true(str_starts(e.msg, "p.yaml:1: memory: 'xxx"));
}

/* ---- files ---- */

static int in_new_directory(void **state)
{
	char *dir = str_copy("/tmp/cloche-policy-XXXXXX");

	*state = dir;
	return !mkdtemp(dir) || chdir(dir) < 0 ? -1 : 0;
}

static int remove_directory(void **state)
{
	auto_free char *command = str_format("rm -rf '%s'", (char *)*state);
	int rc = chdir("/") < 0 || system(command) != 0 ? -1 : 0;

	free(*state);
	return rc;
}

static void write_file(const char *path, const char *text, size_t len)
{
	auto_close int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(write(fd, text, len), len);
}

static void test_load(void **state)
{
	auto_free char *expected = str_format("%s/sub/x", (char *)*state);
	struct policy p;
	struct err e = {0};

	assert_int_equal(mkdir("sub", 0755), 0);
	write_file("sub/p.yaml", "workspace: x\n", 13);
	assert_int_equal(policy_load("sub/p.yaml", &p, &e), 0);
	assert_string_equal(p.spec.workspace, expected);
	policy_done(&p);
	assert_int_equal(symlink("sub/p.yaml", "link.yaml"), 0);
	assert_int_equal(policy_load("./link.yaml", &p, &e), 0);
	policy_done(&p);
}

static void assert_load_fails(const char *name, enum err_kind kind, const char *part)
{
	struct policy p;
	struct err e = {0};

	assert_int_equal(policy_load(name, &p, &e), -1);
	assert_int_equal(e.kind, kind);
	assert_true(str_starts(e.msg, name));
	assert_non_null(strstr(e.msg, part));
}

static void test_load_fails(void **state)
{
	static char big[(1 << 20) + 1];

	(void)state;
	memset(big, '#', sizeof(big));
	write_file("big.yaml", big, sizeof(big));
	write_file("max.yaml", big, sizeof(big) - 1);
	assert_int_equal(mkfifo("fifo.yaml", 0600), 0);
	/* a file of the current directory never stands in for a shipped policy */
	write_file("mine", "memory: 1G\n", 11);
	assert_load_fails("nope.yaml", ERR_NOT_FOUND, "cannot open");
	assert_load_fails("mine", ERR_NOT_FOUND, "write ./mine");
	assert_load_fails("", ERR_NOT_FOUND, "");
	assert_load_fails("/tmp", ERR_INVALID, "not a regular file");
	assert_load_fails("fifo.yaml", ERR_INVALID, "not a regular file");
	assert_load_fails("/dev/zero", ERR_INVALID, "not a regular file");
	assert_load_fails("big.yaml", ERR_INVALID, "larger than 1 MB");
	assert_load_fails("max.yaml", ERR_INVALID, "empty");
}

/* From the top of the tree, where the suite is run. */
static void test_shipped(void **state)
{
	static const char *const names[] = {"strict", "code", "build", "agent"};

	(void)state;
	if (access("policies", F_OK) < 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *file = str_format("policies/%s.yaml", names[i]);
		struct policy p;
		struct err e = {0};

		if (policy_load(file, &p, &e) < 0 || policy_judge(&p, &e) < 0)
			fail_msg("%s", e.msg);
		assert_non_null(p.description);
		policy_done(&p);
	}
}

static void test_manual_has_every_key(void **state)
{
	FILE *f = fopen("man/cloche-policy.5", "r");
	auto_free char *text = must_alloc(calloc(1, 1 << 17));

	(void)state;
	if (!f)
		skip();
	assert_true(fread(text, 1, (1 << 17) - 1, f) > 0);
	fclose(f);
	for (size_t i = 0; i < spec_field_count; i++) {
		auto_free char *plain = str_format("\n.It Cm %s\n", spec_fields[i].name);
		auto_free char *first = str_format("\n.It Cm %s ,", spec_fields[i].name);
		auto_free char *second = str_format(" , %s\n", spec_fields[i].name);

		if (spec_fields[i].flags & FIELD_CLI_ONLY)
			continue;
		if (!strstr(text, plain) && !strstr(text, first) && !strstr(text, second))
			fail_msg("cloche-policy(5) lacks %s", spec_fields[i].name);
	}
}

static void test_judge(void **state)
{
	struct policy p = parsed("\nmount: /etc/passwd:/x\n");
	struct err e = {0};

	(void)state;
	assert_int_equal(policy_judge(&p, &e), -1);
	assert_int_equal(e.kind, ERR_DENIED);
	assert_true(str_starts(e.msg, "p.yaml:2: mount: '/etc/passwd' is forbidden"));
	policy_done(&p);
	p = parsed("mount: [/nowhere/at/all:/x, /usr:/y]\nfiles: {a: /usr/nothing}\n");
	assert_int_equal(policy_judge(&p, &e), 0);
	policy_done(&p);
	p = parsed("workspace: /\n");
	assert_int_equal(policy_judge(&p, &e), -1);
	policy_done(&p);
}

static void test_explain(void **state)
{
	struct policy p = parsed("description: words\nmemory: 64M\nenv: {SECRET: hunter2}\n"
				 "mounts: [/usr/share:/s, /etc/shadow:/t]\n");
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	(void)state;
	policy_explain(&p, to);
	fclose(to);
	assert_non_null(strstr(text, "words"));
	assert_non_null(strstr(text, "64M"));
	assert_non_null(strstr(text, "/usr/share at /s, read-only"));
	assert_non_null(strstr(text, "REFUSED on this host"));
	assert_non_null(strstr(text, "SECRET, set by the policy"));
	assert_null(strstr(text, "hunter2"));
	free(text);
	policy_done(&p);
}

#define IN_DIRECTORY(fn) cmocka_unit_test_setup_teardown(fn, in_new_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: later tests change the directory */
		cmocka_unit_test(test_shipped),
		cmocka_unit_test(test_manual_has_every_key),
		cmocka_unit_test(test_whole_file),
		cmocka_unit_test(test_pairs_rebuild_spec),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_relative_paths),
		cmocka_unit_test(test_capture_without_json),
		cmocka_unit_test(test_bad_keys),
		cmocka_unit_test(test_bad_types),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_bad_yaml),
		cmocka_unit_test(test_nul_and_utf16),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_long_value_in_message),
		IN_DIRECTORY(test_load),
		IN_DIRECTORY(test_load_fails),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_explain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
