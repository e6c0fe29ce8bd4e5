/* model: the field table, the spec and its layers. */
#include "base/auto.h"
#include "base/str.h"
#include "model/layer.h"
#include "model/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
	struct sandbox_spec *s = must_alloc(malloc(sizeof(*s)));

	spec_init(s);
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	spec_done(*state);
	free(*state);
	return 0;
}

static void set(struct sandbox_spec *s, const char *name, const char *value)
{
	struct err e = {0};

	if (spec_set(s, name, value, &e) < 0)
		fail_msg("%s=%s: %s", name, value, e.msg);
}

static void assert_refused(struct sandbox_spec *s, const char *name, const char *value,
			   enum err_kind kind)
{
	struct err e = {0};

	if (spec_set(s, name, value, &e) == 0)
		fail_msg("%s=%s was taken", name, value);
	assert_int_equal(e.kind, kind);
	assert_non_null(strstr(e.msg, name));
}

static void assert_unfinished(struct sandbox_spec *s, const char *field, enum err_kind kind)
{
	struct err e = {0};

	assert_int_equal(spec_finish(s, &e), -1);
	assert_string_equal(e.field, field);
	assert_int_equal(e.kind, kind);
	assert_true(str_starts(e.msg, field));
}

static void assert_finishes(struct sandbox_spec *s)
{
	struct err e = {0};

	if (spec_finish(s, &e) < 0)
		fail_msg("%s", e.msg);
}

static void test_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < spec_field_count; i++) {
		const struct field *f = &spec_fields[i];

		assert_ptr_equal(spec_field_find(f->name), f);
		assert_non_null(f->help);
		assert_true(f->type == FIELD_BOOL || f->metavar || str_equal(f->values[1], "true"));
		assert_int_equal(f->type == FIELD_ENUM, f->values != NULL);
		assert_int_equal(strspn(f->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(f->name));
		for (size_t j = 0; j < i; j++) {
			assert_true(!f->letter || f->letter != spec_fields[j].letter);
			/* Fields that are not built are never set, so they share a member. */
			if (!(f->flags & spec_fields[j].flags & FIELD_NOT_BUILT))
				assert_int_not_equal(f->offset, spec_fields[j].offset);
		}
	}
}

static void test_find_and_near(void **state)
{
	(void)state;
	assert_string_equal(spec_field_find("cpu-time")->name, "cpu_time");
	assert_null(spec_field_find("cpu"));
	assert_null(spec_field_find("memory_"));
	assert_null(spec_field_find(""));
	assert_string_equal(spec_field_near("memroy"), "memory");
	assert_string_equal(spec_field_near("timout"), "timeout");
	assert_null(spec_field_near("completely_else"));
	assert_null(spec_field_near("a_name_that_is_much_longer_than_any_field_could_be"));
}

static void test_defaults(void **state)
{
	struct sandbox_spec *s = *state;

	assert_finishes(s);
	assert_int_equal(s->level, LEVEL_CONTAINER);
	assert_int_equal(s->net, NET_NONE);
	assert_int_equal(s->limits.memory_bytes, 1 << 30);
	assert_int_equal(s->limits.disk_bytes, 1 << 29);
	assert_int_equal(s->limits.file_size_bytes, 0);
	assert_int_equal(s->limits.cpus_milli, 1000);
	assert_int_equal(s->limits.pids, 256);
	assert_int_equal(s->limits.timeout_ms, 60000);
	assert_int_equal(s->limits.open_files, 1024);
	assert_int_equal(s->limits.output_bytes, 1 << 20);
	assert_string_equal(s->image, "host");
	assert_true(s->required_layers & LAYER_BIT(LAYER_SECCOMP));
	assert_true(s->required_layers & LAYER_BIT(LAYER_USER_NS));
}

static void test_set(void **state)
{
	struct sandbox_spec *s = *state;

	assert_false(spec_is_set(s, "memory"));
	set(s, "memory", "64M");
	set(s, "cpu-time", "1.5s");
	set(s, "cpus", "0.25");
	set(s, "level", "process");
	set(s, "tty", "true");
	set(s, "tty", "false");
	set(s, "env", "A=1");
	set(s, "env", "B");
	set(s, "hostname", "a");
	set(s, "hostname", "b");
	assert_true(spec_is_set(s, "memory"));
	assert_false(spec_is_set(s, "disk"));
	assert_false(spec_is_set(s, "nonsense"));
	assert_int_equal(s->limits.memory_bytes, 64 << 20);
	assert_int_equal(s->limits.cpu_time_ms, 1500);
	assert_int_equal(s->limits.cpus_milli, 250);
	assert_int_equal(s->level, LEVEL_PROCESS);
	assert_false(s->tty);
	assert_int_equal(s->env.count, 2);
	assert_string_equal(s->env.items[1], "B");
	assert_string_equal(s->hostname, "b");
}

