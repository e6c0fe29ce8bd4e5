/* Clients of the MCP door: their sessions, the options they set, and the sandboxes they own. */
#include "api/mcp/mcp_internal.h"

#include "agent/registry.h"
#include "auth/buckets.h"
#include "auth/shares.h"
#include "base/id.h"
#include "policy/config.h"

#include <sys/random.h>

#define SESSIONS_MAX 8192
#define SESSIONS_PER_CALLER 512
#define OPTIONS_MAX (64u << 10) /* kept as long as the session, which may be days */
#define SWEEP_MS 60000
#define FORGET_NS (7 * 24 * 3600 * 1000000000LL)
#define IDLE_MS (3600u * 1000)
/* A line of stdio has at most 10 MB, and each output is in a result twice. */
#define OUTPUT_DEFAULT (128u << 10)
#define OUTPUT_MAX (256u << 10)

static struct budget *share_of(const struct mcp_session *s)
{
	return shares_of(manager_shares(s->state->api->manager), s->caller.token, SHARE_SESSIONS);
}

static void free_session(struct mcp_session *s)
{
	struct mcp_session **p = &s->state->sessions;

	while (*p && *p != s)
		p = &(*p)->next;
	if (*p)
		*p = s->next;
	budget_give(share_of(s), 1);
	json_decref(s->options);
	json_decref(s->polled);
	list_done(&s->snapshots);
	free(s);
}

static bool has_work(const struct mcp_session *s)
{
	return s->calls || s->making || s->held;
}

void mcp_session_settle(struct mcp_session *s)
{
	if (s->ended && !has_work(s) && !s->stream)
		free_session(s);
}

/* How long a sandbox may be unused. */
static uint64_t idle_ms(const struct mcp_state *st)
{
	uint64_t most = st->api->config->max_idle_ms;

	return most && most < IDLE_MS ? most : IDLE_MS;
}

/* ---- sandboxes whose session was forgotten ---- */

struct orphans {
	json_t *known; /* "owner key" of each session */
	struct list ids;
};

static char *session_label(const char *owner, const char *key)
{
	return str_format("%s %s", owner, key);
}

static bool collect_orphan(void *arg, struct sandbox *box)
{
	struct orphans *o = arg;
	const char *key = body_text(sandbox_door_data(box), "session");
	auto_free char *label = NULL;

	if (!str_equal(sandbox_door(box), "mcp") || sandbox_state(box) != STATE_PAUSED)
		return true;
	label = session_label(sandbox_owner(box), key ? key : "");
	if (!json_object_get(o->known, label))
		list_add(&o->ids, sandbox_id(box));
	return true;
}

/*
 * A paused sandbox waits for its client. Where no session is known that could ask for it, the client is
 * gone, and being unused for so long ends the sandbox.
 */
static void end_orphans(struct mcp_state *st)
{
	const struct caller anyone = {.scopes = SCOPE_ADMIN};
	struct orphans o = {.known = json_object()};
	struct sandbox *box;
	struct err e = {0};

	for (const struct mcp_session *s = st->sessions; s; s = s->next) {
		auto_free char *label = session_label(s->caller.token, s->key);

		json_object_set_new(o.known, label, json_true());
	}
	manager_each(st->api->manager, &anyone, collect_orphan, &o);
	for (size_t i = 0; i < o.ids.count; i++)
		if ((box = manager_find(st->api->manager, &anyone, o.ids.items[i], &e)))
			sandbox_expire(box, "its client was gone and it was idle for too long");
	json_decref(o.known);
	list_done(&o.ids);
}

static void set_sweep_timer(struct mcp_state *st)
{
	uint64_t ms = idle_ms(st);

	loop_timer_set(st->api->loop, &st->sweep, ms < SWEEP_MS ? ms : SWEEP_MS);
}

static void sweep_sessions(void *arg)
{
	struct mcp_state *st = arg;
	int64_t now = now_ns();
	struct mcp_session *next;

	for (struct mcp_session *s = st->sessions; s; s = next) {
		next = s->next;
		if (!has_work(s) && !s->stream && now - s->used_ns > FORGET_NS)
			mcp_session_end(s);
	}
	if ((uint64_t)(now - st->since_ns) / 1000000 > idle_ms(st))
		end_orphans(st);
	set_sweep_timer(st);
}

