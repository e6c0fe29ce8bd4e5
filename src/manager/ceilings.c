/*
 * Ceilings: the operator's hold for all callers, those of a token for its own requests. A request that
 * sets no limits gets the defaults, lowered to the ceilings; a request for more is refused. The broker
 * checks again (daemon/broker/check.c).
 */
#include "manager/manager_internal.h"

const struct field *limit_field(const struct field *after)
{
	const struct field *f = after ? after + 1 : spec_fields;

	while (f < spec_fields + spec_field_count && !spec_field_is_limit(f))
		f++;
	return f < spec_fields + spec_field_count ? f : NULL;
}

static size_t limit_offset(const struct field *f)
{
	return f->offset - offsetof(struct sandbox_spec, limits);
}

uint64_t limit_value(const struct limits *l, const struct field *f)
{
	uint64_t value;

	memcpy(&value, (const char *)l + limit_offset(f), sizeof(value));
	return value;
}

int limits_check(struct manager *m, const struct caller *who, const struct limits *l, struct err *e)
{
	for (const struct field *f = limit_field(NULL); f; f = limit_field(f)) {
		uint64_t most = limit_value(&m->p.config->ceiling, f), asked = limit_value(l, f);
		uint64_t own = who->has_ceiling ? limit_value(&who->ceiling, f) : 0;

		if (most && asked > most)
			return err_field(e, ERR_DENIED, f->name, "%s: more than this daemon gives",
					 f->name);
		if (own && asked > own)
			return err_field(e, ERR_DENIED, f->name,
					 "%s: more than this token may ask for", f->name);
	}
	return 0;
}

static void limits_lower(struct limits *l, const struct limits *most)
{
	for (const struct field *f = limit_field(NULL); f; f = limit_field(f)) {
		uint64_t value = limit_value(l, f), bound = limit_value(most, f);
		bool is_unbounded = !value && f->type == FIELD_TIME; /* a time of 0 is no limit */

		if (bound && (value > bound || is_unbounded))
			memcpy((char *)l + limit_offset(f), &bound, sizeof(bound));
	}
}

/* The shorter of two times, where 0 means for ever. */
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
	/* Written files are kept in memory. */
	if (l->disk_bytes > l->memory_bytes && o->spec.disk_type == DISK_MEMORY)
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
