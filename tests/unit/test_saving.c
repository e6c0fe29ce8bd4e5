/* manager: a change that cannot be saved does not happen; a guest that does not answer loses nothing. */
#include "fake_world.h"

#include "base/auto.h"
#include "base/str.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct caller tenant_a = {.token = "aaaaaaaaaa", .name = "a", .scopes = SCOPE_RUN};

struct answer {
	bool came;
	struct sandbox *s;
	struct err err;
};

static void on_sandbox(void *arg, struct sandbox *s, const struct err *e)
{
	struct answer *a = arg;

	assert_false(a->came);
	a->came = true;
	a->s = s;
	if (e)
		a->err = *e;
	assert_true((s == NULL) == (e != NULL));
}

static struct sandbox *create(struct world *w, const struct caller *who)
{
	struct create_options o;
	struct answer a;

	create_options_init(&o, w->manager);
	a = (struct answer){0};
	manager_create(w->manager, who, &o, on_sandbox, &a);
	world_until(w, a.came);
	assert_non_null(a.s);
	assert_int_equal(STATE_RUNNING, sandbox_state(a.s));
	return a.s;
}

static void do_it(struct world *w,
		  void (*verb)(struct sandbox *, const struct caller *, sandbox_done, void *),
		  struct sandbox *s, struct answer *a)
{
	*a = (struct answer){0};
	verb(s, &tenant_a, on_sandbox, a);
	assert_false(a->came);
	world_until(w, a->came);
}

/* A store that a test can make fail: another connection renames its table. */
struct failing_store {
	struct world_store at;
	sqlite3 *other;
};

static void failing_open(struct failing_store *f)
{
	world_store_open(&f->at);
	/* The second time it is not new, so that nothing has to be recovered. */
	world_store_reopen(&f->at);
	assert_int_equal(SQLITE_OK, sqlite3_open(f->at.path, &f->other));
}

static void failing_set(struct failing_store *f, bool fails)
{
	const char *sql = fails ? "ALTER TABLE sandboxes RENAME TO away"
				: "ALTER TABLE away RENAME TO sandboxes";

	assert_int_equal(SQLITE_OK, sqlite3_exec(f->other, sql, NULL, NULL, NULL));
}

static void failing_close(struct failing_store *f)
{
	sqlite3_close(f->other);
	world_store_close(&f->at);
}

static void change_settings(struct sandbox *s, const struct caller *who, sandbox_done done,
			    void *arg)
{
	json_t *metadata = json_pack("{s:s}", "k", "new");
	struct sandbox_change c = {.has_ttl = true,
				   .ttl_ms = 7000,
				   .has_metadata = true,
				   .metadata = metadata,
				   .has_limits = true,
				   .limits = sandbox_spec(s)->limits};

	c.limits.memory_bytes = 64 << 20;
	sandbox_change(s, who, &c, done, arg);
	json_decref(metadata);
}

/* Rule 32: each verb that cannot be saved is an error, changes nothing, and works later. */
static void keeps_the_old_state_if_it_cannot_be_saved(void **state)
{
	static const struct {
		void (*verb)(struct sandbox *s, const struct caller *who, sandbox_done done,
			     void *arg);
		enum sandbox_state after;
	} verbs[] = {{change_settings, STATE_RUNNING}, {sandbox_pause, STATE_PAUSED},
		     {sandbox_resume, STATE_RUNNING},  {sandbox_stop, STATE_STOPPED},
		     {sandbox_start, STATE_RUNNING},   {sandbox_destroy, STATE_DESTROYED}};
	struct failing_store f;
	struct world *w;
	struct sandbox *s;
	struct answer a;

	(void)state;
	failing_open(&f);
	w = world_new(0, f.at.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	s = sandbox_hold(create(w, &tenant_a));
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		enum sandbox_state before = sandbox_state(s);
		uint64_t expires = sandbox_expires_ms(s);
		uint64_t memory = sandbox_spec(s)->limits.memory_bytes;
		json_t *metadata = json_deep_copy(sandbox_metadata(s));

		failing_set(&f, true);
		do_it(w, verbs[i].verb, s, &a);
		assert_int_equal(ERR_SYSTEM, a.err.kind);
		assert_int_equal(before, sandbox_state(s));
		assert_true(expires == sandbox_expires_ms(s));
		assert_true(memory == sandbox_spec(s)->limits.memory_bytes);
		assert_true(metadata == NULL ? !sandbox_metadata(s)
					     : json_equal(metadata, sandbox_metadata(s)));
		assert_int_equal(before != STATE_STOPPED, world_guest(w, sandbox_id(s)) != NULL);
		if (before == STATE_RUNNING)
			assert_false(world_guest(w, sandbox_id(s))->paused);
		failing_set(&f, false);
		do_it(w, verbs[i].verb, s, &a);
		assert_ptr_equal(s, a.s);
		assert_int_equal(verbs[i].after, sandbox_state(s));
		json_decref(metadata);
	}
	sandbox_release(s);
	world_free(w);
	failing_close(&f);
}

