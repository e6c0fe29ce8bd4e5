/* Captured output: head and tail, and what is left of them when a budget is used up. */
#include "sandbox/outside/head_tail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char line[1 << 20];

static void print(struct head_tail *s, size_t bytes)
{
	while (bytes > 0) {
		size_t n = bytes < 1000 ? bytes : 1000;

		head_tail_add(s, line, n);
		bytes -= n;
	}
}

static void finish(struct head_tail *s, struct capture *c)
{
	head_tail_finish(s, c);
	head_tail_done(s);
}

static void capture_done(struct capture *c)
{
	free(c->head);
	free(c->tail);
}

static void test_without_a_budget(void **state)
{
	struct head_tail s;
	struct capture c;

	(void)state;
	head_tail_init(&s, -1, 100000);
	print(&s, 300000);
	finish(&s, &c);
	assert_int_equal(c.head_len + c.tail_len, 100000);
	assert_int_equal(c.total, 300000);
	assert_false(s.starved);
	capture_done(&c);
}

static void test_within_the_budget(void **state)
{
	struct budget b = {.max = 100000};
	struct head_tail s;
	struct capture c;

	(void)state;
	head_tail_init(&s, -1, 100000);
	s.budget = &b;
	print(&s, 99999);
	assert_true(b.used > 0 && b.used <= b.max);
	finish(&s, &c);
	assert_int_equal(c.head_len, 99999);
	assert_false(s.starved);
	assert_int_equal(b.used, 0);
	capture_done(&c);
}

static void test_a_little_is_free(void **state)
{
	struct budget b = {.used = 5, .max = 5};
	struct head_tail s;
	struct capture c;

	(void)state;
	head_tail_init(&s, -1, 1 << 20);
	s.budget = &b;
	print(&s, HEAD_TAIL_FREE);
	assert_false(s.starved);
	head_tail_add(&s, "more", 4);
	print(&s, 100000);
	assert_true(s.starved);
	assert_int_equal(b.used, 5);
	finish(&s, &c);
	assert_int_equal(c.head_len, HEAD_TAIL_FREE);
	assert_int_equal(c.tail_len, 0);
	assert_int_equal(c.total, HEAD_TAIL_FREE + 4 + 100000);
	assert_memory_equal(c.head, line, 1000);
	capture_done(&c);
}

/* What is kept is what came first and what came last, whatever there was no room for. */
static void test_several_share(void **state)
{
	struct budget b = {.max = 300000};
	struct head_tail s[10];
	struct capture c;
	unsigned starved = 0;

	(void)state;
	for (size_t i = 0; i < 10; i++) {
		head_tail_init(&s[i], -1, 100000);
		s[i].budget = &b;
	}
	for (int round = 0; round < 200; round++)
		for (size_t i = 0; i < 10; i++) {
			print(&s[i], 1000);
			assert_true(b.used <= b.max);
		}
	for (size_t i = 0; i < 10; i++) {
		starved += s[i].starved;
		finish(&s[i], &c);
		assert_true(c.head_len >= HEAD_TAIL_FREE);
		assert_true(c.head_len + c.tail_len <= 100000);
		assert_memory_equal(c.head, line, 1000);
		capture_done(&c);
	}
	assert_true(starved > 0);
	assert_int_equal(b.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_a_budget),
		cmocka_unit_test(test_within_the_budget),
		cmocka_unit_test(test_a_little_is_free),
		cmocka_unit_test(test_several_share),
	};

	for (size_t i = 0; i < sizeof(line); i++)
		line[i] = (char)('a' + i % 26);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
