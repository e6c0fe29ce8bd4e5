/* Counters of the front as Prometheus text. */
#include "api/http/server.h"
#include "manager/manager.h"

#include <assert.h>
#include <stdarg.h>

#define NAMES 32 /* more than there are kinds of errors */

/* Upper bounds of the buckets of a run. */
static const double run_bounds_ms[] = {0.5, 1,	 2.5, 5,    10,	  25,	50,
				       100, 250, 500, 1000, 2500, 10000};

struct histogram {
	uint64_t buckets[ARRAY_LEN(run_bounds_ms) + 1], count;
	double sum_ms;
};

struct named {
	const char *name; /* a literal */
	uint64_t count;
};

struct metrics {
	uint64_t answers[DOOR_COUNT][6]; /* by hundreds of the status */
	struct histogram run;
	struct named errors[NAMES];
};

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

void metrics_error(struct metrics *m, const char *kind)
{
	for (size_t i = 0; m && i < NAMES; i++) {
		struct named *n = &m->errors[i];

		if (n->name && !str_equal(n->name, kind))
			continue;
		n->name = kind;
		n->count++;
		return;
	}
}

void metrics_run(struct metrics *m, int64_t since_ns)
{
	double ms = (double)(now_ns() - since_ns) / 1e6;
	size_t i;

	if (!m)
		return;
	for (i = 0; i < ARRAY_LEN(run_bounds_ms) && ms > run_bounds_ms[i]; i++)
		;
	m->run.buckets[i]++;
	m->run.count++;
	m->run.sum_ms += ms;
}

/* ---- the text ---- */

__attribute__((format(printf, 2, 3))) static void add_text(struct buf *to, const char *fmt, ...)
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

