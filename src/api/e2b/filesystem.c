/* filesystem.Filesystem: the calls that are not watches. */
#include "api/e2b/files.h"

#define ENTRIES_MAX 50000
#define BYTES_MAX (16u << 20) /* of their names */
#define AT_ONCE 64	      /* questions about single entries */

char *e2b_path_of(struct e2b_request *q, const char *key)
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
	auto_free char *path = e2b_path_of(q, "path");

	if (path)
		call_stat(s, path, false, e2b_entry_reply, q);
}

/* ---- MakeDir ---- */

static void dir_made(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s;

	if (e && (e->errnum == EEXIST || e->errnum == ENOTDIR))
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT,
			     "path already exists but it is not a directory");
	else if (e)
		e2b_rpc_error(q, e);
	else if (!a->created)
		e2b_rpc_fail(q, CONNECT_ALREADY_EXISTS, "directory already exists");
	else if ((s = e2b_still(q)))
		e2b_fs_stat(q, s);
}

void e2b_fs_make_dir(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *path = e2b_path_of(q, "path");

	if (path)
		call_mkdir(s, path, 0755, true, dir_made, q);
}

/* ---- Move: the destination's parents come first ---- */

static void on_parents(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = e2b_still(q);
	auto_free char *from = s ? e2b_path_of(q, "source") : NULL;
	auto_free char *to = from ? e2b_path_of(q, "destination") : NULL;

	(void)a, (void)e; /* if this failed, the move fails with a better error */
	if (to)
		call_move(s, from, to, true, e2b_entry_reply, q);
}

static void on_source(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s;
	auto_free char *to = NULL;
	char *slash;

	if (e) {
		e2b_rpc_error(q, e);
		return;
	}
	s = e2b_still(q);
	to = s ? e2b_path_of(q, "destination") : NULL;
	if (!to)
		return;
	slash = strrchr(to, '/');
	slash[slash == to ? 1 : 0] = '\0';
	call_mkdir(s, to, 0755, true, on_parents, q);
}

void e2b_fs_move(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *from = e2b_path_of(q, "source");

	if (from)
		call_stat(s, from, false, on_source, q);
}

/* ---- Remove: what is not there is removed ---- */

static void on_removed(void *arg, const struct answer *a, const struct err *e)
{
	if (e && e->errnum != ENOENT)
		e2b_rpc_error(arg, e);
	else
		e2b_rpc_ok(arg, json_object());
}

void e2b_fs_remove(struct e2b_request *q, struct sandbox *s)
{
	auto_free char *path = e2b_path_of(q, "path");

	if (path)
		call_remove(s, path, true, on_removed, q);
}

/* ---- ListDir ---- */

struct dir_listing {
	struct e2b_request *q;
	struct e2b_entry **items;
	size_t count, room, at, open, bytes;
	char *root; /* as it was asked for */
	bool too_many, inside;
};

static void listing_done(void *more)
{
	struct dir_listing *l = more;

	for (size_t i = 0; i < l->count; i++)
		e2b_entry_free(l->items[i]);
	free(l->items);
	free(l->root);
}

static void complete_some(struct dir_listing *l);

static void on_entry(void *arg, struct e2b_entry *entry)
{
	struct dir_listing *l = arg;

	l->open--;
	complete_some(l);
}

/* Completes up to AT_ONCE entries at a time; those that need no question come back from within. */
static void complete_some(struct dir_listing *l)
{
	json_t *all;

	if (l->inside)
		return;
	l->inside = true;
	while (l->at < l->count && l->open < AT_ONCE) {
		l->open++;
		e2b_entry_complete(l->q, l->items[l->at++], on_entry, l);
	}
	l->inside = false;
	if (l->at < l->count || l->open)
		return;
	all = must_alloc(json_array());
	for (size_t i = 0; i < l->count; i++)
		json_array_append(all, l->items[i]->info);
	e2b_rpc_ok(l->q, json_pack("{s:o}", "entries", all));
}

static void on_file(void *arg, const struct file_info *f)
{
	struct dir_listing *l = arg;

	l->bytes += strlen(f->path) + strlen(f->target);
	if (l->count == ENTRIES_MAX || l->bytes > BYTES_MAX) {
		l->too_many = true;
		return;
	}
	l->items = array_room(l->items, l->count, &l->room, sizeof(*l->items));
	l->items[l->count++] = e2b_entry_new(f);
}

/* By path, so that a directory comes before its entries. */
static int by_path(const void *a, const void *b)
{
	const char *p = (*(struct e2b_entry *const *)a)->path,
		   *q = (*(struct e2b_entry *const *)b)->path;

	while (*p && *p == *q)
		p++, q++;
	return *p == *q	   ? 0
	       : *p == '/' ? (*q ? -1 : 1)
	       : *q == '/' ? (*p ? 1 : -1)
			   : (unsigned char)*p - (unsigned char)*q;
}

static void dir_listed(void *arg, const struct answer *a, const struct err *e)
{
	struct dir_listing *l = arg;

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
		complete_some(l);
	}
}

void e2b_fs_list(struct e2b_request *q, struct sandbox *s)
{
	const json_t *depth = json_object_get(q->in, "depth");
	json_int_t levels = depth && !json_is_null(depth) ? json_integer_value(depth) : 1;
	char *path = e2b_path_of(q, "path");
	struct dir_listing *l;

	if (!path)
		return;
	if (levels < 1 || levels > 1000) {
		free(path);
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "depth should be at least 1");
		return;
	}
	l = e2b_keep(q, sizeof(*l), listing_done);
	*l = (struct dir_listing){.q = q, .root = path};
	call_list(s, path, (uint32_t)levels,
		  &(struct receiver){.file = on_file, .done = dir_listed, .arg = l});
}
