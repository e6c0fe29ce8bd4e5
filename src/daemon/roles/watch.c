/*
 * Watches the roles: the broker pings each of them, kills those that do not answer, which starts them
 * again, and tells the front which ones answer (/readyz).
 *
 * Rounds are counted, not time: after the whole daemon was stopped for a while (a laptop's lid, SIGSTOP,
 * a frozen cgroup) every role still has all its rounds to answer in.
 */
#include "audit/audit.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <assert.h>

#define ROUNDS 5	/* in role_timeout */
#define START_ROUNDS 30 /* before the first answer: the front may have a large database to read */

static void on_audit_answered(void *arg, const struct err *e)
{
	if (!e)
		roles_answered(arg, ROLE_AUDIT);
}

static void ping_audit(struct daemon *d)
{
	audit_ping(d->audit, on_audit_answered, d);
}

static void ping_remote(struct daemon *d)
{
	provider_e2b.role_ping(&d->host);
}

static bool wants_remote(const struct daemon *d)
{
	return d->config->e2b.api_url[0];
}

static void ping_signer(struct daemon *d)
{
	struct ipc m = {.type = IPC_PING};

	ipc_channel_send(&d->signer.channel, &m, -1);
}

static bool wants_tls(const struct daemon *d)
{
	return config_has_tls(d->config);
}

static bool wants_egress(const struct daemon *d)
{
	return d->roles[ROLE_EGRESS].started_ns != 0;
}

static uint32_t interval_ms(const struct daemon *d)
{
	return (uint32_t)(d->config->role_timeout_ms / ROUNDS);
}

static void ping_front(struct daemon *d);

static const struct watched {
	void (*ping)(struct daemon *d);
	bool (*is_wanted)(const struct daemon *d); /* NULL: always */
} watched[] = {
	[ROLE_AUDIT] = {ping_audit, NULL},
	[ROLE_FRONT] = {ping_front, NULL},
	[ROLE_REMOTE] = {ping_remote, wants_remote},
	[ROLE_SIGNER] = {ping_signer, signer_is_wanted},
	[ROLE_TLS] = {tls_ping, wants_tls},
	[ROLE_EGRESS] = {egress_ping, wants_egress},
};
static_assert(ARRAY_LEN(watched) == ROLE_COUNT, "a row for each role");

/* It should run and does not, or has let a whole round pass without an answer. */
static bool is_silent(const struct daemon *d, enum role_id id)
{
	const struct role *r = &d->roles[id];

	if (watched[id].is_wanted && !watched[id].is_wanted(d))
		return false;
	return r->pid <= 0 || !r->has_answered || r->missed > 0;
}

/* All but the front, as bits. */
static unsigned silent_roles(const struct daemon *d)
{
	unsigned all = 0;

	for (enum role_id i = 0; i < ROLE_COUNT; i++)
		all |= (unsigned)(i != ROLE_FRONT && is_silent(d, i)) << i;
	return all;
}

static void ping_front(struct daemon *d)
{
	struct ipc m = {.type = IPC_PING, .ping.interval_ms = interval_ms(d)};
	size_t len = 0;

	d->told_silent = silent_roles(d);
	for (enum role_id i = 0; i < ROLE_COUNT; i++)
		if (d->told_silent & 1u << i)
			len += (size_t)snprintf(m.ping.silent + len, sizeof(m.ping.silent) - len,
						"%s%s", len ? " " : "", role_name(i));
	front_news(d, &m, -1);
}

/* A program in the front's place answers no pings. */
static bool is_watched(const struct daemon *d, enum role_id id)
{
	return d->roles[id].pid > 0 && !(id == ROLE_FRONT && (d->test_front || !d->front.was_told));
}

void roles_ping(struct daemon *d, enum role_id id)
{
	struct role *r = &d->roles[id];

	if (!is_watched(d, id))
		return;
	if (!r->was_asked) {
		r->was_asked = true;
		r->missed = 0;
		watched[id].ping(d);
	} else if (++r->missed >= (r->has_answered ? ROUNDS : START_ROUNDS)) {
		roles_end(d, id, "it does not answer");
	}
}

static void on_round(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	loop_timer_set(d->loop, &d->watch_timer, interval_ms(d));
	for (enum role_id i = 0; i < ROLE_COUNT; i++)
		roles_ping(d, i);
}

void roles_answered(struct daemon *d, enum role_id id)
{
	struct role *r = &d->roles[id];

	r->was_asked = false;
	r->has_answered = true;
	r->missed = 0;
	if (id == ROLE_FRONT)
		daemon_is_ready(d);
	if (!d->roles[ROLE_FRONT].was_asked && d->told_silent != silent_roles(d))
		roles_ping(d, ROLE_FRONT);
}

void roles_watch(struct daemon *d)
{
	d->watch_timer = (struct loop_timer){.call = on_round, .arg = d};
	on_round(d);
}

void roles_unwatch(struct daemon *d)
{
	loop_timer_stop(d->loop, &d->watch_timer);
}
