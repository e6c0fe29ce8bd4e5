/* filesystem.Filesystem: the calls that are not watches. */
#include "api/e2b.h"

#include "base/auto.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 50000
#define BYTES_MAX (16u << 20) /* of what the guest says of them */
#define AT_ONCE 64	      /* questions about single entries */

/* A path of the message, resolved; NULL after an answer. The caller's. */
static char *path_of(struct e2b_request *q, const char *key)
{
	struct err e = {0};
	bool bad = false;
	const char *text = e2b_text(q->in, key, &bad);
	char *path = bad ? NULL : e2b_path(text, q->user, &e);

	if (!path)
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", bad ? "path: not a string" : e.msg);
	return path;
}

void e2b_fs_stat(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *path = path_of(q, "path");

	if (path)
		e2b_entry_reply(q, s, path);
}

/* ---- MakeDir ---- */

static void on_made(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;
	struct unpack u = unpack_from(payload, len);
	auto_free char *path = NULL;
	struct sandbox *s;

	if (e && (e->errnum == EEXIST || e->errnum == ENOTDIR))
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT,
			     "path already exists but it is not a directory");
	else if (e)
		e2b_rpc_error(q, e);
	else if (!unpack_u8(&u))
		e2b_rpc_fail(q, CONNECT_ALREADY_EXISTS, "directory already exists");
	else if ((s = e2b_still(q)) && (path = path_of(q, "path")))
		e2b_entry_reply(q, s, path);
}

void e2b_fs_make_dir(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *path = path_of(q, "path");
	struct buf b = {0};

	if (!path)
		return;
	pack_str(&b, path);
	pack_u32(&b, 0755);
	pack_u8(&b, 1);
	e2b_ask(q->x, s, G_MKDIR, &b, on_made, q);
}

/* ---- Move: the destination's parents come first ---- */

static void on_moved(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;
	auto_free char *path = NULL;
	struct sandbox *s;

	(void)payload, (void)len;
	if (e)
		e2b_rpc_error(q, e);
	else if ((s = e2b_still(q)) && (path = path_of(q, "destination")))
		e2b_entry_reply(q, s, path);
}

static void on_parents(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = e2b_still(q);
	auto_free char *from = s ? path_of(q, "source") : NULL;
	auto_free char *to = from ? path_of(q, "destination") : NULL;
	struct buf b = {0};

	(void)payload, (void)len, (void)e; /* if they are not there now, the move says so */
	if (!to)
		return;
	pack_str(&b, from);
	pack_str(&b, to);
	pack_u8(&b, 1);
	e2b_ask(q->x, s, G_MOVE, &b, on_moved, q);
}

static void on_source(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s;
	auto_free char *to = NULL;
	struct buf b = {0};
	char *slash;

	(void)payload, (void)len;
	if (e) {
		e2b_rpc_error(q, e);
		return;
	}
	s = e2b_still(q);
	to = s ? path_of(q, "destination") : NULL;
	if (!to)
		return;
	slash = strrchr(to, '/');
	slash[slash == to ? 1 : 0] = '\0';
	pack_str(&b, to);
	pack_u32(&b, 0755);
	pack_u8(&b, 1);
	e2b_ask(q->x, s, G_MKDIR, &b, on_parents, q);
}

void e2b_fs_move(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *from = path_of(q, "source");
	struct buf b = {0};

	if (!from)
		return;
	pack_str(&b, from);
	pack_u8(&b, 0);
	e2b_ask(q->x, s, G_STAT, &b, on_source, q);
}

/* ---- Remove: what is not there is removed ---- */

static void on_removed(void *arg, const void *payload, size_t len, const struct err *e)
{
	struct e2b_request *q = arg;

	(void)payload, (void)len;
	if (e && e->errnum != ENOENT)
		e2b_rpc_error(q, e);
	else
		e2b_rpc_ok(q, json_object());
}

void e2b_fs_remove(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *path = path_of(q, "path");
	struct buf b = {0};

	if (!path)
		return;
	pack_str(&b, path);
	pack_u8(&b, 1);
	e2b_ask(q->x, s, G_REMOVE, &b, on_removed, q);
}

/* ---- ListDir ---- */

struct listing {
	struct e2b_request *q;
	struct call *call;
	struct e2b_entry *items;
	json_t **infos; /* what is known of each */
	size_t count, room, at, open, bytes;
	char *root; /* as it was asked for */
	bool too_many, inside;
};

struct slot {
	struct listing *listing;
	size_t index;
};

