/*
 * Theory of operation
 *
 * A glob is split at its slashes. For each glob the walk carries the set of parts that may come
 * next, one bit each: a name leads from one set to the next, `**` may stay or be left. So every
 * name is matched once, directories that cannot lead to a match are not entered, and no pattern,
 * however many `**` it has, makes the walk slow.
 */
#include "sandbox/workspace/capture.h"

#include "base/glob.h"
#include "kern/dirents.h"
#include "sandbox/workspace/safe_walk.h"

enum { MAX_GLOBS = 32, MAX_PARTS = 31 };

/* Bit i: part i comes next; bit `count` of the parts: the glob has matched. */
typedef uint32_t next_set;

struct capturer {
	struct list globs[MAX_GLOBS]; /* the parts of each */
	size_t glob_count;
	struct capture_limits left;
	struct safe_walk_path path;
	struct captured out;
	unsigned depth;
};

struct capture_dir {
	int upper;
	int lower;
	bool opaque;
	next_set next[MAX_GLOBS];
};

/* ---- globs -------------------------------------------------------------------------------------
 */

static void skip_lead(const char **text)
{
	static const char workspace[] = "/workspace/";

	if (str_starts(*text, workspace))
		*text += sizeof(workspace) - 1;
	while (str_starts(*text, "./"))
		*text += 2;
}

static int parse_glob(struct list *parts, const char *text, struct err *e)
{
	const char *p = text;

	skip_lead(&p);
	if (*p == '\0' || *p == '/')
		return err_field(e, ERR_INVALID, "capture",
				 "capture: '%s' is not relative to the workspace; try 'out/*.csv'",
				 text);
	while (*p) {
		size_t len = strcspn(p, "/");
		auto_free char *part = must_alloc(strndup(p, len));

		if (str_equal(part, ".."))
			return err_field(e, ERR_INVALID, "capture",
					 "capture: '%s' leads out of the workspace", text);
		if (len > 0 && parts->count == MAX_PARTS)
			return err_field(e, ERR_INVALID, "capture",
					 "capture: '%s' has too many parts", text);
		if (len > 0)
			list_take(parts, take_ptr(part));
		p += len + (p[len] == '/');
	}
	return 0;
}

static void capturer_free(struct capturer *c)
{
	for (size_t i = 0; i < MAX_GLOBS; i++)
		list_done(&c->globs[i]);
	free(c);
}

static int parse_globs(struct capturer *c, const struct list *globs, struct err *e)
{
	if (globs->count > MAX_GLOBS)
		return err_field(e, ERR_INVALID, "capture", "capture: more than %d globs",
				 MAX_GLOBS);
	for (size_t i = 0; i < globs->count; i++)
		if (parse_glob(&c->globs[i], globs->items[i], e) < 0)
			return -1;
	c->glob_count = globs->count;
	return 0;
}

static bool is_any_depth(const struct list *parts, size_t part)
{
	return part < parts->count && str_equal(parts->items[part], "**");
}

/* `**` also stands for no directory at all. */
static next_set with_skipped(const struct list *parts, next_set set)
{
	for (size_t i = 0; i < parts->count; i++)
		if (set & 1u << i && is_any_depth(parts, i))
			set |= 1u << (i + 1);
	return set;
}

