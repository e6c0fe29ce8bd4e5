/*
 * Admission: who may have one more sandbox, and when it is booted.
 *
 * A sandbox counts from its request to its end: in number, and with its limits of memory and disk. The
 * bounds are those of the daemon, of the token, and the token's fair share (auth/shares.h).
 *
 * Boots wait in a queue for each token, and the tokens take turns, so that a burst of one token delays
 * another token's only boot by a few boots. Only as many are with the broker as keep its workers busy.
 * The broker looks at the host before each boot; while the host is short of memory or processors, the
 * boot goes back to its queue, and nothing is booted for a moment.
 */
#include "manager/manager_internal.h"

#define BOOTS_AT_ONCE 8	 /* with the broker: two for each of its workers */
#define QUEUED_MAX 4096	 /* boots that wait, of all tokens */
#define WAIT_MS 60000	 /* for one boot */
#define HOST_BUSY_MS 100 /* until the broker is asked again */

/* The waiting boots of one token. */
struct boot_queue {
	char token[IPC_ID];
	struct job *first, **end;
	struct boot_queue *next;
};

/* ---- counting ---- */

static uint64_t disk_of(const struct limits *l)
{
	/* Without a limit of its own, the disk is a half of the memory. */
	return l->disk_bytes ? l->disk_bytes : l->memory_bytes / 2;
}

static int check_total(struct manager *m, const char *token, enum share kind, uint64_t most,
		       uint64_t more, struct err *e)
{
	const struct budget *b = shares_of(m->shares, token, kind);

	if (most && b->used + more > most)
		return err_set(e, ERR_LIMIT,
			       "%s_total: this token's sandboxes may have %" PRIu64
			       " MB together and have %" PRIu64 " MB; destroy some first",
			       share_name(kind), most >> 20, b->used >> 20);
	return budget_has(b, more) ? 0 : shares_refuse(kind, e);
}

static int check_totals(struct manager *m, const struct caller *who, uint64_t memory, uint64_t disk,
			struct err *e)
{
	if (check_total(m, who->token, SHARE_MEMORY, who->memory_total, memory, e) < 0)
		return -1;
	return check_total(m, who->token, SHARE_DISK, who->disk_total, disk, e);
}

int quota_check(struct manager *m, const struct caller *who, const struct limits *l, struct err *e)
{
	const struct config *c = m->p.config;
	const struct budget *b = shares_of(m->shares, who->token, SHARE_SANDBOXES);
	uint64_t count = b->used + warm_running(m, who->token), alive = b->pool->used;
	uint32_t most = who->max_sandboxes ? who->max_sandboxes
			: who->token[0]	   ? c->max_sandboxes_per_token
					   : 0;

	if (c->max_sandboxes && alive >= c->max_sandboxes)
		return err_set(e, ERR_LIMIT,
			       "there are %" PRIu64 " sandboxes already, the daemon's limit; "
			       "destroy some first",
			       alive);
	if (most && count >= most)
		return err_set(e, ERR_LIMIT,
			       "this token has %" PRIu64 " sandboxes already, its limit; "
			       "destroy some first",
			       count);
	return check_totals(m, who, l->memory_bytes, disk_of(l), e);
}

int quota_check_change(struct sandbox *s, const struct caller *who, const struct limits *l,
		       struct err *e)
{
	uint64_t memory = l->memory_bytes, disk = disk_of(l);

	/* The owner's totals count, whoever asks; only the owner's own token has bounds of its own. */
	struct caller owner = str_equal(who->token, s->owner.token) ? *who : s->owner;

	return check_totals(s->m, &owner, memory > s->memory ? memory - s->memory : 0,
			    disk > s->disk ? disk - s->disk : 0, e);
}

