/* Writes entries of a pax archive, with holes, hard links and attributes. */
#include "wire/tar_out.h"

#include <linux/limits.h>
#include <search.h>
#include <sys/xattr.h>

/* As POSIX defines it. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
	char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

/* ---- hard links: the first name of each inode that has several ---- */

struct link_row {
	dev_t dev;
	ino_t ino;
	char *name;
};

static int compare_links(const void *a, const void *b)
{
	const struct link_row *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->dev < y->dev ? -1 : x->dev > y->dev;
}

static void free_link(void *row)
{
	free(((struct link_row *)row)->name);
	free(row);
}

const char *tar_out_link(struct tar_out *t, const struct stat *st, const char *name)
{
	struct link_row key = {st->st_dev, st->st_ino, NULL}, *row, **found;

	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return NULL;
	found = tfind(&key, &t->links, compare_links);
	if (found)
		return (*found)->name;
	row = must_alloc(malloc(sizeof(*row)));
	*row = (struct link_row){st->st_dev, st->st_ino, str_copy(name)};
	must_alloc(tsearch(row, &t->links, compare_links));
	return NULL;
}

/* ---- bytes ---- */

static int put(struct tar_out *t, const void *bytes, size_t len, struct err *e)
{
	return t->write(t->arg, bytes, len) < 0 ? err_sys(e, "cannot write the archive") : 0;
}

static int put_zeros(struct tar_out *t, uint64_t len, struct err *e)
{
	static const char zeros[4096];

	while (len > 0) {
		size_t part = len < sizeof(zeros) ? (size_t)len : sizeof(zeros);

		if (put(t, zeros, part, e) < 0)
			return -1;
		len -= part;
	}
	return 0;
}

static uint64_t padding(uint64_t size)
{
	return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

/* ---- pax records: "LENGTH key=value\n", where the length counts itself ---- */

static void add_record(struct buf *b, const char *key, const void *value, size_t len)
{
	size_t rest = strlen(key) + len + 3, digits = 1, total;
	char number[24];

	for (;;) {
		total = rest + digits;
		if ((size_t)snprintf(number, sizeof(number), "%zu", total) == digits)
			break;
		digits++;
	}
	buf_add(b, number, digits);
	buf_add(b, " ", 1);
	buf_add(b, key, strlen(key));
	buf_add(b, "=", 1);
	buf_add(b, value, len);
	buf_add(b, "\n", 1);
}

static void add_text(struct buf *b, const char *key, const char *value)
{
	add_record(b, key, value, strlen(value));
}

static void add_number(struct buf *b, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	add_text(b, key, text);
}

static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
			return false;
	return true;
}

static bool is_utf8(const char *s)
{
	for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
		n = utf8_sequence(s, left);
		if (n == 0)
			return false;
	}
	return true;
}

/* ---- one entry ---- */

static void octal(char *field, size_t size, uint64_t value)
{
	snprintf(field, size, "%0*" PRIo64, (int)size - 1, value);
}

static void set_sum(struct header *h)
{
	unsigned sum = 0;

	memset(h->sum, ' ', sizeof(h->sum));
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += ((const unsigned char *)h)[i];
	snprintf(h->sum, sizeof(h->sum), "%06o", sum);
	h->sum[7] = ' ';
}

static void fill_header(const struct tar_out *t, struct header *h, const struct tar_new *n)
{
	uint64_t mtime = n->st->st_mtim.tv_sec < 0 ? 0 : (uint64_t)n->st->st_mtim.tv_sec;
	const char *owner = t->layer		    ? ""
			    : n->st->st_uid == 0    ? "root"
			    : n->st->st_uid == 1000 ? "user"
						    : "";

	*h = (struct header){.type = n->type, .magic = "ustar", .version = {'0', '0'}};
	strncpy(h->name, n->name, sizeof(h->name) - 1);
	if (strlen(n->name) == sizeof(h->name))
		memcpy(h->name, n->name, sizeof(h->name));
	if (n->link)
		memcpy(h->link, n->link, strnlen(n->link, sizeof(h->link)));
	/* Where other archives go, set-id bits would count. */
	octal(h->mode, sizeof(h->mode), n->st->st_mode & (t->layer ? 07777 : 01777));
	octal(h->uid, sizeof(h->uid), n->st->st_uid & 07777777);
	octal(h->gid, sizeof(h->gid), n->st->st_gid & 07777777);
	octal(h->size, sizeof(h->size), n->data_size < 1ull << 33 ? n->data_size : 0);
	octal(h->mtime, sizeof(h->mtime), mtime < 1ull << 33 ? mtime : 0);
	octal(h->major, sizeof(h->major), 0);
	octal(h->minor, sizeof(h->minor), 0);
	snprintf(h->owner, sizeof(h->owner), "%s", owner);
	snprintf(h->group, sizeof(h->group), "%s", owner);
	set_sum(h);
}

