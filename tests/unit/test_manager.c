/* manager: sandboxes through all their states, against a broker and guests of the test's own. */
#include "fake_world.h"

#include "base/auto.h"
#include "base/str.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct caller operator_ = {.name = "operator", .scopes = 15};
static const struct caller tenant_a = {.token = "aaaaaaaaaa", .name = "a", .scopes = SCOPE_RUN};
static const struct caller tenant_b = {.token = "bbbbbbbbbb", .name = "b", .scopes = SCOPE_RUN};

struct answer {
	bool came;
	struct sandbox *s;
	json_t *value;
	char *text;
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

static void on_json(void *arg, json_t *value, const struct err *e)
{
	struct answer *a = arg;

	assert_false(a->came);
	a->came = true;
	a->value = value;
	if (e)
		a->err = *e;
}

static void on_captured(void *arg, struct capture_run *c, const struct err *e)
{
	struct answer *a = arg;
	size_t len;

	a->came = true;
	if (c) {
		a->text = result_text(capture_result(c), &len);
		assert_int_equal(len, strlen(a->text));
		a->value = json_loads(a->text, 0, NULL);
		assert_non_null(a->value);
	} else {
		a->err = *e;
	}
	capture_drop(c);
}

static void done_with(struct answer *a)
{
	json_decref(a->value);
	free(a->text);
	*a = (struct answer){0};
}

/* A directory with a database in it. */
static struct world *begin(uint32_t pool)
{
	struct world *w = world_new(pool, NULL);

	world_news(w, IPC_READY, NULL);
	world_step(w);
	return w;
}

static void ask_create(struct world *w, const struct caller *who, struct create_options *o,
		       struct answer *a)
{
	*a = (struct answer){0};
	manager_create(w->manager, who, o, on_sandbox, a);
	assert_false(a->came);
	world_until(w, a->came);
}

static struct sandbox *create(struct world *w, const struct caller *who)
{
	struct create_options o;
	struct answer a;

