/* The result record, parsed back by a JSON library that we did not write. */
#include "base/auto.h"
#include "base/base64.h"
#include "base/jsonw.h"
#include "model/result.h"
#include "model/spec.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define REPLACED "\xef\xbf\xbd"
/* The record owns what it points to, so its fields are not const; literals are. */
#define S(literal) ((char *)(literal))

static struct result plain(void)
{
	return (struct result){
		.id = "b1x0000000000000",
		.end.status = STATUS_EXITED,
		.end.pids_peak = -1,
		.end.disk_bytes = -1,
		.level = LEVEL_CONTAINER,
	};
}

static struct capture text(const char *s, size_t len)
{
	return (struct capture){.head = S(s), .head_len = len, .total = len};
}

/* Prints and parses; the caller owns what comes back. */
static json_t *printed(const struct result *r)
{
	char *bytes = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&bytes, &len);
	json_error_t error;
	json_t *parsed;

	assert_int_equal(result_print(r, to), 0);
	fclose(to);
	assert_true(len > 0 && bytes[len - 1] == '\n');
	assert_null(memchr(bytes, '\n', len - 1));
	parsed = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	if (!parsed)
		fail_msg("%s in %s", error.text, bytes);
	free(bytes);
	return parsed;
}

static const char *string_of(json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	assert_non_null(s);
	return s;
}

static void test_plain_run_has_every_field(void **state)
{
	static const char *const keys[] = {
		"id",
		"status",
		"exit_code",
		"signal",
		"success",
		"fault",
		"timed_out",
		"oom_killed",
		"limits_hit",
		"stdout",
		"stderr",
		"stdout_truncated",
		"stderr_truncated",
		"encoding",
		"duration_ms",
		"setup_ms",
		"cpu_ms",
		"max_rss_bytes",
		"pids_peak",
		"disk_bytes",
		"net_tx_bytes",
		"net_rx_bytes",
		"files",
		"changes",
		"changes_truncated",
		"changes_incomplete",
		"denials",
		"layers",
		"notes",
	};
	struct result r = plain();
	json_t *o;

	(void)state;
	r.out = text("42\n", 3);
	r.end.duration_ms = 3.125;
	o = printed(&r);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!json_object_get(o, keys[i]))
			fail_msg("%s is not in the record", keys[i]);
	assert_int_equal(json_object_size(o), ARRAY_LEN(keys));
	assert_string_equal(string_of(o, "status"), "exited");
	assert_string_equal(string_of(o, "stdout"), "42\n");
	assert_string_equal(string_of(o, "encoding"), "utf-8");
	assert_true(json_is_true(json_object_get(o, "success")));
	assert_true(json_is_null(json_object_get(o, "signal")));
	assert_true(json_is_null(json_object_get(o, "pids_peak")));
	assert_true(json_is_null(json_object_get(o, "disk_bytes")));
	assert_int_equal(json_integer_value(json_object_get(o, "exit_code")), 0);
	assert_true(json_real_value(json_object_get(o, "duration_ms")) == 3.125);
	json_decref(o);
}

static void test_signal_and_status(void **state)
{
	struct result r = plain();
	json_t *o;

	(void)state;
	r.end.status = STATUS_OOM;
	r.end.oom_killed = true;
	r.end.exit_code = -1;
	r.end.signal = SIGKILL;
	r.end.pids_peak = 0;
	r.end.disk_bytes = 5000000000;
	r.end.limits_hit = HIT_PIDS | HIT_FILE_SIZE;
	o = printed(&r);
	assert_true(json_is_null(json_object_get(o, "exit_code")));
	assert_int_equal(json_integer_value(json_object_get(o, "signal")), SIGKILL);
	assert_int_equal(json_integer_value(json_object_get(o, "pids_peak")), 0);
	assert_true(json_integer_value(json_object_get(o, "disk_bytes")) == 5000000000);
	assert_true(json_is_true(json_object_get(o, "oom_killed")));
	assert_true(json_is_false(json_object_get(o, "timed_out")));
	assert_true(json_is_false(json_object_get(o, "success")));
	assert_int_equal(json_array_size(json_object_get(o, "limits_hit")), 2);
	assert_string_equal(json_string_value(json_array_get(json_object_get(o, "limits_hit"), 1)),
			    "file_size");
	json_decref(o);
}