static void listing_free(void *more)
{
	struct listing *l = more;

	if (l->call)
		call_drop(l->call);
	for (size_t i = 0; i < l->count; i++) {
		e2b_entry_done(&l->items[i]);
		json_decref(l->infos ? l->infos[i] : NULL);
	}
	free(l->items);
	free(l->infos);
	free(l->root);
	free(l);
}

static void list_all(struct listing *l)
{
	json_t *all = must_alloc(json_array());

	for (size_t i = 0; i < l->count; i++)
		json_array_append(all, l->infos[i]);
	e2b_rpc_ok(l->q, json_pack("{s:o}", "entries", all));
}

static void complete_some(struct listing *l);

static void on_entry(struct e2b_request *q, json_t *info, void *arg)
{
	struct slot *slot = arg;
	struct listing *l = slot->listing;

	(void)q;
	l->infos[slot->index] = info;
	l->open--;
	free(slot);
	complete_some(l);
}

/* Many questions are on their way at once; some entries need none and come back from within. */
static void complete_some(struct listing *l)
{
	if (l->inside)
		return;
	l->inside = true;
	while (l->at < l->count && l->open < AT_ONCE) {
		struct slot *slot = must_alloc(calloc(1, sizeof(*slot)));

		*slot = (struct slot){l, l->at++};
		l->open++;
		e2b_entry_complete(l->q, &l->items[slot->index], on_entry, slot);
	}
	l->inside = false;
	if (l->at == l->count && l->open == 0)
		list_all(l);
}

static void on_item(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct listing *l = arg;

	if (type != G_ITEM)
		return;
	call_credit(l->call, len);
	l->bytes += len;
	if (l->count == ENTRIES_MAX || l->bytes > BYTES_MAX) {
		l->too_many = true;
		return;
	}
	if (l->count == l->room) {
		l->room = l->room ? l->room * 2 : 64;
		l->items = must_alloc(realloc(l->items, l->room * sizeof(*l->items)));
	}
	if (e2b_entry_unpack(payload, len, &l->items[l->count]))
		l->count++;
}

/* By path, so that a directory stands before what is in it. */
static int by_path(const void *a, const void *b)
{
	const char *p = ((const struct e2b_entry *)a)->path,
		   *q = ((const struct e2b_entry *)b)->path;

	while (*p && *p == *q)
		p++, q++;
	return *p == *q	   ? 0
	       : *p == '/' ? (*q ? -1 : 1)
	       : *q == '/' ? (*p ? 1 : -1)
			   : (unsigned char)*p - (unsigned char)*q;
}

static void on_listed(void *arg, const struct err *e)
{
	struct listing *l = arg;

	l->call = NULL;
	if (e && e->errnum == ENOENT) {
		e2b_rpc_fail(l->q, CONNECT_NOT_FOUND, "path not found: %.300s", l->root);
	} else if (e && e->errnum == ENOTDIR) {
		e2b_rpc_fail(l->q, CONNECT_INVALID_ARGUMENT, "path is not a directory: %.300s",
			     l->root);
	} else if (e) {
		e2b_rpc_error(l->q, e);
	} else if (l->too_many) {
		e2b_rpc_fail(l->q, CONNECT_RESOURCE_EXHAUSTED, "more than %d entries", ENTRIES_MAX);
	} else {
		if (l->count)
			qsort(l->items, l->count, sizeof(*l->items), by_path);
		l->infos = must_alloc(calloc(l->count + 1, sizeof(json_t *)));
		complete_some(l);
	}
}

void e2b_fs_list(struct e2b_request *q, struct sandbox *s)
{
	static const struct call_ops ops = {.on_frame = on_item, .on_end = on_listed};
	const json_t *depth = json_object_get(q->in, "depth");
	json_int_t levels = depth && !json_is_null(depth) ? json_integer_value(depth) : 1;
	char *path = path_of(q, "path");
	struct listing *l;
	struct buf b = {0};

	if (!path)
		return;
	if (levels < 1 || levels > 1000) {
		free(path);
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "depth should be at least 1");
		return;
	}
	l = must_alloc(calloc(1, sizeof(*l)));
	*l = (struct listing){.q = q, .root = path};
	q->more = l;
	q->free_more = listing_free;
	pack_str(&b, path);
	pack_u32(&b, (uint32_t)levels);
	l->call = sandbox_call(s, G_LIST, buf_head(&b), b.len, &ops, l);
	buf_done(&b);
	if (!l->call)
		e2b_not_running(q->x, q->id);
}