/* The broker is killed when it has destroyed the sandbox, before it could say so. */
static void keeps_the_files_of_a_stop_that_was_cut(void **state)
{
	struct failing_store f;
	struct world *w;
	struct sandbox *s;
	char id[IPC_ID];
	struct answer a;
	struct err e;

	(void)state;
	failing_open(&f);
	w = world_new(0, f.at.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	s = create(w, &tenant_a);
	snprintf(id, sizeof(id), "%s", sandbox_id(s));
	w->dies_in_destroy = w->abandoned = true;
	do_it(w, sandbox_stop, s, &a);
	assert_int_equal(ERR_SYSTEM, a.err.kind);
	world_free(w);
	w = world_new(0, f.at.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	s = manager_find(w->manager, &tenant_a, id, &e);
	assert_non_null(s);
	assert_int_equal(STATE_STOPPED, sandbox_state(s));
	world_free(w);
	failing_close(&f);
}

/* ---- a guest that does not answer ---- */

static struct sandbox *make_unreachable(struct world *w, unsigned failing)
{
	struct sandbox *s = create(w, &tenant_a);

	w->fail_connects = failing;
	guest_hang_up(world_guest(w, sandbox_id(s)));
	world_until(w, sandbox_state(s) == STATE_UNREACHABLE);
	assert_int_equal(0, w->destroys);
	return s;
}

static struct world *begin_world(void)
{
	struct world *w = world_new(0, NULL);

	world_news(w, IPC_READY, NULL);
	world_step(w);
	return w;
}

static void waits_for_a_guest_that_does_not_answer(void **state)
{
	struct world *w = begin_world();
	struct sandbox *s = make_unreachable(w, 2);

	(void)state;
	world_until(w, sandbox_state(s) == STATE_RUNNING);
	assert_int_equal(3, w->connects);
	assert_int_equal(1, world_guest_count(w));
	world_free(w);
}

static void lets_the_owner_decide(void **state)
{
	struct world *w = begin_world();
	struct sandbox *s = make_unreachable(w, 1000);
	struct answer a;

	(void)state;
	do_it(w, sandbox_wake, s, &a);
	assert_int_equal(ERR_CONFLICT, a.err.kind);
	do_it(w, sandbox_pause, s, &a);
	assert_int_equal(STATE_PAUSED, sandbox_state(s));
	do_it(w, sandbox_resume, s, &a);
	world_until(w, sandbox_state(s) == STATE_UNREACHABLE);
	do_it(w, sandbox_stop, s, &a);
	assert_int_equal(STATE_STOPPED, sandbox_state(s));
	assert_int_equal(1, w->snapshots);
	world_free(w);
}

static void ends_an_unreachable_one_by_time(void **state)
{
	struct world *w = begin_world();
	struct sandbox *s = make_unreachable(w, 1000);
	struct sandbox_change c = {.has_ttl = true, .ttl_ms = 50};
	struct answer a = {0};

	(void)state;
	sandbox_change(s, &tenant_a, &c, on_sandbox, &a);
	world_until(w, a.came);
	assert_ptr_equal(s, a.s);
	world_until(w, sandbox_state(s) == STATE_DESTROYED);
	assert_int_equal(0, world_guest_count(w));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_the_old_state_if_it_cannot_be_saved),
		cmocka_unit_test(keeps_the_files_of_a_stop_that_was_cut),
		cmocka_unit_test(waits_for_a_guest_that_does_not_answer),
		cmocka_unit_test(lets_the_owner_decide),
		cmocka_unit_test(ends_an_unreachable_one_by_time),
	};

	return cmocka_run_group_tests_name("saving", tests, NULL, NULL);
}