static void test_exit_statuses(void **state)
{
	static const struct {
		enum status status;
		int exit_code, signal, want;
	} cases[] = {
		{STATUS_EXITED, 0, 0, 0},
		{STATUS_EXITED, 127, 0, 127},
		{STATUS_SIGNALED, -1, SIGSEGV, 139},
		{STATUS_TIMEOUT, -1, SIGKILL, 124},
		{STATUS_OOM, -1, SIGKILL, 137},
		{STATUS_CPU_TIME, -1, SIGKILL, 137},
		{STATUS_CPU_TIME, -1, SIGXCPU, 152},
		{STATUS_OUTPUT_LIMIT, -1, SIGKILL, 137},
		{STATUS_KILLED, -1, SIGTERM, 143},
		{STATUS_KILLED, -1, 0, 137},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct result r = plain();

		r.end.status = cases[i].status;
		r.end.exit_code = cases[i].exit_code;
		r.end.signal = cases[i].signal;
		assert_int_equal(outcome_exit_status(&r.end), cases[i].want);
	}
}

static void test_hostile_output(void **state)
{
	static const struct {
		const char *in;
		size_t len;
		const char *want;
	} cases[] = {
		{"a\"b\\c/d", 7, "a\"b\\c/d"},
		{"\x1b[2J\x07\x7f", 6, "\x1b[2J\x07\x7f"},
		{"\xc2\x9b"
		 "31m",
		 5,
		 "\xc2\x9b"
		 "31m"},
		{"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 11, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"},
		{"\xff\xfe", 2, REPLACED REPLACED},
		{"\xc0\xaf", 2, REPLACED REPLACED},		 /* overlong */
		{"\xed\xa0\x80", 3, REPLACED REPLACED REPLACED}, /* surrogate */
		{"\xf4\x90\x80\x80", 4, REPLACED REPLACED REPLACED REPLACED},
		{"x\xe2\x82", 3, "x" REPLACED REPLACED}, /* ends too early */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct result r = plain();
		json_t *o;

		r.err = text(cases[i].in, cases[i].len);
		o = printed(&r);
		assert_string_equal(string_of(o, "stderr"), cases[i].want);
		json_decref(o);
	}
}

static void test_control_bytes_do_not_reach_a_terminal(void **state)
{
	char *bytes = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&bytes, &len);
	struct result r = plain();

	(void)state;
	r.out = text("\x1b]0;x\x07\x7f\xc2\x9b\0end", 14);
	assert_int_equal(result_print(&r, to), 0);
	fclose(to);
	for (size_t i = 0; i + 1 < len; i++)
		assert_true((unsigned char)bytes[i] >= 0x20 && (unsigned char)bytes[i] < 0x7f);
	assert_non_null(strstr(bytes, "\\u001b]0;x\\u0007\\u007f\\u009b\\u0000end"));
	free(bytes);
}

static void test_truncated_stream(void **state)
{
	struct result r = plain();
	json_t *o;

	(void)state;
	r.out = (struct capture){
		.head = S("begin"), .head_len = 5, .tail = S("end"), .tail_len = 3, .total = 1000};
	r.err = (struct capture){.head = S("x"), .head_len = 1, .total = 4};
	o = printed(&r);
	assert_string_equal(string_of(o, "stdout"), "begin\n[... 992 bytes left out ...]\nend");
	assert_string_equal(string_of(o, "stderr"), "x\n[... 3 bytes left out ...]\n");
	assert_true(json_is_true(json_object_get(o, "stdout_truncated")));
	assert_true(json_is_true(json_object_get(o, "stderr_truncated")));
	json_decref(o);
}

/* The cut fell into the middle of a character on both sides: no replacement marks appear. */
static void test_truncation_keeps_whole_characters(void **state)
{
	struct result r = plain();
	json_t *o;

	(void)state;
	r.out = (struct capture){.head = S("a\xe2\x82"),
				 .head_len = 3,
				 .tail = S("\x9f\x98\x80z"),
				 .tail_len = 4,
				 .total = 100};
	o = printed(&r);
	assert_string_equal(string_of(o, "stdout"), "a\n[... 98 bytes left out ...]\nz");
	json_decref(o);
}