static void test_refused(void **state)
{
	struct sandbox_spec *s = *state;

	assert_refused(s, "memory", "12Q", ERR_INVALID);
	assert_refused(s, "memory", "1M", ERR_INVALID);
	assert_refused(s, "memory", "16777215T", ERR_INVALID);
	assert_refused(s, "pids", "0", ERR_INVALID);
	assert_refused(s, "pids", "4194305", ERR_INVALID);
	assert_refused(s, "pids", "1.5", ERR_INVALID);
	assert_refused(s, "timeout", "0", ERR_INVALID);
	assert_refused(s, "timeout", "100000h", ERR_INVALID);
	assert_refused(s, "file_size", "0", ERR_INVALID);
	assert_refused(s, "level", "jail", ERR_INVALID);
	assert_refused(s, "level", "", ERR_INVALID);
	assert_refused(s, "apply", "yes", ERR_INVALID);
	assert_refused(s, "apply", "", ERR_INVALID);
	assert_refused(s, "workspace", "", ERR_INVALID);
	assert_refused(s, "mount", "", ERR_INVALID);
	assert_refused(s, "memroy", "1G", ERR_INVALID);
	assert_refused(s, "net_rate", "1Mbyte", ERR_INVALID);
	assert_refused(s, "net_rate", "0", ERR_INVALID);
	assert_refused(s, "net_names", "0", ERR_INVALID);
	assert_refused(s, "net_names", "131071", ERR_INVALID);
	assert_refused(s, "net_connections", "4294967296", ERR_INVALID);
	assert_refused(s, "allow", "", ERR_INVALID);
	assert_refused(s, "net", "open", ERR_INVALID);
	assert_refused(s, "use_case", "x", ERR_UNSUPPORTED);
	assert_int_equal(s->set_mask, 0);
	assert_int_equal(s->limits.memory_bytes, 1 << 30);
}

static void test_hint(void **state)
{
	struct err e = {0};

	assert_int_equal(spec_set(*state, "memroy", "1G", &e), -1);
	assert_non_null(strstr(e.msg, "did you mean 'memory'?"));
}