static void count_sandbox(struct sandbox *s, bool counts)
{
	const struct {
		enum share kind;
		uint64_t *counted, now;
	} rows[] = {
		{SHARE_MEMORY, &s->memory, counts ? s->o.spec.limits.memory_bytes : 0},
		{SHARE_DISK, &s->disk, counts ? disk_of(&s->o.spec.limits) : 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct budget *b = shares_of(s->m->shares, s->owner.token, rows[i].kind);

		budget_give(b, *rows[i].counted);
		budget_count(b, rows[i].now);
		*rows[i].counted = rows[i].now;
	}
}

void quota_add(struct sandbox *s)
{
	s->counted = true;
	budget_count(shares_of(s->m->shares, s->owner.token, SHARE_SANDBOXES), 1);
	count_sandbox(s, true);
}

void quota_recount(struct sandbox *s)
{
	if (s->counted)
		count_sandbox(s, true);
}

void quota_remove(struct sandbox *s)
{
	if (!s->counted)
		return;
	s->counted = false;
	budget_give(shares_of(s->m->shares, s->owner.token, SHARE_SANDBOXES), 1);
	count_sandbox(s, false);
}

/* ---- the queues ---- */

static struct budget *places_of(struct manager *m, const char *token)
{
	return shares_of(m->shares, token, SHARE_JOBS);
}

int admission_check(struct manager *m, const struct caller *who, struct err *e)
{
	return budget_has(places_of(m, who->token), 1) ? 0 : shares_refuse(SHARE_JOBS, e);
}

static struct boot_queue *queue_of(struct manager *m, const char *token)
{
	struct boot_queue **at = &m->admission.queues, *q;

	while (*at && !str_equal((*at)->token, token))
		at = &(*at)->next;
	if (*at)
		return *at;
	q = *at = must_alloc(calloc(1, sizeof(*q)));
	snprintf(q->token, sizeof(q->token), "%s", token);
	q->end = &q->first;
	return q;
}

/* The next boot of the token whose turn it is; the token's other boots go behind those of all others. */
static struct job *take_next(struct manager *m)
{
	struct boot_queue *q = m->admission.queues, **last = &m->admission.queues;
	struct job *j = q->first;

	q->first = j->next;
	j->next = NULL;
	*last = q->next;
	q->next = NULL;
	while (*last)
		last = &(*last)->next;
	if (q->first)
		*last = q;
	else
		free(q);
	m->admission.waiting--;
	budget_give(places_of(m, j->s->owner.token), 1);
	return j;
}

static bool waited_too_long(const struct job *j)
{
	return now_ns() - j->begun_ns > WAIT_MS * 1000000LL;
}

static void admit_next(struct job *j)
{
	struct err e;

	if (!job_is_current(j)) {
		job_end(j, NULL);
	} else if (waited_too_long(j)) {
		err_set(&e, ERR_LIMIT, "the host is too busy to boot a sandbox; try again later");
		boot_failed(j, &e);
	} else {
		j->s->m->admission.booting++;
		boot_now(j);
	}
}

static void admission_run(struct manager *m)
{
	while (m->admission.queues && m->admission.booting < BOOTS_AT_ONCE &&
	       !m->admission.pause.place)
		admit_next(take_next(m));
}

void admission_add(struct job *j)
{
	struct manager *m = j->s->m;
	struct boot_queue *q = queue_of(m, j->s->owner.token);

	budget_count(places_of(m, q->token), 1);
	*q->end = j;
	q->end = &j->next;
	m->admission.waiting++;
	admission_run(m);
}

void admission_booted(struct manager *m)
{
	m->admission.booting--;
	admission_run(m);
}

bool admission_again(struct job *j, const struct err *e)
{
	struct manager *m = j->s->m;
	struct boot_queue *q;

	if (e->kind != ERR_LIMIT || e->errnum != EAGAIN || waited_too_long(j))
		return false;
	loop_timer_set(m->p.loop, &m->admission.pause, HOST_BUSY_MS);
	/* To the front: it was its turn. */
	q = queue_of(m, j->s->owner.token);
	j->next = q->first;
	q->first = j;
	if (!j->next)
		q->end = &j->next;
	m->admission.waiting++;
	budget_count(places_of(m, q->token), 1);
	return true;
}

static void on_pause_over(void *arg)
{
	admission_run(arg);
}

void admission_start(struct manager *m)
{
	m->admission.pause = (struct loop_timer){.call = on_pause_over, .arg = m};
	admission_change(m);
}

void admission_change(struct manager *m)
{
	shares_set_max(m->shares, SHARE_JOBS, QUEUED_MAX);
	shares_set_max(m->shares, SHARE_MEMORY, m->p.config->memory_total);
	shares_set_max(m->shares, SHARE_DISK, m->p.config->disk_total);
}

void admission_stop(struct manager *m)
{
	loop_timer_stop(m->p.loop, &m->admission.pause);
	while (m->admission.queues) {
		struct boot_queue *q = m->admission.queues;

		m->admission.queues = q->next;
		free(q);
	}
}