	create_options_init(&o, w->manager);
	ask_create(w, who, &o, &a);
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

/* ---- creating ---- */

static void creates_and_destroys(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer a;
	struct err e;

	(void)state;
	assert_ptr_equal(s, manager_find(w->manager, &operator_, sandbox_id(s), &e));
	assert_true(ipc_id_is_valid(sandbox_id(s)));
	assert_true(world_guest(w, sandbox_id(s))->ttl_ms > 0);
	do_it(w, sandbox_destroy, s, &a);
	assert_ptr_equal(s, a.s);
	assert_int_equal(STATE_DESTROYED, sandbox_state(s));
	assert_int_equal(0, world_guest_count(w));
	/* It is still known for a while, and destroying it again is no error. */
	assert_ptr_equal(s, manager_find(w->manager, &operator_, sandbox_id(s), &e));
	do_it(w, sandbox_destroy, s, &a);
	assert_ptr_equal(s, a.s);
	world_free(w);
}

static void retries_a_failed_boot(void **state)
{
	struct world *w = begin(0);
	struct create_options o;
	struct answer a;

	(void)state;
	w->fail_boots = 2;
	create(w, &operator_);
	assert_int_equal(3, w->boots);
	w->fail_boots = 3;
	create_options_init(&o, w->manager);
	ask_create(w, &operator_, &o, &a);
	assert_null(a.s);
	assert_int_equal(ERR_SYSTEM, a.err.kind);
	assert_int_equal(6, w->boots);
	/* What cannot be better the next time is not tried again. */
	w->fail_boots = 1;
	w->fail_kind = ERR_UNSUPPORTED;
	create_options_init(&o, w->manager);
	ask_create(w, &operator_, &o, &a);
	assert_int_equal(ERR_UNSUPPORTED, a.err.kind);
	assert_int_equal(7, w->boots);
	world_free(w);
}

static void keeps_to_limits(void **state)
{
	struct world *w = begin(0);
	struct caller small = tenant_a;
	struct create_options o;
	struct answer a;

	(void)state;
	small.max_sandboxes = 1;
	create(w, &small);
	create_options_init(&o, w->manager);
	ask_create(w, &small, &o, &a);
	assert_int_equal(ERR_LIMIT, a.err.kind);
	create(w, &tenant_b);
	w->config.max_sandboxes = 2;
	create_options_init(&o, w->manager);
	ask_create(w, &tenant_b, &o, &a);
	assert_int_equal(ERR_LIMIT, a.err.kind);
	small.max_sandboxes = 0;
	small.has_ceiling = true;
	small.ceiling.memory_bytes = 1 << 20;
	w->config.max_sandboxes = 9;
	create_options_init(&o, w->manager);
	ask_create(w, &small, &o, &a);
	assert_int_equal(ERR_DENIED, a.err.kind);
	assert_string_equal("memory", a.err.field);
	world_free(w);
}

static void destroys_what_is_being_booted(void **state)
{
	struct world *w = begin(0);
	struct answer made = {0}, gone = {0};
	struct create_options o;
	struct sandbox *s = NULL;
	json_t *list;
	struct err e;

	(void)state;
	w->hold_boots = true;
	create_options_init(&o, w->manager);
	manager_create(w->manager, &operator_, &o, on_sandbox, &made);
	world_until(w, w->held.type == IPC_BOOT);
	s = manager_find(w->manager, &operator_, w->held.boot.id, &e);
	assert_non_null(s);
	sandbox_destroy(s, &tenant_a, on_sandbox, &gone);
	world_step(w);
	assert_false(gone.came);
	world_boot_held(w);
	world_until(w, gone.came && made.came);
	assert_null(made.s);
	assert_non_null(gone.s);
	assert_int_equal(0, world_guest_count(w));
	list = manager_list(w->manager, &operator_, "running", NULL, 0, NULL, &e);
	assert_int_equal(0, json_array_size(json_object_get(list, "sandboxes")));
	json_decref(list);
	world_free(w);
}

/* ---- the pool ---- */

static void uses_its_pool(void **state)
{
	struct world *w = begin(2);
	struct sandbox *s;

	(void)state;
	world_until(w, manager_metrics(w->manager)->pooled == 2 && w->boots == 2);
	for (int i = 0; i < 5; i++)
		world_step(w);
	s = create(w, &tenant_a);
	assert_int_equal(1, w->claims);
	assert_int_equal(1, manager_metrics(w->manager)->pool_hits);
	assert_string_equal(tenant_a.token, world_guest(w, sandbox_id(s))->owner);
	/* It is filled up again. */
	world_until(w, w->boots == 3 && world_guest_count(w) == 3);
	/* One that cannot be claimed is replaced. */
	for (int i = 0; i < 5; i++)
		world_step(w);
	w->fail_claims = true;
	s = create(w, &tenant_a);
	assert_int_equal(2, w->claims);
	assert_string_equal(tenant_a.token, world_guest(w, sandbox_id(s))->owner);
	world_free(w);
}

/* ---- who sees what ---- */

static void hides_tenants_from_each_other(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &tenant_a);
	struct err unknown, foreign;
	json_t *list;