static void test_layers(void **state)
{
	struct result r = plain();
	json_t *o, *layers;

	(void)state;
	r.proven = LAYER_BIT(LAYER_USER_NS) | LAYER_BIT(LAYER_SECCOMP) | LAYER_BIT(LAYER_CAPS);
	r.missing = LAYER_BIT(LAYER_LANDLOCK) | LAYER_BIT(LAYER_MEMORY);
	strcpy(r.seccomp, "default@sha256:00");
	r.landlock_abi = 7; /* known to the kernel, but not proven */
	r.cgroup = "v2";
	r.denial_kinds[0] = "syscall";
	r.denial_kinds[1] = "connect";
	o = printed(&r);
	layers = json_object_get(o, "layers");
	assert_string_equal(string_of(layers, "level"), "container");
	assert_true(json_is_true(json_object_get(layers, "user_ns")));
	assert_true(json_is_false(json_object_get(layers, "pid_ns")));
	assert_true(json_is_false(json_object_get(layers, "no_new_privs")));
	assert_string_equal(string_of(layers, "seccomp"), "default@sha256:00");
	assert_string_equal(string_of(layers, "caps"), "none");
	assert_string_equal(string_of(layers, "cgroup"), "v2");
	assert_int_equal(json_integer_value(json_object_get(layers, "landlock_abi")), 0);
	assert_int_equal(json_array_size(json_object_get(layers, "denials")), 2);
	assert_int_equal(json_array_size(json_object_get(layers, "recycled")), 0);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(layers, "missing"), 0)),
		"landlock");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(layers, "missing"), 1)), "memory");
	json_decref(o);
}

static void test_unproven_layers_are_not_claimed(void **state)
{
	struct result r = plain();
	json_t *o, *layers;

	(void)state;
	strcpy(r.seccomp, "default@sha256:00");
	o = printed(&r);
	layers = json_object_get(o, "layers");
	assert_true(json_is_null(json_object_get(layers, "seccomp")));
	assert_true(json_is_null(json_object_get(layers, "caps")));
	json_decref(o);
}

static void test_lists(void **state)
{
	struct captured_file files[] = {
		{.path = S("out\n.csv"),
		 .data = S("a,b\n1,2\n\0\xff"),
		 .size = 10,
		 .real_size = 10},
		{.path = S("big"), .data = S("x"), .size = 1, .real_size = 9000, .truncated = true},
	};
	struct change changes[] = {
		{.path = S("x.py"), .kind = "modified"},
		{.path = S(".git/config"), .kind = "skipped", .note = "control file"},
	};
	struct denial denials[] = {{.what = "resolve", .target = "example.com", .count = 3}};
	struct result r = plain();
	json_t *o, *row;

	(void)state;
	r.files = files, r.file_count = 2;
	r.changes = changes, r.change_count = 2, r.changes_cut = true;
	r.denials = denials, r.denial_count = 1;
	r.interpreter = "/usr/bin/python3";
	r.end.exec_errno = ENOENT;
	r.notes[0] = "one";
	r.notes[1] = "two";
	o = printed(&r);
	row = json_array_get(json_object_get(o, "files"), 0);
	assert_string_equal(string_of(row, "path"), "out\n.csv");
	assert_string_equal(string_of(row, "content_base64"), "YSxiCjEsMgoA/w==");
	assert_null(json_object_get(row, "truncated"));
	row = json_array_get(json_object_get(o, "files"), 1);
	assert_int_equal(json_integer_value(json_object_get(row, "size")), 9000);
	assert_true(json_is_true(json_object_get(row, "truncated")));
	row = json_array_get(json_object_get(o, "changes"), 1);
	assert_string_equal(string_of(row, "note"), "control file");
	row = json_array_get(json_object_get(o, "denials"), 0);
	assert_int_equal(json_integer_value(json_object_get(row, "count")), 3);
	assert_string_equal(string_of(o, "interpreter"), "/usr/bin/python3");
	row = json_object_get(o, "notes");
	assert_int_equal(json_array_size(row), 3);
	assert_string_equal(json_string_value(json_array_get(row, 0)),
			    "The command was not found in the sandbox.");
	assert_true(json_is_true(json_object_get(o, "changes_truncated")));
	json_decref(o);
}

