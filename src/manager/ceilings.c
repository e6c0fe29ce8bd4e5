/*
 * What may be asked for: the operator's ceilings hold for all, a token's own for what it asks. Who says nothing gets
 * what the settings say, lowered to them; who asks for more is refused. The broker looks again (daemon/broker/check.c).
 */
#include "manager/manager_internal.h"

static const struct limit_row {
	const char *name;
	size_t at;
	bool none_is_most; /* 0: no limit at all */
} limit_rows[] = {
	{"memory", offsetof(struct limits, memory_bytes), false},
	{"cpus", offsetof(struct limits, cpus_milli), false},
	{"pids", offsetof(struct limits, pids), false},
	{"disk", offsetof(struct limits, disk_bytes), false},
	{"timeout", offsetof(struct limits, timeout_ms), true},
	{"cpu_time", offsetof(struct limits, cpu_time_ms), true},
	{"open_files", offsetof(struct limits, open_files), false},
	{"file_size", offsetof(struct limits, file_size_bytes), false},
	{"output_limit", offsetof(struct limits, output_bytes), false},
};

static uint64_t limit_at(const struct limits *l, size_t row)
{
	uint64_t value;

	memcpy(&value, (const char *)l + limit_rows[row].at, sizeof(value));
	return value;
}

int limits_check(struct manager *m, const struct caller *who, const struct limits *l, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_rows); i++) {
		uint64_t most = limit_at(&m->p.config->ceiling, i), asked = limit_at(l, i);
		uint64_t own = who->has_ceiling ? limit_at(&who->ceiling, i) : 0;

		if (most && asked > most)
			return err_field(e, ERR_DENIED, limit_rows[i].name,
					 "%s: more than this daemon gives", limit_rows[i].name);
		if (own && asked > own)
			return err_field(e, ERR_DENIED, limit_rows[i].name,
					 "%s: more than this token may ask for",
					 limit_rows[i].name);
	}
	return 0;
}

static void limits_lower(struct limits *l, const struct limits *most)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_rows); i++) {
		uint64_t value = limit_at(l, i), bound = limit_at(most, i);

		if (bound && (value > bound || (!value && limit_rows[i].none_is_most)))
			memcpy((char *)l + limit_rows[i].at, &bound, sizeof(bound));
	}
}

/* Of two times, where 0 is for ever. */
static uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

void create_options_for(struct create_options *o, const struct manager *m, const struct caller *who)
{
	const struct config *c = m->p.config;
	struct limits *l = &o->spec.limits;

	create_options_init(o, m);
	limits_lower(l, &c->ceiling);
	if (who->has_ceiling)
		limits_lower(l, &who->ceiling);
	/* What is written stays in memory. */
	if (l->disk_bytes > l->memory_bytes)
		l->disk_bytes = l->memory_bytes / 2;
	o->ttl_ms = sooner(o->ttl_ms, c->max_ttl_ms);
	o->idle_ms = sooner(o->idle_ms, c->max_idle_ms);
}

static int check_time(const char *name, const uint64_t *asked_ms, uint64_t most_ms, struct err *e)
{
	if (!asked_ms || !most_ms || sooner(*asked_ms, most_ms) == *asked_ms)
		return 0;
	return err_field(e, ERR_INVALID, name, "%s: %sat most %llu s here", name,
			 *asked_ms ? "" : "0 is for ever; ", (unsigned long long)most_ms / 1000);
}

int manager_times_check(const struct manager *m, const uint64_t *ttl_ms, const uint64_t *idle_ms,
			struct err *e)
{
	const struct config *c = m->p.config;

	if (check_time("ttl", ttl_ms, c->max_ttl_ms, e) < 0)
		return -1;
	return check_time("idle_timeout", idle_ms, c->max_idle_ms, e);
}

uint64_t exec_timeout_most(const struct manager *m, const struct caller *who)
{
	return sooner(m->p.config->ceiling.timeout_ms,
		      who->has_ceiling ? who->ceiling.timeout_ms : 0);
}