static void add_standard(struct tar_new *n)
{
	const struct timespec *m = &n->st->st_mtim;
	char text[48];

	if (strlen(n->name) > 100 || !is_plain(n->name)) {
		if (!is_utf8(n->name))
			add_text(&n->pax, "hdrcharset", "BINARY");
		add_text(&n->pax, "path", n->name);
	}
	if (n->link && (strlen(n->link) > 100 || !is_plain(n->link)))
		add_text(&n->pax, "linkpath", n->link);
	if (n->data_size >= 1ull << 33)
		add_number(&n->pax, "size", n->data_size);
	if (m->tv_sec < 0 || m->tv_nsec || (uint64_t)m->tv_sec >= 1ull << 33) {
		/* -1.5 s is {-2, 500000000}. */
		int64_t sec = m->tv_sec < 0 && m->tv_nsec ? m->tv_sec + 1 : m->tv_sec;
		long nsec = m->tv_sec < 0 && m->tv_nsec ? 1000000000 - m->tv_nsec : m->tv_nsec;

		snprintf(text, sizeof(text), "%s%" PRId64 ".%09ld",
			 sec == 0 && m->tv_sec < 0 ? "-" : "", sec, nsec);
		add_text(&n->pax, "mtime", text);
	}
}

int tar_out_entry(struct tar_out *t, struct tar_new *n, struct err *e)
{
	static const struct stat none = {.st_mode = 0644};
	struct tar_new pax = {.name = "PaxHeader", .st = &none, .type = 'x'};
	struct header h;

	add_standard(n);
	if (n->pax.len) {
		pax.data_size = n->pax.len;
		fill_header(t, &h, &pax);
		if (put(t, &h, sizeof(h), e) < 0 || put(t, buf_head(&n->pax), n->pax.len, e) < 0 ||
		    put_zeros(t, padding(n->pax.len), e) < 0)
			return -1;
	}
	fill_header(t, &h, n);
	return put(t, &h, sizeof(h), e);
}

/* ---- attributes ---- */

void tar_out_xattrs(struct tar_new *n, int fd)
{
	char names[4096], key[XATTR_NAME_MAX + 32];
	ssize_t len = flistxattr(fd, names, sizeof(names));
	char *value = NULL;

	for (const char *p = names; len > 0 && p < names + len; p += strlen(p) + 1) {
		ssize_t got;

		if (!tar_is_allowed_xattr(p))
			continue;
		if (!value)
			value = must_alloc(malloc(XATTR_SIZE_MAX));
		got = fgetxattr(fd, p, value, XATTR_SIZE_MAX);
		if (got < 0)
			continue;
		snprintf(key, sizeof(key), "SCHILY.xattr.%s", p);
		add_record(&n->pax, key, value, (size_t)got);
	}
	free(value);
}
/* ---- contents ---- */

struct map {
	struct tar_range *ranges;
	size_t count;
	uint64_t total;
};

/*
 * Finds the ranges with data; if they are unknown, or there are too many holes, the rest is one
 * range.
 */
