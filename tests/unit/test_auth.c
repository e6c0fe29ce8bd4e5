/* auth: tokens and their file, rate limits, Host and Origin. */
#include "auth/buckets.h"
#include "auth/gate.h"
#include "auth/shares.h"
#include "auth/tokens.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000000LL

static void test_token_made_and_read_again(void **state)
{
	struct token t, back;
	char key[TOKEN_KEY], line[TOKEN_LINE];
	struct err e = {0};
	size_t len;

	(void)state;
	assert_int_equal(token_create("bot-1", false, &t, key, &e), 0);
	assert_true(str_starts(key, "cl_"));
	assert_int_equal(token_set(&t, "memory", "512M", &e), 0);
	assert_int_equal(token_set(&t, "cpus", "1.5", &e), 0);
	assert_int_equal(token_set(&t, "timeout", "1500ms", &e), 0);
	assert_int_equal(token_set(&t, "scopes", "run,admin", &e), 0);
	len = token_format(&t, line, sizeof(line));
	assert_true(len < sizeof(line));
	assert_null(strstr(line, key));
	assert_int_equal(token_parse(line, len, &back, &e), 0);
	assert_memory_equal(&t.ceiling, &back.ceiling, sizeof(t.ceiling));
	assert_memory_equal(t.hash, back.hash, sizeof(t.hash));
	assert_int_equal(back.scopes, SCOPE_RUN | SCOPE_ADMIN);
	assert_string_equal(back.name, "bot-1");
}

static void test_token_names(void **state)
{
	struct token t;
	char key[TOKEN_KEY];
	struct err e = {0};

	(void)state;
	assert_int_equal(token_create("a b", false, &t, key, &e), -1);
	assert_string_equal(e.field, "name");
	assert_int_equal(token_create("", false, &t, key, &e), -1);
	assert_int_equal(token_create("x", true, &t, key, &e), 0);
	assert_true(str_starts(key, "e2b_"));
	assert_int_equal(strlen(key), 44);
}

static void test_tokens_checked(void **state)
{
	struct tokens *all = tokens_new();
	struct token t, u;
	char key[TOKEN_KEY], other[TOKEN_KEY], text[3 * TOKEN_LINE];
	struct caller who = {.address = "kept"};
	struct err e = {0};
	size_t len;

	(void)state;
	assert_int_equal(token_create("one", false, &t, key, &e), 0);
	assert_int_equal(token_create("two", true, &u, other, &e), 0);
	u.expires = 1000;
	len = token_format(&t, text, sizeof(text));
	text[len++] = '\n';
	len += token_format(&u, text + len, sizeof(text) - len);
	assert_int_equal(tokens_load(all, text, len, &e), 0);
	assert_int_equal(tokens_count(all), 2);
	assert_true(tokens_check(all, key, 5000, &who));
	assert_string_equal(who.name, "one");
	assert_string_equal(who.address, "kept");
	assert_false(who.has_ceiling);
	assert_true(tokens_check(all, other, 999, &who));
	assert_false(tokens_check(all, other, 1000, &who));
	/* What an expired token made is worth as little as its key. */
	assert_true(tokens_has(all, t.id, 5000));
	assert_true(tokens_has(all, u.id, 999));
	assert_false(tokens_has(all, u.id, 1000));
	assert_false(tokens_has(all, "nobody", 0));
	key[strlen(key) - 1] ^= 1;
	assert_false(tokens_check(all, key, 0, &who));
	assert_false(tokens_check(all, "", 0, &who));
	tokens_free(all);
}

