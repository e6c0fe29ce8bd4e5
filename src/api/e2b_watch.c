/*
 * filesystem.Filesystem: watches. WatchDir streams what happens; the CreateWatcher family collects it
 * for clients that cannot stream, until it is fetched.
 */
#include "api/e2b_stream.h"

#include "base/auto.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define KEEPALIVE "{\"keepalive\":{}}"
#define WATCHERS_MAX 1024
#define EVENTS_MAX 4096	 /* kept for a client that does not fetch them */
#define WAITING_MAX 4096 /* events of a stream whose entries are being looked up */

static const char *const change_names[] = {
	[GUEST_CREATED] = "EVENT_TYPE_CREATE", [GUEST_WRITTEN] = "EVENT_TYPE_WRITE",
	[GUEST_REMOVED] = "EVENT_TYPE_REMOVE", [GUEST_RENAMED] = "EVENT_TYPE_RENAME",
	[GUEST_CHMOD] = "EVENT_TYPE_CHMOD",
};

/* An event of the guest; NULL for what has no name here. ret_path is the caller's. */
static json_t *event_json(const char *root, const void *payload, size_t len, char **ret_path)
{
	struct unpack u = unpack_from(payload, len);
	unsigned kind = unpack_u8(&u);
	char path[GUEST_MAX_PATH + 1];
	const char *name = path;
	json_t *text, *event;
	size_t prefix = strlen(root);

	unpack_str(&u, path, sizeof(path));
	if (u.bad || kind >= ARRAY_LEN(change_names))
		return NULL;
	if (path[0] == '/' && path_below(path, root))
		for (name = path + prefix; *name == '/';)
			name++;
	text = json_string(name);
	event = text ? json_pack("{s:o,s:s}", "name", text, "type", change_names[kind]) : NULL;
	if (event && ret_path)
		*ret_path = path[0] == '/' ? str_copy(path) : str_format("%s/%s", root, path);
	return event;
}

static bool has_entry(const json_t *event)
{
	const char *type = json_string_value(json_object_get(event, "type"));

	return !str_equal(type, "EVENT_TYPE_REMOVE") && !str_equal(type, "EVENT_TYPE_RENAME");
}

/* "path" of the message, without a slash at its end; NULL after an answer. */
static char *root_of(struct e2b_request *q)
{
	struct err e = {0};
	bool bad = false;
	const char *text = e2b_text(q->in, "path", &bad);
	char *path = bad ? NULL : e2b_path(text, q->user, &e);

	if (!path)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", bad ? "path: not a string" : e.msg);
	for (size_t n = path ? strlen(path) : 0; n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	return path;
}

static struct call *watch(struct e2b_request *q, struct sandbox *s, const char *root,
			  const struct call_ops *ops, void *arg)
{
	struct buf b = {0};
	struct call *c;

	pack_str(&b, root);
	pack_u8(&b, json_is_true(json_object_get(q->in, "recursive")));
	c = sandbox_call(s, G_WATCH, buf_head(&b), b.len, ops, arg);
	buf_done(&b);
	return c;
}

static void watch_failed(struct e2b_request *q, const char *root, const struct err *e)
{
	if (e->errnum == ENOENT)
		e2b_rpc_fail(q, CONNECT_NOT_FOUND, "path %.300s not found", root);
	else if (e->errnum == ENOTDIR)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "path %.300s is not a directory", root);
	else
		e2b_rpc_error(q, e);
}

/* ---- WatchDir ---- */

/* An event that waits for its entry, and those behind it. */
struct pending {
	struct pending *next;
	json_t *event;
	char *path;
};

struct dir_watch {
	struct e2b_stream stream;
	struct call *call;
	char *root;
	uint64_t deadline_ms;
	bool with_entry;
	struct pending *first, **last;
	size_t waiting, owed;
	struct entry_ask *asked; /* of the first; NULL: none is under way */
};

/* Outlives its watch if that ends before the guest has answered. */
struct entry_ask {
	struct dir_watch *watch;
};

static void pending_free(struct pending *p)
{
	json_decref(p->event);
	free(p->path);
	free(p);
}

static void watch_free(void *more)
{
	struct dir_watch *w = more;

	e2b_stream_done(&w->stream);
	if (w->call)
		call_drop(w->call);
	if (w->asked)
		w->asked->watch = NULL;
	while (w->first) {
		struct pending *p = w->first;

		w->first = p->next;
		pending_free(p);
	}
	free(w->root);
	free(w);
}

