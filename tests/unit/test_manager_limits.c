/* manager: ceilings, quotas and changes of limits, row by row; and what nobody is shown. */
#include "fake_world.h"

#include "base/auto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static const struct caller operator_ = {.name = "operator", .scopes = 15};
static const struct caller tenant = {.token = "aaaaaaaaaa", .name = "a", .scopes = SCOPE_RUN};

#define AT(member) offsetof(struct limits, member)
static const struct {
	const char *field;
	size_t at;
} rows[] = {
	{"memory", AT(memory_bytes)},
	{"cpus", AT(cpus_milli)},
	{"pids", AT(pids)},
	{"disk", AT(disk_bytes)},
	{"timeout", AT(timeout_ms)},
	{"cpu_time", AT(cpu_time_ms)},
	{"open_files", AT(open_files)},
	{"file_size", AT(file_size_bytes)},
};

static uint64_t *limit(struct limits *l, size_t row)
{
	return (uint64_t *)((char *)l + rows[row].at);
}

struct answer {
	bool came;
	struct sandbox *s;
	struct err err;
};

static void on_sandbox(void *arg, struct sandbox *s, const struct err *e)
{
	struct answer *a = arg;

	a->came = true;
	a->s = s;
	if (e)
		a->err = *e;
}

/* A directory with a database in it. */
static struct world *begin(uint32_t pool)
{
	struct world *w = world_new(pool, NULL);

	world_news(w, IPC_READY, NULL);
	world_step(w);
	return w;
}

static struct answer ask(struct world *w, const struct caller *who, struct create_options *o)
{
	struct answer a = {0};

	manager_create(w->manager, who, o, on_sandbox, &a);
	world_until(w, a.came);
	return a;
}

static struct sandbox *create(struct world *w, const struct caller *who)
{
	struct create_options o;
	struct answer a;

	create_options_init(&o, w->manager);
	a = ask(w, who, &o);
	assert_non_null(a.s);
	return a.s;
}

static struct answer change(struct world *w, const struct caller *who, struct sandbox *s,
			    const struct sandbox_change *c)
{
	struct answer a = {0};

	sandbox_change(s, who, c, on_sandbox, &a);
	world_until(w, a.came);
	return a;
}

static void destroy(struct world *w, struct sandbox *s)
{
	struct answer a = {0};

	sandbox_destroy(s, &operator_, on_sandbox, &a);
	world_until(w, a.came);
}

static size_t count_listed(struct world *w, const struct caller *who)
{
	struct err e;
	json_t *list = manager_list(w->manager, who, NULL, NULL, 0, NULL, &e);
	size_t n = json_array_size(json_object_get(list, "sandboxes"));

	json_decref(list);
	return n;
}

/* The broker looks again, and knows of a tenant only whether any of its tokens has the right. */
static void root_inside_is_a_right(void **state)
{
	struct caller trusted = tenant;
	struct world *w = begin(0);
	struct create_options o;
	struct answer a;

	create_options_init(&o, w->manager);
	assert_int_equal(spec_set(&o.spec, "user", "root", &a.err), 0);
	a = ask(w, &tenant, &o);
	assert_null(a.s);
	assert_int_equal(a.err.kind, ERR_DENIED);
	assert_string_equal(a.err.field, "user");
	trusted.root = true;
	create_options_init(&o, w->manager);
	assert_int_equal(spec_set(&o.spec, "user", "root", &a.err), 0);
	assert_non_null(ask(w, &trusted, &o).s);
	world_free(w);
}

/* Every ceiling of the operator's and of a token's, one at a time: as much is fine, more is not. */
static void each_ceiling_holds(void **state)
{
	struct world *w = begin(0);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (int of_token = 0; of_token < 2; of_token++) {
			struct caller who = tenant;
			struct limits ceiling = {0};
			struct create_options o;
			struct answer a;

			create_options_init(&o, w->manager);
			if (!*limit(&o.spec.limits, i))
				*limit(&o.spec.limits, i) = 1000;
			*limit(&ceiling, i) = *limit(&o.spec.limits, i);
			who.has_ceiling = of_token;
			*(of_token ? &who.ceiling : &w->config.ceiling) = ceiling;
			a = ask(w, &who, &o);
			assert_non_null(a.s);
			destroy(w, a.s);
			create_options_init(&o, w->manager);
			*limit(&o.spec.limits, i) = *limit(&ceiling, i) + 1;
			a = ask(w, &who, &o);
			assert_null(a.s);
			assert_int_equal(a.err.kind, ERR_DENIED);
			assert_string_equal(a.err.field, rows[i].field);
			w->config.ceiling = (struct limits){0};
		}
	world_free(w);
}

