/* The table of trust levels: seed 001's matrix, its delegation rule, and what is no level. */
#include "auth/trust.h"
#include "base/base.h"
#include "model/spec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void talks_as_the_seed_has_it(void **state)
{
	static const bool may[TRUST_LEVELS][TRUST_LEVELS] = {
		{0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0}, {0, 1, 1, 0, 0, 0},
		{0, 1, 1, 1, 0, 0}, {0, 0, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 1},
	};

	for (int from = 0; from < TRUST_LEVELS; from++)
		for (int to = 0; to < TRUST_LEVELS; to++) {
			assert_int_equal(trust_may_talk(from, to), may[from][to]);
			assert_int_equal(trust_may_delegate(from, to), may[from][to] && to <= from);
		}
}

static void what_is_no_level_is_untrusted(void **state)
{
	static const int odd[] = {-1, 6, 31, 32, 1000, INT32_MIN, INT32_MAX};

	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		assert_false(trust_may_talk(odd[i], 1));
		assert_false(trust_may_talk(5, odd[i]));
		assert_false(trust_may_delegate(5, odd[i]));
		assert_int_equal(trust_net(odd[i]), NET_NONE);
		assert_true(trust_level(odd[i])->wants_vm);
	}
}

static void networks(void **state)
{
	static const int most[TRUST_LEVELS] = {NET_NONE,  NET_NONE,   NET_ALLOW,
					       NET_ALLOW, NET_PUBLIC, NET_PUBLIC};
	static const int usual[TRUST_LEVELS] = {NET_NONE, NET_NONE,   NET_NONE,
						NET_NONE, NET_PUBLIC, NET_NONE};

	for (int i = 0; i < TRUST_LEVELS; i++) {
		assert_int_equal(trust_net(i), most[i]);
		assert_int_equal(trust_usual_net(i, false), usual[i]);
	}
	assert_int_equal(trust_usual_net(2, true), NET_ALLOW);
	assert_int_equal(trust_usual_net(1, true), NET_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(talks_as_the_seed_has_it),
		cmocka_unit_test(what_is_no_level_is_untrusted),
		cmocka_unit_test(networks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
