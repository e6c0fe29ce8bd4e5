#include "base/auto.h"
#include "wire/jsonrpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct bad_case {
	const char *text;
	int code;
	const char *id; /* what goes back with the error */
};

static void refuses(void **state)
{
	static const struct bad_case cases[] = {
		{"", JSONRPC_PARSE, "null"},
		{"{", JSONRPC_PARSE, "null"},
		{"{}x", JSONRPC_PARSE, "null"},
		{"\xff", JSONRPC_PARSE, "null"},
		{"7", JSONRPC_INVALID, "null"},
		{"[]", JSONRPC_INVALID, "null"},
		{"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", JSONRPC_INVALID, "null"},
		{"{}", JSONRPC_INVALID, "null"},
		{"{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"ping\"}", JSONRPC_INVALID, "3"},
		{"{\"id\":\"x\",\"method\":\"ping\"}", JSONRPC_INVALID, "\"x\""},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", JSONRPC_INVALID, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", JSONRPC_INVALID, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}", JSONRPC_INVALID, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":2}", JSONRPC_INVALID, "1"},
		{"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"\"}", JSONRPC_INVALID, "0"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":[]}", JSONRPC_INVALID,
		 "1"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1}", JSONRPC_INVALID, "1"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", JSONRPC_INVALID, "1"},
		{"{\"jsonrpc\":\"2.0\",\"result\":1}", JSONRPC_INVALID, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":7}", JSONRPC_INVALID, "1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct jsonrpc_fault f;
		struct jsonrpc m;
		json_t *answer;
		auto_free char *id = NULL;

		if (jsonrpc_parse(cases[i].text, strlen(cases[i].text), &m, &f) == 0)
			fail_msg("taken: %s", cases[i].text);
		assert_int_equal(f.code, cases[i].code);
		answer = jsonrpc_error(f.id, f.code, f.text, NULL);
		id = json_dumps(json_object_get(answer, "id"), JSON_ENCODE_ANY);
		assert_string_equal(id, cases[i].id);
		json_decref(answer);
		json_decref(f.id);
	}
}

static void parse(const char *text, struct jsonrpc *ret)
{
	struct jsonrpc_fault f;

	if (jsonrpc_parse(text, strlen(text), ret, &f) < 0)
		fail_msg("%s: %s", text, f.text);
}

static void tells_kinds(void **state)
{
	struct jsonrpc m;

	(void)state;
	parse("{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}", &m);
	assert_int_equal(m.kind, JSONRPC_REQUEST);
	assert_true(json_is_integer(m.id));
	assert_null(m.params);
	jsonrpc_done(&m);
	parse("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{},\"more\":1}", &m);
	assert_int_equal(m.kind, JSONRPC_NOTIFICATION);
	assert_non_null(m.params);
	jsonrpc_done(&m);
	parse("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}", &m);
	assert_int_equal(m.kind, JSONRPC_ANSWER);
	jsonrpc_done(&m);
}

static void check_text(json_t *message, const char *expected)
{
	size_t len;
	auto_free char *text = jsonrpc_print(message, &len);

	assert_string_equal(text, expected);
	json_decref(message);
}

static void prints(void **state)
{
	json_t *zero = json_integer(0), *word = json_string("a\"b");

	(void)state;
	check_text(jsonrpc_result(zero, json_object()),
		   "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}");
	check_text(jsonrpc_error(word, -32601, "no", NULL),
		   "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"error\":{\"code\":-32601,\"message\":"
		   "\"no\"}}");
	check_text(jsonrpc_error(NULL, -32700, "no", json_true()),
		   "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"no\",\"data\":"
		   "true},\"id\":null}");
	check_text(jsonrpc_notification("n", json_object()),
		   "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{}}");
	check_text(jsonrpc_request(7, "r", NULL),
		   "{\"jsonrpc\":\"2.0\",\"method\":\"r\",\"id\":7}");
	json_decref(zero);
	json_decref(word);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses),
		cmocka_unit_test(tells_kinds),
		cmocka_unit_test(prints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
