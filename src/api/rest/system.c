/* What concerns the daemon as a whole: health, metrics, tokens, policies, audit. */
#include "api/rest/rest.h"

#include "api/http/server.h"
#include "audit/audit.h"
#include "auth/tokens.h"
#include "policy/config.h"

#define AUDIT_MAX 10000
#define AUDIT_BYTES (32u << 20)

void v1_healthz(struct exchange *x)
{
	exchange_json(x, 200, json_pack("{s:s, s:s}", "status", "ok", "version", CLOCHE_VERSION));
}

#define PINGS_MISSED 3 /* before the broker counts as silent itself */

void v1_readyz(struct exchange *x)
{
	const struct api_roles *r = &x->api->roles;
	int64_t age_ms = (now_ns() - r->told_ns) / 1000000;
	json_t *silent = json_array();
	char names[sizeof(r->silent)], *rest = NULL;

	memcpy(names, r->silent, sizeof(names));
	for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
		json_array_append_new(silent, json_string(name));
	if (!r->told_ns || age_ms > (int64_t)r->interval_ms * PINGS_MISSED)
		json_array_append_new(silent, json_string("broker"));
	if (server_is_draining(x->api->server))
		json_array_append_new(silent, json_string("front"));
	if (json_array_size(silent))
		exchange_json(x, 503,
			      json_pack("{s:s, s:o}", "status", "not ready", "silent", silent));
	else
		exchange_json(x, 200, json_pack("{s:s, s:o}", "status", "ok", "silent", silent));
}

void v1_metrics(struct exchange *x)
{
	struct buf b = {0};

	metrics_write(x->api->metrics, x->api, &b);
	exchange_reply(x, 200, "text/plain; version=0.0.4", buf_head(&b), b.len);
	buf_done(&b);
}

/* ---- what the operator has configured ---- */

static json_t *time_or_null(uint64_t t)
{
	char text[UTC_TEXT];

	return t && *utc_text(t, 0, 0, text) ? json_string(text) : json_null();
}

/* null: no ceiling of its own. */
static json_t *limit_or_null(uint64_t value, double unit)
{
	if (!value)
		return json_null();
	return unit > 1 ? json_real((double)value / unit) : json_integer((json_int_t)value);
}

static json_t *describe_ceiling(const struct limits *l)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "memory", limit_or_null(l->memory_bytes, 1),
			 "cpus", limit_or_null(l->cpus_milli, 1000), "pids",
			 limit_or_null(l->pids, 1), "disk", limit_or_null(l->disk_bytes, 1),
			 "timeout", limit_or_null(l->timeout_ms, 1000));
}

static json_t *describe_token(const struct token *t)
{
	char scopes[64];
	json_t *o;

	scopes_format(t->scopes, scopes, sizeof(scopes));
	o = json_pack("{s:s, s:s, s:s, s:s?, s:i, s:I, s:I, s:I, s:I}", "id", t->id, "name",
		      t->name, "scopes", scopes, "tenant", t->tenant[0] ? t->tenant : NULL, "trust",
		      t->trust, "max_sandboxes", (json_int_t)t->max_sandboxes, "memory_total",
		      (json_int_t)t->memory_total, "disk_total", (json_int_t)t->disk_total,
		      "rate_per_minute", (json_int_t)t->rate_per_minute);
	json_object_set_new(o, "ceiling", describe_ceiling(&t->ceiling));
	json_object_set_new(o, "expires_at", time_or_null(t->expires));
	json_object_set_new(o, "created_at", time_or_null(t->created));
	return o;
}

void v1_tokens(struct exchange *x)
{
	json_t *all = json_array();

	for (size_t i = 0; i < tokens_count(x->api->tokens); i++)
		json_array_append_new(all, describe_token(tokens_at(x->api->tokens, i)));
	exchange_json(x, 200, json_pack("{s:o}", "tokens", all));
}

/* The front reads hashes and can mint nothing (rule 6). */
void v1_tokens_refused(struct exchange *x)
{
	exchange_fail(x, ERR_UNSUPPORTED,
		      "tokens are made and revoked on the host, by `cloche token`: what listens "
		      "to the network cannot");
}

void v1_policies(struct exchange *x)
{
	static const char *const names[] = {"strict", "code", "agent", "build"};
	json_t *all = json_array();

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		json_array_append_new(all, json_pack("{s:s}", "name", names[i]));
	exchange_json(x, 200, json_pack("{s:o}", "policies", all));
}

/* ---- the audit log ---- */

static void answer_lines(struct exchange *x, const struct buf *b, uint64_t next_seq)
{
	const char *at = b->len ? buf_head(b) : "", *end = at + b->len;
	json_t *all = json_array();

	if (exchange_accepts(x, "application/x-ndjson")) {
		json_decref(all);
		exchange_reply(x, 200, "application/x-ndjson", at, b->len);
		return;
	}
	while (at < end) {
		const char *eol = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((eol ? eol : end) - at);
		json_t *o = json_loadb(at, len, 0, NULL);

		json_array_append_new(all, o ? o : text_json(at, len));
		at += len + 1;
	}
	exchange_json(x, 200,
		      json_pack("{s:o, s:o}", "records", all, "next",
				next_seq ? json_integer((json_int_t)next_seq) : json_null()));
}

static void on_records(void *arg, int fd, uint64_t next_seq, const struct err *e)
{
	struct exchange *x = arg;
	struct buf b = {0};
	char next[24];
	ssize_t n;

	if (fd < 0) {
		exchange_error(x, e);
		return;
	}
	do {
		n = read(fd, buf_reserve(&b, 65536), 65536);
		if (n > 0)
			buf_added(&b, (size_t)n);
	} while ((n > 0 && b.len < AUDIT_BYTES) || (n < 0 && errno == EINTR));
	close(fd);
	snprintf(next, sizeof(next), "%" PRIu64, next_seq);
	if (next_seq)
		exchange_set_header(x, "Cloche-Next", next);
	answer_lines(x, &b, next_seq);
	buf_done(&b);
}

void v1_audit(struct exchange *x)
{
	struct audit_query q = {0};
	uint64_t limit;

	if (!v1_arg_uint(x, "after", 0, INT64_MAX, &q.after_seq) ||
	    !v1_arg_uint(x, "limit", 100, AUDIT_MAX, &limit))
		return;
	q.limit = (uint32_t)limit;
	q.is_forward = exchange_arg(x, "after") != NULL;
	if (exchange_arg(x, "target"))
		snprintf(q.target, sizeof(q.target), "%s", exchange_arg(x, "target"));
	if (x->api->audit)
		audit_query(x->api->audit, &q, on_records, x);
	else
		exchange_fail(x, ERR_UNSUPPORTED, "there is no audit log");
}
