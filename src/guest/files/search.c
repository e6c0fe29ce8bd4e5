/* G_SEARCH: finds files by name and by content, in a worker. */
#include "base/glob.h"
#include "guest/files/files.h"
#include "guest/link/request.h"
#include "guest/files/walk.h"
#include "guest/link/worker.h"

#include <regex.h>
#include <strings.h>

#define SEARCH_LINE 65536 /* longer lines are searched in pieces */
#define SEARCH_SHOWN 1000 /* bytes of a line that are sent */

struct tree_search {
	struct work *work;
	const char *glob, *content;
	uint8_t flags;
	uint32_t max;
	size_t root_len; /* where the path below the searched directory begins */
	regex_t regex;
	uint32_t found;
	char *line;
};

static bool is_full(const struct tree_search *q)
{
	return q->max && q->found >= q->max;
}

static void send_match(struct tree_search *q, const char *path, uint64_t line, const char *text,
		       size_t len)
{
	auto_buf struct buf b = {0};

	pack_str(&b, path);
	pack_u64(&b, line);
	pack_bytes(&b, text, len < SEARCH_SHOWN ? len : SEARCH_SHOWN);
	work_frame(q->work, G_ITEM, buf_head(&b), b.len);
	q->found++;
}

static bool contains(const struct tree_search *q, const char *line, size_t len)
{
	size_t want = strlen(q->content);

	if (q->flags & GUEST_SEARCH_REGEX)
		return regexec(&q->regex, line, 0, NULL, 0) == 0;
	if (!(q->flags & GUEST_SEARCH_NOCASE))
		return memmem(line, len, q->content, want) != NULL;
	for (size_t i = 0; i + want <= len; i++)
		if (strncasecmp(line + i, q->content, want) == 0)
			return true;
	return false;
}

/* Searches the whole lines of the buffer; the rest moves to its front. */
static size_t search_lines(struct tree_search *q, const char *path, size_t len, uint64_t *number,
			   bool last)
{
	size_t at = 0;

	while (at < len && !is_full(q)) {
		char *start = q->line + at;
		char *end = memchr(start, '\n', len - at);
		size_t n = end ? (size_t)(end - start) : len - at;

		if (!end && !last && at > 0)
			break;
		if (!end && !last && n < SEARCH_LINE - 1)
			break;
		start[n] = '\0';
		*number += 1;
		if (contains(q, start, n))
			send_match(q, path, *number, start, n);
		at += n + (end != NULL);
		if (!end)
			*number -= !last;
	}
	memmove(q->line, q->line + at, len - at);
	return len - at;
}

static void search_file(struct tree_search *q, int dir, const char *name, const char *path)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	uint64_t number = 0;
	bool first = true;
	size_t len = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || files_is_own(fd))
		return;
	while (!is_full(q)) {
		ssize_t n = read(fd, q->line + len, SEARCH_LINE - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		/* A NUL byte: not text. */
		if (first && n > 0 && memchr(q->line, '\0', (size_t)(n < 4096 ? n : 4096)))
			return;
		first = false;
		len = search_lines(q, path, len + (size_t)(n > 0 ? n : 0), &number, n <= 0);
		if (n <= 0)
			return;
	}
}

static enum walk_next search_entry(void *arg, const struct walk_entry *n)
{
	struct tree_search *q = arg;
	bool hit;

	if (n->name[0] == '.' && !(q->flags & GUEST_SEARCH_HIDDEN))
		return WALK_PAST;
	hit = !*q->glob ||
	      glob_match(q->glob, n->path + q->root_len, q->flags & GUEST_SEARCH_NOCASE);
	if (hit && !*q->content)
		send_match(q, n->path, 0, "", 0);
	else if (hit && S_ISREG(n->st->st_mode))
		search_file(q, n->dir, n->name, n->path);
	return is_full(q) ? WALK_STOP : WALK_INTO;
}

void search_work(struct work *w, const struct unpacked_request *r)
{
	struct tree_search q = {.work = w,
				.glob = r->text[1],
				.content = r->text[2],
				.flags = (uint8_t)r->number[0],
				.max = (uint32_t)r->number[1]};
	int flags = REG_EXTENDED | REG_NOSUB | (q.flags & GUEST_SEARCH_NOCASE ? REG_ICASE : 0);
	char why[128], path[GUEST_MAX_PATH];
	auto_close int dir = walk_open_top(w, "search", r->text[0], path);
	unsigned char cut;
	int rc;

	rc = q.flags & GUEST_SEARCH_REGEX ? regcomp(&q.regex, q.content, flags) : 0;
	if (rc) {
		regerror(rc, &q.regex, why, sizeof(why));
		work_error(w, EINVAL, "content: not a regular expression: %s", why);
	}
	work_ok(w, NULL);
	q.line = must_alloc(malloc(SEARCH_LINE));
	q.root_len = str_equal(path, "/") ? 1 : strlen(path) + 1;
	walk_below(&(struct walk){search_entry, &q, true}, dir, path, WALK_MAX_DEPTH + 1);
	cut = is_full(&q);
	work_end(w, &cut, 1);
}
