/* Finds out whether a name in a workspace is that of a control file. */
#include "sandbox/workspace/control.h"

#include "base/glob.h"
#include "base/utf8.h"
#include "sandbox/workspace/git_index.h"
#include "sandbox/workspace/safe_walk.h"

#include <strings.h>

static const struct control_row git_file = {".git", ".git", CONTROL_ANY,
					    "control file: leads git to a repository elsewhere"};
static const struct control_row git_head = {
	"head", "HEAD", CONTROL_GIT, "control file: turns this directory into a git repository"};
/* git makes none, but writes through them: .git/logs/HEAD -> ../hooks/post-checkout. */
static const struct control_row git_link = {"", "", CONTROL_GIT,
					    "control file: a link in git's own directory"};

/* ---- names as file systems fold them ---- */

/*
 * Characters that a file system without case (ext4 and f2fs with casefold, HFS+) takes for others,
 * as far as the result can be a name of the list; "": it takes no notice of them.
 */
static const struct {
	uint32_t first, last;
	const char *as;
} folds[] = {
	{0xad, 0xad, ""},	{0xdf, 0xdf, "ss"},	 {0x17f, 0x17f, "s"},
	{0x34f, 0x34f, ""},	{0x180b, 0x180f, ""},	 {0x1e9e, 0x1e9e, "ss"},
	{0x200b, 0x200f, ""},	{0x202a, 0x202e, ""},	 {0x2060, 0x206f, ""},
	{0x212a, 0x212a, "k"},	{0xfb00, 0xfb00, "ff"},	 {0xfb01, 0xfb01, "fi"},
	{0xfb02, 0xfb02, "fl"}, {0xfb03, 0xfb03, "ffi"}, {0xfb04, 0xfb04, "ffl"},
	{0xfb05, 0xfb06, "st"}, {0xfe00, 0xfe0f, ""},	 {0xfeff, 0xfeff, ""},
	{0xe0000, 0xe0fff, ""},
};

static const char *fold_of(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_LEN(folds); i++)
		if (c >= folds[i].first && c <= folds[i].last)
			return folds[i].as;
	return NULL;
}

/* Windows file systems drop dots and spaces at the end of a name, and what follows a colon. */
static size_t trim_name(const char *out, size_t start, size_t end)
{
	const char *colon = memchr(out + start, ':', end - start);

	if (colon)
		end = (size_t)(colon - out);
	while (end > start + 1 && (out[end - 1] == '.' || out[end - 1] == ' '))
		end--;
	return end;
}

/* Folds each name of a path. The result is at most twice as long. */
static void fold_path(const char *path, char *out)
{
	size_t start = 0, n = 0;
	uint32_t c;

	for (size_t len; *path; path += len) {
		const char *as;

		len = utf8_sequence(path, strnlen(path, 4));
		c = utf8_value(path, len);
		len += !len; /* a byte that is no character stands for itself */
		as = c < 0x80 ? NULL : fold_of(c);
		if (*path == '/') {
			n = trim_name(out, start, n);
			out[n++] = '/';
			start = n;
		} else if (as) {
			for (; *as; as++)
				out[n++] = *as;
		} else {
			memcpy(out + n, path, len);
			if (out[n] >= 'A' && out[n] <= 'Z')
				out[n] += 'a' - 'A';
			n += len;
		}
	}
	n = trim_name(out, start, n);
	out[n] = '\0';
}

bool control_is_git_name(const char *name)
{
	char folded[2 * NAME_MAX + 2];

	if (strlen(name) > NAME_MAX)
		return false;
	fold_path(name, folded);
	return str_equal(folded, ".git");
}

/* ---- the list ---- */

static int compare_folded(const void *name, const void *row)
{
	return strcmp(name, ((const struct control_row *)row)->folded);
}

static const struct control_row *find_plain(const char *name)
{
	return bsearch(name, control_rows, control_plain_count, sizeof(*control_rows),
		       compare_folded);
}

static size_t count_parts(const char *path)
{
	size_t n = 1;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* The last parts of a path; NULL if it has fewer. */
static const char *last_parts(const char *path, size_t parts)
{
	size_t all = count_parts(path);

	for (; all > parts; all--)
		path = strchr(path, '/') + 1;
	return all == parts ? path : NULL;
}

/*
 * Is this the row's path, or a directory on the way to it that is replaced by a link (below a
 * directory that is the tool's own, by anything: .jj/repo may be a file that names another place)?
 */
static bool is_path_of(const struct control_row *r, const char *path, mode_t mode)
{
	size_t parts = count_parts(r->folded);
	const char *last = last_parts(path, parts);
	bool leads = S_ISLNK(mode) || (r->folded[0] == '.' && !S_ISDIR(mode));

	if (last && str_equal(last, r->folded))
		return true;
	while (leads && --parts > 0) {
		last = last_parts(path, parts);
		if (last && str_starts(r->folded, last) && r->folded[strlen(last)] == '/')
			return true;
	}
	return false;
}

static const struct control_row *find_other(const char *path, const char *name, mode_t mode)
{
	for (size_t i = control_plain_count; i < control_row_count; i++) {
		const struct control_row *r = &control_rows[i];

		if (strchr(r->folded, '/') ? is_path_of(r, path, mode)
					   : glob_match(r->folded, name, false))
			return r;
	}
	return NULL;
}

const struct control_row *control_find(const struct control_place *p, const char *path, mode_t mode)
{
	char folded[2 * SAFE_WALK_MAX_PATH];
	const struct control_row *r;
	const char *name;

	fold_path(path, folded);
	name = strrchr(folded, '/') ? strrchr(folded, '/') + 1 : folded;
	r = find_plain(name);
	if (!r || (r->where == CONTROL_GIT && !p->is_git))
		r = find_other(folded, name, mode);
	if (r)
		return r;
	if (str_equal(name, ".git") && !S_ISDIR(mode))
		return &git_file;
	if (p->in_git && S_ISLNK(mode))
		return &git_link;
	return p->almost_git && str_equal(name, "head") ? &git_head : NULL;
}

/* ---- repositories ---- */

static bool has_head(const struct list *names)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcasecmp(names->items[i], "HEAD") == 0)
			return true;
	return false;
}

bool control_is_bad_index(const struct control_place *p, const char *name, int fd)
{
	return p->in_git && git_index_is_one(name) && !git_index_is_safe(fd, p->is_sha256);
}

struct control_place control_place_look(const struct control_place *above, const char *name,
					const struct list *upper_names, int lower_fd)
{
	bool is_own = control_is_git_name(name) ||
		      (lower_fd >= 0 && safe_walk_stat(lower_fd, "HEAD", &(struct stat){0}));
	struct control_place p = {.is_git = is_own || has_head(upper_names)};

	p.in_git = p.is_git || (above && above->in_git);
	/* A linked worktree has no configuration of its own. */
	if (p.is_git && lower_fd >= 0 && safe_walk_stat(lower_fd, "config", &(struct stat){0}))
		p.is_sha256 = git_index_uses_sha256(lower_fd);
	else
		p.is_sha256 = above && above->is_sha256;
	for (size_t i = 0; !is_own && lower_fd >= 0 && i < control_plain_count; i++)
		if (control_rows[i].where == CONTROL_GIT)
			p.almost_git |=
				safe_walk_stat(lower_fd, control_rows[i].name, &(struct stat){0});
	return p;
}