struct mcp_state *mcp_state(struct api *api)
{
	struct mcp_state *st = api->door_state[DOOR_MCP];

	if (st)
		return st;
	st = must_alloc(calloc(1, sizeof(*st)));
	st->api = api;
	st->calls = buckets_new();
	st->sweep = (struct loop_timer){.call = sweep_sessions, .arg = st};
	st->since_ns = now_ns();
	shares_set_max(manager_shares(api->manager), SHARE_SESSIONS, SESSIONS_MAX);
	set_sweep_timer(st);
	api->door_state[DOOR_MCP] = st;
	return st;
}

/* ---- options ---- */

/* Options that a client may set for its sandboxes; the caller's ceiling still holds. */
static const char *const session_fields[] = {
	"memory",	   "cpus",	"pids",		"disk",	     "timeout", "cpu_time",
	"open_files",	   "file_size", "output_limit", "env",	     "workdir", "hostname",
	"require",	   "image",	"root",		"level",     "net",	"optional",
	"volumes",	   "allow",	"deny",		"net_rate",  "net_tx",	"net_rx",
	"net_connections", "net_names", "net_requests", "tool_rule", "agent",
};

static const struct body_table session_table =
	BODY_TABLE(BODY_WITH_SPEC, FIELD("env", BODY_ENV, "variables of every command"),
		   FIELD("volumes", BODY_ITEMS, "directories to show", .items = &v1_volume_table),
		   FIELD("tool_rule", BODY_LIST, "rules for its tool calls"),
		   FIELD("agent", BODY_TEXT, "the registered agent that makes them"));

static int check_names(const json_t *options, struct err *e)
{
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach ((json_t *)options, name, value) {
		for (i = 0; i < ARRAY_LEN(session_fields) && !str_equal(name, session_fields[i]);)
			i++;
		if (i == ARRAY_LEN(session_fields))
			return err_field(e, ERR_UNSUPPORTED, name,
					 "%.32s: cannot be set for sandboxes of a daemon", name);
	}
	return 0;
}

/* Sessions call the path of a volume its target. */
static void rename_targets(json_t *volumes)
{
	json_t *v, *target;
	size_t i;

	json_array_foreach (volumes, i, v)
		if ((target = json_object_get(v, "target"))) {
			json_object_set(v, "path", target);
			json_object_del(v, "target");
		}
}

static void default_output(struct sandbox_spec *spec)
{
	if (!spec_is_set(spec, "output_limit") && spec->limits.output_bytes > OUTPUT_DEFAULT)
		spec->limits.output_bytes = OUTPUT_DEFAULT;
	if (spec->limits.output_bytes > OUTPUT_MAX)
		spec->limits.output_bytes = OUTPUT_MAX;
}

static int check_rules(const json_t *options, struct err *e)
{
	auto_list struct list rules = {0};

	body_list(options, "tool_rule", &rules);
	return tool_rules_check(&rules, e);
}

/*
 * By the level of the caller and of the agent that makes the calls. An agent outside of sandboxes is not in this one,
 * either; but what it has made here is bounded by its level.
 */
static int fit_to_trust(const struct api *api, const struct caller *who, const json_t *options,
			struct create_options *o, struct err *e)
{
	const char *name = body_text(options, "agent");
	const struct ipc_agent *agent = name ? agents_find(api->agents, name) : NULL;
	struct caller as = *who;

	/* Another's agent answers like one that does not exist (rule 28). */
	if (agent && !str_equal(agent->owner, who->token))
		return err_field(e, ERR_NOT_FOUND, "agent", "agent: you have no agent %.60s", name);
	if (!agent || !agent->is_outside)
		return agents_fit(api->agents, api->manager, who, name ? name : "", o, e);
	if (agent->effective < as.trust)
		as.trust = agent->effective;
	if (agents_fit(api->agents, api->manager, &as, "", o, e) < 0)
		return -1;
	return agents_check_net(api->agents, name, &o->spec, e);
}

