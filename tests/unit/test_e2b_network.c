/* api/e2b/network: E2B's order (allow beats deny) as rules in which deny wins. */
#include "api/e2b/e2b_internal.h"
#include "net/rules.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEADER(host, name, value)                                                                  \
	"{\"rules\":{\"" host "\":[{\"transform\":{\"headers\":{\"" name "\":\"" value "\"}}}]}}"
#define BOTH "\"allow_internet_access\":false,"

static int translate(const char *text, struct sandbox_spec *s, struct err *e)
{
	json_auto_t *body = json_loads(text, 0, NULL);

	assert_non_null(body);
	spec_init(s);
	*e = (struct err){0};
	return e2b_network_spec(body, json_object_get(body, "allow_internet_access"), s, e);
}

static bool allows(const struct sandbox_spec *s, const char *name, const char *address)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	struct net_index *x;
	struct net_answer a;
	struct network n = {0};
	struct err e = {0};

	if (net_from_spec(m, s, NET_BY_REQUEST, &e) < 0 || net_policy_write(m, &bytes, &e) < 0)
		fail_msg("%s", e.msg);
	x = net_index_new(buf_head(&bytes), bytes.len, &e);
	assert_non_null(x);
	assert_true(network_parse(address, &n));
	net_decide(x, &(struct net_question){.name = name, .address = n.address, .port = 443}, &a);
	net_index_free(x);
	net_policy_free(m);
	return a.allowed;
}