/* A file with a mistake changes nothing: whoever had a token keeps it. */
static void test_tokens_all_or_none(void **state)
{
	struct tokens *all = tokens_new();
	struct token t, u;
	char key[TOKEN_KEY], other[TOKEN_KEY], text[3 * TOKEN_LINE];
	struct caller who = {0};
	struct err e = {0};
	size_t len;

	(void)state;
	assert_int_equal(token_create("one", false, &t, key, &e), 0);
	len = token_format(&t, text, sizeof(text));
	assert_int_equal(tokens_load(all, text, len, &e), 0);
	assert_int_equal(token_create("two", false, &u, other, &e), 0);
	len = token_format(&u, text, sizeof(text));
	memcpy(text + len, "\nbroken", 7);
	assert_int_equal(tokens_load(all, text, len + 7, &e), -1);
	assert_true(str_starts(e.msg, "tokens:2: "));
	assert_true(tokens_check(all, key, 0, &who));
	assert_false(tokens_check(all, other, 0, &who));
	/* One id is one token. */
	text[len] = '\n';
	memcpy(text + len + 1, text, len);
	assert_int_equal(tokens_load(all, text, 2 * len + 1, &e), -1);
	assert_true(tokens_check(all, key, 0, &who));
	assert_int_equal(tokens_load(all, "", 0, &e), 0);
	assert_false(tokens_check(all, key, 0, &who));
	tokens_free(all);
}

/* Everything that the operator gave a token reaches the request. */
static void test_a_caller_has_all_of_its_token(void **state)
{
	struct tokens *all = tokens_new();
	char key[TOKEN_KEY], text[TOKEN_LINE];
	struct caller who = {0};
	struct err e = {0};
	struct token t;

	(void)state;
	assert_int_equal(token_create("one", false, &t, key, &e), 0);
	assert_int_equal(t.scopes, SCOPE_RUN | SCOPE_FILES | SCOPE_READ);
	assert_int_equal(token_set(&t, "scopes", "", &e), -1);
	assert_int_equal(token_set(&t, "scopes", "run,read", &e), 0);
	assert_int_equal(token_set(&t, "memory", "64M", &e), 0);
	assert_int_equal(token_set(&t, "sandboxes", "3", &e), 0);
	assert_int_equal(token_set(&t, "rate", "90", &e), 0);
	assert_int_equal(token_set(&t, "trust", "2", &e), 0);
	assert_int_equal(tokens_load(all, text, token_format(&t, text, sizeof(text)), &e), 0);
	assert_true(tokens_check(all, key, 0, &who));
	assert_string_equal(who.token, t.id);
	assert_int_equal(who.scopes, SCOPE_RUN | SCOPE_READ);
	assert_int_equal(who.trust, 2);
	assert_int_equal(who.max_sandboxes, 3);
	assert_int_equal(who.rate_per_minute, 90);
	assert_true(who.has_ceiling);
	assert_int_equal(who.ceiling.memory_bytes, 64 << 20);
	tokens_free(all);
}

/* A bucket fills by the time since it was last asked, and no further than its burst. */
static void test_buckets_fill_by_time(void **state)
{
	struct buckets *b = buckets_new();
	int taken = 0;

	(void)state;
	/* 60 a minute, asked twice a second for 30 seconds: its burst and one a second. */
	for (int i = 0; i < 60; i++)
		taken += buckets_take(b, "a", 60, 5, SECOND + i * SECOND / 2, NULL) == 0;
	assert_in_range(taken, 33, 36);
	/* A quiet hour is worth no more than the burst. */
	for (int i = 0; i < 5; i++)
		assert_int_equal(buckets_take(b, "a", 60, 5, 3600 * SECOND, NULL), 0);
	assert_true(buckets_take(b, "a", 60, 5, 3600 * SECOND, NULL) > 0);
	buckets_free(b);
}

static void test_buckets(void **state)
{
	struct buckets *b = buckets_new();
	bool first;

	(void)state;
	for (int i = 0; i < 5; i++)
		assert_int_equal(buckets_take(b, "a", 60, 5, SECOND, &first), 0);
	assert_int_equal(buckets_take(b, "a", 60, 5, SECOND, &first), 1);
	assert_true(first);
	assert_true(buckets_take(b, "a", 60, 5, SECOND, &first) > 0);
	assert_false(first);
	assert_int_equal(buckets_take(b, "b", 60, 5, SECOND, &first), 0);
	assert_int_equal(buckets_take(b, "a", 60, 5, 3 * SECOND, &first), 0);
	assert_int_equal(buckets_take(b, "a", 0, 0, SECOND, &first), 0);
	for (int i = 0; i < 100000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%d", i);
		assert_int_equal(buckets_take(b, name, 60, 5, 4 * SECOND, NULL), 0);
	}
	buckets_free(b);
}

