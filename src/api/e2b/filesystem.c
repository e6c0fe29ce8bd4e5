/* filesystem.Filesystem: Stat, MakeDir, Move, Remove and ListDir. Watches are in watch.c. */
#include "api/e2b/e2b_internal.h"

#include "auth/shares.h"

#define ENTRIES_MAX 20000
#define BYTES_MAX (16u << 20) /* of all their names */
#define AT_ONCE 64	      /* questions about single entries that are open */

void e2b_fs_stat(struct e2b_request *q, struct sandbox *s)
{
	call_stat(s, q->path, false, e2b_entry_reply, q);
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
	call_mkdir(s, q->path, 0755, true, dir_made, q);
}

/* ---- Move: the destination's parents come first ---- */

static void on_parents_made(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = e2b_still(q);
	auto_free char *to = s ? e2b_path_of(q, "destination") : NULL;

	/* Errors are ignored here: the move then fails with a better one. */
	if (to)
		call_move(s, q->path, to, true, e2b_entry_reply, q);
}

static void on_source_found(void *arg, const struct answer *a, const struct err *e)
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
	call_mkdir(s, to, 0755, true, on_parents_made, q);
}

void e2b_fs_move(struct e2b_request *q, struct sandbox *s)
{
	call_stat(s, q->path, false, on_source_found, q);
}

/* ---- Remove: a file that does not exist is no error ---- */

static void file_removed(void *arg, const struct answer *a, const struct err *e)
{
	if (e && e->errnum != ENOENT)
		e2b_rpc_error(arg, e);
	else
		e2b_rpc_ok(arg, json_object());
}

void e2b_fs_remove(struct e2b_request *q, struct sandbox *s)
{
	call_remove(s, q->path, true, file_removed, q);
}

/* ---- ListDir ---- */

struct dir_listing {
	struct e2b_request *q;
	struct e2b_entry **items;
	size_t count, room, at, open, bytes;
	bool too_many, inside;
	struct buf text; /* the answer, as far as it is printed */
	size_t printed;	 /* entries in it; they are freed */
	struct loop_task printing;
};

static void listing_done(void *more)
{
	struct dir_listing *l = more;

	loop_task_remove(l->q->x->api->loop, &l->printing);
	for (size_t i = l->printed; i < l->count; i++)
		e2b_entry_free(l->items[i]);
	free(l->items);
	buf_done(&l->text);
}

/* Thousands of entries are printed in several turns. */
static void print_entries(void *arg)
{
	struct dir_listing *l = arg;
	struct loop *loop = l->q->x->api->loop;

	while (l->printed < l->count) {
		auto_free char *one =
			must_alloc(json_dumps(l->items[l->printed]->info, JSON_COMPACT));

		buf_add(&l->text, ",", l->printed > 0);
		buf_add(&l->text, one, strlen(one));
		e2b_entry_free(l->items[l->printed++]);
		if (loop_turn_is_over(loop)) {
			loop_task_add(loop, &l->printing);
			return;
		}
	}
	buf_add(&l->text, "]}", 2);
	/* Nothing was dropped from its front. */
	exchange_reply_take(l->q->x, 200, "application/json", take_ptr(l->text.data), l->text.len);
}

static void complete_some(struct dir_listing *l);

static void entry_completed(void *arg, struct e2b_entry *entry)
{
	struct dir_listing *l = arg;

	l->open--;
	complete_some(l);
}

/* Completes up to AT_ONCE entries at a time; those that need no question come back from within. */
static void complete_some(struct dir_listing *l)
{
	if (l->inside)
		return;
	l->inside = true;
	while (l->at < l->count && l->open < AT_ONCE) {
		l->open++;
		e2b_entry_complete(l->q, l->items[l->at++], entry_completed, l);
	}
	l->inside = false;
	if (l->at < l->count || l->open)
		return;
	buf_add(&l->text, "{\"entries\":[", 12);
	print_entries(l);
}

static void add_listed_file(void *arg, const struct file_info *f)
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
		e2b_rpc_fail(l->q, CONNECT_NOT_FOUND, "path not found: %.300s", l->q->path);
	} else if (e && e->errnum == ENOTDIR) {
		e2b_rpc_fail(l->q, CONNECT_INVALID_ARGUMENT, "path is not a directory: %.300s",
			     l->q->path);
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
	struct dir_listing *l;

	if (levels < 1 || levels > 1000) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "depth should be at least 1");
		return;
	}
	l = e2b_keep(q, sizeof(*l), listing_done);
	l->q = q;
	l->printing = (struct loop_task){
		.call = print_entries,
		.arg = l,
		.user = shares_user(manager_shares(q->x->api->manager), sandbox_owner(s))};
	call_list(s, q->path, (uint32_t)levels,
		  &(struct receiver){.file = add_listed_file, .done = dir_listed, .arg = l});
}