static int apply_options(struct create_options *o, json_t *options, struct err *e)
{
	if (check_names(options, e) < 0)
		return -1;
	rename_targets(json_object_get(options, "volumes"));
	if (body_check(options, &session_table, e) < 0 || check_rules(options, e) < 0 ||
	    v1_create_options(options, &session_table, o, e) < 0)
		return -1;
	default_output(&o->spec);
	return 0;
}

/* ---- sessions ---- */

static bool is_callers(const struct mcp_session *s, const struct caller *who)
{
	return str_equal(s->caller.token, who->token);
}

/* Whether a goes before b: sessions whose client is not connected, then those unused for longest. */
static bool goes_before(const struct mcp_session *a, const struct mcp_session *b)
{
	if (!a->stream != !b->stream)
		return !a->stream;
	return a->used_ns < b->used_ns;
}

/*
 * Clients forget to end sessions: one without work is forgotten for the new one. If it has a sandbox, its
 * client finds the sandbox and the session again (restore_session) until the sandbox has been idle for too long.
 */
static void forget_one(struct mcp_state *st, const struct caller *who)
{
	struct mcp_session *first = NULL;

	for (struct mcp_session *s = st->sessions; s; s = s->next)
		if (is_callers(s, who) && !s->ended && !has_work(s) &&
		    (!first || goes_before(s, first)))
			first = s;
	if (!first)
		return;
	first->ended = true;
	first->held++; /* the end of its stream would free it */
	mcp_stream_close(first);
	first->held--;
	mcp_session_settle(first);
}

static int make_room(struct mcp_state *st, const struct caller *who, struct err *e)
{
	struct budget *b = shares_of(manager_shares(st->api->manager), who->token, SHARE_SESSIONS);

	if (b->used >= SESSIONS_PER_CALLER || !budget_has(b, 1))
		forget_one(st, who);
	if (b->used >= SESSIONS_PER_CALLER)
		return err_set(e, ERR_LIMIT, "sessions: all %d of this token are at work",
			       SESSIONS_PER_CALLER);
	return budget_take(b, 1) ? 0 : shares_refuse(SHARE_SESSIONS, e);
}

static struct mcp_session *add_session(struct mcp_state *st, const struct caller *who,
				       struct err *e)
{
	struct mcp_session *s;

	if (make_room(st, who, e) < 0)
		return NULL;
	s = must_alloc(calloc(1, sizeof(*s)));
	s->state = st;
	s->caller = *who;
	s->level = -1;
	s->used_ns = now_ns();
	s->polled = json_object();
	s->next = st->sessions;
	st->sessions = s;
	return s;
}

struct mcp_session *mcp_session_open(struct mcp_state *st, const struct caller *who,
				     json_t *options, struct err *e)
{
	struct create_options o;
	struct mcp_session *s = NULL;
	char id[2 * 16 + 1];
	int rc = 0;

	if (options && !json_is_object(options))
		rc = err_set(e, ERR_INVALID, MCP_OPTIONS_KEY " must be an object");
	else if (options && json_dumpb(options, NULL, 0, JSON_COMPACT) > OPTIONS_MAX)
		rc = err_set(e, ERR_LIMIT, MCP_OPTIONS_KEY " has more than %u bytes", OPTIONS_MAX);
	if (rc == 0) {
		create_options_for(&o, st->api->manager, who);
		rc = apply_options(&o, options, e);
		if (rc == 0)
			rc = fit_to_trust(st->api, who, options, &o, e);
		create_options_done(&o);
	}
	if (rc == 0 && id_hex(id, 16) < 0)
		rc = err_sys(e, "no random bytes");
	if (rc == 0)
		s = add_session(st, who, e);
	if (!s) {
		json_decref(options);
		return NULL;
	}
	s->options = options;
	snprintf(s->id, sizeof(s->id), "%s", id);
	snprintf(s->key, sizeof(s->key), "%s", s->id);
	return s;
}

/*
 * Ownership is checked for the operator, too: clients choose the names of their sessions, and a sandbox
 * that another caller prepared under the same name must not become the operator's.
 */
static bool belongs_to(const struct sandbox *box, const char *key, const struct caller *who)
{
	const char *its = body_text(sandbox_door_data(box), "session");

	return str_equal(sandbox_door(box), "mcp") && its && str_equal(its, key) &&
	       sandbox_is_owned_by(box, who);
}