static void test_hosts(void **state)
{
	static const char hosts[][256] = {"box.example", "*.wild.example", "port.example:80"};
	const struct gate g = {hosts, 3, NULL, 0};
	static const char *const fine[] = {
		"localhost", "LOCALHOST:1", "a.localhost:2", "127.0.0.1:70",   "[::1]:5",
		"10.0.0.1",  "box.example", "box.example:8", "a.wild.example", "port.example"};
	static const char *const bad[] = {"evil.example",
					  "localhost.evil.example",
					  "127.0.0.1.evil.example",
					  "xlocalhost",
					  "wild.example",
					  "[::1",
					  "",
					  ":80",
					  "xbox.example"};

	(void)state;
	for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++)
		assert_true(gate_host_is_fine(&g, fine[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(gate_host_is_fine(&g, bad[i]));
	assert_false(gate_host_is_fine(&g, NULL));
}

static void test_origins(void **state)
{
	static const char origins[][256] = {"https://page.example"};
	const struct gate g = {NULL, 0, origins, 1};

	(void)state;
	assert_true(gate_origin_is_fine(&g, "https://page.example", "localhost"));
	assert_true(gate_origin_is_fine(&g, "http://localhost:3000", "localhost:7070"));
	assert_true(gate_origin_is_fine(&g, "http://127.0.0.1", "x"));
	assert_true(gate_origin_is_fine(&g, "http://a.example:7", "a.example:7"));
	assert_false(gate_origin_is_fine(&g, "http://page.example", "localhost"));
	assert_false(gate_origin_is_fine(&g, "null", "localhost"));
	assert_false(gate_origin_is_fine(&g, "http://127.evil.example", "x"));
	assert_false(gate_origin_is_fine(&g, "http://3000-id.localhost:7070", "localhost:7070"));
	assert_false(gate_origin_is_fine(&g, "", ""));
}

static void test_tenants(void **state)
{
	struct token t = {.id = "abcdefghij"};
	struct err e = {0};

	(void)state;
	assert_true(token_is_of(&t, "abcdefghij"));
	assert_false(token_is_of(&t, "@"));
	assert_int_equal(token_set(&t, "tenant", "team", &e), 0);
	assert_true(token_is_of(&t, "@team"));
	assert_false(token_is_of(&t, "@teams"));
	assert_false(token_is_of(&t, "@tea"));
	assert_false(token_is_of(&t, "team"));
	assert_int_equal(token_set(&t, "tenant", "", &e), -1);
	assert_int_equal(token_set(&t, "tenant", "a b", &e), -1);
	assert_int_equal(token_set(&t, "tenant", "abcdefghijabcdefghijabc", &e), -1);
	assert_string_equal(e.field, "tenant");
}

/* One tenant alone gets about a half; a newcomer always finds something; the operator has the last tenth. */
static void test_shares_are_fair(void **state)
{
	struct shares *s = shares_new();
	struct budget *greedy = shares_of(s, "greedy", SHARE_BODIES);
	struct budget *second = shares_of(s, "second", SHARE_BODIES);
	struct budget *late = shares_of(s, "late", SHARE_BODIES);
	struct budget *admin = shares_of(s, "", SHARE_BODIES);

	(void)state;
	shares_set_max(s, SHARE_BODIES, 1000);
	assert_false(budget_take(greedy, 500)); /* not at once either */
	while (budget_take(greedy, 10))
		;
	assert_in_range(greedy->used, 440, 460);
	while (budget_take(second, 10))
		;
	assert_in_range(second->used, 215, 235);
	assert_true(budget_take(late, 50));
	assert_false(budget_take(greedy, 1));
	while (budget_take(late, 1))
		;
	assert_true(budget_take(admin, 100));
	assert_false(budget_take(admin, 1000));
	budget_give(greedy, greedy->used);
	assert_true(budget_take(second, 100));
	assert_ptr_equal(shares_of(s, "late", SHARE_BODIES), late);
	assert_int_equal(shares_of(s, "late", SHARE_OUTPUT)->used, 0);
	shares_free(s);
}

/* What must be held is counted past the bound; then nobody gets more, and nothing wraps around. */
static void test_shares_counted_past_the_bound(void **state)
{
	struct shares *s = shares_new();
	struct budget *a = shares_of(s, "a", SHARE_OUTPUT), *b = shares_of(s, "b", SHARE_OUTPUT);

	(void)state;
	assert_true(budget_take(a, 1ULL << 50)); /* no bound was set */
	budget_give(a, 1ULL << 50);
	shares_set_max(s, SHARE_OUTPUT, 100);
	budget_count(a, 500);
	assert_int_equal(budget_left(a), 0);
	assert_int_equal(budget_left(b), 0);
	assert_int_equal(budget_left(shares_of(s, "", SHARE_OUTPUT)), 0);
	budget_give(a, 500);
	assert_true(budget_take(b, 45));
	shares_free(s);
}

static void test_clients_behind_proxies(void **state)
{
	static const char proxies[][256] = {"10.0.0.0/8", "::1", "192.0.2.1"};
	static const struct {
		const char *peer, *forwarded, *client;
	} rows[] = {
		{"10.1.2.3", "198.51.100.7", "198.51.100.7"},
		{"::1", " 198.51.100.7 ", "198.51.100.7"},
		/* What the client wrote itself is in front. */
		{"10.1.2.3", "203.0.113.9, 198.51.100.7", "198.51.100.7"},
		{"10.1.2.3", "203.0.113.9, 198.51.100.7, 192.0.2.1", "198.51.100.7"},
		{"10.1.2.3", "2001:db8::5", "2001:db8::5"},
		{"10.1.2.3", NULL, "10.1.2.3"},
		{"10.1.2.3", "", "10.1.2.3"},
		{"10.1.2.3", "unknown", "10.1.2.3"},
		{"10.1.2.3", "198.51.100.0/24", "10.1.2.3"},
		/* Not a proxy of ours. */
		{"198.51.100.7", "203.0.113.9", "198.51.100.7"},
		{"192.0.2.2", "203.0.113.9", "192.0.2.2"},
		{"11.0.0.1", "203.0.113.9", "11.0.0.1"},
	};
	char client[64];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		gate_client(proxies, 3, rows[i].peer, rows[i].forwarded, client, sizeof(client));
		assert_string_equal(client, rows[i].client);
	}
	gate_client(NULL, 0, "10.1.2.3", "203.0.113.9", client, sizeof(client));
	assert_string_equal(client, "10.1.2.3");
}

static void test_neighbours(void **state)
{
	static const struct {
		const char *address, *name;
	} rows[] = {
		{"10.1.2.3", "10.1.2.3"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
		{"2001:db8::1", "2001:db8::"},
		{"2001:db8::ffff:1:2:3", "2001:db8::"},
		{"2001:db8:0:1::", "2001:db8:0:1::"},
		{"unix:uid=1", "unix:uid=1"},
	};
	char name[64];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		gate_neighbours(rows[i].address, name, sizeof(name));
		assert_string_equal(name, rows[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clients_behind_proxies),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_token_made_and_read_again),
		cmocka_unit_test(test_token_names),
		cmocka_unit_test(test_tokens_checked),
		cmocka_unit_test(test_tokens_all_or_none),
		cmocka_unit_test(test_a_caller_has_all_of_its_token),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_buckets_fill_by_time),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_shares_are_fair),
		cmocka_unit_test(test_shares_counted_past_the_bound),
		cmocka_unit_test(test_origins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
