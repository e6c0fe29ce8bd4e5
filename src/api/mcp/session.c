/* Clients of the MCP door: their sessions, the options they set, and the sandboxes they own. */
#include "api/mcp/mcp_internal.h"

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

static void free_session(struct mcp_session *s)
{
	struct mcp_session **p = &s->state->sessions;

	while (*p && *p != s)
		p = &(*p)->next;
	if (*p)
		*p = s->next;
	s->state->session_count--;
	json_decref(s->options);
	json_decref(s->polled);
	list_done(&s->snapshots);
	free(s);
}

static bool is_idle(const struct mcp_session *s)
{
	return !s->calls && !s->making && !s->stream;
}

void mcp_session_settle(struct mcp_session *s)
{
	if (s->ended && is_idle(s) && !s->held)
		free_session(s);
}

static void sweep_sessions(void *arg)
{
	struct mcp_state *st = arg;
	int64_t now = now_ns();
	struct mcp_session *next;

	for (struct mcp_session *s = st->sessions; s; s = next) {
		next = s->next;
		if (is_idle(s) && now - s->used_ns > FORGET_NS)
			mcp_session_end(s);
	}
	loop_timer_set(st->api->loop, &st->sweep, SWEEP_MS);
}

struct mcp_state *mcp_state(struct api *api)
{
	struct mcp_state *st = api->door_state[DOOR_MCP];

	if (st)
		return st;
	st = must_alloc(calloc(1, sizeof(*st)));
	st->api = api;
	st->sweep = (struct loop_timer){.call = sweep_sessions, .arg = st};
	loop_timer_set(api->loop, &st->sweep, SWEEP_MS);
	api->door_state[DOOR_MCP] = st;
	return st;
}

/* ---- options ---- */

/* Options that a client may set for its sandboxes; the caller's ceiling still holds. */
static const char *const session_fields[] = {
	"memory",    "cpus",	     "pids", "disk",	 "timeout",  "cpu_time", "open_files",
	"file_size", "output_limit", "env",  "workdir",	 "hostname", "require",	 "image",
	"root",	     "level",	     "net",  "optional", "volumes",
};

static const struct body_table session_table =
	BODY_TABLE(BODY_WITH_SPEC, FIELD("env", BODY_ENV, "variables of every command"),
		   FIELD("volumes", BODY_ITEMS, "directories to show", .items = &v1_volume_table));

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

static int apply_options(struct create_options *o, json_t *options, struct err *e)
{
	if (check_names(options, e) < 0)
		return -1;
	rename_targets(json_object_get(options, "volumes"));
	if (body_check(options, &session_table, e) < 0 ||
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

/* Clients forget to end sessions: ends the one unused for longest, if it has no sandbox. */
static int make_room(struct mcp_state *st, const struct caller *who, struct err *e)
{
	struct mcp_session *oldest = NULL;
	size_t count = 0;

	for (struct mcp_session *s = st->sessions; s; s = s->next) {
		if (!is_callers(s, who))
			continue;
		count++;
		if (is_idle(s) && !s->held && !s->sandbox[0] &&
		    (!oldest || s->used_ns < oldest->used_ns))
			oldest = s;
	}
	if (count < SESSIONS_PER_CALLER && st->session_count < SESSIONS_MAX)
		return 0;
	if (!oldest)
		return err_set(e, ERR_LIMIT, "too many sessions; end one (DELETE), or try later");
	mcp_session_end(oldest);
	return 0;
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
	st->session_count++;
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
	uint64_t most = s->state->api->config->max_idle_ms;
	struct create_options o;
	struct err e = {0};

	create_options_for(&o, s->state->api->manager, &s->caller);
	if (apply_options(&o, s->options, &e) < 0) {
		create_options_done(&o);
		done(arg, NULL, &e);
		return;
	}
	snprintf(o.name, sizeof(o.name), "%s", name ? name : "");
	snprintf(o.door, sizeof(o.door), "mcp");
	snprintf(o.snapshot, sizeof(o.snapshot), "%s", snapshot ? snapshot : "");
	o.ttl_ms = 0;
	o.idle_ms = most && most < IDLE_MS ? most : IDLE_MS;
	o.pause_on_timeout = true;
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
