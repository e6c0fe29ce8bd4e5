/*
 * Metrics of sandboxes. The control plane returns samples with their times, envd the present sample;
 * both hold the same numbers under different names.
 */
#include "api/e2b/e2b_internal.h"

enum metrics_shape { METRICS_CONTROL, METRICS_ENVD };

static json_int_t sample_number(const json_t *sample, const char *key)
{
	return (json_int_t)json_number_value(json_object_get(sample, key));
}

static json_t *metrics_json(const struct sandbox *s, const json_t *sample, uint64_t unix_ms,
			    enum metrics_shape shape)
{
	const struct limits *l = &sandbox_spec(s)->limits;
	json_int_t limit = sample_number(sample, "memory_limit_bytes");
	json_int_t total = limit ? limit : (json_int_t)l->memory_bytes;
	const struct {
		const char *names[2];
		json_int_t value;
	} rows[] = {
		{{"timestampUnix", "ts"}, (json_int_t)(unix_ms / 1000)},
		{{"cpuCount", "cpu_count"}, (json_int_t)((l->cpus_milli + 999) / 1000)},
		{{"memUsed", "mem_used"}, sample_number(sample, "memory_bytes")},
		{{"memTotal", "mem_total"}, total},
		{{"memCache", "mem_cache"}, 0},
		{{NULL, "mem_used_mib"}, sample_number(sample, "memory_bytes") >> 20},
		{{NULL, "mem_total_mib"}, total >> 20},
		{{"diskUsed", "disk_used"}, sample_number(sample, "disk_bytes")},
		{{"diskTotal", "disk_total"}, (json_int_t)l->disk_bytes},
	};
	json_t *o =
		must_alloc(json_pack("{s:f}", shape == METRICS_ENVD ? "cpu_used_pct" : "cpuUsedPct",
				     json_number_value(json_object_get(sample, "cpu_percent"))));

	if (shape == METRICS_CONTROL)
		json_object_set_new(o, "timestamp", e2b_time(unix_ms));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].names[shape])
			json_object_set_new(o, rows[i].names[shape], json_integer(rows[i].value));
	return o;
}

/* ---- envd: as of now ---- */

static void on_envd_stats(void *arg, json_t *stats, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);

	if (stats && s)
		exchange_json(q->x, 200, metrics_json(s, stats, unix_ms(), METRICS_ENVD));
	else if (e && s)
		exchange_error(q->x, e);
	else
		e2b_not_running(q->x, q->id);
	json_decref(stats);
}

void e2b_metrics_now(struct e2b_request *q, struct sandbox *s)
{
	sandbox_stats(s, on_envd_stats, q);
}

/* ---- one sandbox, with its history ---- */

struct metrics_window {
	uint64_t start, end; /* unix seconds */
};

static void add_sample(const struct exchange *x, json_t *out, const json_t *sample)
{
	const struct metrics_window *a = x->data;
	const struct sandbox *s = manager_find_any(x->api->manager, x->params[0]);
	const char *time = json_string_value(json_object_get(sample, "time"));
	uint64_t at_ms;

	if (!time || !e2b_parse_time(time, &at_ms))
		at_ms = unix_ms();
	if (s && at_ms / 1000 >= a->start && at_ms / 1000 <= a->end)
		json_array_append_new(out, metrics_json(s, sample, at_ms, METRICS_CONTROL));
}

static void reply_history(void *arg, json_t *stats, const struct err *e)
{
	struct exchange *x = arg;
	json_t *out, *sample;
	size_t i;

	if (!stats && e) {
		exchange_error(x, e);
		return;
	}
	out = must_alloc(json_array());
	json_array_foreach (json_object_get(stats, "history"), i, sample)
		add_sample(x, out, sample);
	add_sample(x, out, stats);
	json_decref(stats);
	exchange_json(x, 200, out);
}

void e2b_metrics(struct exchange *x, struct sandbox *s)
{
	struct metrics_window *a = exchange_attach(x, sizeof(*a), NULL);
	struct err e = {0};

	if (exchange_arg_uint(x, "start", 0, UINT32_MAX, &a->start, &e) < 0 ||
	    exchange_arg_uint(x, "end", UINT32_MAX, UINT32_MAX, &a->end, &e) < 0)
		exchange_error(x, &e);
	else
		sandbox_stats(s, reply_history, x);
}
/* ---- several sandboxes: the latest sample of each ---- */

#define METRICS_IDS_MAX 100

static void on_all_stats(void *arg, json_t *stats, const struct err *e)
{
	struct exchange *x = arg;
	const char *ids = exchange_arg(x, "sandbox_ids"), *id;
	json_t *out = must_alloc(json_object()), *one;
	auto_free char *copy = str_copy(ids ? ids : "");
	char *rest = copy;
	size_t i;

	for (size_t n = 0; n < METRICS_IDS_MAX && (id = strsep(&rest, ",")); n++)
		json_array_foreach (json_object_get(stats, "sandboxes"), i, one) {
			const char *own = json_string_value(json_object_get(one, "id"));
			struct sandbox *s =
				str_equal(own, id) ? manager_find_any(x->api->manager, id) : NULL;

			if (s)
				json_object_set_new(
					out, id, metrics_json(s, one, unix_ms(), METRICS_CONTROL));
		}
	json_decref(stats);
	exchange_json(x, 200, must_alloc(json_pack("{s:o}", "sandboxes", out)));
}

void e2b_metrics_many(struct exchange *x)
{
	manager_stats(x->api->manager, &x->caller, on_all_stats, x);
}
