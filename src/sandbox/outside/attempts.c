/* Keeps what egress refused, and says it in words. */
#include "sandbox/outside/attempts.h"

#include "base/jsonw.h"
#include "model/spec.h"

#include <poll.h>

/* ---- the log ---- */

int attempts_open(struct attempts *a, const char *log, struct err *e)
{
	if (!log)
		return 0;
	a->log = str_equal(log, "-")
			 ? fcntl(2, F_DUPFD_CLOEXEC, 3)
			 : open(log,
				O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
				0600);
	if (a->log >= 0)
		return 0;
	a->log = 0;
	return err_field(e, ERR_INVALID, "net_log", "net_log: cannot open %s: %s", log,
			 strerror(errno));
}

static void put_text(struct jsonw *j, const char *key, const char *text)
{
	jsonw_string(j, key, text[0] ? text : NULL);
}

/* As GET /v1/sandboxes/ID/network has them. */
static void put_line(struct jsonw *j, const struct egress_record *r)
{
	static const char *const events[] = {[EGRESS_OPENED] = "opened",
					     [EGRESS_DENIED] = "denied",
					     [EGRESS_CLOSED] = "closed",
					     [EGRESS_FAILED] = "failed",
					     [EGRESS_LOOKUP] = "lookup"};
	bool allowed = r->phase == EGRESS_OPENED || r->phase == EGRESS_CLOSED;
	char time[UTC_TEXT];

	utc_text(r->started_ms / 1000, (uint32_t)(r->started_ms % 1000) * 1000000, 3, time);
	jsonw_open(j, NULL, '{');
	put_text(j, "time", time);
	put_text(j, "event",
		 r->phase < ARRAY_LEN(events) && events[r->phase] ? events[r->phase] : "");
	jsonw_string(j, "verdict", allowed ? "allow" : r->phase == EGRESS_FAILED ? "fail" : "deny");
	jsonw_uint(j, "connection", r->serial);
	put_text(j, "name", r->name);
	put_text(j, "address", r->address);
	jsonw_uint(j, "port", r->port);
	jsonw_string(j, "protocol", r->udp ? "udp" : "tcp");
	put_text(j, "rule", r->rule);
	put_text(j, "why", r->why);
	put_text(j, "remedy", r->remedy);
	jsonw_bool(j, "inspected", r->inspected);
	jsonw_uint(j, "tx_bytes", r->tx_bytes);
	jsonw_uint(j, "rx_bytes", r->rx_bytes);
	jsonw_uint(j, "duration_ms", r->duration_ms);
	jsonw_uint(j, "count", r->count ? r->count : 1);
	jsonw_close(j, '}');
	jsonw_raw(j, "\n", 1);
}

/* A reader that stalls must not stop the run: what cannot be written at once is counted only. */
static void write_line(struct attempts *a, const struct egress_record *r)
{
	auto_buf struct buf line = {0};
	struct pollfd p = {a->log, POLLOUT, 0};
	struct jsonw j;

	if (a->lines == ATTEMPT_LINES || poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
		a->missed++;
		return;
	}
	jsonw_begin_buf(&j, &line);
	put_line(&j, r);
	jsonw_finish(&j);
	a->lines++;
	if (io_write_all(a->log, buf_head(&line), line.len) < 0)
		a->missed++;
}

/* ---- refused attempts ---- */

static bool is_same(const struct egress_record *a, const struct egress_record *b)
{
	return a->phase == b->phase && a->udp == b->udp && a->port == b->port &&
	       str_equal(a->name, b->name) && str_equal(a->address, b->address) &&
	       str_equal(a->why, b->why);
}

void attempts_add(struct attempts *a, const struct egress_record *r)
{
	uint32_t count = r->count ? r->count : 1;

	if (a->log)
		write_line(a, r);
	if (r->phase != EGRESS_DENIED && r->phase != EGRESS_LOOKUP)
		return;
	for (size_t i = 0; i < a->count; i++)
		if (is_same(&a->rows[i], r)) {
			a->rows[i].count += count;
			return;
		}
	if (a->count == ATTEMPT_KINDS) {
		a->more += count;
		return;
	}
	if (!a->rows)
		a->rows = must_alloc(calloc(ATTEMPT_KINDS, sizeof(*a->rows)));
	a->rows[a->count] = *r;
	a->rows[a->count++].count = count;
}

void attempts_done(struct attempts *a)
{
	free(a->rows);
	if (a->log)
		close(a->log);
	*a = (struct attempts){0};
}

/* ---- in words ---- */

static const char *rule_of_mode(int mode)
{
	return mode == NET_PUBLIC ? "network public" : "network allow";
}

static void sanitise(char *ret, size_t size, const char *text)
{
	str_sanitise(ret, size, text, strlen(text));
}

static void explain(const struct egress_record *r, int mode, struct denial *ret)
{
	const char *host = r->name[0] ? r->name : r->address;
	bool brackets = !r->name[0] && strchr(host, ':');
	char text[sizeof(r->remedy) + sizeof(r->why) + 32];

	*ret = (struct denial){.count = r->count};
	snprintf(ret->what, sizeof(ret->what), "%s",
		 r->phase == EGRESS_LOOKUP ? "resolve" : "connect");
	if (r->phase == EGRESS_LOOKUP || !r->port)
		snprintf(text, sizeof(text), "%s", host);
	else
		snprintf(text, sizeof(text), brackets ? "%s[%s]:%u" : "%s%s:%u",
			 r->udp ? "udp://" : "", host, r->port);
	sanitise(ret->target, sizeof(ret->target), text);
	sanitise(ret->rule, sizeof(ret->rule), r->rule[0] ? r->rule : rule_of_mode(mode));
	snprintf(text, sizeof(text), r->remedy[0] ? "%s; if it is needed: %s" : "%s%s", r->why,
		 r->remedy);
	sanitise(ret->explain, sizeof(ret->explain), text);
}

void attempts_explain_address(int mode, const char *target, struct denial *ret)
{
	snprintf(ret->rule, sizeof(ret->rule), "%s", rule_of_mode(mode));
	snprintf(ret->explain, sizeof(ret->explain),
		 "no rule allows %s; if it is needed: --allow %s", target, target);
}

void attempts_report(const struct attempts *a, int mode, struct result *r)
{
	struct denial d;

	for (size_t i = 0; i < a->count; i++) {
		explain(&a->rows[i], mode, &d);
		result_add_denials(r, &d, 1);
	}
	if (!a->more)
		return;
	d = (struct denial){.what = "connect", .target = "other destinations", .count = a->more};
	snprintf(d.rule, sizeof(d.rule), "%s", rule_of_mode(mode));
	snprintf(d.explain, sizeof(d.explain), "more than %d kinds of attempts were refused",
		 ATTEMPT_KINDS);
	result_add_denials(r, &d, 1);
}
