/*
 * filesystem.Filesystem: watches. WatchDir streams events; the CreateWatcher family collects them for
 * clients that cannot stream, until they are fetched.
 */
#include "api/e2b/e2b_internal.h"

#include "api/http/fields.h"

#include <sodium.h>

#define KEEPALIVE "{\"keepalive\":{}}"
#define WATCHERS_MAX 1024
#define EVENTS_MAX 4096	 /* kept for a client that polls */
#define WAITING_MAX 4096 /* events of a stream that wait for their entries */

/* An event; NULL for changes that E2B does not know. */
static json_t *event_json(const char *root, const struct file_change *c)
{
	static const char *const names[FILE_COUNT] = {
		[FILE_CREATED] = "EVENT_TYPE_CREATE", [FILE_WRITTEN] = "EVENT_TYPE_WRITE",
		[FILE_REMOVED] = "EVENT_TYPE_REMOVE", [FILE_RENAMED] = "EVENT_TYPE_RENAME",
		[FILE_CHMOD] = "EVENT_TYPE_CHMOD",
	};
	const char *name = c->path;
	json_t *text;

	if (!names[c->kind])
		return NULL;
	if (path_below(c->path, root))
		for (name += strlen(root); *name == '/';)
			name++;
	text = json_string(name);
	return text ? json_pack("{s:o,s:s}", "name", text, "type", names[c->kind]) : NULL;
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

struct dir_watch {
	struct e2b_stream stream;
	struct call *call;
	bool with_entry;
	json_t *pending;    /* events in order; "entry" is a path until its EntryInfo is known */
	struct call *asked; /* for the entry of the first; NULL: none is under way */
};

static void watch_stop(void *arg)
{
	struct dir_watch *w = arg;

	call_drop(take_ptr(w->call));
	call_drop(take_ptr(w->asked));
}

static void watch_done(void *more)
{
	struct dir_watch *w = more;

	e2b_stream_done(&w->stream);
	watch_stop(w);
	json_decref(w->pending);
}

static void send_pending(struct dir_watch *w);

static void pending_entry_found(void *arg, const struct answer *a, const struct err *e)
{
	struct dir_watch *w = arg;
	json_t *first = json_array_get(w->pending, 0);

	w->asked = NULL;
	json_object_del(first, "entry");
	if (!e)
		json_object_set_new(first, "entry", e2b_entry_info(a->info));
	send_pending(w);
}

/* Sends events in order; stops at the first one whose entry must be asked for. */
static void send_pending(struct dir_watch *w)
{
	struct e2b_request *q = w->stream.q;
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);

	while (json_array_size(w->pending) && !w->asked) {
		json_t *first = json_array_get(w->pending, 0);
		const char *path = json_string_value(json_object_get(first, "entry"));

		if (path && s) {
			w->asked = call_stat(s, path, false, pending_entry_found, w);
			return;
		}
		if (path)
			json_object_del(first, "entry");
		e2b_stream_send(&w->stream, json_pack("{s:O}", "filesystem", first));
		json_array_remove(w->pending, 0);
	}
}

static void queue_change(void *arg, const struct file_change *c)
{
	struct dir_watch *w = arg;
	json_t *event = event_json(w->stream.q->path, c);

	if (!event || json_array_size(w->pending) >= WAITING_MAX) {
		json_decref(event);
		return;
	}
	if (w->with_entry && c->kind != FILE_REMOVED && c->kind != FILE_RENAMED)
		json_object_set_new(event, "entry", json_string(c->path));
	json_array_append_new(w->pending, event);
	send_pending(w);
}

static void send_watch_start(void *arg, const struct file_info *info)
{
	struct dir_watch *w = arg;

	e2b_stream_send(&w->stream, json_pack("{s:{}}", "start"));
}

static void watch_ended(void *arg, const struct answer *a, const struct err *e)
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
		watch_failed(q, q->path, e);
	}
}

