/* Puts the denials of a run into its record, in words. */
#include "sandbox/outside/keeper.h"

#include "model/guard.h"
#include "sandbox/workspace/safe_walk.h"
#include "sandbox/inside/notify.h"
#include "sandbox/outside/attempts.h"

static const struct {
	unsigned hit;
	const char *name, *option;
} limit_rows[] = {
	{HIT_PIDS, "pids", "--pids"},
	{HIT_DISK, "disk", "--disk"},
	{HIT_FILE_SIZE, "file_size", "--file-size"},
	{HIT_MEMORY, "memory", "--memory"},
};

/*
 * The cgroup is full in any case; the size of the largest process and the number of kills help the
 * caller.
 */
static void explain_memory(const struct keeper *k, const struct result *r, struct denial *d)
{
	uint64_t limit = k->plan.spec->limits.memory_bytes, kills = k->stats.oom_kills;
	char killed[48] = "";

	if (kills)
		snprintf(killed, sizeof(killed), ", %llu killed for it", (unsigned long long)kills);
	d->count = kills ? kills : 1;
	snprintf(d->explain, sizeof(d->explain),
		 "It used all of its %llu MB of memory (largest process: %llu MB%s). If more is "
		 "needed, ask for a larger --memory, such as -m %lluM%s.",
		 (unsigned long long)limit >> 20, (unsigned long long)r->end.max_rss_bytes >> 20,
		 killed, (unsigned long long)limit >> 19,
		 r->end.max_rss_bytes < limit / 2 ? ", or run less at a time (make -j)" : "");
}

static void explain_limit(const struct keeper *k, const struct result *r, size_t row,
			  struct denial *d)
{
	d->count = 1;
	if (limit_rows[row].hit == HIT_PIDS && k->stats.pids_refused)
		d->count = k->stats.pids_refused;
	snprintf(d->what, sizeof(d->what), "limit");
	snprintf(d->target, sizeof(d->target), "%s", limit_rows[row].name);
	snprintf(d->rule, sizeof(d->rule), "limit %s", limit_rows[row].name);
	snprintf(d->explain, sizeof(d->explain),
		 "The %s limit was reached. If more is needed, ask for a larger %s.",
		 limit_rows[row].name, limit_rows[row].option);
	if (limit_rows[row].hit == HIT_MEMORY)
		explain_memory(k, r, d);
}

/*
 * Reads the guard's report from /tmp; all processes inside are dead. The report informs, and
 * decides nothing.
 */
static void list_guard(const struct keeper *k, struct result *r)
{
	const struct sandbox_spec *s = k->plan.spec;
	const char *tmp = s->level == LEVEL_PROCESS ? "open/tmp" : "tmp";
	auto_free char *data = NULL;
	auto_close int dir = -1;
	auto_close int fd = -1;
	struct stat st;
	ssize_t n;

	if (s->guard == GUARD_OFF || k->scratch < 0)
		return;
	dir = safe_walk_open_dir(k->scratch, tmp);
	fd = dir < 0 ? -1 : safe_walk_open_file(dir, GUARD_REPORT, &st);
	if (fd < 0)
		return;
	data = must_alloc(malloc(GUARD_REPORT_BYTES));
	n = read(fd, data, GUARD_REPORT_BYTES);
	if (n > 0)
		guard_add_report(s->guard, data, (size_t)n, r);
}

void denials_list(const struct keeper *k, struct result *r)
{
	const struct status_page *b = k->plan.page;
	unsigned seen =
		b->denial_count < STATUS_PAGE_DENIALS ? b->denial_count : STATUS_PAGE_DENIALS;
	/*
	 * Of the limits that end a run, memory is the one that a caller has to understand to do
	 * better.
	 */
	unsigned hits = r->end.limits_hit | (r->end.status == STATUS_OOM ? HIT_MEMORY : 0);

	if (seen == 0 && !hits && k->plan.spec->guard == GUARD_OFF)
		return;
	r->denials = must_alloc(calloc(seen + ARRAY_LEN(limit_rows), sizeof(*r->denials)));
	for (unsigned i = 0; i < seen; i++) {
		struct denial *d = &r->denials[r->denial_count++];

		notify_explain(plan_profile(&k->plan), &b->denials[i], d);
		if (k->network && b->denials[i].kind == DENIAL_CONNECT)
			attempts_explain_address(k->plan.spec->net, d->target, d);
	}
	for (size_t i = 0; i < ARRAY_LEN(limit_rows); i++)
		if (hits & limit_rows[i].hit)
			explain_limit(k, r, i, &r->denials[r->denial_count++]);
	list_guard(k, r);
}
