/* The tables of the MCP door: nothing in them widens a sandbox, and arguments are held to them. */
#include "api/mcp/mcp.h"
#include "api/mcp/mcp_internal.h"
#include "base/auto.h"
#include "base/str.h"
#include "model/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void nothing_widens(void **state)
{
	(void)state;
	for (size_t i = 0; i < mcp_tool_count; i++)
		for (size_t j = 0; j < mcp_tools[i].in->count; j++) {
			const struct body_field *f = &mcp_tools[i].in->fields[j];
			const struct field *option = spec_field_find(f->name);

			/* How long one command may take is bounded by the client's option. */
			if (option && (option->flags & FIELD_WIDENS) &&
			    !str_equal(f->name, "timeout"))
				fail_msg("%s takes %s", mcp_tools[i].name, f->name);
		}
}

static void tables_are_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < mcp_tool_count; i++) {
		const struct mcp_tool *t = &mcp_tools[i];
		json_t *about = mcp_tool_describe(t);
		const json_t *in = json_object_get(about, "inputSchema");
		const char *name;
		json_t *value;

		assert_ptr_equal(mcp_tool_find(t->name), t);
		assert_true(strlen(t->name) <= 64 && strlen(t->description) > 20 && t->scope);
		assert_string_equal(json_string_value(json_object_get(in, "type")), "object");
		assert_true(json_is_false(json_object_get(in, "additionalProperties")));
		json_object_foreach (
			json_object_get(json_object_get(about, "outputSchema"), "properties"), name,
			value)
			assert_true(json_is_string(json_object_get(value, "type")));
		for (size_t j = 0; j < t->in->count; j++)
			assert_true(t->in->fields[j].help && t->in->fields[j].help[0]);
		json_decref(about);
	}
	assert_null(mcp_tool_find("nope"));
}

struct argument_case {
	const char *tool, *args, *says; /* NULL: fine */
};

static void arguments(void **state)
{
	static const struct argument_case cases[] = {
		{"run_code", "{\"code\":\"1\"}", NULL},
		{"run_code", "{\"code\":\"1\",\"language\":\"bash\",\"timeout\":1.5}", NULL},
		{"run_code", "{}", "needs the argument code"},
		{"run_code", "{\"code\":1}", "type string"},
		{"run_code", "{\"code\":\"\",\"language\":\"x\"}", "one of python"},
		{"run_code", "{\"code\":\"\",\"timeout\":\"1\"}", "type number"},
		{"run_code", "{\"code\":\"\",\"timeout\":-1}", "between"},
		{"run_code", "{\"code\":\"\",\"timeout\":1e300}", "between"},
		{"run_code", "{\"code\":\"\",\"other\":1}", "no argument 'other'"},
		{"run_code", "{\"code\":\"\",\"net\":\"public\"}", "cannot be set"},
		{"run_code", "{\"code\":\"\",\"network\":true}", "cannot be set"},
		{"run_command", "{\"command\":\"a\\u0000b\"}", "zero byte"},
		{"write_file", "{\"path\":\"a\",\"content\":\"a\\u0000b\"}", NULL},
		{"process_poll", "{\"process_id\":0}", "between"},
		{"process_poll", "{\"process_id\":1.5}", "type integer"},
		{"sandbox_list", "{\"x\":1}", "takes: none"},
		{"sandbox_create", "{\"memory\":\"1T\"}", "cannot be set"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *args = json_loads(cases[i].args, JSON_ALLOW_NUL, NULL);
		struct err e = {0};
		int rc = mcp_tool_check(mcp_tool_find(cases[i].tool), args, &e);

		assert_non_null(args);
		if (!cases[i].says && rc < 0)
			fail_msg("%s refused: %s", cases[i].args, e.msg);
		if (cases[i].says && (rc == 0 || !strstr(e.msg, cases[i].says)))
			fail_msg("%s: '%s'", cases[i].args, e.msg);
		json_decref(args);
	}
}

static void versions(void **state)
{
	(void)state;
	assert_true(mcp_is_legacy_version("2025-11-25"));
	assert_false(mcp_is_legacy_version(MCP_MODERN_VERSION));
	assert_non_null(mcp_method_find("ping", MCP_LEGACY));
	assert_null(mcp_method_find("ping", MCP_MODERN));
	assert_null(mcp_method_find("server/discover", MCP_LEGACY));
	assert_int_equal(mcp_level_find("emergency"), 7);
	assert_int_equal(mcp_level_find(NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_widens),
		cmocka_unit_test(tables_are_whole),
		cmocka_unit_test(arguments),
		cmocka_unit_test(versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