static void test_translated(void **state)
{
	static const struct {
		const char *network, *name, *address;
		bool allowed;
	} rows[] = {
		{"{}", NULL, "8.8.8.8", true},
		{"{}", "a.com", "8.8.8.8", true},
		{"{}", NULL, "10.0.0.1", false},
		{"{\"allow_internet_access\":true}", NULL, "8.8.8.8", true},
		{"{\"allow_internet_access\":null}", NULL, "8.8.8.8", true},
		{"{\"allow_internet_access\":false}", NULL, "8.8.8.8", false},
		{"{\"allow_internet_access\":false}", "a.com", "8.8.8.8", false},
		{"{\"denyOut\":[\"0.0.0.0/0\"]}", NULL, "8.8.8.8", false},
		{"{\"denyOut\":[\"8.8.8.8\"]}", NULL, "8.8.8.8", false},
		{"{\"denyOut\":[\"8.8.8.8\"]}", "a.com", "8.8.8.8", false},
		{"{\"denyOut\":[\"8.8.8.8\"]}", NULL, "8.8.4.4", true},
		{"{\"deny_out\":[\"8.8.8.8\"]}", NULL, "8.8.8.8", false},
		{"{\"denyOut\":[\"8.8.8.8/8\"]}", NULL, "8.1.1.1", false},
		/* allow beats deny, in any order and size */
		{"{\"allowOut\":[\"8.8.8.8\"]}", NULL, "9.9.9.9", true},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.8.8\"]}", NULL, "8.8.8.8", true},
		{"{\"allowOut\":[\"8.8.0.0/16\"],\"denyOut\":[\"8.8.8.8\"]}", NULL, "8.8.8.8",
		 true},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}", NULL, "8.8.8.8",
		 true},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}", NULL, "8.8.8.9",
		 false},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}", NULL, "8.8.0.0",
		 false},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}", NULL, "8.8.255.255",
		 false},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}", NULL, "8.9.0.0",
		 true},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"0.0.0.0/0\"]}", NULL, "8.8.8.8", true},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"0.0.0.0/0\"]}", NULL, "8.8.8.9",
		 false},
		{"{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"0.0.0.0/0\",\"8.8.8.8\"]}", NULL,
		 "8.8.8.8", true},
		{"{\"allowOut\":[\"0.0.0.0/0\"],\"denyOut\":[\"0.0.0.0/0\"]}", NULL, "8.8.8.8",
		 true},
		{"{\"allowOut\":[\"0.0.0.0/0\"],\"denyOut\":[\"8.8.8.8\"]}", NULL, "8.8.8.8", true},
		{"{\"allowOut\":[\"2606:4700::1\"],\"denyOut\":[\"2606::/16\"]}", NULL,
		 "2606:4700::1", true},
		{"{\"allowOut\":[\"2606:4700::1\"],\"denyOut\":[\"2606::/16\"]}", NULL,
		 "2606:4700::2", false},
		/* names */
		{"{\"allowOut\":[\"a.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", "a.com", "8.8.8.8",
		 true},
		{"{\"allowOut\":[\"a.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", "b.com", "8.8.8.8",
		 false},
		{"{\"allowOut\":[\"a.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", NULL, "8.8.8.8", false},
		{"{\"allowOut\":[\"*.a.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", "x.a.com", "8.8.8.8",
		 true},
		{"{\"allowOut\":[\"*.a.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", "a.com", "8.8.8.8",
		 false},
		{"{" BOTH "\"allowOut\":[\"a.com\"]}", "a.com", "8.8.8.8", true},
		{"{\"allowOut\":[\"127.0.0.1\",\"localhost\"],\"denyOut\":[\"0.0.0.0/0\"]}",
		 "localhost", "127.0.0.1", false},
		{"{\"rules\":{}}", NULL, "8.8.8.8", true},
		{"{\"rules\":{\"a.com\":[{}]},\"denyOut\":[\"0.0.0.0/0\"]}", "a.com", "8.8.8.8",
		 false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sandbox_spec s;
		struct err e;

		if (translate(rows[i].network, &s, &e) < 0)
			fail_msg("%s: %s", rows[i].network, e.msg);
		if (allows(&s, rows[i].name, rows[i].address) != rows[i].allowed)
			fail_msg("%s: %s %s", rows[i].network, rows[i].name ? rows[i].name : "",
				 rows[i].address);
		spec_done(&s);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *network, *text;
		enum err_kind kind;
	} rows[] = {
		{"{\"allowOut\":[\"a.com\"]}", "'ALL_TRAFFIC'", ERR_INVALID},
		{"{\"allowOut\":[\"a.com\"],\"denyOut\":[\"8.8.8.8\"]}", "'ALL_TRAFFIC'",
		 ERR_INVALID},
		{"{\"denyOut\":[\"a.com\"]}", "invalid denied CIDR 'a.com'", ERR_INVALID},
		{"{\"denyOut\":[\"8.8.8.8/33\"]}", "invalid denied CIDR", ERR_INVALID},
		{"{\"denyOut\":\"8.8.8.8\"}", "denyOut: not an array", ERR_INVALID},
		{"{\"denyOut\":[8]}", "denyOut: item 0", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"http://a.com\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"a.com:443\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"a.com GET\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"@pypi\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"*\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"[::1]\"]}", "allowOut: ", ERR_INVALID},
		{"{" BOTH "\"allowOut\":[\"\"]}", "allowOut: ", ERR_INVALID},
		{"{\"allow_internet_access\":1}", "not a boolean", ERR_INVALID},
		{"{\"egressProxy\":{\"address\":\"x:1\"}}", "egressProxy", ERR_UNSUPPORTED},
		{"{\"httpsPorts\":[3000]}", "httpsPorts", ERR_UNSUPPORTED},
		{"{\"httpsPorts\":3000}", "httpsPorts", ERR_UNSUPPORTED},
		{"{\"rules\":[]}", "rules: not an object", ERR_INVALID},
		{"{\"rules\":{\"a b\":[]}}", "not a host", ERR_INVALID},
		{"{\"rules\":{\"a.com\":[{},{}]}}", "at most one rule", ERR_INVALID},
		{"{\"rules\":{\"a.com\":[{\"transform\":{\"headers\":{\"X\":1}}}]}}",
		 "X: not a string", ERR_INVALID},
		{HEADER("a.com", "Host", "b.com"), "Host: is not set", ERR_UNSUPPORTED},
		{HEADER("a.com", "X Y", "b"), "X Y: is not set", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "a\\r\\nY: b"), "X: has characters", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "{}"), "X: has characters", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "a | b"), "X: has characters", ERR_UNSUPPORTED},
		{HEADER("*.a.com", "X", "y"), "whole names only", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "${e2b.secrets.a}${e2b.secrets.b}"), "only one",
		 ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "${e2b.secrets.}"), "only one", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "${e2b.secrets.a b}"), "does not name", ERR_UNSUPPORTED},
		{HEADER("a.com", "X", "${e2b.identity.tokens.a}"), "only one", ERR_UNSUPPORTED},
		{"{\"rules\":{\"a\":[],\"b\":[],\"c\":[],\"d\":[],\"e\":[],\"f\":[],\"g\":[],"
		 "\"h\":[],\"i\":[],\"j\":[],\"k\":[]}}",
		 "at most 10 hosts", ERR_INVALID},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sandbox_spec s;
		struct err e;

		if (translate(rows[i].network, &s, &e) == 0)
			fail_msg("%s was taken", rows[i].network);
		assert_int_equal(e.kind, rows[i].kind);
		if (!strstr(e.msg, rows[i].text))
			fail_msg("%s: %s", rows[i].network, e.msg);
		assert_int_equal(s.net, NET_NONE);
		spec_done(&s);
	}
}

static void test_headers(void **state)
{
	static const struct {
		const char *network, *text;
	} rows[] = {
		{HEADER("A.com", "X-Y", "plain text"), "@a.com - X-Y: plain text"},
		{HEADER("a.com", "Authorization", "Bearer ${e2b.secrets.My-Key}!"),
		 "@a.com my-key Authorization: Bearer {}!"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sandbox_spec s;
		struct err e = {0};

		assert_int_equal(translate(rows[i].network, &s, &e), 0);
		assert_int_equal(s.secrets.count, 1);
		assert_string_equal(s.secrets.items[0], rows[i].text);
		/* They grant no access. */
		assert_int_equal(s.allow.count, 0);
		assert_int_equal(spec_finish(&s, &e), 0);
		spec_done(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_translated),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