/* A request that sets nothing gets the defaults, capped by both ceilings. */
static void defaults_are_capped(void **state)
{
	struct world *w = begin(0);
	struct caller who = tenant;
	struct create_options o;

	(void)state;
	w->config.sandbox.limits.memory_bytes = 512 << 20;
	w->config.sandbox.limits.pids = 200;
	w->config.sandbox.limits.cpu_time_ms = 0; /* no limit */
	w->config.ceiling = (struct limits){
		.memory_bytes = 256 << 20, .cpu_time_ms = 5000, .disk_bytes = 64 << 20};
	who.has_ceiling = true;
	who.ceiling = (struct limits){.memory_bytes = 128 << 20, .pids = 20, .timeout_ms = 700};
	w->config.max_ttl_ms = 9000;
	w->config.sandbox.ttl_ms = 0; /* for ever */
	create_options_for(&o, w->manager, &operator_);
	assert_int_equal(o.spec.limits.memory_bytes, 256 << 20);
	assert_int_equal(o.spec.limits.pids, 200);
	assert_int_equal(o.spec.limits.cpu_time_ms, 5000);
	assert_true(o.spec.limits.disk_bytes <= 64 << 20);
	assert_int_equal(o.ttl_ms, 9000);
	create_options_done(&o);
	create_options_for(&o, w->manager, &who);
	assert_int_equal(o.spec.limits.memory_bytes, 128 << 20);
	assert_int_equal(o.spec.limits.pids, 20);
	assert_int_equal(o.spec.limits.timeout_ms, 700);
	create_options_done(&o);
	world_free(w);
}

/* A change has the ceilings of its caller; one that is refused changes nothing. */
static void changes_have_ceilings(void **state)
{
	struct world *w = begin(0);
	struct sandbox *s = create(w, &tenant);
	const uint64_t before = sandbox_spec(s)->limits.memory_bytes;
	struct sandbox_change c = {.has_limits = true, .limits = sandbox_spec(s)->limits};
	struct caller who = tenant;
	struct answer a;

	(void)state;
	who.has_ceiling = true;
	who.ceiling.memory_bytes = before;
	c.limits.memory_bytes = before + 1;
	a = change(w, &who, s, &c);
	assert_int_equal(a.err.kind, ERR_DENIED);
	assert_int_equal(sandbox_spec(s)->limits.memory_bytes, before);
	assert_int_equal(world_guest(w, sandbox_id(s))->limits.memory_bytes, before);
	a = change(w, &operator_, s, &c);
	assert_non_null(a.s);
	assert_int_equal(sandbox_spec(s)->limits.memory_bytes, before + 1);
	/* The broker refuses it. */
	w->fail_updates = true;
	c.limits.memory_bytes = before + 2;
	a = change(w, &operator_, s, &c);
	assert_null(a.s);
	assert_int_equal(sandbox_spec(s)->limits.memory_bytes, before + 1);
	w->fail_updates = false;
	w->config.max_ttl_ms = 60000;
	for (uint64_t ttl = 0; ttl <= 60001; ttl += 60001) {
		c = (struct sandbox_change){.has_ttl = true, .ttl_ms = ttl};
		a = change(w, &tenant, s, &c);
		assert_int_equal(a.err.kind, ERR_INVALID);
		assert_string_equal(a.err.field, "ttl");
	}
	c.ttl_ms = 60000;
	assert_non_null(change(w, &tenant, s, &c).s);
	world_free(w);
}

