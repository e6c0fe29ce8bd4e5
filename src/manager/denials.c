/* Denials of a command as its guest reports them. The guest is not trusted: number and texts are bounded
 * and sanitised. */
#include "manager/manager_internal.h"

#include "wire/guest.h"
#include "wire/pack.h"

#define DENIALS_MAX 64

static const char *const kinds[] = {"syscall", "connect", "resolve"};

/* Limits that are also shown as denials, in this order. */
static const enum limit_hit told_limits[] = {HIT_PIDS, HIT_DISK, HIT_FILE_SIZE, HIT_MEMORY};

static void read_text(struct unpack *u, char *dst, size_t size)
{
	size_t len;
	const char *text = unpack_bytes(u, &len);

	str_sanitise(dst, size, text, len);
}

/* False: it is none. */
static bool read_denial(struct unpack *u, struct sandbox *s, struct denial *d)
{
	uint8_t kind = unpack_u8(u);

	snprintf(d->what, sizeof(d->what), "%s", kind < ARRAY_LEN(kinds) ? kinds[kind] : "limit");
	read_text(u, d->rule, sizeof(d->rule));
	read_text(u, d->target, sizeof(d->target));
	read_text(u, d->explain, sizeof(d->explain));
	d->count = unpack_u64(u);
	if (u->bad || network_corrects(s, d))
		return false;
	s->m->metrics.denials[kind < ARRAY_LEN(kinds) ? kind : 3] += d->count;
	return true;
}

/* Tells the operator of a tenant whose programs are refused more often than `alert_denials` a minute. */
static void count_for_alert(struct sandbox *s, uint64_t denials)
{
	uint32_t most = s->m->p.config->alert_denials;
	int64_t now = now_ns();
	char told[IPC_ID + 1];
	bool too_many = false;

	for (uint64_t i = 0; most && i < denials && !too_many; i++)
		too_many = buckets_take(s->m->alerts, s->owner.token, most, most, now, NULL) > 0;
	/* Once a minute. */
	snprintf(told, sizeof(told), "!%s", s->owner.token);
	if (!too_many || buckets_take(s->m->alerts, told, 1, 1, now, NULL) > 0)
		return;
	s->m->metrics.alerts++;
	manager_log(s->m, "repeated denials: token %s (%s), sandbox %s: more than %u in a minute",
		    s->owner.token[0] ? s->owner.token : "operator", s->owner.name, s->id, most);
	event_add_any(s, "sandbox.denials", json_pack("{s:I}", "per_minute", (json_int_t)most));
}

void denials_told(struct sandbox *s, bool is_lookup, uint64_t count)
{
	s->m->metrics.denials[is_lookup ? 2 : 1] += count;
	count_for_alert(s, count);
}

void denials_read(struct unpack *u, struct sandbox *s, struct result *r)
{
	uint32_t count = unpack_u32(u);
	uint64_t all = 0;

	for (uint32_t i = 0; i < count && i < DENIALS_MAX && !u->bad; i++) {
		struct denial d;

		if (!read_denial(u, s, &d))
			continue;
		result_add_denials(r, &d, 1);
		if (all + d.count >= all)
			all += d.count;
	}
	count_for_alert(s, all);
}

void denials_add_limits(struct result *r)
{
	for (size_t i = 0; i < ARRAY_LEN(told_limits); i++) {
		const char *name = limit_hit_name(told_limits[i]);
		struct denial d = {.what = "limit", .count = 1};

		snprintf(d.target, sizeof(d.target), "%s", name);
		snprintf(d.rule, sizeof(d.rule), "limit %s", name);
		snprintf(d.explain, sizeof(d.explain),
			 "The %s limit was reached. If more is needed, ask for a larger %s.", name,
			 name);
		result_add_denials(r, &d, (r->end.limits_hit & told_limits[i]) != 0);
	}
}