void e2b_fs_watch(struct e2b_request *q, struct sandbox *s)
{
	struct dir_watch *w = e2b_keep(q, sizeof(*w), watch_done);
	struct e2b_deadline deadline;

	w->stream.q = q;
	w->pending = must_alloc(json_array());
	w->with_entry = body_flag(q->in, "includeEntry") || body_flag(q->in, "include_entry");
	if (e2b_stream_deadline(q, &deadline) < 0)
		return;
	w->stream.stop = watch_stop;
	exchange_set_endless(q->x);
	e2b_stream_open(&w->stream, s, KEEPALIVE, deadline.stream_ms);
	w->call = call_watch(s, q->path, body_flag(q->in, "recursive"),
			     &(struct receiver){.begin = send_watch_start,
						.change = queue_change,
						.done = watch_ended,
						.arg = w,
						.pump = &w->stream.pump});
}

/* ---- CreateWatcher, GetWatcherEvents, RemoveWatcher ---- */

struct polled_watch {
	struct polled_watch *next;
	struct e2b_state *all;
	char id[24];
	char sandbox[IPC_ID];
	char *root;
	struct call *call;
	struct e2b_request *q; /* until CreateWatcher is answered */
	json_t *events;
};

static void watcher_free(struct polled_watch *w)
{
	struct polled_watch **p = &w->all->watchers;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	w->all->watcher_count--;
	call_drop(w->call);
	json_decref(w->events);
	free(w->root);
	free(w);
}

static void watcher_begun(void *arg, const struct file_info *info)
{
	struct polled_watch *w = arg;

	e2b_rpc_ok(take_ptr(w->q), json_pack("{s:s}", "watcherId", w->id));
}

static void watcher_change(void *arg, const struct file_change *c)
{
	struct polled_watch *w = arg;

	if (json_array_size(w->events) < EVENTS_MAX)
		json_array_append_new(w->events, event_json(w->root, c));
}

static void watcher_ended(void *arg, const struct answer *a, const struct err *e)
{
	struct polled_watch *w = arg;
	struct err none = {.kind = ERR_SYSTEM, .msg = "the watch ended"};

	w->call = NULL;
	if (!w->q)
		return; /* collected events may still be fetched */
	watch_failed(w->q, w->root, e ? e : &none);
	watcher_free(w);
}

/* At the limit, watches whose sandbox has gone are removed. */
static bool has_room(struct e2b_state *all)
{
	struct polled_watch *next;

	if (all->watcher_count < WATCHERS_MAX)
		return true;
	for (struct polled_watch *w = all->watchers; w; w = next) {
		next = w->next;
		if (!w->call)
			watcher_free(w);
	}
	return all->watcher_count < WATCHERS_MAX;
}

void e2b_fs_watcher_create(struct e2b_request *q, struct sandbox *s)
{
	struct e2b_state *all = e2b_state_of(q->x->api);
	unsigned char random[8];
	struct polled_watch *w;

	if (!has_room(all)) {
		e2b_rpc_fail(q, CONNECT_RESOURCE_EXHAUSTED, "too many watchers");
		return;
	}
	w = must_alloc(calloc(1, sizeof(*w)));
	*w = (struct polled_watch){.next = all->watchers,
				   .all = all,
				   .root = take_ptr(q->path),
				   .q = q,
				   .events = json_array()};
	randombytes_buf(random, sizeof(random));
	w->id[0] = 'w';
	sodium_bin2hex(w->id + 1, sizeof(w->id) - 1, random, sizeof(random));
	snprintf(w->sandbox, sizeof(w->sandbox), "%s", q->id);
	all->watchers = w;
	all->watcher_count++;
	w->call = call_watch(s, w->root, body_flag(q->in, "recursive"),
			     &(struct receiver){.begin = watcher_begun,
						.change = watcher_change,
						.done = watcher_ended,
						.arg = w});
}

/* NULL after an answer. */
static struct polled_watch *watcher_find(struct e2b_request *q)
{
	bool bad = false;
	const char *id = e2b_text(q->in, "watcherId", &bad);
	struct polled_watch *w = e2b_state_of(q->x->api)->watchers;

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
	struct polled_watch *w = watcher_find(q);

	if (!w)
		return;
	e2b_rpc_ok(q, json_pack("{s:o}", "events", w->events));
	w->events = json_array();
}

void e2b_fs_watcher_remove(struct e2b_request *q, struct sandbox *s)
{
	struct polled_watch *w = watcher_find(q);

	if (!w)
		return;
	watcher_free(w);
	e2b_rpc_ok(q, json_object());
}
