/* Metrics of sandboxes as the control plane gives them: samples with their times. */
#include "api/e2b.h"

#include "base/auto.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static json_t *metric(const struct sandbox *s, const json_t *sample, uint64_t unix_ms)
{
	const struct limits *l = &sandbox_spec(s)->limits;
	json_int_t total = (json_int_t)number(sample, "memory_limit_bytes");

	return must_alloc(json_pack(
		"{s:o,s:I,s:I,s:f,s:I,s:I,s:I,s:I,s:I}", "timestamp", e2b_time(unix_ms),
		"timestampUnix", (json_int_t)(unix_ms / 1000), "cpuCount",
		(json_int_t)((l->cpus_milli + 999) / 1000), "cpuUsedPct",
		number(sample, "cpu_percent"), "memUsed",
		(json_int_t)number(sample, "memory_bytes"), "memTotal",
		total ? total : (json_int_t)l->memory_bytes, "memCache", (json_int_t)0, "diskUsed",
		(json_int_t)number(sample, "disk_bytes"), "diskTotal", (json_int_t)l->disk_bytes));
}

/* When a sample was taken, in milliseconds since 1970; a time in words is read as well. */
static uint64_t time_of(const json_t *sample, uint64_t dflt)
{
	static const char *const keys[] = {"time", "time_ms", "timestamp", "at"};
	const json_t *t = NULL;
	struct tm parts = {0};

	for (size_t i = 0; i < ARRAY_LEN(keys) && !t; i++)
		t = json_object_get(sample, keys[i]);
	if (json_is_string(t) && strptime(json_string_value(t), "%Y-%m-%dT%H:%M:%S", &parts))
		return (uint64_t)timegm(&parts) * 1000;
	if (!json_is_number(t))
		return dflt;
	return (uint64_t)(json_number_value(t) < 1e11 ? json_number_value(t) * 1000
						      : json_number_value(t));
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct asking {
	struct exchange *x;
	uint64_t start, end; /* unix seconds */
	char id[IPC_ID];
};

static void on_stats(void *arg, json_t *stats, const struct err *e)
{
	struct asking *a = arg;
	struct exchange *x = a->x;
	struct sandbox *s = manager_find_any(x->api->manager, a->id);
	const json_t *history = json_object_get(stats, "history");
	json_t *out = must_alloc(json_array()), *sample;
	uint64_t now = now_ms();
	size_t i;

	if (!stats && e) {
		json_decref(out);
		exchange_error(x, e);
		free(a);
		return;
	}
	json_array_foreach ((json_t *)history, i, sample) {
		uint64_t at = time_of(sample, now);

		if (s && at / 1000 >= a->start && at / 1000 <= a->end)
			json_array_append_new(out, metric(s, sample, at));
	}
	if (s && now / 1000 >= a->start && now / 1000 <= a->end)
		json_array_append_new(out, metric(s, stats, now));
	json_decref(stats);
	exchange_json(x, 200, out);
	free(a);
}

void e2b_metrics(struct exchange *x)
{
	struct sandbox *s = e2b_find(x);
	struct err e = {0};
	struct asking *a;

	if (!s)
		return;
	a = must_alloc(calloc(1, sizeof(*a)));
	a->x = x;
	snprintf(a->id, sizeof(a->id), "%s", sandbox_id(s));
	if (exchange_arg_uint(x, "start", 0, UINT32_MAX, &a->start, &e) < 0 ||
	    exchange_arg_uint(x, "end", UINT32_MAX, UINT32_MAX, &a->end, &e) < 0) {
		free(a);
		exchange_error(x, &e);
		return;
	}
	sandbox_stats(s, on_stats, a);
}

/* ---- several at once: the latest of each ---- */

struct many {
	struct exchange *x;
	json_t *out;
	size_t open;
};

struct one_of {
	struct many *many;
	char id[IPC_ID];
};

static void many_answered(struct many *m)
{
	if (--m->open)
		return;
	exchange_json(m->x, 200, must_alloc(json_pack("{s:o}", "sandboxes", m->out)));
	free(m);
}

static void on_one(void *arg, json_t *stats, const struct err *e)
{
	struct one_of *o = arg;
	struct many *m = o->many;
	struct sandbox *s = manager_find_any(m->x->api->manager, o->id);

	(void)e;
	if (stats && s)
		json_object_set_new(m->out, o->id, metric(s, stats, now_ms()));
	json_decref(stats);
	free(o);
	many_answered(m);
}

void e2b_metrics_many(struct exchange *x)
{
	const char *ids = exchange_arg(x, "sandbox_ids");
	auto_free char *copy = str_copy(ids ? ids : "");
	char *rest = copy, *id;
	struct many *m = must_alloc(calloc(1, sizeof(*m)));
	size_t count = 0;

	*m = (struct many){.x = x, .out = must_alloc(json_object()), .open = 1};
	while ((id = strsep(&rest, ",")) && count++ < 100) {
		struct err e = {0};
		struct sandbox *s = *id ? manager_find(x->api->manager, &x->caller, id, &e) : NULL;
		struct one_of *o;

		if (!s)
			continue;
		o = must_alloc(calloc(1, sizeof(*o)));
		o->many = m;
		snprintf(o->id, sizeof(o->id), "%s", sandbox_id(s));
		m->open++;
		sandbox_stats(s, on_one, o);
	}
	many_answered(m);
}