	(void)state;
	assert_null(manager_find(w->manager, &tenant_b, "aaaaaaaaaaaaaaaaaaaa", &unknown));
	assert_null(manager_find(w->manager, &tenant_b, sandbox_id(s), &foreign));
	assert_int_equal(ERR_NOT_FOUND, foreign.kind);
	assert_string_equal(unknown.msg, foreign.msg);
	list = manager_list(w->manager, &tenant_b, NULL, NULL, 0, NULL, &foreign);
	assert_int_equal(0, json_array_size(json_object_get(list, "sandboxes")));
	json_decref(list);
	assert_non_null(manager_find(w->manager, &operator_, sandbox_id(s), &foreign));
	world_free(w);
}

static void lists_in_pages(void **state)
{
	struct world *w = begin(0);
	struct list filter = {0};
	char cursor[64] = "";
	size_t seen = 0, pages = 0;
	struct err e;
	json_t *list;

	(void)state;
	for (int i = 0; i < 7; i++) {
		struct create_options o;
		struct answer a;

		create_options_init(&o, w->manager);
		o.metadata = json_pack("{s:s}", "kind", i % 2 ? "odd" : "even");
		ask_create(w, &operator_, &o, &a);
		assert_non_null(a.s);
	}
	do {
		list = manager_list(w->manager, &operator_, NULL, NULL, 3, cursor, &e);
		assert_non_null(list);
		seen += json_array_size(json_object_get(list, "sandboxes"));
		pages++;
		snprintf(cursor, sizeof(cursor), "%s",
			 json_is_string(json_object_get(list, "cursor"))
				 ? json_string_value(json_object_get(list, "cursor"))
				 : "");
		json_decref(list);
	} while (cursor[0]);
	assert_int_equal(7, seen);
	assert_int_equal(3, pages);
	list_add(&filter, "kind=odd");
	list = manager_list(w->manager, &operator_, "running", &filter, 0, NULL, &e);
	assert_int_equal(3, json_array_size(json_object_get(list, "sandboxes")));
	json_decref(list);
	assert_null(manager_list(w->manager, &operator_, "odd", NULL, 0, NULL, &e));
	assert_int_equal(ERR_INVALID, e.kind);
	assert_null(manager_list(w->manager, &operator_, NULL, NULL, 0, "12-x", &e));
	list_done(&filter);
	world_free(w);
}

/* ---- states ---- */

static void pauses_and_resumes(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer a;

	(void)state;
	do_it(w, sandbox_pause, s, &a);
	assert_int_equal(STATE_PAUSED, sandbox_state(s));
	assert_true(world_guest(w, sandbox_id(s))->paused);
	do_it(w, sandbox_wake, s, &a);
	assert_int_equal(ERR_CONFLICT, a.err.kind);
	do_it(w, sandbox_resume, s, &a);
	assert_int_equal(STATE_RUNNING, sandbox_state(s));
	do_it(w, sandbox_wake, s, &a);
	assert_ptr_equal(s, a.s);
	do_it(w, sandbox_start, s, &a);
	assert_ptr_equal(s, a.s);
	world_free(w);
}

static void resumes_by_itself(void **state)
{
	struct world *w = begin(0);
	struct create_options o;
	struct answer a, b = {0}, c = {0};
	struct sandbox *s;

	(void)state;
	create_options_init(&o, w->manager);
	o.auto_resume = true;
	ask_create(w, &operator_, &o, &a);
	s = a.s;
	do_it(w, sandbox_pause, s, &a);
	sandbox_wake(s, &tenant_a, on_sandbox, &b);
	sandbox_wake(s, &tenant_a, on_sandbox, &c);
	world_until(w, b.came && c.came);
	assert_ptr_equal(s, b.s);
	assert_ptr_equal(s, c.s);
	assert_int_equal(STATE_RUNNING, sandbox_state(s));
	world_free(w);
}

static void ends_by_time(void **state)
{
	struct world *w = begin(0);
	struct create_options o;
	struct answer a;
	struct sandbox *killed, *paused;

	(void)state;
	create_options_init(&o, w->manager);
	o.ttl_ms = 30;
	ask_create(w, &operator_, &o, &a);
	killed = a.s;
	create_options_init(&o, w->manager);
	o.ttl_ms = 30;
	o.pause_on_timeout = true;
	ask_create(w, &operator_, &o, &a);
	paused = a.s;
	/* It must not end itself. */
	assert_int_equal(0, world_guest(w, sandbox_id(paused))->ttl_ms);
	world_until(w, sandbox_state(killed) == STATE_DESTROYED);
	world_until(w, sandbox_state(paused) == STATE_PAUSED);
	world_free(w);
}

static void ends_by_idleness(void **state)
{
	struct world *w = begin(0);
	struct create_options o;
	struct answer a, r = {0};
	struct exec_request request = {0};
	struct sandbox *s;

	(void)state;
	create_options_init(&o, w->manager);
	o.idle_ms = 40;
	ask_create(w, &operator_, &o, &a);
	s = a.s;
	/* A command keeps it, however long it takes. */
	list_add(&request.argv, "hang");
	exec_capture(s, &tenant_a, &request, on_captured, &r);
	for (int i = 0; i < 100; i++)
		world_step(w);
	assert_int_equal(STATE_RUNNING, sandbox_state(s));
	world_guest(w, sandbox_id(s))->hanging = 0;
	guest_hang_up(world_guest(w, sandbox_id(s)));
	world_until(w, sandbox_state(s) == STATE_DESTROYED);
	assert_true(r.came);
	done_with(&r);
	list_done(&request.argv);
	world_free(w);
}

static void notifys_a_death(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	json_t *text;

	(void)state;
	world_news(w, IPC_DIED, sandbox_id(s));
	world_until(w, sandbox_state(s) == STATE_FAILED);
	text = sandbox_describe(s);
	assert_true(json_is_string(json_object_get(text, "reason")));
	json_decref(text);
	assert_int_equal(0, world_guest_count(w));
	world_free(w);
}

static void mends_a_lost_link(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer a;

	(void)state;
	guest_hang_up(world_guest(w, sandbox_id(s)));
	world_until(w, w->connects == 1);
	do_it(w, sandbox_wake, s, &a);
	assert_ptr_equal(s, a.s);
	world_free(w);
}

static void retries_a_failed_destroy(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer a;

	(void)state;
	w->fail_destroys = 2;
	do_it(w, sandbox_destroy, s, &a);
	assert_ptr_equal(s, a.s);
	assert_int_equal(3, w->destroys);
	world_free(w);
}

static void changes_limits_and_metadata(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct sandbox_change c = {.has_limits = true, .has_metadata = true, .has_ttl = true};
	struct answer a = {0};

	(void)state;
	c.limits = sandbox_spec(s)->limits;
	c.limits.memory_bytes = 64 << 20;
	c.metadata = json_pack("{s:s}", "a", "b");
	w->config.max_ttl_ms = 0; /* for ever is not too long */
	sandbox_change(s, &tenant_a, &c, on_sandbox, &a);
	json_decref(c.metadata);
	world_until(w, a.came);
	assert_ptr_equal(s, a.s);
	assert_int_equal(64 << 20, world_guest(w, sandbox_id(s))->limits.memory_bytes);
	assert_string_equal("b", json_string_value(json_object_get(sandbox_metadata(s), "a")));
	assert_int_equal(0, sandbox_expires_ms(s));
	world_free(w);
}

/* ---- commands ---- */

static void run(struct world *w, struct sandbox *s, const char *what, struct answer *r)
{
	struct exec_request request = {0};

	*r = (struct answer){0};
	list_add(&request.argv, what);
	list_add(&request.argv, "hello");
	exec_capture(s, &tenant_a, &request, on_captured, r);
	list_done(&request.argv);
	world_until(w, r->came);
}

static const char *text_of(const struct answer *r, const char *key)
{
	return json_string_value(json_object_get(r->value, key));
}

static void makes_records(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer r;

	(void)state;
	run(w, s, "echo", &r);
	assert_string_equal("hello", text_of(&r, "stdout"));
	assert_string_equal("noise", text_of(&r, "stderr"));
	assert_string_equal("exited", text_of(&r, "status"));
	assert_int_equal(0, json_integer_value(json_object_get(r.value, "exit_code")));
	assert_int_equal(1, json_array_size(json_object_get(r.value, "denials")));
	assert_string_equal("v2", json_string_value(json_object_get(
					  json_object_get(r.value, "layers"), "cgroup")));
	done_with(&r);
	run(w, s, "fail", &r);
	assert_int_equal(3, json_integer_value(json_object_get(r.value, "exit_code")));
	done_with(&r);
	/* Killed by somebody, and killed for memory. */
	run(w, s, "kill", &r);
	assert_string_equal("signaled", text_of(&r, "status"));
	done_with(&r);
	w->oom_kills = 1;
	run(w, s, "kill", &r);
	assert_string_equal("oom", text_of(&r, "status"));
	done_with(&r);
	run(w, s, "kill", &r);
	assert_string_equal("signaled", text_of(&r, "status"));
	done_with(&r);
	world_free(w);
}

static void ends_commands_with_their_sandbox(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct exec_request request = {0};
	struct answer r = {0}, a;
	struct capture_run *cancelled;

	(void)state;
	list_add(&request.argv, "hang");
	exec_capture(s, &tenant_a, &request, on_captured, &r);
	cancelled = exec_capture(s, &tenant_a, &request, on_captured, NULL);
	world_until(w, world_guest(w, sandbox_id(s))->execs == 2);
	capture_drop(cancelled);
	do_it(w, sandbox_destroy, s, &a);
	world_until(w, r.came);
	assert_null(r.value);
	assert_int_equal(ERR_CONFLICT, r.err.kind);
	list_done(&request.argv);
	world_free(w);
}

/* ---- snapshots ---- */

static void stops_and_starts(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &operator_);
	struct answer a;

