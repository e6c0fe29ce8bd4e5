/* api/fields: request bodies against their tables. */
#include "api/http/fields.h"
#include "base/auto.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct body_field inner_fields[] = {NEEDED("x", BODY_COUNT, "")};
static const struct body_table inner = {inner_fields, 1, BODY_ALONE};
static const struct body_field fields[] = {
	FIELD("text", BODY_TEXT, ""), FIELD("count", BODY_COUNT, ""),
	FIELD("time", BODY_TIME, ""), FIELD("flag", BODY_FLAG, ""),
	FIELD("list", BODY_LIST, ""), FIELD("map", BODY_MAP, ""),
	FIELD("env", BODY_ENV, ""),   FIELD("items", BODY_ITEMS, "", .items = &inner),
};
static const struct body_table alone = {fields, ARRAY_LEN(fields), BODY_ALONE};
static const struct body_table with_limits = {fields, ARRAY_LEN(fields), BODY_WITH_LIMITS};
static const struct body_table with_spec = {fields, ARRAY_LEN(fields), BODY_WITH_SPEC};

static int check(const char *text, const struct body_table *t, struct err *e)
{
	json_t *body = json_loads(text, JSON_DECODE_ANY, NULL);
	int rc;

	assert_non_null(body);
	*e = (struct err){0};
	rc = body_check(body, t, e);
	json_decref(body);
	return rc;
}

static void test_types(void **state)
{
	static const char *const fine[] = {
		"{}",
		"{\"text\":\"\"}",
		"{\"count\":0}",
		"{\"time\":1.5}",
		"{\"time\":\"5m\"}",
		"{\"flag\":false}",
		"{\"list\":[]}",
		"{\"list\":[\"a\"]}",
		"{\"map\":{\"a\":\"b\"}}",
		"{\"env\":{\"a\":\"b\"}}",
		"{\"env\":[\"a=b\"]}",
		"{\"items\":[{\"x\":1}]}",
		"{\"text\":null}",
	};
	static const struct {
		const char *text, *field;
	} bad[] = {
		{"{\"text\":1}", "text"},	  {"{\"count\":-1}", "count"},
		{"{\"count\":1.5}", "count"},	  {"{\"time\":-1}", "time"},
		{"{\"flag\":0}", "flag"},	  {"{\"list\":\"a\"}", "list"},
		{"{\"list\":[1]}", "list"},	  {"{\"map\":{\"a\":1}}", "map"},
		{"{\"items\":[1]}", "items"},	  {"{\"items\":[{}]}", "x"},
		{"{\"items\":[{\"y\":1}]}", "y"}, {"{\"bogus\":1}", "bogus"},
		{"{\"memory\":1}", "memory"},
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		assert_int_equal(check(fine[i], &alone, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(check(bad[i].text, &alone, &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_string_equal(e.field, bad[i].field);
	}
	assert_int_equal(check("[]", &alone, &e), -1);
	assert_int_equal(body_check(NULL, &alone, &e), 0);
}

static void test_options(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(check("{\"memory\":\"1G\"}", &with_limits, &e), 0);
	assert_int_equal(check("{\"level\":\"vm\"}", &with_limits, &e), -1);
	assert_int_equal(check("{\"level\":\"vm\",\"net\":\"none\"}", &with_spec, &e), 0);
	/* Only the name itself, not as it is typed on a command line. */
	assert_int_equal(check("{\"cpu-time\":1}", &with_spec, &e), -1);
	assert_int_equal(check("{\"cpu_time\":1}", &with_spec, &e), 0);
}

/* No client of the daemon names a path of the host (rule 4). */
static void test_host_paths(void **state)
{
	static const char *const names[] = {"mount", "mount_read", "mount_write", "workspace",
					    "file",  "policy",	   "audit",	  "apply",
					    "tools", "forbid",	   "cwd_file",	  "keep_control"};
	struct err e;
	char text[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(text, sizeof(text), "{\"%s\":\"/etc\"}", names[i]);
		assert_int_equal(check(text, &with_spec, &e), -1);
		assert_int_equal(e.kind, ERR_DENIED);
		assert_string_equal(e.field, names[i]);
	}
}

static void test_spec(void **state)
{
	json_t *body = json_loads("{\"memory\":\"512M\",\"cpus\":0.5,\"pids\":7,\"timeout\":1.5,"
				  "\"require\":[\"seccomp\"],\"text\":\"x\",\"disk\":null}",
				  0, NULL);
	struct sandbox_spec s;
	struct err e = {0};

	(void)state;
	spec_init(&s);
	assert_int_equal(body_spec(body, &with_spec, &s, &e), 0);
	assert_int_equal(s.limits.memory_bytes, 512 << 20);
	assert_int_equal(s.limits.cpus_milli, 500);
	assert_int_equal(s.limits.pids, 7);
	assert_int_equal(s.limits.timeout_ms, 1500);
	assert_int_equal(s.require.count, 1);
	assert_false(spec_is_set(&s, "disk"));
	spec_done(&s);
	json_decref(body);
}

static void test_getters(void **state)
{
	json_t *body = json_loads("{\"env\":{\"A\":\"b=c\"},\"time\":\"2m\",\"count\":9,"
				  "\"list\":[\"a\",\"b\"],\"b\":\"eHk=\",\"t\":\"xy\"}",
				  0, NULL);
	struct list env = {0}, list = {0};
	struct err e = {0};
	uint64_t ms;
	size_t len;
	char *bytes;

	(void)state;
	assert_int_equal(body_env(body, "env", &env, &e), 0);
	assert_string_equal(env.items[0], "A=b=c");
	assert_int_equal(body_time(body, "time", 0, &ms, &e), 0);
	assert_int_equal(ms, 120000);
	assert_int_equal(body_time(body, "none", 7, &ms, &e), 0);
	assert_int_equal(ms, 7);
	assert_int_equal(body_count(body, "count", 0), 9);
	body_list(body, "list", &list);
	assert_int_equal(list.count, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(body_bytes(body, "t", i ? "b" : "none", &bytes, &len, &e), 0);
		assert_int_equal(len, 2);
		assert_memory_equal(bytes, "xy", 2);
		free(bytes);
	}
	assert_int_equal(body_bytes(body, "t", "t", &bytes, &len, &e), -1);
	list_done(&env);
	list_done(&list);
	json_decref(body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),	   cmocka_unit_test(test_options),
		cmocka_unit_test(test_host_paths), cmocka_unit_test(test_spec),
		cmocka_unit_test(test_getters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