static next_set next_parts(const struct list *parts, next_set set, const char *name)
{
	next_set next = 0;

	for (size_t i = 0; i < parts->count; i++) {
		if (!(set & 1u << i))
			continue;
		if (is_any_depth(parts, i))
			next |= name[0] == '.' ? 0 : 1u << i;
		else if (glob_match_name(parts->items[i], name))
			next |= 1u << (i + 1);
	}
	return with_skipped(parts, next);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static void capture_file(struct capturer *c, int dir, const char *name)
{
	struct captured *out = &c->out;
	struct captured_file *f;
	struct stat st;
	auto_close int fd = safe_walk_open_file(dir, name, &st);
	size_t want;
	ssize_t got;

	if (fd < 0)
		return;
	if (out->count == c->left.files) {
		out->cut = true;
		return;
	}
	want = (uint64_t)st.st_size < c->left.bytes ? (size_t)st.st_size : (size_t)c->left.bytes;
	out->items = array_room(out->items, out->count, &out->room, sizeof(*out->items));
	f = &out->items[out->count++];
	f->path = str_copy(c->path.text);
	f->data = must_alloc(malloc(want + 1));
	got = io_read_all(fd, f->data, want);
	f->size = got > 0 ? (size_t)got : 0;
	f->real_size = (uint64_t)st.st_size;
	f->truncated = f->size < f->real_size;
	c->left.bytes -= f->size;
}

/* ---- the walk ----------------------------------------------------------------------------------
 */

static void capture_walk(struct capturer *c, const struct capture_dir *p);

static void enter_dir(struct capturer *c, const struct capture_dir *p, const char *name,
		      bool in_upper, struct capture_dir *child)
{
	struct stat low;

	if (in_upper) {
		child->upper = safe_walk_open_dir(p->upper, name);
		child->opaque =
			p->opaque || (child->upper >= 0 && safe_walk_is_opaque(child->upper));
	}
	if (p->lower >= 0 && !child->opaque && safe_walk_stat(p->lower, name, &low) &&
	    S_ISDIR(low.st_mode))
		child->lower = safe_walk_open_dir(p->lower, name);
	/* If a directory of the upper layer cannot be read, the one that it hides must not show. */
	if (!in_upper || child->upper >= 0)
		capture_walk(c, child);
	close_fd(&child->upper);
	close_fd(&child->lower);
}

static void visit_name(struct capturer *c, const struct capture_dir *p, const char *name)
{
	struct capture_dir child = {.upper = -1, .lower = -1};
	bool matched = false, leads_on = false, in_upper;
	struct stat st;

	for (size_t i = 0; i < c->glob_count; i++) {
		next_set last = 1u << c->globs[i].count;

		child.next[i] = next_parts(&c->globs[i], p->next[i], name);
		matched |= (child.next[i] & last) != 0;
		leads_on |= (child.next[i] & ~last) != 0;
	}
	if (!matched && !leads_on)
		return;
	in_upper = p->upper >= 0 && safe_walk_stat(p->upper, name, &st);
	if (in_upper && safe_walk_is_whiteout(&st))
		return;
	if (!in_upper && (p->lower < 0 || !safe_walk_stat(p->lower, name, &st)))
		return;
	if (S_ISDIR(st.st_mode) && leads_on)
		enter_dir(c, p, name, in_upper, &child);
	else if (S_ISREG(st.st_mode) && matched)
		capture_file(c, in_upper ? p->upper : p->lower, name);
}

static void visit_names(struct capturer *c, const struct capture_dir *p, const struct list *names,
			const struct list *seen)
{
	for (size_t i = 0; i < names->count; i++) {
		size_t mark;

		if (safe_walk_has_name(seen, names->items[i]))
			continue;
		if (c->left.entries == 0 || !safe_walk_push(&c->path, names->items[i], &mark)) {
			c->out.cut = true;
			return;
		}
		c->left.entries--;
		visit_name(c, p, names->items[i]);
		safe_walk_pop(&c->path, mark);
	}
}

static void capture_walk(struct capturer *c, const struct capture_dir *p)
{
	auto_list struct list upper = {0}, lower = {0};
	bool cut_upper = false, cut_lower = false;

	if (c->depth == SAFE_WALK_MAX_DEPTH) {
		c->out.cut = true;
		return;
	}
	c->depth++;
	if (p->upper >= 0 && dirents_names(p->upper, c->left.entries, &upper, &cut_upper) < 0)
		c->out.cut = true;
	if (p->lower >= 0 && !p->opaque &&
	    dirents_names(p->lower, c->left.entries, &lower, &cut_lower) < 0)
		c->out.cut = true;
	c->out.cut |= cut_upper | cut_lower;
	visit_names(c, p, &upper, &(struct list){0});
	visit_names(c, p, &lower, &upper);
	c->depth--;
}

static int compare_captured(const void *a, const void *b)
{
	const struct captured_file *x = a, *y = b;

	return strcmp(x->path, y->path);
}

int capture_check(const struct list *globs, struct err *e)
{
	struct capturer *c = must_alloc(calloc(1, sizeof(*c)));
	int result = parse_globs(c, globs, e);

	capturer_free(c);
	return result;
}

void capture_enter(struct capture_view *v, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");
		auto_free char *name = must_alloc(strndup(path, len));
		struct stat st;
		bool in_upper = v->upper_fd >= 0 && safe_walk_stat(v->upper_fd, name, &st);
		int upper = in_upper ? safe_walk_open_dir(v->upper_fd, name) : -1, lower = -1;

		/* What the upper layer has there hides the lower, unless it is a plain directory. */
		if (v->lower_fd >= 0 && (!in_upper || (upper >= 0 && !safe_walk_is_opaque(upper))))
			lower = safe_walk_open_dir(v->lower_fd, name);
		close_fd(&v->upper_fd);
		close_fd(&v->lower_fd);
		*v = (struct capture_view){.upper_fd = upper, .lower_fd = lower};
		path += len + (path[len] == '/');
	}
}

int capture_files(const struct capture_view *v, const struct list *globs,
		  const struct capture_limits *limits, struct captured *ret, struct err *e)
{
	static const struct capture_limits defaults = CAPTURE_LIMITS_DEFAULT;
	struct capture_dir root = {.upper = v->upper_fd, .lower = v->lower_fd};
	struct capturer *c = must_alloc(calloc(1, sizeof(*c)));
	int result;

	c->left = limits ? *limits : defaults;
	result = parse_globs(c, globs, e);
	for (size_t i = 0; i < c->glob_count; i++)
		root.next[i] = with_skipped(&c->globs[i], 1);
	if (result == 0) {
		capture_walk(c, &root);
		if (c->out.count > 0)
			qsort(c->out.items, c->out.count, sizeof(*c->out.items), compare_captured);
		*ret = c->out;
	}
	capturer_free(c);
	return result;
}

void captured_done(struct captured *c)
{
	for (size_t i = 0; i < c->count; i++) {
		free(c->items[i].path);
		free(c->items[i].data);
	}
	free(c->items);
	*c = (struct captured){0};
}