	(void)state;
	do_it(w, sandbox_stop, s, &a);
	assert_int_equal(STATE_STOPPED, sandbox_state(s));
	assert_int_equal(1, w->snapshots);
	assert_int_equal(0, world_guest_count(w));
	do_it(w, sandbox_start, s, &a);
	assert_int_equal(STATE_RUNNING, sandbox_state(s));
	assert_int_equal(200000, world_guest(w, sandbox_id(s))->tar_bytes);
	world_until(w, w->snapshot_deletes == 1);
	/* A start that fails keeps the files. */
	do_it(w, sandbox_stop, s, &a);
	w->fail_boots = 9;
	do_it(w, sandbox_start, s, &a);
	assert_null(a.s);
	assert_int_equal(STATE_STOPPED, sandbox_state(s));
	w->fail_boots = 0;
	do_it(w, sandbox_start, s, &a);
	assert_ptr_equal(s, a.s);
	world_free(w);
}

static void forks(void **state)
{
	struct world *w = begin(0);
	struct create_options o;
	struct answer a, f = {0};
	json_t *all;

	(void)state;
	create_options_init(&o, w->manager);
	o.metadata = json_pack("{s:s}", "of", "origin");
	ask_create(w, &tenant_a, &o, &a);
	w->config.max_sandboxes_per_token = 3;
	sandbox_fork(a.s, &tenant_a, 3, on_json, &f);
	world_until(w, f.came);
	all = json_object_get(f.value, "sandboxes");
	assert_int_equal(3, json_array_size(all));
	for (size_t i = 0; i < 2; i++) {
		json_t *s = json_object_get(json_array_get(all, i), "sandbox");

		assert_string_equal("origin", json_string_value(json_object_get(
						      json_object_get(s, "metadata"), "of")));
		assert_int_equal(
			200000,
			world_guest(w, json_string_value(json_object_get(s, "id")))->tar_bytes);
	}
	/* The third did not fit, and says so in its place. */
	assert_non_null(json_object_get(json_array_get(all, 2), "error"));
	world_until(w, w->snapshot_deletes == 1);
	done_with(&f);
	world_free(w);
}