/* A sandbox that has ended makes room for another, in the daemon's count and in its token's. */
static void ended_ones_do_not_count(void **state)
{
	struct world *w = begin(0);
	struct caller who = tenant;
	struct create_options o;

	(void)state;
	w->config.max_sandboxes = 2;
	who.max_sandboxes = 1;
	create(w, &operator_);
	for (int i = 0; i < 3; i++) {
		struct sandbox *s = create(w, &who);

		create_options_init(&o, w->manager);
		assert_int_equal(ask(w, &who, &o).err.kind, ERR_LIMIT);
		create_options_init(&o, w->manager);
		assert_int_equal(ask(w, &operator_, &o).err.kind, ERR_LIMIT);
		destroy(w, s);
	}
	/* The same for the memory that a tenant may have in all. */
	who.max_sandboxes = 0;
	create_options_init(&o, w->manager);
	who.memory_total = o.spec.limits.memory_bytes;
	create_options_done(&o);
	for (int i = 0; i < 3; i++) {
		struct sandbox *s = create(w, &who);

		w->config.max_sandboxes = 9;
		create_options_init(&o, w->manager);
		assert_int_equal(ask(w, &who, &o).err.kind, ERR_LIMIT);
		destroy(w, s);
	}
	world_free(w);
}

/* The same for those that were gone when the daemon came back. */
static void missing_ones_do_not_count(void **state)
{
	struct world_store store;
	struct world *w;

	(void)state;
	world_store_open(&store);
	w = world_new(0, store.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	create(w, &tenant);
	w->abandoned = true;
	world_free(w);
	w = world_new(0, store.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	w->config.max_sandboxes = 1;
	create(w, &tenant);
	world_free(w);
	world_store_close(&store);
}

/* Time passes while the daemon is away. */
static void a_restart_gives_no_time(void **state)
{
	struct world_store store;
	struct fake_guest alive;
	char id[IPC_ID];
	uint64_t expires;
	struct err e;
	struct world *w;

	(void)state;
	world_store_open(&store);
	w = world_new(0, store.store);
	world_news(w, IPC_READY, NULL);
	world_step(w);
	w->config.sandbox.ttl_ms = 600000;
	snprintf(id, sizeof(id), "%s", sandbox_id(create(w, &tenant)));
	expires = sandbox_expires_ms(manager_find(w->manager, &tenant, id, &e));
	alive = *world_guest(w, id);
	w->abandoned = true;
	world_free(w);
	usleep(300000);
	w = world_new(0, store.store);
	world_adopt(w, &alive);
	world_news(w, IPC_READY, NULL);
	world_until(w, manager_find(w->manager, &tenant, id, &e) &&
			       sandbox_state(manager_find(w->manager, &tenant, id, &e)) ==
				       STATE_RUNNING);
	assert_in_range(sandbox_expires_ms(manager_find(w->manager, &tenant, id, &e)),
			expires - 100, expires + 100);
	world_free(w);
	world_store_close(&store);
}

static void nobody_sees_the_pool_or_runs(void **state)
{
	struct world *w = begin(2);
	struct create_options o;
	struct answer a;
	struct err e;

	(void)state;
	world_until(w, manager_metrics(w->manager)->pooled == 2 && world_guest_count(w) == 2);
	for (size_t i = 0; i < WORLD_GUESTS; i++)
		if (w->guests[i].used) {
			assert_null(manager_find(w->manager, &operator_, w->guests[i].id, &e));
			assert_null(manager_find_any(w->manager, w->guests[i].id));
		}
	assert_int_equal(count_listed(w, &operator_), 0);
	create_options_init(&o, w->manager);
	o.transient = true;
	a = ask(w, &tenant, &o);
	assert_non_null(a.s);
	assert_int_equal(count_listed(w, &tenant), 0);
	assert_null(manager_find_any(w->manager, sandbox_id(a.s)));
	world_free(w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(root_inside_is_a_right),
		cmocka_unit_test(each_ceiling_holds),
		cmocka_unit_test(defaults_are_capped),
		cmocka_unit_test(changes_have_ceilings),
		cmocka_unit_test(ended_ones_do_not_count),
		cmocka_unit_test(missing_ones_do_not_count),
		cmocka_unit_test(a_restart_gives_no_time),
		cmocka_unit_test(nobody_sees_the_pool_or_runs),
	};

	return cmocka_run_group_tests_name("manager limits", tests, NULL, NULL);
}
