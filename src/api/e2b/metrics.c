/* Metrics of sandboxes as the control plane gives them: samples with their times. */
#include "api/e2b/e2b.h"

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

/* When a sample was taken, in milliseconds since 1970. */
static uint64_t time_of(const json_t *sample)
{
	const char *text = json_string_value(json_object_get(sample, "time"));
	struct tm parts = {0};

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) ? (uint64_t)timegm(&parts) * 1000
								   : unix_ms();
}

struct metrics_window {
	uint64_t start, end; /* unix seconds */
};

static void add_sample(const struct exchange *x, json_t *out, const json_t *sample, uint64_t at_ms)
{
	const struct metrics_window *a = x->data;
	const struct sandbox *s = manager_find_any(x->api->manager, x->params[0]);

	if (s && at_ms / 1000 >= a->start && at_ms / 1000 <= a->end)
		json_array_append_new(out, metric(s, sample, at_ms));
}

static void control_stats(void *arg, json_t *stats, const struct err *e)
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
		add_sample(x, out, sample, time_of(sample));
	add_sample(x, out, stats, unix_ms());
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
		sandbox_stats(s, control_stats, x);
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

	if (stats && s)
		json_object_set_new(m->out, o->id, metric(s, stats, unix_ms()));
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
