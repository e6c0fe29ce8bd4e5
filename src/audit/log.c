/*
 * Theory of operation
 *
 * The end of the chain is read from the file once, at the start. From then on the copy in memory
 * counts, so that a later cut or edit of the file visibly breaks the chain.
 *
 * A write that ends half-way (kill, full disk) leaves a line without its end. It is never removed:
 * the next write ends that line and puts a record "audit.repair" behind it that has the digest of
 * the torn bytes, and verify accepts exactly that. The chain moves on only when all bytes of a batch
 * are in the file.
 */
#include "audit/log.h"

#include "base/jsonw.h"
#include "base/reserve.h"

#include <dirent.h>
#include <sys/mman.h>

#define QUERY_SCAN ((off_t)8 << 20)
#define QUERY_LIMIT 10000
#define RESERVE ".reserve" /* beside the file */
#define RESERVE_BYTES (1 << 20)
#define RESERVE_STEP 4096

struct audit_log {
	struct audit_log_settings s;
	char *name;
	struct chain chain;
	int fd;
	off_t size;	    /* of the current file after the last write */
	uint64_t first_seq; /* in the current file; 0: it is empty */
	struct reserve reserve;
	bool suspect; /* the last write failed: check the file before the next */
};

/* ---- the end of a file ---- */

struct tail {
	char text[CHAIN_LINE + 1];
	size_t len;	/* from the start of the last line to the end of the file */
	bool has_line;	/* a whole one */
	size_t torn_at; /* in text; == len: nothing is torn */
};

/* Reads the last whole line, and what follows it without an end. */
static int read_tail(int fd, off_t size, struct tail *t)
{
	off_t from = size > CHAIN_LINE ? size - CHAIN_LINE : 0;
	ssize_t n = pread(fd, t->text, (size_t)(size - from), from);
	size_t start = 0, len, i;

	if (n < 0)
		return -1;
	len = (size_t)n;
	for (i = len; i > 0 && t->text[i - 1] != '\n'; i--)
		;
	t->torn_at = i;
	t->has_line = i > 0;
	for (start = i ? i - 1 : 0; start > 0 && t->text[start - 1] != '\n'; start--)
		;
	if (start > 0) {
		memmove(t->text, t->text + start, len - start);
		len -= start;
		t->torn_at -= start;
	}
	t->len = len;
	return 0;
}

/* The last record: whole but for its end, or the last whole line. False if there is none. */
static bool last_line(const struct tail *t, const char **ret_line, size_t *ret_len)
{
	struct chain_view v;

	*ret_line = t->text + t->torn_at;
	*ret_len = t->len - t->torn_at;
	if (chain_parse(*ret_line, *ret_len, &v))
		return true;
	*ret_line = t->text;
	*ret_len = t->has_line ? t->torn_at - 1 : 0;
	return t->has_line;
}

/* Takes the chain's end from the last record of a file. 1: there is none. */
static int chain_from(struct audit_log *l, int fd, off_t size, const char *name, struct err *e)
{
	struct chain_view v;
	struct tail t;
	const char *line;
	size_t len;

	if (read_tail(fd, size, &t) < 0)
		return err_sys(e, "cannot read the audit file %s", name);
	if (!last_line(&t, &line, &len))
		return 1;
	if (!chain_parse(line, len, &v) || chain_check(&l->chain.key, line, &v) == CHAIN_BAD)
		return err_set(e, ERR_CONFLICT,
			       "the last record of the audit file %s is not as it was written; see "
			       "`cloche audit verify`, then move the file away",
			       name);
	l->chain.seq = v.seq;
	memcpy(l->chain.head, v.hash, sizeof(v.hash));
	return 0;
}

static uint64_t first_seq_of(int fd)
{
	char line[64] = "";
	uint64_t seq = 0;

	if (pread(fd, line, sizeof(line) - 1, 0) > 0)
		sscanf(line, "{\"seq\":%" SCNu64 ",", &seq);
	return seq;
}

/* ---- older files ---- */