static void test_unbuilt(void **state)
{
	static const char *const rows[][2] = {
		{"level", "vm"},
		{"provider", "docker"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sandbox_spec s;

		spec_init(&s);
		set(&s, rows[i][0], rows[i][1]);
		assert_unfinished(&s, rows[i][0], ERR_UNSUPPORTED);
		spec_done(&s);
	}
}

struct combination {
	const char *names[2], *values[2];
	const char *field;
	enum err_kind kind;
};

static void test_combinations(void **state)
{
	static const struct combination rows[] = {
		{{"empty", "workspace"}, {"true", "/x"}, "empty", ERR_INVALID},
		{{"empty", "apply"}, {"true", "true"}, "apply", ERR_INVALID},
		{{"apply_also", "apply"}, {"AGENTS.md", "false"}, "apply_also", ERR_INVALID},
		{{"apply_also", "apply"}, {"../x", "true"}, "apply_also", ERR_INVALID},
		{{"apply_also", "apply"}, {"/etc", "true"}, "apply_also", ERR_INVALID},
		{{"tty", "json"}, {"true", "true"}, "tty", ERR_INVALID},
		{{"allow", "net"}, {"example.com", "none"}, "allow", ERR_INVALID},
		{{"deny", "net"}, {"example.com", "none"}, "deny", ERR_INVALID},
		{{"net_rate", "net"}, {"1Mbit", "none"}, "net_rate", ERR_INVALID},
		{{"net_tx", "deny"}, {"1M", "a.com"}, "deny", ERR_INVALID},
		{{"capture", "json"}, {"*", "false"}, "capture", ERR_INVALID},
		{{"level", "mount"}, {"process", "/a:/b"}, "mount", ERR_UNSUPPORTED},
		{{"level", "image"}, {"process", "/img"}, "image", ERR_UNSUPPORTED},
		{{"level", "hostname"}, {"process", "h"}, "hostname", ERR_UNSUPPORTED},
		{{"require", "optional"}, {"cgroup", "cgroup"}, "optional", ERR_INVALID},
		{{"require", "net"}, {"walls", "none"}, "require", ERR_INVALID},
		{{"optional", "net"}, {"walls", "none"}, "optional", ERR_INVALID},
		{{"hostname", "net"}, {"a b", "none"}, "hostname", ERR_INVALID},
		{{"hostname", "net"}, {"-a", "none"}, "hostname", ERR_INVALID},
		{{"env", "net"}, {"=x", "none"}, "env", ERR_INVALID},
		{{"memory", "disk"}, {"64M", "65M"}, "disk", ERR_INVALID},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sandbox_spec s;

		spec_init(&s);
		set(&s, rows[i].names[0], rows[i].values[0]);
		set(&s, rows[i].names[1], rows[i].values[1]);
		assert_unfinished(&s, rows[i].field, rows[i].kind);
		spec_done(&s);
	}
}

static void test_dependent_defaults(void **state)
{
	struct sandbox_spec *s = *state;

	set(s, "memory", "100M");
	set(s, "file_size", "1M");
	set(s, "tty", "true");
	assert_finishes(s);
	assert_int_equal(s->limits.disk_bytes, 50 << 20);
	assert_int_equal(s->limits.file_size_bytes, 1 << 20);
	assert_int_equal(s->limits.timeout_ms, 0);
}

static void test_tty_keeps_given_timeout(void **state)
{
	struct sandbox_spec *s = *state;

	set(s, "timeout", "60s");
	set(s, "tty", "true");
	assert_finishes(s);
	assert_int_equal(s->limits.timeout_ms, 60000);
}

static void test_layers_of_spec(void **state)
{
	struct sandbox_spec *s = *state;

	set(s, "level", "process");
	set(s, "require", "cgroup");
	set(s, "optional", "landlock");
	assert_finishes(s);
	assert_true(s->required_layers & LAYER_BIT(LAYER_CGROUP));
	assert_true(s->required_layers & LAYER_BIT(LAYER_SECCOMP));
	assert_false(s->required_layers & LAYER_BIT(LAYER_LANDLOCK));
	assert_false(s->required_layers & LAYER_BIT(LAYER_USER_NS));
	assert_int_equal(s->optional_layers, LAYER_BIT(LAYER_LANDLOCK));
}

static void assert_format(struct sandbox_spec *s, const char *name, const char *expected)
{
	char buf[64] = "";
	bool there = spec_format(s, spec_field_find(name), buf, sizeof(buf));

	assert_int_equal(there, expected != NULL);
	if (expected)
		assert_string_equal(buf, expected);
}

static void test_format(void **state)
{
	struct sandbox_spec *s = *state;

	assert_format(s, "memory", "1G");
	assert_format(s, "disk", NULL);
	assert_format(s, "cpus", "1");
	assert_format(s, "pids", "256");
	assert_format(s, "timeout", "60s");
	assert_format(s, "cpu_time", NULL);
	assert_format(s, "level", "container");
	assert_format(s, "workspace", NULL);
	assert_format(s, "image", "host");
	assert_format(s, "tty", NULL);
	assert_format(s, "env", NULL);
	set(s, "memory", "4097K");
	set(s, "cpus", "0.125");
	set(s, "timeout", "1500ms");
	set(s, "env", "A=1");
	set(s, "env", "B");
	set(s, "file_size", "4097");
	assert_format(s, "memory", "4097K");
	assert_format(s, "cpus", "0.125");
	assert_format(s, "timeout", "1500ms");
	assert_format(s, "env", "A=1 B");
	assert_format(s, "file_size", "4097");
}

/* What is printed can be typed again and means the same. */
static void test_format_round_trip(void **state)
{
	static const char *const rows[][2] = {
		{"memory", "4097K"},  {"memory", "2T"}, {"disk", "65537"},     {"cpus", "0.125"},
		{"cpus", "10"},	      {"pids", "7"},	{"timeout", "1500ms"}, {"timeout", "2h"},
		{"level", "process"}, {"tty", "true"},	{"hostname", "h"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct field *f = spec_field_find(rows[i][0]);
		char first[64], second[64];
		struct sandbox_spec a, b;

		spec_init(&a);
		spec_init(&b);
		set(&a, f->name, rows[i][1]);
		assert_true(spec_format(&a, f, first, sizeof(first)));
		set(&b, f->name, first);
		assert_true(spec_format(&b, f, second, sizeof(second)));
		assert_string_equal(first, second);
		if (f->type == FIELD_SIZE || f->type == FIELD_TIME || f->type == FIELD_MILLI)
			assert_memory_equal((char *)&a + f->offset, (char *)&b + f->offset, 8);
		spec_done(&a);
		spec_done(&b);
	}
}

static void test_format_is_bounded(void **state)
{
	struct sandbox_spec *s = *state;
	char small[8];

	for (int i = 0; i < 10; i++)
		set(s, "env", "LONG_NAME=value");
	for (size_t i = 0; i < spec_field_count; i++) {
		memset(small, 'x', sizeof(small));
		if (spec_format(s, &spec_fields[i], small, sizeof(small)))
			assert_non_null(memchr(small, '\0', sizeof(small)));
	}
}

static void test_layer_names(void **state)
{
	char all[512] = "";

	(void)state;
	for (int i = 0; i < LAYER_COUNT; i++) {
		assert_int_equal(layer_find(layer_name(i)), i);
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "",
			 layer_name(i));
	}
	assert_string_equal(layer_names(), all);
	assert_int_equal(layer_find("nothing"), -1);
	assert_int_equal(layer_find(""), -1);
	assert_string_equal(layer_name(LAYER_COUNT), "unknown");
}

#define WITH_SPEC(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static void check_tmpfs(const char *text, const char *says)
{
	struct sandbox_spec s;
	struct err e = {0};
	int rc;

	spec_init(&s);
	assert_int_equal(spec_set(&s, "tmpfs", text, &e), 0);
	rc = spec_finish(&s, &e);
	if (says) {
		assert_int_equal(rc, -1);
		assert_string_equal(e.field, "tmpfs");
		assert_non_null(strstr(e.msg, says));
	} else {
		assert_int_equal(rc, 0);
	}
	spec_done(&s);
}

static void test_tmpfs(void **state)
{
	struct sandbox_spec s;
	struct err e = {0};

	check_tmpfs("/tmp", NULL);
	check_tmpfs("/tmp:size=512M", NULL);
	check_tmpfs("/dev/shm:size=64K", NULL);
	check_tmpfs("tmp", "absolute");
	check_tmpfs("/a/../tmp", "absolute");
	check_tmpfs("/tmp:size=", "size");
	check_tmpfs("/tmp:size=63K", "too small");
	check_tmpfs("/tmp:size=513M", "does not fit");
	check_tmpfs("/tmp:exec", "PATH[:size=SIZE]");
	check_tmpfs("/", "itself");
	check_tmpfs("/dev", "itself");
	check_tmpfs("/usr/local", "itself");
	check_tmpfs("/workspace/", "the workspace");
	spec_init(&s);
	assert_int_equal(spec_set(&s, "tmpfs", "/mnt/a/b:size=1M", &e), 0);
	assert_int_equal(spec_set(&s, "tmpfs", "/mnt/a:size=2M", &e), 0);
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_string_equal(s.tmpfs_mounts.items[0].path, "/mnt/a");
	assert_int_equal(s.tmpfs_mounts.items[1].bytes, 1 << 20);
	assert_int_equal(spec_set(&s, "tmpfs", "/mnt//a", &e), 0);
	assert_int_equal(spec_finish(&s, &e), -1);
	spec_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_find_and_near),
		WITH_SPEC(test_defaults),
		WITH_SPEC(test_set),
		WITH_SPEC(test_refused),
		WITH_SPEC(test_hint),
		cmocka_unit_test(test_unbuilt),
		cmocka_unit_test(test_combinations),
		WITH_SPEC(test_dependent_defaults),
		WITH_SPEC(test_tty_keeps_given_timeout),
		WITH_SPEC(test_layers_of_spec),
		WITH_SPEC(test_format),
		cmocka_unit_test(test_format_round_trip),
		WITH_SPEC(test_format_is_bounded),
		cmocka_unit_test(test_layer_names),
		cmocka_unit_test(test_tmpfs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