static void find_data(int fd, uint64_t size, struct map *m)
{
	off_t at = 0, end;

	while ((uint64_t)at < size && m->count < TAR_MAX_RANGES - 1) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		end = at < 0 ? -1 : lseek(fd, at, SEEK_HOLE);
		if (end < 0) {
			m->count = 0;
			at = 0;
			end = (off_t)size;
		}
		if (m->count == TAR_MAX_RANGES - 2 || (uint64_t)end > size)
			end = (off_t)size;
		if (m->count % 256 == 0)
			m->ranges = must_alloc(
				realloc(m->ranges, (m->count + 257) * sizeof(*m->ranges)));
		m->ranges[m->count++] = (struct tar_range){(uint64_t)at, (uint64_t)(end - at)};
		m->total += (uint64_t)(end - at);
		at = end;
	}
	if (!m->ranges)
		m->ranges = must_alloc(calloc(1, sizeof(*m->ranges)));
	/* As GNU tar does: a hole at the end is marked by an empty range. */
	if (m->count == 0 || m->ranges[m->count - 1].offset + m->ranges[m->count - 1].size < size)
		m->ranges[m->count++] = (struct tar_range){size, 0};
}

static void add_map(const struct map *m, struct buf *b)
{
	char text[64];

	buf_add(b, text, (size_t)snprintf(text, sizeof(text), "%zu\n", m->count));
	for (size_t i = 0; i < m->count; i++)
		buf_add(b, text,
			(size_t)snprintf(text, sizeof(text), "%" PRIu64 "\n%" PRIu64 "\n",
					 m->ranges[i].offset, m->ranges[i].size));
	while (b->len % TAR_BLOCK)
		buf_add(b, "", 1);
}

/* Writes exactly so many bytes, even if the file shrinks meanwhile. */
static int put_range(struct tar_out *t, int fd, uint64_t offset, uint64_t left, struct err *e)
{
	char bytes[32768];

	while (left > 0) {
		size_t want = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
		ssize_t n = pread(fd, bytes, want, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "cannot read a file");
		if (n == 0)
			return put_zeros(t, left, e);
		if (put(t, bytes, (size_t)n, e) < 0)
			return -1;
		if (t->saw)
			t->saw(t->arg, bytes, (size_t)n);
		offset += (uint64_t)n;
		left -= (uint64_t)n;
	}
	return 0;
}

static int put_sparse(struct tar_out *t, struct tar_new *n, int fd, struct err *e)
{
	struct map m = {0};
	auto_buf struct buf text = {0};
	char shown[TAR_MAX_NAME + 32];
	int rc;

	find_data(fd, (uint64_t)n->st->st_size, &m);
	add_map(&m, &text);
	add_text(&n->pax, "GNU.sparse.major", "1");
	add_text(&n->pax, "GNU.sparse.minor", "0");
	add_text(&n->pax, "GNU.sparse.name", n->name);
	add_number(&n->pax, "GNU.sparse.realsize", (uint64_t)n->st->st_size);
	snprintf(shown, sizeof(shown), "GNUSparseFile.0/%s", n->name);
	n->name = shown;
	n->data_size = text.len + m.total;
	rc = tar_out_entry(t, n, e);
	if (rc == 0)
		rc = put(t, buf_head(&text), text.len, e);
	if (rc == 0 && t->saw)
		t->saw(t->arg, buf_head(&text), text.len);
	for (size_t i = 0; rc == 0 && i < m.count; i++)
		rc = put_range(t, fd, m.ranges[i].offset, m.ranges[i].size, e);
	free(m.ranges);
	return rc < 0 ? -1 : put_zeros(t, padding(m.total), e);
}

int tar_out_file(struct tar_out *t, struct tar_new *n, int fd, struct err *e)
{
	uint64_t size = (uint64_t)n->st->st_size;

	tar_out_xattrs(n, fd);
	if (size > 4096 && (uint64_t)n->st->st_blocks * 512 < size)
		return put_sparse(t, n, fd, e);
	n->data_size = size;
	if (tar_out_entry(t, n, e) < 0 || put_range(t, fd, 0, size, e) < 0)
		return -1;
	return put_zeros(t, padding(size), e);
}

void tar_out_note(struct tar_new *n, const char *key, const char *value)
{
	add_text(&n->pax, key, value);
}

int tar_out_end(struct tar_out *t, struct err *e)
{
	tdestroy(t->links, free_link);
	t->links = NULL;
	return put_zeros(t, 2 * TAR_BLOCK, e);
}
