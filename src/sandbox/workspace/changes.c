/*
 * Theory of operation
 *
 * One walk over the upper directory, in step with the lower one, serves both listing and applying,
 * so that what is shown is what is done. For each name: what is it above, what is it below, is that
 * a change, may it be applied; then it is recorded, and acted upon when applying.
 *
 * Invariants: a name is only ever used relative to a directory fd that was reached without a link
 * or a mount; nothing above is opened that is not a regular file or a directory; below, only the
 * name in question is replaced or removed. When a directory cannot be entered or made, the walk
 * goes on in it with `blocked` set, so that all below is reported as skipped.
 */
#include "sandbox/workspace/changes.h"

#include "kern/dirents.h"
#include "sandbox/workspace/control.h"
#include "sandbox/workspace/apply_file.h"
#include "sandbox/workspace/safe_walk.h"

struct visitor {
	struct change_options left;
	struct apply_owner owner;
	struct safe_walk_path path;
	struct change_list out;
	mode_t umask; /* the caller's */
	unsigned depth;
};

/* A directory in both layers. */
struct change_dir {
	int upper;
	int lower;	     /* -1: there is none */
	bool opaque;	     /* nothing below shows through */
	const char *blocked; /* why nothing in it is applied, or NULL */
	const char *guarded; /* why only paths that the caller has named are applied, or NULL */
	struct control_place control;
};

/* One name in such a directory. */
struct item {
	const char *name;
	struct stat up;
	struct stat low;
	bool has_low;
	const char *blocked;
	const char *guarded;
};

static const char *const ADDED = "added", *const MODIFIED = "modified", *const DELETED = "deleted";

static void walk_dir(struct visitor *w, const struct control_place *above, const char *name,
		     struct change_dir *p);

/* ---- the list ----------------------------------------------------------------------------------
 */

static void record_change(struct visitor *w, const char *kind, bool is_dir, const char *note)
{
	struct change_list *l = &w->out;

	l->total++;
	if (l->count >= w->left.records) {
		l->cut = true;
		return;
	}
	l->items = array_room(l->items, l->count, &l->room, sizeof(*l->items));
	l->items[l->count++] = (struct change){
		.path = str_format("%s%s", w->path.text, is_dir ? "/" : ""),
		.kind = kind,
		.note = note,
	};
}

static const char moved_outside[] = "the reference was changed outside meanwhile";

/* Records a change that is not applied; when only listing, its kind stays visible. */
static void record_blocked(struct visitor *w, const char *kind, bool is_dir, const char *note)
{
	w->out.skipped++;
	w->out.failed += note == moved_outside;
	record_change(w, w->left.apply ? "skipped" : kind, is_dir, note);
}

/* Records a change that the host could not bring back. */
static void record_failed(struct visitor *w, const char *kind, bool is_dir, const char *note)
{
	w->out.failed++;
	record_blocked(w, kind, is_dir, note);
}

/* Records an attempt; if result < 0, errno says why it failed. */
static void record_tried(struct visitor *w, const char *kind, bool is_dir, int result,
			 const char *note)
{
	if (result < 0)
		record_failed(w, kind, is_dir, strerror(errno));
	else
		record_change(w, kind, is_dir, note);
}

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	return order ? order : strcmp(y->kind, x->kind);
}

void change_list_done(struct change_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->items[i].path);
	free(l->items);
	*l = (struct change_list){0};
}

enum named { NAMED_NOT, NAMED_BELOW, NAMED };

/* Has the caller named this path, one that holds it, or one below? */
static enum named how_named(const struct visitor *w)
{
	const struct list *also = w->left.also;
	enum named how = NAMED_NOT;

	for (size_t i = 0; also && i < also->count; i++) {
		if (path_below(w->path.text, also->items[i]))
			return NAMED;
		if (path_below(also->items[i], w->path.text))
			how = NAMED_BELOW;
	}
	return how;
}

/* ---- modes -------------------------------------------------------------------------------------
 */

#define MODE_KEPT "its mode is not widened"

/*
 * The mode that the host's file or directory gets. What the owner has closed stays closed: the
 * sandbox creates files with umask 022, so that each editor's save would open a private file.
 * `chmod +x` is common and lets nobody read or write more.
 */
static mode_t tighten_mode(const struct visitor *w, const struct item *it)
{
	mode_t allowed = it->low.st_mode & 0777;

	if (!it->has_low || (it->low.st_mode & S_IFMT) != (it->up.st_mode & S_IFMT))
		return it->up.st_mode & 0777 & ~w->umask;
	if (S_ISREG(it->low.st_mode))
		allowed |= (allowed & 0444) >> 2;
	return it->up.st_mode & allowed;
}