static void watch_stop(void *arg)
{
	struct dir_watch *w = arg;

	if (w->call)
		call_drop(w->call);
	w->call = NULL;
}

/* A client that does not read stops the guest, which then says that events were lost. */
static void give_credit(void *arg)
{
	struct dir_watch *w = arg;
	size_t owed = w->owed;

	if (!w->call || !owed || exchange_room(w->stream.q->x) == 0)
		return;
	w->owed = 0;
	call_credit(w->call, owed);
}

static void send_pending(struct dir_watch *w);

static void on_event_stat(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct entry_ask *ask = arg;
	struct dir_watch *w = ask->watch;
	struct e2b_entry entry;
	json_t *info;

	free(ask);
	if (!w)
		return;
	w->asked = NULL;
	if (!e && w->first && e2b_entry_unpack(payload, len, &entry)) {
		info = e2b_entry_plain(&entry);
		json_object_set_new(w->first->event, "entry", info);
		e2b_entry_done(&entry);
	}
	free(w->first->path);
	w->first->path = NULL;
	send_pending(w);
}

static bool ask_entry(struct dir_watch *w, const char *path)
{
	struct e2b_request *q = w->stream.q;
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);
	struct buf b = {0};

	if (!s)
		return false;
	w->asked = must_alloc(calloc(1, sizeof(*w->asked)));
	w->asked->watch = w;
	pack_str(&b, path);
	pack_u8(&b, 0);
	e2b_ask(q->x, s, G_STAT, &b, on_event_stat, w->asked);
	return true;
}

/* In order; stops at the first one whose entry must be asked for. */
static void send_pending(struct dir_watch *w)
{
	while (w->first && !w->asked) {
		struct pending *p = w->first;

		if (p->path && ask_entry(w, p->path))
			return;
		w->first = p->next;
		if (!w->first)
			w->last = &w->first;
		w->waiting--;
		e2b_stream_send(&w->stream, json_pack("{s:O}", "filesystem", p->event));
		pending_free(p);
	}
}

static void on_change(struct dir_watch *w, const void *payload, size_t len)
{
	char *path = NULL;
	json_t *event = event_json(w->root, payload, len, w->with_entry ? &path : NULL);
	struct pending *p;

	if (!event || w->waiting >= WAITING_MAX) {
		json_decref(event);
		free(path);
		return;
	}
	p = must_alloc(calloc(1, sizeof(*p)));
	p->event = event;
	p->path = path;
	if (path && !has_entry(event)) {
		free(path);
		p->path = NULL;
	}
	*w->last = p;
	w->last = &p->next;
	w->waiting++;
	send_pending(w);
}

static void on_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct dir_watch *w = arg;

	if (type == G_OK) {
		e2b_stream_send(&w->stream, json_pack("{s:{}}", "start"));
	} else if (type == G_ITEM) {
		on_change(w, payload, len);
		w->owed += len;
		give_credit(w);
	}
}

static void on_end(void *arg, const struct err *e)
{
	struct dir_watch *w = arg;
	struct e2b_request *q = w->stream.q;

	w->call = NULL;
	if (!e) {
		e2b_stream_end(&w->stream, CONNECT_OK, NULL);
	} else if (w->stream.begun) {
		e2b_stream_fail(&w->stream, e);
	} else {
		e2b_stream_done(&w->stream);
		watch_failed(q, w->root, e);
	}
}

static const struct call_ops ops = {.on_frame = on_frame, .on_end = on_end};

void e2b_fs_watch(struct e2b_request *q, struct sandbox *s)
{
	struct dir_watch *w = must_alloc(calloc(1, sizeof(*w)));

	q->more = w;
	q->free_more = watch_free;
	w->stream.q = q;
	w->last = &w->first;
	w->with_entry = json_is_true(json_object_get(q->in, "includeEntry")) ||
			json_is_true(json_object_get(q->in, "include_entry"));
	if (e2b_stream_deadline(q, &w->deadline_ms) < 0 || !(w->root = root_of(q)))
		return;
	w->stream.stop = watch_stop;
	w->stream.on_room = give_credit;
	w->stream.arg = w;
	e2b_stream_open(&w->stream, s, KEEPALIVE, w->deadline_ms);
	w->call = watch(q, s, w->root, &ops, w);
	if (!w->call) {
		e2b_stream_done(&w->stream);
		e2b_not_running(q->x, q->id);
	}
}

/* ---- CreateWatcher, GetWatcherEvents, RemoveWatcher ---- */

