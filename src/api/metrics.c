#include "api/metrics.h"

#include "api/server.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/str.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAMES 64 /* different labels of one counter; the rest is counted as "other" */

/* Upper bounds in microseconds. */
static const uint64_t bounds_us[] = {500,    1000,   2500,   5000,    10000,   25000,	50000,
				     100000, 250000, 500000, 1000000, 2500000, 10000000};

struct histogram {
	uint64_t buckets[ARRAY_LEN(bounds_us) + 1], count;
	double sum_s;
};

struct named {
	char name[80];
	uint64_t count;
};

struct names {
	struct named items[NAMES];
	size_t count;
};

struct metrics {
	uint64_t answers[DOOR_COUNT][6]; /* by hundreds of the status */
	struct histogram histograms[METRIC_COUNT];
	struct names errors, denials;
};

static const char *const histogram_names[] = {
	[METRIC_CREATE] = "cloche_create_seconds",
	[METRIC_EXEC] = "cloche_exec_seconds",
	[METRIC_RUN] = "cloche_run_seconds",
};
static_assert(ARRAY_LEN(histogram_names) == METRIC_COUNT, "a name per histogram");

struct metrics *metrics_new(void)
{
	return must_alloc(calloc(1, sizeof(struct metrics)));
}

void metrics_free(struct metrics *m)
{
	free(m);
}

void metrics_answer(struct metrics *m, const struct exchange *x, int status)
{
	unsigned hundreds = status >= 100 && status < 600 ? (unsigned)status / 100 : 5;

	if (m)
		m->answers[x->door ? x->door->id : DOOR_REST][hundreds]++;
}

static void count(struct names *n, const char *name, uint64_t by)
{
	size_t i;

	for (i = 0; i < n->count && !str_equal(n->items[i].name, name); i++)
		;
	if (i == NAMES - 1)
		name = "other";
	if (i == NAMES)
		i--;
	if (i == n->count) {
		str_sanitise(n->items[i].name, sizeof(n->items[i].name), name, strlen(name));
		n->count++;
	}
	n->items[i].count += by;
}

void metrics_error(struct metrics *m, const char *kind)
{
	if (m)
		count(&m->errors, kind, 1);
}

void metrics_denial(struct metrics *m, const char *rule, uint64_t by)
{
	if (m)
		count(&m->denials, rule, by);
}

void metrics_observe(struct metrics *m, enum metric which, int64_t since_ns)
{
	uint64_t us = (uint64_t)(now_ns() - since_ns) / 1000;
	struct histogram *h;
	size_t i;

	if (!m)
		return;
	h = &m->histograms[which];
	for (i = 0; i < ARRAY_LEN(bounds_us) && us > bounds_us[i]; i++)
		;
	h->buckets[i]++;
	h->count++;
	h->sum_s += (double)us / 1e6;
}

/* ---- the text ---- */

__attribute__((format(printf, 2, 3))) static void line(struct buf *to, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < sizeof(text))
		buf_add(to, text, (size_t)n);
}

static void head(struct buf *to, const char *name, const char *type, const char *help)
{
	line(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_histogram(const struct histogram *h, const char *name, struct buf *to)
{
	uint64_t sum = 0;

	head(to, name, "histogram", "How long it took.");
	for (size_t i = 0; i < ARRAY_LEN(bounds_us); i++) {
		sum += h->buckets[i];
		line(to, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bounds_us[i] / 1e6,
		     sum);
	}
	line(to, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->count);
	line(to, "%s_sum %.6f\n%s_count %" PRIu64 "\n", name, h->sum_s, name, h->count);
}

static void write_names(const struct names *n, const char *name, const char *label,
			const char *help, struct buf *to)
{
	head(to, name, "counter", help);
	for (size_t i = 0; i < n->count; i++) {
		char safe[80];

		snprintf(safe, sizeof(safe), "%s", n->items[i].name);
		for (char *c = safe; *c; c++)
			if (*c == '"' || *c == '\\' || *c == '\n')
				*c = '\'';
		line(to, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, safe, n->items[i].count);
	}
}

static void write_answers(const struct metrics *m, struct buf *to)
{
	static const char *const doors[] = {
		[DOOR_REST] = "rest", [DOOR_E2B] = "e2b", [DOOR_MCP] = "mcp"};

	static_assert(ARRAY_LEN(doors) == DOOR_COUNT, "a name per door");
	head(to, "cloche_http_requests_total", "counter", "Requests answered.");
	for (size_t d = 0; d < DOOR_COUNT; d++)
		for (unsigned s = 1; s < 6; s++)
			line(to,
			     "cloche_http_requests_total{door=\"%s\",status=\"%uxx\"} %" PRIu64
			     "\n",
			     doors[d], s, m->answers[d][s]);
}

void metrics_write(const struct metrics *m, const struct api *api, struct buf *to)
{
	head(to, "cloche_info", "gauge", "Which version this is.");
	line(to, "cloche_info{version=\"%s\"} 1\n", CLOCHE_VERSION);
	write_answers(m, to);
	write_names(&m->errors, "cloche_errors_total", "kind", "Errors answered, by kind.", to);
	write_names(&m->denials, "cloche_denials_total", "rule",
		    "What was refused inside sandboxes, by rule.", to);
	for (size_t i = 0; i < METRIC_COUNT; i++)
		write_histogram(&m->histograms[i], histogram_names[i], to);
	head(to, "cloche_connections", "gauge", "Open connections.");
	line(to, "cloche_connections %zu\n", server_connections(api->server));
	head(to, "cloche_requests_in_flight", "gauge", "Requests without an answer so far.");
	line(to, "cloche_requests_in_flight %zu\n", server_busy(api->server));
}