/* Is this the name of an older audit file? */
static bool is_older(const struct audit_log *l, const char *name)
{
	size_t n = strlen(l->name);

	return strncmp(name, l->name, n) == 0 && name[n] == '.' && strlen(name + n + 1) == 20 &&
	       strspn(name + n + 1, "0123456789") == 20;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Oldest first. */
static int list_older(const struct audit_log *l, struct list *ret, struct err *e)
{
	int fd = openat(l->s.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!d) {
		err_sys(e, "cannot list the audit directory");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while ((entry = readdir(d)))
		if (is_older(l, entry->d_name))
			list_add(ret, entry->d_name);
	closedir(d);
	if (ret->count)
		qsort(ret->items, ret->count, sizeof(*ret->items), compare_names);
	return 0;
}

static int open_older(const struct audit_log *l, const char *name, off_t *ret_size)
{
	auto_close int fd = openat(l->s.dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -1;
	*ret_size = st.st_size;
	return take_fd(&fd);
}

/* The current file is empty: the chain goes on from the newest older one. */
static int chain_from_older(struct audit_log *l, struct err *e)
{
	auto_list struct list older = {0};
	auto_close int fd = -1;
	off_t size = 0;
	int rc = list_older(l, &older, e);

	if (rc == 0 && older.count) {
		const char *name = older.items[older.count - 1];

		fd = open_older(l, name, &size);
		rc = fd < 0 ? err_sys(e, "cannot open the audit file %s", name)
			    : chain_from(l, fd, size, name, e);
	}
	return rc < 0 ? -1 : 0;
}

/* ---- opening ---- */

static int open_current(struct audit_log *l, struct err *e)
{
	auto_close int fd =
		openat(l->s.dir, l->name,
		       O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot open the audit file %s", l->name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "the audit file %s is not a regular file", l->name);
	close_fd(&l->fd);
	l->size = st.st_size;
	l->first_seq = first_seq_of(fd);
	l->fd = take_fd(&fd);
	return 0;
}

struct audit_log *audit_log_open(const struct audit_log_settings *s, struct err *e)
{
	struct audit_log *l = must_alloc(calloc(1, sizeof(*l)));
	int rc;

	l->s = *s;
	l->fd = l->reserve.fd = -1;
	l->name = str_copy(s->name);
	chain_init(&l->chain, &s->key);
	rc = open_current(l, e);
	if (rc == 0)
		rc = chain_from(l, l->fd, l->size, l->name, e);
	if (rc == 1)
		rc = chain_from_older(l, e);
	if (rc < 0) {
		audit_log_close(l);
		return NULL;
	}
	reserve_open(&l->reserve, s->dir, RESERVE, RESERVE_BYTES);
	l->suspect = true; /* an earlier process may have been killed while it wrote */
	return l;
}

void audit_log_close(struct audit_log *l)
{
	if (!l)
		return;
	close_fd(&l->fd);
	reserve_close(&l->reserve);
	free(l->name);
	free(l);
}

/* ---- writing ---- */

/* Ends a torn line and adds a record that says so. */
static void mend_tail(struct audit_log *l, struct chain *chain, struct buf *b)
{
	struct audit_entry entry = {.who = "daemon", .what = "audit.repair", .verdict = "done"};
	char digest[CHAIN_HASH];
	struct chain_view v;
	struct tail t;

	if (read_tail(l->fd, l->size, &t) < 0 || t.torn_at == t.len)
		return;
	if (chain_parse(t.text + t.torn_at, t.len - t.torn_at, &v) &&
	    str_equal(v.hash, chain->head)) {
		buf_add(b, "\n", 1); /* only its end was missing */
		return;
	}
	chain_digest(t.text + t.torn_at, t.len - t.torn_at, digest);
	snprintf(entry.why, sizeof(entry.why), "the line before this one was torn, %zu bytes",
		 t.len - t.torn_at);
	buf_add(b, "\n", 1);
	chain_add(chain, b, &entry, digest);
}

static void remove_oldest(const struct audit_log *l)
{
	auto_list struct list older = {0};
	struct err ignored;

	if (l->s.keep && list_older(l, &older, &ignored) == 0)
		for (size_t i = 0; i + l->s.keep < older.count; i++)
			unlinkat(l->s.dir, older.items[i], 0);
}

static int rotate_file(struct audit_log *l, struct err *e)
{
	auto_free char *older = str_format("%s.%020" PRIu64, l->name, l->first_seq);

	if (renameat(l->s.dir, l->name, l->s.dir, older) < 0)
		return err_sys(e, "cannot rotate the audit file");
	if (open_current(l, e) < 0)
		return -1;
	remove_oldest(l);
	return 0;
}

/* Is the file still there, and how long is it now? */
static int check_current(struct audit_log *l, struct err *e)
{
	struct stat st;

	if (l->fd < 0 || fstat(l->fd, &st) < 0 || st.st_nlink == 0)
		return open_current(l, e);
	if (st.st_size != l->size)
		l->suspect = true;
	l->size = st.st_size;
	return 0;
}

static int write_all(struct audit_log *l, const struct buf *b, struct err *e)
{
	if (io_write_all(l->fd, buf_head(b), b->len) < 0)
		return err_sys(e, "cannot write to the audit file");
	if (l->s.sync && fdatasync(l->fd) < 0)
		return err_sys(e, "cannot write the audit file to disk");
	return 0;
}

/*
 * A batch was not written completely. It is cut off again if possible. If the file can only grow, the
 * complete records stay (their receipts report an error, so nothing was done), and the chain goes on
 * from them.
 */
static void take_back(struct audit_log *l)
{
	struct err ignored;
	struct stat st;

	l->suspect = true;
	if (ftruncate(l->fd, l->size) == 0 || fstat(l->fd, &st) < 0)
		return;
	l->size = st.st_size;
	chain_from(l, l->fd, l->size, l->name, &ignored);
}

static void put_records(struct audit_log *l, struct chain *chain, struct buf *b,
			const struct audit_entry *entries, size_t count)
{
	if (l->suspect)
		mend_tail(l, chain, b);
	for (size_t i = 0; i < count; i++)
		chain_add(chain, b, &entries[i], NULL);
}

static int append(struct audit_log *l, const struct audit_entry *entries, size_t count,
		  struct err *e)
{
	struct chain next;
	struct buf b = {0};
	int rc;

	if (check_current(l, e) < 0)
		return -1;
	if (l->s.max_bytes && (uint64_t)l->size >= l->s.max_bytes && !l->suspect && l->first_seq &&
	    rotate_file(l, e) < 0)
		return -1;
	next = l->chain;
	put_records(l, &next, &b, entries, count);
	rc = write_all(l, &b, e);
	if (rc == 0) {
		if (l->size == 0)
			l->first_seq = l->chain.seq + 1;
		l->chain = next;
		l->size += (off_t)b.len;
		l->suspect = false;
	} else {
		take_back(l);
	}
	buf_done(&b);
	return rc;
}

static bool is_full(const struct err *e)
{
	return e->errnum == ENOSPC || e->errnum == EDQUOT;
}

int audit_log_append(struct audit_log *l, const struct audit_entry *entries, size_t count,
		     struct err *e)
{
	bool uses_reserve = true;
	int rc = append(l, entries, count, e);

	for (size_t i = 0; i < count; i++)
		uses_reserve = uses_reserve && entries[i].uses_reserve;
	/* Others may take the space that is given back, so little is given back at a time. */
	while (rc < 0 && uses_reserve && is_full(e) && reserve_spend(&l->reserve, RESERVE_STEP)) {
		*e = (struct err){0};
		rc = append(l, entries, count, e);
	}
	if (rc == 0)
		reserve_refill(&l->reserve);
	return rc;
}

/* ---- reading ---- */

/* `"target":"TEXT`, escaped as in a record. */
static char *needle_for(const char *target)
{
	char text[sizeof(((struct audit_query *)NULL)->target) * 6 + 32];
	FILE *to = must_alloc(fmemopen(text, sizeof(text), "w"));
	struct jsonw j;
	long len;

	jsonw_begin(&j, to);
	jsonw_text_open(&j, "target");
	jsonw_text(&j, target, strnlen(target, sizeof(((struct audit_query *)NULL)->target)));
	jsonw_finish(&j);
	len = ftell(to);
	fclose(to);
	return str_format("%.*s", (int)len, text);
}

/* One query. It stops at its limit, or when it has read QUERY_SCAN bytes: decisions wait meanwhile. */
struct found {
	const struct audit_query *q;
	const char *needle; /* NULL: everything */
	size_t left;
	off_t may_read;
	uint64_t last_seq; /* of the last record that was looked at */
	bool is_cut;	   /* there are records behind it */
	struct list lines; /* in the order of the search */
};

/* Takes one line if it is wanted. */
static void look_at_line(struct found *f, const char *line, size_t len)
{
	struct chain_view v;

	if (!chain_parse(line, len, &v))
		return;
	f->last_seq = v.seq;
	if (v.seq <= f->q->after_seq ||
	    (f->needle && !memmem(line, len, f->needle, strlen(f->needle))))
		return;
	list_take(&f->lines, str_format("%.*s\n", (int)len, line));
	f->left--;
}

/* Searches from the end of a file backwards. */
static int scan_backward(int fd, off_t size, struct found *f)
{
	size_t len = (size_t)(size > f->may_read ? f->may_read : size);
	auto_free char *text = must_alloc(malloc(len + 1));
	ssize_t n = pread(fd, text, len, size - (off_t)len);
	size_t end = n > 0 ? (size_t)n : 0;

	f->may_read -= (off_t)len;
	while (end > 0 && f->left > 0) {
		size_t start = end - 1; /* at the line's own end */

		while (start > 0 && text[start - 1] != '\n')
			start--;
		look_at_line(f, text + start, end - 1 - start);
		end = start;
	}
	return n < 0 ? -1 : 0;
}

/* Searches from a line's start to the end of a file. */
static int scan_forward(int fd, off_t from, off_t size, struct found *f)
{
	size_t len = (size_t)(size - from > f->may_read ? f->may_read : size - from);
	auto_free char *text = must_alloc(malloc(len + 1));
	ssize_t n = pread(fd, text, len, from);
	const char *at = text, *end = text + (n > 0 ? n : 0), *eol;

	f->may_read -= (off_t)len;
	while (at < end && f->left > 0 && (eol = memchr(at, '\n', (size_t)(end - at)))) {
		look_at_line(f, at, (size_t)(eol - at));
		at = eol + 1;
	}
	f->is_cut = from + (at - text) < size;
	return n < 0 ? -1 : 0;
}

#define NEAR (4 * CHAIN_LINE)

/* The start of a line at or before the first record after this one: records are in order of their seq. */
static off_t find_place(int fd, off_t size, uint64_t after_seq)
{
	auto_free char *text = must_alloc(malloc(NEAR));
	off_t low = 0, high = size;

	while (high - low > NEAR) {
		off_t middle = low + (high - low) / 2;
		ssize_t n = pread(fd, text, NEAR, middle);
		const char *end = text + (n > 0 ? n : 0), *line = end, *eol = text;
		struct chain_view v;

		/* The first whole record behind the middle. */
		while ((eol = memchr(eol, '\n', (size_t)(end - eol)))) {
			line = ++eol;
			eol = memchr(line, '\n', (size_t)(end - line));
			if (!eol || chain_parse(line, (size_t)(eol - line), &v))
				break;
		}
		if (eol && v.seq <= after_seq)
			low = middle + (line - text);
		else
			high = middle;
	}
	return low;
}

/* The first record of an older file, by its name. */
static uint64_t first_seq_named(const struct audit_log *l, const char *name)
{
	return strtoull(name + strlen(l->name) + 1, NULL, 10);
}

static bool goes_on(const struct found *f)
{
	return f->left > 0 && f->may_read > 0;
}

/* Does this file, or the current one behind the last, begin with this record or an earlier one? */
static bool begins_by(const struct audit_log *l, const struct list *older, size_t i, uint64_t seq)
{
	uint64_t first = i < older->count ? first_seq_named(l, older->items[i]) : l->first_seq;

	return first && first <= seq;
}

/* The files from the one with the first wanted record on. An older file that is gone is left out. */
static int find_first(struct audit_log *l, const struct list *older, struct found *f)
{
	uint64_t after = f->q->after_seq;
	size_t i = 0;

	/* Left out: those after which another one still begins early enough. */
	while (i < older->count && begins_by(l, older, i + 1, after + 1))
		i++;
	for (; i < older->count && goes_on(f); i++) {
		off_t size = 0;
		auto_close int fd = open_older(l, older->items[i], &size);

		if (fd >= 0 && scan_forward(fd, find_place(fd, size, after), size, f) < 0)
			return -1;
		if (f->is_cut)
			return 0;
	}
	f->is_cut = i < older->count || l->size > 0;
	return goes_on(f) ? scan_forward(l->fd, find_place(l->fd, l->size, after), l->size, f) : 0;
}

/* From the end of the current file back into older ones. */
static int find_latest(struct audit_log *l, const struct list *older, struct found *f)
{
	int rc = scan_backward(l->fd, l->size, f);

	for (size_t i = older->count; i > 0 && goes_on(f) && rc == 0; i--) {
		off_t size = 0;
		auto_close int fd = open_older(l, older->items[i - 1], &size);

		rc = fd < 0 ? 0 : scan_backward(fd, size, f);
	}
	return rc;
}

static int lines_to_memfd(const struct found *f, struct err *e)
{
	auto_close int fd = memfd_create("cloche-audit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool failed = fd < 0;

	for (size_t i = 0; i < f->lines.count && !failed; i++) {
		size_t at = f->q->is_forward ? i : f->lines.count - 1 - i;

		failed = io_write_all(fd, f->lines.items[at], strlen(f->lines.items[at])) < 0;
	}
	if (failed || lseek(fd, 0, SEEK_SET) < 0 || io_seal(fd) < 0)
		return err_sys(e, "cannot hand out audit records");
	return take_fd(&fd);
}

int audit_log_query(struct audit_log *l, const struct audit_query *q, uint64_t *ret_next,
		    struct err *e)
{
	auto_free char *needle = *q->target ? needle_for(q->target) : NULL;
	auto_list struct list older = {0};
	struct found f = {.q = q, .needle = needle, .may_read = QUERY_SCAN};
	int fd = -1;

	f.left = q->limit ? q->limit : 100;
	if (f.left > QUERY_LIMIT)
		f.left = QUERY_LIMIT;
	if (check_current(l, e) < 0 || list_older(l, &older, e) < 0)
		return -1;
	if ((q->is_forward ? find_first : find_latest)(l, &older, &f) < 0)
		err_sys(e, "cannot read the audit file");
	else
		fd = lines_to_memfd(&f, e);
	*ret_next = q->is_forward && f.is_cut ? f.last_seq : 0;
	list_done(&f.lines);
	return fd;
}