struct watcher {
	struct watcher *next;
	char id[24];
	char sandbox[IPC_ID];
	char *root;
	struct call *call;
	struct e2b_request *q; /* until the guest has said yes */
	json_t *events;
};

static void watcher_free(struct watcher *w)
{
	if (w->call)
		call_drop(w->call);
	json_decref(w->events);
	free(w->root);
	free(w);
}

/* Those whose sandbox has gone, or that were given up, make room. */
static void sweep(struct e2b_state *all, bool (*goes)(const struct watcher *w, const void *arg),
		  const void *arg)
{
	for (struct watcher **p = &all->watchers; *p;) {
		struct watcher *w = *p;

		if (!goes(w, arg)) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		all->watcher_count--;
		watcher_free(w);
	}
}

static bool is_over(const struct watcher *w, const void *arg)
{
	(void)arg;
	return !w->call && !w->q;
}

static bool is_same(const struct watcher *w, const void *arg)
{
	return w == arg;
}

static void watcher_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct watcher *w = arg;
	struct e2b_request *q = w->q;
	json_t *event;

	if (type == G_OK && q) {
		w->q = NULL;
		e2b_rpc_ok(q, json_pack("{s:s}", "watcherId", w->id));
	} else if (type == G_ITEM) {
		call_credit(w->call, len);
		event = event_json(w->root, payload, len, NULL);
		if (event && json_array_size(w->events) < EVENTS_MAX)
			json_array_append_new(w->events, event);
		else
			json_decref(event);
	}
}

static void watcher_end(void *arg, const struct err *e)
{
	struct watcher *w = arg;
	struct e2b_request *q = w->q;
	struct err none = {.kind = ERR_SYSTEM, .msg = "the watch ended"};

	w->call = NULL;
	w->q = NULL;
	if (!q)
		return; /* what it has collected may still be fetched */
	watch_failed(q, w->root, e ? e : &none);
}

void e2b_fs_watcher_create(struct e2b_request *q, struct sandbox *s)
{
	static const struct call_ops calls = {.on_frame = watcher_frame, .on_end = watcher_end};
	struct e2b_state *all = e2b_state_of(q->x->api);
	char *root = root_of(q);
	unsigned char random[8];
	struct watcher *w;

	if (!root)
		return;
	if (all->watcher_count >= WATCHERS_MAX)
		sweep(all, is_over, NULL);
	if (all->watcher_count >= WATCHERS_MAX) {
		free(root);
		e2b_rpc_fail(q, CONNECT_RESOURCE_EXHAUSTED, "too many watchers");
		return;
	}
	w = must_alloc(calloc(1, sizeof(*w)));
	*w = (struct watcher){.next = all->watchers, .root = root, .q = q, .events = json_array()};
	randombytes_buf(random, sizeof(random));
	w->id[0] = 'w';
	sodium_bin2hex(w->id + 1, sizeof(w->id) - 1, random, sizeof(random));
	snprintf(w->sandbox, sizeof(w->sandbox), "%s", q->id);
	all->watchers = w;
	all->watcher_count++;
	w->call = watch(q, s, root, &calls, w);
	if (!w->call) {
		sweep(all, is_same, w);
		e2b_not_running(q->x, q->id);
	}
}

/* NULL after an answer. */
static struct watcher *watcher_find(struct e2b_request *q)
{
	bool bad = false;
	const char *id = e2b_text(q->in, "watcherId", &bad);
	struct watcher *w = e2b_state_of(q->x->api)->watchers;

	if (!id)
		id = e2b_text(q->in, "watcher_id", &bad);
	while (w && !(id && str_equal(w->id, id) && str_equal(w->sandbox, q->id)))
		w = w->next;
	if (!w)
		e2b_rpc_fail(q, CONNECT_NOT_FOUND, "watcher with id %.40s not found", id ? id : "");
	return w;
}

void e2b_fs_watcher_events(struct e2b_request *q, struct sandbox *s)
{
	struct watcher *w = watcher_find(q);

	(void)s;
	if (!w)
		return;
	e2b_rpc_ok(q, json_pack("{s:o}", "events", w->events));
	w->events = json_array();
}

void e2b_fs_watcher_remove(struct e2b_request *q, struct sandbox *s)
{
	struct watcher *w = watcher_find(q);

	(void)s;
	if (!w)
		return;
	sweep(e2b_state_of(q->x->api), is_same, w);
	e2b_rpc_ok(q, json_object());
}
