/* Which tokens have warm hosts. */
#include "fake_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* All places are taken by tokens that ask for nothing any more: another token gets one of them. */
static void a_token_without_a_warm_host_gets_a_place(void **state)
{
	struct world *w = world_new(0, NULL);
	struct create_options o = {.image_id = "host"};
	struct caller who = {.token = "aaaaaaaaaa", .name = "a", .scopes = SCOPE_RUN}, last = who;
	const char *why = NULL;
	struct err e;

	world_news(w, IPC_READY, NULL);
	w->config.warm.lanes = 1;
	spec_init(&o.spec);
	assert_int_equal(spec_finish(&o.spec, &e), 0);
	/* Limits of one's own are only noted at first: no sandbox is made. */
	o.spec.limits.pids = 77;
	for (char i = 0; i < 32; i++) {
		who.token[0] = (char)('A' + i);
		assert_null(manager_warm_host(w->manager, &who, &o, &why));
		assert_non_null(strstr(why, "asked for again"));
	}
	assert_null(manager_warm_host(w->manager, &last, &o, &why));
	assert_non_null(strstr(why, "too many"));
	usleep(2100000);
	assert_null(manager_warm_host(w->manager, &last, &o, &why));
	assert_non_null(strstr(why, "asked for again"));
	spec_done(&o.spec);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_without_a_warm_host_gets_a_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