struct lookup {
	const char *key;
	const struct caller *who;
	struct sandbox *found;
};

static bool find_box(void *arg, struct sandbox *box)
{
	struct lookup *l = arg;

	if (belongs_to(box, l->key, l->who))
		l->found = box;
	return true;
}

/* After a restart the daemon finds sessions by the sandboxes that they own. */
static struct mcp_session *restore_session(struct mcp_state *st, const struct caller *who,
					   const char *id)
{
	struct lookup l = {.key = id, .who = who};
	struct mcp_session *s;
	struct err e = {0};

	manager_each(st->api->manager, who, find_box, &l);
	s = l.found ? add_session(st, who, &e) : NULL;
	if (!s)
		return NULL;
	snprintf(s->id, sizeof(s->id), "%s", id);
	snprintf(s->key, sizeof(s->key), "%s", id);
	snprintf(s->sandbox, sizeof(s->sandbox), "%s", sandbox_id(l.found));
	s->options = json_deep_copy(json_object_get(sandbox_door_data(l.found), "options"));
	return s;
}

static struct mcp_session *use_session(struct mcp_session *s, const struct caller *who)
{
	s->caller = *who;
	s->used_ns = now_ns();
	return s;
}

struct mcp_session *mcp_session_find(struct mcp_state *st, const struct caller *who, const char *id)
{
	struct mcp_session *s;

	if (strlen(id) != MCP_SESSION_ID - 1 || strspn(id, "0123456789abcdef") != strlen(id))
		return NULL;
	for (s = st->sessions; s; s = s->next)
		if (!s->ended && s->id[0] && str_equal(s->id, id))
			break;
	if (s && !is_callers(s, who))
		return NULL;
	if (!s)
		s = restore_session(st, who, id);
	return s ? use_session(s, who) : NULL;
}

struct mcp_session *mcp_session_implicit(struct mcp_state *st, const struct caller *who,
					 const char *client, struct err *e)
{
	struct mcp_session *s;
	char clean[sizeof(s->client)];
	struct lookup l;

	str_sanitise(clean, sizeof(clean), client, strlen(client));
	for (s = st->sessions; s; s = s->next)
		if (!s->ended && !s->id[0] && is_callers(s, who) && str_equal(s->client, clean))
			break;
	if (s)
		return use_session(s, who);
	s = add_session(st, who, e);
	if (!s)
		return NULL;
	snprintf(s->client, sizeof(s->client), "%s", clean);
	snprintf(s->key, sizeof(s->key), "client:%s", s->client);
	l = (struct lookup){.key = s->key, .who = who};
	manager_each(st->api->manager, who, find_box, &l);
	if (l.found)
		snprintf(s->sandbox, sizeof(s->sandbox), "%s", sandbox_id(l.found));
	return s;
}

static bool owns(const struct mcp_session *s, const struct sandbox *box)
{
	return belongs_to(box, s->key, &s->caller) && sandbox_state(box) != STATE_DESTROYED;
}

struct sandbox *mcp_session_box(const struct mcp_session *s, const char *id)
{
	struct err e;
	struct sandbox *box;

	if (str_equal(id, "default"))
		id = s->sandbox;
	box = *id ? manager_find(s->state->api->manager, &s->caller, id, &e) : NULL;
	return box && owns(s, box) ? box : NULL;
}

struct collecting {
	const struct mcp_session *s;
	struct list *ids;
};

static bool collect_id(void *arg, struct sandbox *box)
{
	struct collecting *c = arg;

	if (owns(c->s, box))
		list_add(c->ids, sandbox_id(box));
	return true;
}

void mcp_session_ids(const struct mcp_session *s, struct list *ret)
{
	struct collecting c = {s, ret};

	manager_each(s->state->api->manager, &s->caller, collect_id, &c);
}