static void add_help(struct buf *to, const char *name, const char *type, const char *help)
{
	add_text(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Durations in buckets with these upper bounds; the last bucket has none. */
struct shown_histogram {
	const char *name;
	const uint64_t *buckets;
	const double *bounds_ms;
	size_t bounds;
	uint64_t count;
	double sum_ms;
};

static void write_histogram(const struct shown_histogram *h, struct buf *to)
{
	uint64_t sum = 0;

	add_help(to, h->name, "histogram", "How long it took.");
	for (size_t i = 0; i < h->bounds; i++) {
		sum += h->buckets[i];
		add_text(to, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", h->name, h->bounds_ms[i] / 1e3,
			 sum);
	}
	add_text(to, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", h->name, h->count);
	add_text(to, "%s_sum %.6f\n%s_count %" PRIu64 "\n", h->name, h->sum_ms / 1e3, h->name,
		 h->count);
}

static void write_answers(const struct metrics *m, struct buf *to)
{
	static const char *const doors[] = {[DOOR_REST] = "rest",
					    [DOOR_E2B] = "e2b",
					    [DOOR_MCP] = "mcp",
					    [DOOR_AGENT] = "agent",
					    [DOOR_DOCKER] = "docker"};

	static_assert(ARRAY_LEN(doors) == DOOR_COUNT, "a name per door");
	add_help(to, "cloche_http_requests_total", "counter", "Requests answered.");
	for (size_t d = 0; d < DOOR_COUNT; d++)
		for (unsigned s = 1; s < 6; s++)
			add_text(to,
				 "cloche_http_requests_total{door=\"%s\",status=\"%uxx\"} %" PRIu64
				 "\n",
				 doors[d], s, m->answers[d][s]);
}

/* ---- the manager's ---- */

static void write_manager_histogram(const struct manager_histogram *h, const char *name,
				    struct buf *to)
{
	write_histogram(&(struct shown_histogram){name, h->buckets, manager_bucket_ms,
						  MANAGER_BUCKETS - 1, h->count, h->sum_ms},
			to);
}

static void write_counters(const struct manager_metrics *m, struct buf *to)
{
	const struct {
		const char *name, *type, *help;
		uint64_t value;
	} rows[] = {
		{"cloche_sandboxes_pooled", "gauge", "Prepared in advance.", m->pooled},
		{"cloche_runs_active", "gauge", "Single runs that are going on.", m->runs},
		{"cloche_nests", "gauge", "Sandboxes that have warm ones in them.", m->warm_hosts},
		{"cloche_sandboxes_created_total", "counter", "Made.", m->created},
		{"cloche_sandboxes_destroyed_total", "counter", "Destroyed.", m->destroyed},
		{"cloche_sandboxes_failed_total", "counter", "Failed.", m->failed},
		{"cloche_boots_total", "counter", "Boots.", m->boots},
		{"cloche_boot_retries_total", "counter", "Boots tried again.", m->boot_retries},
		{"cloche_boot_failures_total", "counter", "Boots given up.", m->boot_failures},
		{"cloche_pool_hits_total", "counter", "Taken from the pool.", m->pool_hits},
		{"cloche_pool_misses_total", "counter", "The pool was empty.", m->pool_misses},
		{"cloche_execs_total", "counter", "Commands.", m->execs},
		{"cloche_execs_failed_total", "counter", "Commands not begun.", m->execs_failed},
		{"cloche_links_lost_total", "counter", "Links to guests lost.", m->links_lost},
		{"cloche_alerts_total", "counter", "Told to the operator.", m->alerts},
		{"cloche_network_sent_bytes_total", "counter", "By sandboxes, to the outside.",
		 m->net_tx_bytes},
		{"cloche_network_received_bytes_total", "counter",
		 "By sandboxes, from the outside.", m->net_rx_bytes},
		{"cloche_network_connections_total", "counter", "Of sandboxes, to the outside.",
		 m->net_connections},
		{"cloche_network_denied_total", "counter", "Attempts that were refused.",
		 m->net_denied},
		{"cloche_audit_refusals_total", "counter",
		 "Work refused for want of the audit log.", m->audit_refusals},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		add_help(to, rows[i].name, rows[i].type, rows[i].help);
		add_text(to, "%s %" PRIu64 "\n", rows[i].name, rows[i].value);
	}
}

static void write_manager(const struct manager_metrics *m, struct buf *to)
{
	static const char *const rules[] = {"syscall", "connect", "resolve", "limit"};

	static_assert(ARRAY_LEN(rules) == ARRAY_LEN(m->denials), "a name per kind");
	add_help(to, "cloche_sandboxes", "gauge", "Sandboxes by state.");
	for (int i = 0; i < STATE_COUNT; i++)
		add_text(to, "cloche_sandboxes{state=\"%s\"} %" PRIu64 "\n",
			 state_name((enum sandbox_state)i), m->by_state[i]);
	add_help(to, "cloche_denials_total", "counter", "What was refused inside, by rule.");
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		add_text(to, "cloche_denials_total{rule=\"%s\"} %" PRIu64 "\n", rules[i],
			 m->denials[i]);
	write_counters(m, to);
	write_manager_histogram(&m->create_ms, "cloche_create_seconds", to);
	write_manager_histogram(&m->exec_ms, "cloche_exec_seconds", to);
}

void metrics_write(const struct metrics *m, const struct api *api, struct buf *to)
{
	add_help(to, "cloche_info", "gauge", "Which version this is.");
	add_text(to, "cloche_info{version=\"%s\"} 1\n", CLOCHE_VERSION);
	write_answers(m, to);
	add_help(to, "cloche_errors_total", "counter", "Errors answered, by kind.");
	for (size_t i = 0; i < NAMES && m->errors[i].name; i++)
		add_text(to, "cloche_errors_total{kind=\"%s\"} %" PRIu64 "\n", m->errors[i].name,
			 m->errors[i].count);
	write_histogram(&(struct shown_histogram){"cloche_run_seconds", m->run.buckets,
						  run_bounds_ms, ARRAY_LEN(run_bounds_ms),
						  m->run.count, m->run.sum_ms},
			to);
	add_help(to, "cloche_connections", "gauge", "Open connections.");
	add_text(to, "cloche_connections %zu\n", server_connections(api->server));
	add_help(to, "cloche_requests_in_flight", "gauge", "Requests without an answer so far.");
	add_text(to, "cloche_requests_in_flight %zu\n", server_busy(api->server));
	if (api->manager)
		write_manager(manager_metrics(api->manager), to);
}
