/*
 * Agents that run, and the last ones that have ended: for `cloche agent ps`, logs and kill. Each run of an agent type
 * has an entry from its start on; an ended one keeps the end of what it printed. In memory only: a run does not
 * outlive the daemon that answers it.
 */
#include "api/rest/rest.h"

#include "base/clean.h"
#include "base/id.h"

#include <sys/queue.h>

#define ENDED_MAX 256
#define OUTPUT_MAX (64u << 10)

struct agent_run {
	TAILQ_ENTRY(agent_run) all;
	char id[24];
	char owner[IPC_ID]; /* the tenant; "": the operator */
	char *type, *name;
	uint64_t started_ms, ended_ms;
	struct run *run; /* NULL: it has ended */
	char status[24];
	int exit_code;	   /* -1: none */
	struct buf output; /* once it has ended */
};

struct agent_runs {
	TAILQ_HEAD(, agent_run) all; /* oldest first */
	size_t ended;
};

struct agent_runs *agent_runs_new(void)
{
	struct agent_runs *r = must_alloc(calloc(1, sizeof(*r)));

	TAILQ_INIT(&r->all);
	return r;
}

static void drop(struct agent_runs *r, struct agent_run *a)
{
	TAILQ_REMOVE(&r->all, a, all);
	buf_done(&a->output);
	free(a->type);
	free(a->name);
	free(a);
}

void agent_runs_free(struct agent_runs *r)
{
	while (r && !TAILQ_EMPTY(&r->all))
		drop(r, TAILQ_FIRST(&r->all));
	free(r);
}

/* ---- life ---- */

struct agent_run *agent_run_begin(struct api *api, const struct caller *who, const json_t *call,
				  struct run *run)
{
	struct agent_run *a = must_alloc(calloc(1, sizeof(*a)));
	const char *name = body_text(call, "agent_name");

	if (id_letters(a->id, ID_LETTERS) < 0)
		a->id[0] = '\0'; /* it cannot be named, and so not killed */
	snprintf(a->owner, sizeof(a->owner), "%s", who->token);
	a->type = str_copy(body_text(call, "agent_type"));
	a->name = str_copy(name ? name : "");
	a->started_ms = unix_ms();
	a->run = run;
	a->exit_code = -1;
	TAILQ_INSERT_TAIL(&api->agent_runs->all, a, all);
	return a;
}

static void forget_oldest(struct agent_runs *r)
{
	struct agent_run *a;

	TAILQ_FOREACH (a, &r->all, all)
		if (!a->run) {
			drop(r, a);
			r->ended--;
			return;
		}
}

void agent_run_end(struct api *api, struct agent_run *a, const struct result *r, const char *why)
{
	/* At the end of the daemon the list goes before the last runs. */
	if (!a || !api->agent_runs)
		return;
	run_output(a->run, OUTPUT_MAX, &a->output);
	a->run = NULL;
	a->ended_ms = unix_ms();
	snprintf(a->status, sizeof(a->status), "%s", r ? status_name(r->end.status) : why);
	a->exit_code = r && r->end.status == STATUS_EXITED ? r->end.exit_code : -1;
	if (++api->agent_runs->ended > ENDED_MAX)
		forget_oldest(api->agent_runs);
}

/* ---- over REST ---- */

static bool is_seen_by(const struct agent_run *a, const struct caller *who)
{
	return caller_sees_all(who) || str_equal(a->owner, who->token);
}

static json_t *describe(const struct agent_run *a)
{
	char started[UTC_TEXT];
	uint64_t end = a->run ? unix_ms() : a->ended_ms;

	utc_text(a->started_ms / 1000, (uint32_t)(a->started_ms % 1000) * 1000000, 3, started);
	return json_pack("{s:s, s:s, s:o, s:s, s:o, s:s, s:I}", "id", a->id, "type", a->type,
			 "name", a->name[0] ? text_json_of(a->name) : json_null(), "state",
			 a->run ? "running" : a->status, "exit_code",
			 a->exit_code >= 0 ? json_integer(a->exit_code) : json_null(), "created_at",
			 started, "duration_ms", (json_int_t)(end - a->started_ms));
}

void v1_agent_runs(struct exchange *x)
{
	json_t *list = json_array();
	struct agent_run *a;

	TAILQ_FOREACH (a, &x->api->agent_runs->all, all)
		if (is_seen_by(a, &x->caller))
			json_array_append_new(list, describe(a));
	exchange_json(x, 200, json_pack("{s:o}", "runs", list));
}

/* Others' runs are answered like unknown ones. */
static struct agent_run *find(struct exchange *x)
{
	struct agent_run *a;

	TAILQ_FOREACH (a, &x->api->agent_runs->all, all)
		if (str_equal(a->id, x->params[0]) && is_seen_by(a, &x->caller))
			return a;
	exchange_fail(x, ERR_NOT_FOUND, "there is no run %.24s", x->params[0]);
	return NULL;
}

void v1_agent_run(struct exchange *x)
{
	struct agent_run *a = find(x);
	struct buf b = {0};
	json_t *answer;

	if (!a)
		return;
	if (a->run)
		run_output(a->run, OUTPUT_MAX, &b);
	answer = describe(a);
	json_object_set_new(
		answer, "output",
		a->run ? text_json(b.len ? buf_head(&b) : "", b.len)
		       : text_json(a->output.len ? buf_head(&a->output) : "", a->output.len));
	buf_done(&b);
	exchange_json(x, 200, answer);
}

void v1_agent_run_kill(struct exchange *x)
{
	struct agent_run *a = find(x);

	if (!a)
		return;
	if (a->run)
		run_kill(a->run);
	exchange_reply(x, 204, NULL, "", 0);
}
