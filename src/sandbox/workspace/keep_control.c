/* Reads the control files of a workspace before a command, and puts them back after it. */
#include "sandbox/workspace/keep_control.h"

#include "kern/dirents.h"
#include "sandbox/workspace/apply_file.h"
#include "sandbox/workspace/control.h"
#include "sandbox/workspace/git_index.h"
#include "sandbox/workspace/safe_walk.h"

#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

#define KEEP_BYTES (64u << 20)
#define KEEP_FILES 20000
#define WALK_ENTRIES 1000000

#define SET_ASIDE "control file: set aside, as *" CONTROL_ASIDE
#define PUT_BACK "control file: put back; the command's version is *" CONTROL_ASIDE

struct kept {
	char *path;
	mode_t mode;
	char *data; /* of a file; a link's target */
	size_t len;
	nlink_t links; /* of a file: another name for it could be written to later */
	bool is_root;  /* the control file itself, not something below it */
};

struct kept_list {
	struct kept *items;
	size_t count, room, bytes;
	bool over; /* more than can be kept */
};

struct control_keep {
	struct kept_list before;
	size_t *roots; /* the items that are control files, sorted by path */
	size_t root_count;
	struct list almost; /* directories that a HEAD would turn into a repository */
	struct list sha256; /* git directories of repositories that use it */
};

/* One walk over the tree, before or after. */
struct keep_walk {
	struct control_keep *k;
	bool is_end;
	struct safe_walk_path path;
	unsigned depth;
	size_t entries;
	bool incomplete;
	struct change_list out;
};

static void kept_list_done(struct kept_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->items[i].path);
		free(l->items[i].data);
	}
	free(l->items);
	*l = (struct kept_list){0};
}

/* ---- reading ---- */

static void read_content(int dir, const char *name, struct kept_list *l, struct kept *ret)
{
	auto_close int fd = -1;
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (S_ISLNK(ret->mode) && (n = readlinkat(dir, name, target, sizeof(target) - 1)) >= 0) {
		target[n] = '\0';
		ret->data = str_copy(target);
		ret->len = (size_t)n;
	}
	if (S_ISREG(ret->mode)) {
		fd = safe_walk_open_file(dir, name, &st);
		if (fd < 0 || io_read_whole(fd, KEEP_BYTES - l->bytes, &ret->data, &ret->len) < 0)
			l->over = true;
	}
	l->bytes += ret->len;
}

/* Keeps this name and all below it, in the order of the names. */
static void keep_tree(struct kept_list *l, int dir, const char *name, struct safe_walk_path *path,
		      unsigned depth)
{
	auto_list struct list names = {0};
	auto_close int below = -1;
	struct stat st;
	size_t mark;
	bool cut;

	if (l->over || !safe_walk_stat(dir, name, &st))
		return;
	l->items = array_room(l->items, l->count, &l->room, sizeof(*l->items));
	l->items[l->count] = (struct kept){
		.path = str_copy(path->text),
		.mode = st.st_mode,
		.links = S_ISREG(st.st_mode) ? st.st_nlink : 0,
		.is_root = depth == 0,
	};
	read_content(dir, name, l, &l->items[l->count++]);
	l->over |= l->count > KEEP_FILES || l->bytes > KEEP_BYTES || depth > SAFE_WALK_MAX_DEPTH;
	if (!S_ISDIR(st.st_mode) || l->over)
		return;
	below = safe_walk_open_dir(dir, name);
	if (below < 0 || dirents_names(below, KEEP_FILES, &names, &cut) < 0 || cut) {
		l->over = true;
		return;
	}
	for (size_t i = 0; i < names.count; i++) {
		if (!safe_walk_push(path, names.items[i], &mark)) {
			l->over = true;
			return;
		}
		keep_tree(l, below, names.items[i], path, depth + 1);
		safe_walk_pop(path, mark);
	}
}

/* ---- comparing ---- */

static int compare_roots(const void *a, const void *b, void *items)
{
	const struct kept *kept = items;

	return strcmp(kept[*(const size_t *)a].path, kept[*(const size_t *)b].path);
}

static void sort_roots(struct control_keep *k)
{
	struct kept_list *l = &k->before;

	k->roots = must_alloc(calloc(l->count + 1, sizeof(*k->roots)));
	for (size_t i = 0; i < l->count; i++)
		if (l->items[i].is_root)
			k->roots[k->root_count++] = i;
	qsort_r(k->roots, k->root_count, sizeof(*k->roots), compare_roots, l->items);
}