static bool has_same_mode(const struct visitor *w, const struct item *it)
{
	return tighten_mode(w, it) == (it->low.st_mode & 0777);
}

/* NULL, or that the mode of something that exists was to be widened. */
static const char *mode_note(const struct visitor *w, const struct item *it)
{
	return it->has_low && (it->low.st_mode & S_IFMT) == (it->up.st_mode & S_IFMT) &&
			       tighten_mode(w, it) != (it->up.st_mode & 0777)
		       ? MODE_KEPT
		       : NULL;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static bool same_bytes(int a, int b, off_t size)
{
	char x[16384], y[16384];

	for (off_t at = 0; at < size;) {
		ssize_t n = pread(a, x, sizeof(x), at);

		if (n <= 0 || pread(b, y, (size_t)n, at) != n || memcmp(x, y, (size_t)n) != 0)
			return false;
		at += n;
	}
	return true;
}

/* A file that was opened for writing is copied up even when nothing was written. */
static bool is_same_file(struct visitor *w, const struct change_dir *p, const struct item *it,
			 int upper)
{
	auto_close int lower = -1;
	struct stat st;

	if (upper < 0 || !it->has_low || !S_ISREG(it->low.st_mode) ||
	    it->up.st_size != it->low.st_size || !has_same_mode(w, it))
		return false;
	if ((uint64_t)it->up.st_size > w->left.compared)
		return false;
	w->left.compared -= (uint64_t)it->up.st_size;
	lower = safe_walk_open_file(p->lower, it->name, &st);
	return lower >= 0 && st.st_size == it->up.st_size &&
	       same_bytes(upper, lower, it->up.st_size);
}

static bool delete_below(struct visitor *w, const struct change_dir *p, const struct item *it)
{
	int result = w->left.apply ? apply_nothing(p->lower, it->name, &w->owner) : 0;

	record_tried(w, DELETED, S_ISDIR(it->low.st_mode), result, NULL);
	return result == 0;
}

/*
 * May this file or link take its place? A directory below that is in its way is removed. False: it may not,
 * and that is recorded.
 */
static bool clear_way(struct visitor *w, const struct change_dir *p, struct item *it,
		      const char *kind)
{
	if (!it->blocked && it->has_low && S_ISDIR(it->low.st_mode) && !delete_below(w, p, it))
		it->blocked = "a directory is in the way";
	if (it->blocked)
		record_blocked(w, kind, false, it->blocked);
	return !it->blocked;
}

static const char *change_kind(const struct item *it)
{
	return it->has_low && !S_ISDIR(it->low.st_mode) ? MODIFIED : ADDED;
}

static void visit_file(struct visitor *w, const struct change_dir *p, struct item *it)
{
	auto_close int fd = safe_walk_open_file(p->upper, it->name, &it->up);
	const char *kind = change_kind(it), *note = mode_note(w, it);
	int result = 0;

	if (fd < 0 && !it->blocked) {
		record_failed(w, kind, false, "the file cannot be read");
		return;
	}
	if (is_same_file(w, p, it, fd)) {
		if (note)
			record_blocked(w, kind, false, note);
		return;
	}
	if (!it->blocked && control_is_bad_index(&p->control, it->name, fd) &&
	    how_named(w) != NAMED)
		it->blocked = CONTROL_BAD_INDEX;
	if (!it->blocked && (uint64_t)it->up.st_size > w->left.bytes) {
		w->out.incomplete = true;
		it->blocked = "too large";
	}
	if (!clear_way(w, p, it, kind))
		return;
	w->left.bytes -= (uint64_t)it->up.st_size;
	it->up.st_mode = S_IFREG | tighten_mode(w, it);
	if (w->left.apply)
		result = apply_file(p->lower, it->name, fd, &it->up, &w->owner);
	record_tried(w, kind, false, result, note);
}

static bool read_link_at(int dir, const char *name, char target[PATH_MAX])
{
	ssize_t n = readlinkat(dir, name, target, PATH_MAX);

	if (n < 0 || n >= PATH_MAX)
		return false;
	target[n] = '\0';
	return true;
}

static void visit_link(struct visitor *w, const struct change_dir *p, struct item *it)
{
	char target[PATH_MAX], below[PATH_MAX];
	const char *kind = change_kind(it);

	int result = 0;

	if (!read_link_at(p->upper, it->name, target)) {
		record_failed(w, kind, false, "the link cannot be read");
		return;
	}
	if (it->has_low && S_ISLNK(it->low.st_mode) && read_link_at(p->lower, it->name, below) &&
	    str_equal(target, below))
		return;
	if (!it->blocked && path_link_leads_out(target, w->depth - 1) && how_named(w) != NAMED)
		it->blocked = "a link that leads out of the workspace";
	if (!clear_way(w, p, it, kind))
		return;
	if (w->left.apply)
		result = apply_link(p->lower, it->name, target, &w->owner);
	record_tried(w, kind, false, result, NULL);
}

/* ---- directories, deletions --------------------------------------------------------------------
 */

/*
 * Opens or makes the directory below; if neither can be done, child->blocked says why. False: it
 * failed.
 */
static bool enter_below(struct visitor *w, const struct change_dir *p, struct item *it,
			struct change_dir *child)
{
	if (it->has_low && S_ISDIR(it->low.st_mode))
		child->lower = safe_walk_open_dir(p->lower, it->name);
	else if (!w->left.apply || child->blocked)
		return true;
	else if (!it->has_low || apply_nothing(p->lower, it->name, &w->owner) == 0)
		child->lower = apply_dir(p->lower, it->name, &w->owner);
	if (child->lower >= 0)
		return true;
	child->blocked = errno == EXDEV ? "another file system is mounted there" : strerror(errno);
	return errno == EXDEV;
}

/* The directory itself: new and empty, or of another mode. */
static void settle_dir(struct visitor *w, struct item *it, struct change_dir *child, bool is_new,
		       bool is_empty)
{
	bool differs = !is_new && child->lower >= 0 && !has_same_mode(w, it);
	const char *note = is_new || child->lower < 0 ? NULL : mode_note(w, it);
	int result = 0;

	if (child->blocked) {
		if (differs || note || (is_new && is_empty))
			record_blocked(w, is_new ? ADDED : MODIFIED, true, child->blocked);
		return;
	}
	if (w->left.apply && (is_new || differs))
		result = apply_mode(child->lower, tighten_mode(w, it), &w->owner);
	if (differs || (is_new && is_empty) || result < 0)
		record_tried(w, is_new ? ADDED : MODIFIED, true, result, note);
	else if (note)
		record_blocked(w, MODIFIED, true, note);
}

static void visit_dir(struct visitor *w, const struct change_dir *p, struct item *it)
{
	struct change_dir child = {
		.upper = -1, .lower = -1, .blocked = it->blocked, .guarded = it->guarded};
	bool is_new = !it->has_low || !S_ISDIR(it->low.st_mode);
	size_t before, already = w->out.total;
	bool failed;

	child.upper = safe_walk_open_dir(p->upper, it->name);
	if (child.upper < 0) {
		record_failed(w, is_new ? ADDED : MODIFIED, true, "the directory cannot be read");
		return;
	}
	child.opaque = p->opaque || safe_walk_is_opaque(child.upper);
	/* Two repositories mixed make none, and the old one's control files would be gone. */
	if (!is_new && child.opaque && control_is_git_name(it->name) && !child.blocked)
		child.blocked = "control file: the repository was replaced as a whole";
	failed = !enter_below(w, p, it, &child);
	if (it->has_low && is_new)
		(child.blocked ? record_blocked : record_change)(w, DELETED, false, child.blocked);
	before = w->out.total;
	walk_dir(w, &p->control, it->name, &child);
	settle_dir(w, it, &child, is_new, w->out.total == before);
	w->out.failed += failed && w->out.total > already;
	close_fd(&child.upper);
	close_fd(&child.lower);
}

static void visit_deleted(struct visitor *w, const struct change_dir *p, struct item *it)
{
	if (it->blocked)
		record_blocked(w, DELETED, S_ISDIR(it->low.st_mode), it->blocked);
	else
		delete_below(w, p, it);
}

/* ---- the walk ----------------------------------------------------------------------------------
 */

/* .git as a whole is not to be deleted either. */
static const char *why_guarded(const struct visitor *w, const struct change_dir *p,
			       const struct item *it, bool deleted)
{
	const struct control_row *r;

	if (p->guarded)
		return p->guarded;
	if (deleted && control_is_git_name(it->name))
		return "control file: the repository itself";
	r = control_find(&p->control, w->path.text, deleted ? it->low.st_mode : it->up.st_mode);
	return r ? r->reason : NULL;
}

/*
 * A reference of git that the host has changed since the command began: the commits that it names now would be lost.
 * Its log likewise.
 */
static bool is_moved_reference(const struct visitor *w, const struct change_dir *p,
			       const struct item *it)
{
	const struct timespec *t = &it->low.st_ctim;

	return w->left.since_ns && p->control.in_git && it->has_low && S_ISREG(it->low.st_mode) &&
	       (str_equal(it->name, "packed-refs") || strstr(w->path.text, "refs/")) &&
	       t->tv_sec * INT64_C(1000000000) + t->tv_nsec > w->left.since_ns;
}

/* Finds out why this item is not to be applied, if there is a reason. */
static void judge_item(const struct visitor *w, const struct change_dir *p, struct item *it,
		       bool deleted)
{
	const char *why = p->blocked ? p->blocked : why_guarded(w, p, it, deleted);
	enum named how = why && !p->blocked ? how_named(w) : NAMED_NOT;

	if (how == NAMED_BELOW && !deleted && S_ISDIR(it->up.st_mode))
		it->guarded = why;
	else if (how != NAMED)
		it->blocked = why;
	if (!it->blocked && is_moved_reference(w, p, it))
		it->blocked = moved_outside;
}

/* hidden: the name is below only, and deleted. */
static void visit_item(struct visitor *w, const struct change_dir *p, const char *name, bool hidden)
{
	struct item it = {.name = name};

	it.has_low = p->lower >= 0 && safe_walk_stat(p->lower, name, &it.low);
	if (!hidden && !safe_walk_stat(p->upper, name, &it.up))
		return;
	if (hidden || safe_walk_is_whiteout(&it.up)) {
		judge_item(w, p, &it, true);
		if (it.has_low)
			visit_deleted(w, p, &it);
		return;
	}
	judge_item(w, p, &it, false);
	if (S_ISDIR(it.up.st_mode))
		visit_dir(w, p, &it);
	else if (S_ISREG(it.up.st_mode))
		visit_file(w, p, &it);
	else if (S_ISLNK(it.up.st_mode))
		visit_link(w, p, &it);
	else
		record_blocked(w, change_kind(&it), false,
			       "neither a file, a directory nor a link");
}

/* Visits one name, with the path set to it. */
static void visit_named(struct visitor *w, const struct change_dir *p, const char *name,
			bool hidden)
{
	size_t mark;

	if (w->left.entries == 0 || !safe_walk_push(&w->path, name, &mark)) {
		w->out.incomplete = true;
		return;
	}
	w->left.entries--;
	visit_item(w, p, name, hidden);
	safe_walk_pop(&w->path, mark);
}

/* Below an opaque directory, every name that is not in the upper layer was deleted. */
static void walk_hidden(struct visitor *w, const struct change_dir *p,
			const struct list *upper_names)
{
	auto_list struct list names = {0};
	bool cut;

	if (dirents_names(p->lower, w->left.entries, &names, &cut) < 0) {
		w->out.incomplete = true;
		return;
	}
	w->out.incomplete |= cut;
	for (size_t i = 0; i < names.count; i++)
		if (!safe_walk_has_name(upper_names, names.items[i]))
			visit_named(w, p, names.items[i], true);
}

static void walk_dir(struct visitor *w, const struct control_place *above, const char *name,
		     struct change_dir *p)
{
	auto_list struct list names = {0};
	bool cut;

	if (w->depth == SAFE_WALK_MAX_DEPTH) {
		w->out.incomplete = true;
		record_blocked(w, MODIFIED, true, "nested too deep");
		return;
	}
	if (dirents_names(p->upper, w->left.entries, &names, &cut) < 0) {
		record_failed(w, MODIFIED, true, "the directory cannot be read");
		return;
	}
	w->depth++;
	w->out.incomplete |= cut;
	p->control = control_place_look(above, name, &names, p->lower);
	if (p->opaque && p->lower >= 0)
		walk_hidden(w, p, &names);
	for (size_t i = 0; i < names.count; i++)
		visit_named(w, p, names.items[i], false);
	w->depth--;
}

int changes_collect(int upper_fd, int lower_fd, const struct change_options *options,
		    struct change_list *ret, struct err *e)
{
	static const struct change_options defaults = CHANGE_OPTIONS_DEFAULT;
	struct change_dir root = {.upper = upper_fd, .lower = lower_fd};
	auto_free struct visitor *w = must_alloc(calloc(1, sizeof(*w)));
	struct stat st;

	if (fstat(lower_fd, &st) < 0)
		return err_sys(e, "looking at the workspace");
	w->left = options ? *options : defaults;
	w->umask = umask(0);
	umask(w->umask);
	w->owner = (struct apply_owner){.set = geteuid() == 0, .uid = st.st_uid, .gid = st.st_gid};
	walk_dir(w, NULL, "", &root);
	if (w->out.count > 0)
		qsort(w->out.items, w->out.count, sizeof(*w->out.items), compare_changes);
	*ret = w->out;
	return 0;
}