void mcp_session_end(struct mcp_session *s)
{
	struct list ids = {0};
	struct sandbox *box;
	struct mcp_call *c;

	s->ended = true;
	s->held++; /* the end of the last call would free it */
	do {
		for (c = s->calls; c && c->cancelled; c = c->next)
			;
		if (c)
			mcp_call_cancel(c);
	} while (c);
	mcp_stream_close(s);
	mcp_session_ids(s, &ids);
	for (size_t i = 0; i < ids.count; i++)
		if ((box = mcp_session_box(s, ids.items[i])))
			sandbox_destroy(box, &s->caller, NULL, NULL);
	list_done(&ids);
	s->held--;
	mcp_session_settle(s);
}

/* ---- sandboxes ---- */

void mcp_session_make(struct mcp_session *s, const char *name, const char *snapshot,
		      sandbox_done done, void *arg)
{
	struct create_options o;
	struct err e = {0};

	create_options_for(&o, s->state->api->manager, &s->caller);
	if (apply_options(&o, s->options, &e) < 0 ||
	    fit_to_trust(s->state->api, &s->caller, s->options, &o, &e) < 0) {
		create_options_done(&o);
		done(arg, NULL, &e);
		return;
	}
	snprintf(o.name, sizeof(o.name), "%s", name ? name : "");
	snprintf(o.door, sizeof(o.door), "mcp");
	snprintf(o.snapshot, sizeof(o.snapshot), "%s", snapshot ? snapshot : "");
	o.ttl_ms = s->state->api->config->max_ttl_ms;
	o.idle_ms = idle_ms(s->state);
	o.pause_when_idle = true;
	o.auto_resume = true;
	o.door_data = json_pack("{s:s}", "session", s->key);
	if (s->options)
		json_object_set(o.door_data, "options", s->options);
	manager_create(s->state->api->manager, &s->caller, &o, done, arg);
}

static void on_box_awake(void *arg, struct sandbox *box, const struct err *e)
{
	struct mcp_call *c = arg;

	if (mcp_call_is_over(c))
		return;
	if (!box) {
		mcp_call_error(c, e);
		return;
	}
	c->box = box;
	snprintf(c->box_id, sizeof(c->box_id), "%s", sandbox_id(box));
	c->run(c);
}

struct sandbox *mcp_call_box(struct mcp_call *c)
{
	struct err e = {0};

	c->box = manager_find(c->session->state->api->manager, &c->session->caller, c->box_id, &e);
	if (!c->box)
		mcp_call_error(c, &e);
	return c->box;
}

/* Every call that waited for the default sandbox goes on. */
static void on_default_made(void *arg, struct sandbox *box, const struct err *e)
{
	struct mcp_session *s = arg;
	struct mcp_call *c;

	s->held++;
	s->making = false;
	if (box && s->ended)
		sandbox_destroy(box, &s->caller, NULL, NULL);
	else if (box)
		snprintf(s->sandbox, sizeof(s->sandbox), "%s", sandbox_id(box));
	do {
		for (c = s->calls; c && !c->waiting; c = c->next)
			;
		if (!c)
			break;
		c->waiting = false;
		if (box && !s->ended && !c->cancelled)
			mcp_call_log(c, 1, "a sandbox was made");
		if (box && !c->cancelled)
			sandbox_wake(box, &s->caller, on_box_awake, c);
		else
			on_box_awake(c, NULL, e);
	} while (true);
	s->held--;
	mcp_session_settle(s);
}

/* NULL if it is gone or has failed: then the next call makes a new one. */
static struct sandbox *default_sandbox(struct mcp_session *s)
{
	struct sandbox *box = mcp_session_box(s, "default");

	if (box && sandbox_state(box) == STATE_FAILED)
		box = NULL;
	if (!box)
		s->sandbox[0] = '\0';
	return box;
}

void mcp_call_with_sandbox(struct mcp_call *c, const char *id)
{
	struct mcp_session *s = c->session;
	bool is_default = !id || str_equal(id, "default");
	struct sandbox *box = is_default ? default_sandbox(s) : mcp_session_box(s, id);

	if (box) {
		sandbox_wake(box, &s->caller, on_box_awake, c);
	} else if (!is_default) {
		mcp_call_refuse(c,
				"There is no sandbox '%.64s'. sandbox_list shows those that there "
				"are; without sandbox_id the default one is used.",
				id);
	} else {
		c->waiting = true;
		if (!s->making) {
			s->making = true;
			mcp_session_make(s, "", NULL, on_default_made, s);
		}
	}
}