/* Was there a control file of this path before the command? */
static bool is_kept(const struct control_keep *k, const char *path)
{
	size_t low = 0, high = k->root_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(k->before.items[k->roots[middle]].path, path);

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* The items of one control file: it, and all below it. */
static size_t kept_end(const struct kept_list *l, size_t first)
{
	size_t end = first + 1;

	while (end < l->count && !l->items[end].is_root)
		end++;
	return end;
}

static bool is_same(const struct kept *a, const struct kept *b)
{
	return a->mode == b->mode && a->links == b->links && str_equal(a->path, b->path) &&
	       a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static bool is_as_before(const struct kept_list *before, size_t first, const struct kept_list *now)
{
	size_t end = kept_end(before, first);

	if (now->over || end - first != now->count)
		return false;
	for (size_t i = 0; i < now->count; i++)
		if (!is_same(&before->items[first + i], &now->items[i]))
			return false;
	return true;
}

/* ---- after the command ---- */

static void record(struct keep_walk *w, const char *path, const char *note, bool failed)
{
	struct change_list *l = &w->out;

	l->total++;
	l->skipped++;
	l->failed += failed;
	if (l->count >= 1000) {
		l->cut = true;
		return;
	}
	l->items = array_room(l->items, l->count, &l->room, sizeof(*l->items));
	l->items[l->count++] =
		(struct change){.path = str_copy(path), .kind = "skipped", .note = note};
}

/*
 * Makes a directory writable for its owner, as which we may be running: the command may have closed it. Returns its
 * mode if that was changed, otherwise 0.
 */
static mode_t open_up(int dir)
{
	struct stat st;

	if (fstat(dir, &st) < 0 || (st.st_mode & 0700) == 0700 ||
	    fchmod(dir, (st.st_mode & 0777) | 0700) < 0)
		return 0;
	return st.st_mode & 0777;
}

static void close_again(int dir, mode_t mode)
{
	if (mode)
		fchmod(dir, mode);
}

/* Renames it, to a name that is not there yet; true if the name is free now. */
static bool rename_aside(int dir, const char *name)
{
	char to[NAME_MAX + 1];
	uint64_t number;

	for (unsigned i = 0; i < 100; i++) {
		char ending[24] = "";

		/* The command may have taken all small numbers. */
		if (i > 90 && getrandom(&number, sizeof(number), 0) == sizeof(number))
			snprintf(ending, sizeof(ending), ".%" PRIu64, number);
		else if (i > 0)
			snprintf(ending, sizeof(ending), ".%u", i);
		/* A long name is cut: it must not stay. */
		snprintf(to, sizeof(to), "%.200s" CONTROL_ASIDE "%s", name, ending);
		if (syscall(SYS_renameat2, dir, name, dir, to, RENAME_NOREPLACE) == 0)
			return true;
		if (errno != EEXIST)
			return false;
	}
	return false;
}

static bool set_aside(struct keep_walk *w, int dir, const char *name, const char *path)
{
	mode_t mode = open_up(dir);
	bool done = rename_aside(dir, name);

	close_again(dir, mode);
	if (!done)
		record(w, path, "control file: it cannot be set aside", true);
	return done;
}

static int open_parent(int root, const char *path, const char **ret_name);

/*
 * Sets aside what is not as before. By path, because the walk over the tree may come to an end before it gets there.
 */
static void judge_kept(struct keep_walk *w, int root)
{
	const struct kept_list *before = &w->k->before;

	for (size_t i = 0; i < before->count; i = kept_end(before, i)) {
		const char *name;
		auto_close int dir = open_parent(root, before->items[i].path, &name);
		struct kept_list now = {0};
		struct stat st;

		if (dir < 0 || !safe_walk_stat(dir, name, &st))
			continue;
		snprintf(w->path.text, sizeof(w->path.text), "%s", before->items[i].path);
		w->path.len = strlen(w->path.text);
		keep_tree(&now, dir, name, &w->path, 0);
		if (!is_as_before(before, i, &now))
			set_aside(w, dir, name, before->items[i].path);
		kept_list_done(&now);
	}
	safe_walk_pop(&w->path, 0);
}

/* Writes one kept item; true if it is there then. A directory gets its mode when all is written. */
static bool write_item(int dir, const char *name, const struct kept *i,
		       const struct apply_owner *owner)
{
	struct stat st = {.st_mode = i->mode, .st_size = (off_t)i->len};
	auto_close int fd = -1;

	clock_gettime(CLOCK_REALTIME, &st.st_mtim);
	st.st_atim = st.st_mtim;
	if (S_ISLNK(i->mode))
		return apply_link(dir, name, i->data, owner) == 0;
	if (S_ISDIR(i->mode)) {
		fd = apply_dir(dir, name, owner);
		return fd >= 0;
	}
	if (!S_ISREG(i->mode))
		return true;
	fd = memfd_create("kept", MFD_CLOEXEC);
	return fd >= 0 && (i->len == 0 || io_write_all(fd, i->data, i->len) == 0) &&
	       apply_file(dir, name, fd, &st, owner) == 0;
}

/* Opens the directory of a path; -1 if it is no longer there, or only by way of a link. */
static int open_parent(int root, const char *path, const char **ret_name)
{
	auto_close int dir = fcntl(root, F_DUPFD_CLOEXEC, 3);
	const char *slash;

	for (; dir >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
		auto_free char *name = must_alloc(strndup(path, (size_t)(slash - path)));
		int next = safe_walk_open_dir(dir, name);

		close_fd(&dir);
		dir = next;
	}
	*ret_name = path;
	return take_fd(&dir);
}

/* Writes the items of one control file. */
static bool write_kept(struct keep_walk *w, int root, size_t first, const struct apply_owner *owner)
{
	const struct kept *items = w->k->before.items;
	size_t end = kept_end(&w->k->before, first);
	bool done = true;
	const char *name;

	for (size_t i = first; i < end; i++) {
		auto_close int dir = open_parent(root, items[i].path, &name);

		done &= dir >= 0 && write_item(dir, name, &items[i], owner);
	}
	while (end-- > first) {
		auto_close int dir = open_parent(root, items[end].path, &name);
		auto_close int made = -1;

		if (!S_ISDIR(items[end].mode))
			continue;
		made = dir < 0 ? -1 : safe_walk_open_dir(dir, name);
		done &= made >= 0 && apply_mode(made, items[end].mode & 0777, owner) == 0;
	}
	return done;
}

/* Writes control files that are not there any more, unless their directory is gone with them. */
static void put_back(struct keep_walk *w, int root, const struct apply_owner *owner)
{
	const struct kept_list *l = &w->k->before;

	for (size_t i = 0, end; i < l->count; i = end) {
		const char *name;
		auto_close int top = open_parent(root, l->items[i].path, &name);
		struct stat st;
		mode_t mode;
		bool done;

		end = kept_end(l, i);
		if (top < 0 || safe_walk_stat(top, name, &st))
			continue;
		mode = open_up(top);
		done = write_kept(w, root, i, owner);
		close_again(top, mode);
		record(w, l->items[i].path, done ? PUT_BACK : "control file: it cannot be put back",
		       !done);
	}
}

/* ---- the walk ---- */

static void visit_dir(struct keep_walk *w, const struct control_place *above, int dir,
		      const char *name);

/* Opens a directory, also one that the command has closed to its owner. */
static int enter_dir(const struct keep_walk *w, int dir, const char *name)
{
	int fd = safe_walk_open_dir(dir, name);
	auto_close int path = -1;
	char by_fd[32];
	struct stat st;

	if (fd >= 0 || errno != EACCES || !w->is_end)
		return fd;
	path = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", path);
	if (path < 0 || fstat(path, &st) < 0 || chmod(by_fd, (st.st_mode & 0777) | 0700) < 0)
		return -1;
	return safe_walk_open_dir(dir, name);
}

/* Sets an index aside that would make git write where it should not. */
static void judge_index(struct keep_walk *w, int dir, const char *name,
			const struct control_place *place)
{
	struct stat st;
	auto_close int fd = -1;

	if (!w->is_end || !place->in_git || !git_index_is_one(name))
		return;
	fd = safe_walk_open_file(dir, name, &st);
	if ((fd < 0 || control_is_bad_index(place, name, fd)) &&
	    set_aside(w, dir, name, w->path.text))
		record(w, w->path.text, SET_ASIDE, false);
}

static void visit_name(struct keep_walk *w, int dir, const char *name,
		       const struct control_place *place)
{
	const struct control_row *r;
	auto_close int below = -1;
	struct stat st;

	if (!safe_walk_stat(dir, name, &st))
		return;
	r = control_find(place, w->path.text, st.st_mode);
	if (r && r->where != CONTROL_PUSHED) {
		if (!w->is_end)
			keep_tree(&w->k->before, dir, name, &w->path, 0);
		else if (!is_kept(w->k, w->path.text) && set_aside(w, dir, name, w->path.text))
			record(w, w->path.text, SET_ASIDE, false);
		return;
	}
	if (S_ISREG(st.st_mode))
		judge_index(w, dir, name, place);
	if (!S_ISDIR(st.st_mode))
		return;
	below = enter_dir(w, dir, name);
	if (below >= 0)
		visit_dir(w, place, below, name);
	else if (errno != EXDEV)
		w->incomplete = true;
}

static bool has_text(const struct list *l, const char *text)
{
	for (size_t i = 0; i < l->count; i++)
		if (str_equal(l->items[i], text))
			return true;
	return false;
}

/* Facts about this directory. Parts of a repository from before must not become one now. */
static struct control_place look(struct keep_walk *w, const struct control_place *above, int dir,
				 const char *name)
{
	struct control_place p = control_place_look(above, name, &(struct list){0}, dir);

	if (!w->is_end) {
		if (p.almost_git)
			list_add(&w->k->almost, w->path.text);
		if (p.is_git && p.is_sha256)
			list_add(&w->k->sha256, w->path.text);
		p.almost_git = false;
		return p;
	}
	/* The configuration may be the command's. */
	p.is_sha256 =
		has_text(&w->k->sha256, w->path.text) || (!p.is_git && above && above->is_sha256);
	p.almost_git = has_text(&w->k->almost, w->path.text) && p.is_git;
	p.is_git &= !p.almost_git;
	return p;
}

static void visit_dir(struct keep_walk *w, const struct control_place *above, int dir,
		      const char *name)
{
	struct control_place place = look(w, above, dir, name);
	auto_list struct list names = {0};
	bool cut;

	if (w->depth == SAFE_WALK_MAX_DEPTH || dirents_names(dir, w->entries, &names, &cut) < 0 ||
	    cut) {
		w->incomplete = true;
		return;
	}
	w->depth++;
	w->entries -= names.count;
	for (size_t i = 0; i < names.count; i++) {
		size_t mark;

		if (!safe_walk_push(&w->path, names.items[i], &mark)) {
			w->incomplete = true;
			continue;
		}
		visit_name(w, dir, names.items[i], &place);
		safe_walk_pop(&w->path, mark);
	}
	w->depth--;
}

int control_keep_begin(int dir, struct control_keep **ret, struct err *e)
{
	struct control_keep *k = must_alloc(calloc(1, sizeof(*k)));
	auto_free struct keep_walk *w = must_alloc(calloc(1, sizeof(*w)));

	w->k = k;
	w->entries = WALK_ENTRIES;
	visit_dir(w, NULL, dir, "");
	if (!k->before.over && !w->incomplete) {
		sort_roots(k);
		*ret = k;
		return 0;
	}
	control_keep_free(k);
	return err_field(e, ERR_LIMIT, "keep_control",
			 "keep_control: the control files of the workspace cannot all be kept: "
			 "%s",
			 w->incomplete ? "the tree is too large or too deep"
				       : "they are more than 64M, or cannot be read");
}

int control_keep_end(struct control_keep *k, int dir, struct change_list *ret, struct err *e)
{
	auto_free struct keep_walk *w = must_alloc(calloc(1, sizeof(*w)));
	struct apply_owner owner = {.set = geteuid() == 0};
	struct stat st;

	if (fstat(dir, &st) < 0)
		return err_sys(e, "looking at the workspace");
	owner.uid = st.st_uid;
	owner.gid = st.st_gid;
	w->k = k;
	w->is_end = true;
	w->entries = WALK_ENTRIES;
	judge_kept(w, dir);
	visit_dir(w, NULL, dir, "");
	put_back(w, dir, &owner);
	w->out.incomplete = w->incomplete;
	*ret = w->out;
	return 0;
}

void control_keep_free(struct control_keep *k)
{
	if (!k)
		return;
	kept_list_done(&k->before);
	list_done(&k->almost);
	list_done(&k->sha256);
	free(k->roots);
	free(k);
}