/* Larger than any buffer, all 256 byte values, and every split of a run over the buffer's end. */
static void test_a_megabyte(void **state)
{
	size_t len = 1 << 20;
	char *bytes = malloc(len);
	struct result r = plain();
	json_t *o;

	(void)state;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)(i % 257);
	r.out = text(bytes, len);
	o = printed(&r);
	assert_true(json_string_length(json_object_get(o, "stdout")) > len);
	json_decref(o);
	memset(bytes, 'a', len);
	o = printed(&r);
	assert_int_equal(json_string_length(json_object_get(o, "stdout")), len);
	json_decref(o);
	free(bytes);
}

static void test_full_device_is_an_error(void **state)
{
	FILE *full = fopen("/dev/full", "w");
	struct result r = plain();

	(void)state;
	if (!full)
		skip();
	assert_int_equal(result_print(&r, full), -1);
	fclose(full);
}

static void test_numbers_that_json_lacks(void **state)
{
	struct result r = plain();
	json_t *o;

	(void)state;
	r.end.cpu_ms = 0.0 / 0.0;
	r.end.duration_ms = 1e308;
	o = printed(&r);
	assert_true(json_is_null(json_object_get(o, "cpu_ms")));
	assert_true(json_is_null(json_object_get(o, "duration_ms")));
	json_decref(o);
}

static void test_base64(void **state)
{
	static const char *const want[] = {"",	       "Zg==",	   "Zm8=",    "Zm9v",
					   "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};

	(void)state;
	for (size_t n = 0; n < ARRAY_LEN(want); n++) {
		char out[16] = "";

		assert_int_equal(base64_encode(out, "foobar", n), strlen(want[n]));
		assert_int_equal(BASE64_ROOM(n), strlen(want[n]));
		assert_string_equal(out, want[n]);
	}
}

static void test_done_frees_what_the_record_owns(void **state)
{
	struct result r = plain();

	(void)state;
	r.out = (struct capture){.head = strdup("a"), .tail = strdup("b")};
	r.err.head = strdup("c");
	r.files = calloc(1, sizeof(*r.files));
	r.files[0] = (struct captured_file){.path = strdup("p"), .data = strdup("d")};
	r.file_count = 1;
	r.changes = calloc(1, sizeof(*r.changes));
	r.changes[0].path = strdup("x");
	r.change_count = 1;
	r.denials = calloc(1, sizeof(*r.denials));
	result_done(&r);
	assert_null(r.files);
	assert_int_equal(r.change_count, 0);
	result_done(&r);
}

/* The same bytes, however the output falls into steps, and characters are not split. */
static void test_printed_in_steps(void **state)
{
	static const char *const patterns[] = {"abc", "a\xe2\x82\xac", "\xf0\x9f\x98\x80",
					       "\x00\n\"", "\xff\xe2\x82"};
	const size_t len = 100001;

	for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
		struct result r = plain();
		struct result_printing *p;
		size_t period = i == 3 ? 3 : strlen(patterns[i]), whole_len, steps = 0,
		       in_steps_len;
		char *whole, *in_steps;

		r.out = (struct capture){malloc(len), len, malloc(len), len, 5 * len};
		r.err = (struct capture){.head = malloc(len), .head_len = len, .total = len};
		for (size_t j = 0; j < len; j++)
			r.out.head[j] = r.out.tail[j] = r.err.head[j] = patterns[i][j % period];
		whole = result_text(&r, &whole_len);
		p = result_printing_new(&r);
		assert_null(r.out.head);
		while (!result_printing_step(p))
			steps++;
		assert_true(steps > 10);
		in_steps = result_printing_take(p, &in_steps_len);
		assert_int_equal(in_steps_len, whole_len);
		assert_memory_equal(in_steps, whole, whole_len + 1);
		free(whole);
		free(in_steps);
		result_printing_free(p);
		result_done(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_run_has_every_field),
		cmocka_unit_test(test_signal_and_status),
		cmocka_unit_test(test_exit_statuses),
		cmocka_unit_test(test_hostile_output),
		cmocka_unit_test(test_control_bytes_do_not_reach_a_terminal),
		cmocka_unit_test(test_truncated_stream),
		cmocka_unit_test(test_truncation_keeps_whole_characters),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_unproven_layers_are_not_claimed),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_a_megabyte),
		cmocka_unit_test(test_full_device_is_an_error),
		cmocka_unit_test(test_numbers_that_json_lacks),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_printed_in_steps),
		cmocka_unit_test(test_done_frees_what_the_record_owns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