/* ---- watching ---- */

static size_t events_seen;

static void on_event(void *arg, const json_t *event)
{
	(void)arg;
	assert_true(json_is_string(json_object_get(event, "type")));
	events_seen++;
}

static void tells_events_and_stats(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &tenant_a);
	struct answer a = {0};
	struct subscription *mine, *foreign;
	size_t mine_seen;

	(void)state;
	events_seen = 0;
	mine = manager_subscribe(w->manager, &tenant_a, 1, on_event, NULL);
	world_until(w, events_seen >= 2);
	mine_seen = events_seen;
	foreign = manager_subscribe(w->manager, &tenant_b, 1, on_event, NULL);
	for (int i = 0; i < 5; i++)
		world_step(w);
	assert_int_equal(mine_seen, events_seen);
	manager_unsubscribe(mine);
	manager_unsubscribe(foreign);
	sandbox_stats(s, on_json, &a);
	world_until(w, a.came);
	assert_int_equal(4096, json_integer_value(json_object_get(a.value, "memory_bytes")));
	assert_int_equal(1, json_array_size(json_object_get(a.value, "history")));
	done_with(&a);
	sandbox_health(s, on_json, &a);
	world_until(w, a.came);
	assert_true(json_is_true(json_object_get(a.value, "healthy")));
	done_with(&a);
	manager_stats(w->manager, &tenant_a, on_json, &a);
	world_until(w, a.came);
	assert_int_equal(1, json_array_size(json_object_get(a.value, "sandboxes")));
	done_with(&a);
	world_free(w);
}

/* ---- a new daemon ---- */

static void takes_up_what_lives(void **state)
{
	struct world_store store;
	char lives[IPC_ID], dies[IPC_ID], stopped[IPC_ID];
	struct fake_guest alive, stranger = {.id = "aaaaaaaaaaaaaaaaaaaa"};
	struct world *w;
	struct answer a;
	struct sandbox *s;
	struct err e;

	(void)state;
	world_store_open(&store);
	w = world_new(0, store.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	snprintf(lives, IPC_ID, "%s", sandbox_id(create(w, &tenant_a)));
	snprintf(dies, IPC_ID, "%s", sandbox_id(create(w, &tenant_a)));
	s = create(w, &tenant_b);
	snprintf(stopped, IPC_ID, "%s", sandbox_id(s));
	do_it(w, sandbox_stop, s, &a);
	alive = *world_guest(w, lives);
	w->abandoned = true;
	for (int i = 0; i < 10; i++)
		world_step(w);
	world_free(w);

	world_store_reopen(&store);
	assert_false(store_is_lost(store.store));
	w = world_new(0, store.store);
	world_adopt(w, &alive);
	/* And one that nobody ever heard of. */
	world_adopt(w, &stranger);
	world_news(w, IPC_READY, NULL);
	world_until(w, !w->guests[1].used);
	s = manager_find(w->manager, &tenant_a, lives, &e);
	assert_non_null(s);
	assert_int_equal(STATE_RUNNING, sandbox_state(s));
	assert_true(sandbox_expires_ms(s) > 0);
	run(w, s, "echo", &a);
	assert_string_equal("hello", text_of(&a, "stdout"));
	done_with(&a);
	assert_int_equal(STATE_FAILED,
			 sandbox_state(manager_find(w->manager, &tenant_a, dies, &e)));
	s = manager_find(w->manager, &tenant_b, stopped, &e);
	assert_int_equal(STATE_STOPPED, sandbox_state(s));
	do_it(w, sandbox_start, s, &a);
	assert_ptr_equal(s, a.s);
	world_free(w);
	world_store_close(&store);
}

static void counts_destroyed(void *arg, size_t count)
{
	*(size_t *)arg = count;
}

static void destroys_all_of_one(void **state)
{
	struct world *w = begin(0);
	size_t count = 99;

	(void)state;
	create(w, &tenant_a);
	create(w, &tenant_a);
	create(w, &tenant_b);
	manager_destroy_all(w->manager, &tenant_a, counts_destroyed, &count);
	world_until(w, count != 99);
	assert_int_equal(2, count);
	assert_int_equal(1, world_guest_count(w));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creates_and_destroys),
		cmocka_unit_test(retries_a_failed_boot),
		cmocka_unit_test(keeps_to_limits),
		cmocka_unit_test(destroys_what_is_being_booted),
		cmocka_unit_test(uses_its_pool),
		cmocka_unit_test(hides_tenants_from_each_other),
		cmocka_unit_test(lists_in_pages),
		cmocka_unit_test(pauses_and_resumes),
		cmocka_unit_test(resumes_by_itself),
		cmocka_unit_test(ends_by_time),
		cmocka_unit_test(ends_by_idleness),
		cmocka_unit_test(notifys_a_death),
		cmocka_unit_test(mends_a_lost_link),
		cmocka_unit_test(retries_a_failed_destroy),
		cmocka_unit_test(changes_limits_and_metadata),
		cmocka_unit_test(makes_records),
		cmocka_unit_test(ends_commands_with_their_sandbox),
		cmocka_unit_test(stops_and_starts),
		cmocka_unit_test(forks),
		cmocka_unit_test(tells_events_and_stats),
		cmocka_unit_test(takes_up_what_lives),
		cmocka_unit_test(destroys_all_of_one),
	};

	return cmocka_run_group_tests_name("manager", tests, NULL, NULL);
}
