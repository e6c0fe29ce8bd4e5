/* Reads an archive: every number is bounded before it is used, every name before it is copied. */
#include "wire/tar.h"

static int malformed(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID, "the archive is malformed: %s", what);
}

/* ---- bytes ---- */

/* 1: read all bytes; 0: the archive ends here. */
static int read_exactly(struct tar_in *t, void *bytes, size_t len, struct err *e)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = t->read(t->arg, (char *)bytes + got, len - got);

		if (n < 0)
			return err_sys(e, "cannot read the archive");
		if (n == 0)
			return got ? malformed(e, "it ends too early") : 0;
		got += (size_t)n;
		t->passed += (uint64_t)n;
		if (t->most && t->passed > t->most)
			return err_set(e, ERR_LIMIT, "the archive has too many bytes");
	}
	return 1;
}

static int skip(struct tar_in *t, uint64_t len, struct err *e)
{
	char bytes[4096];

	while (len > 0) {
		size_t part = len < sizeof(bytes) ? (size_t)len : sizeof(bytes);
		int rc = read_exactly(t, bytes, part, e);

		if (rc <= 0)
			return rc < 0 ? -1 : malformed(e, "it ends too early");
		len -= part;
	}
	return 0;
}

static void begin_data(struct tar_in *t, uint64_t size)
{
	t->left = size;
	t->padding = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

static int skip_data(struct tar_in *t, struct err *e)
{
	uint64_t rest = t->left + t->padding;

	t->left = t->padding = 0;
	return skip(t, rest, e);
}

ssize_t tar_in_data(struct tar_in *t, void *bytes, size_t len, struct err *e)
{
	int rc;

	if (len > t->left)
		len = (size_t)t->left;
	if (len == 0)
		return 0;
	rc = read_exactly(t, bytes, len, e);
	if (rc <= 0)
		return rc < 0 ? -1 : malformed(e, "it ends too early");
	t->left -= len;
	return (ssize_t)len;
}

/* A whole extended header, NUL-terminated; the caller frees it. */
static char *read_member(struct tar_in *t, uint64_t size, struct err *e)
{
	char *text;

	if (size > TAR_MAX_PAX) {
		malformed(e, "an extended header is too large");
		return NULL;
	}
	text = must_alloc(malloc((size_t)size + 1));
	begin_data(t, size);
	if ((size && tar_in_data(t, text, (size_t)size, e) < 0) || skip_data(t, e) < 0) {
		free(text);
		return NULL;
	}
	text[size] = '\0';
	return text;
}

/* ---- numbers ---- */

/* Octal, or base 256, which GNU tar uses for large numbers. */
static bool header_number(const char *field, size_t len, uint64_t *ret)
{
	const unsigned char *p = (const unsigned char *)field;
	uint64_t value = 0;
	size_t i = 0;

	if (p[0] == 0x80) {
		for (i = 1; i < len; i++) {
			if (value >> 55)
				return false;
			value = value << 8 | p[i];
		}
		*ret = value;
		return true;
	}
	while (i < len && p[i] == ' ')
		i++;
	for (; i < len && p[i] >= '0' && p[i] <= '7'; i++)
		value = value << 3 | (uint64_t)(p[i] - '0');
	*ret = value;
	return i == len || p[i] == ' ' || p[i] == '\0';
}

static bool decimal(const char *text, size_t len, uint64_t *ret)
{
	uint64_t value = 0;

	if (len == 0 || len > 18)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*ret = value;
	return true;
}

/* "-12.345678901": digits beyond nanoseconds are cut. */
static bool pax_time(const char *text, size_t len, struct timespec *ret)
{
	bool negative = len && text[0] == '-';
	const char *end = text + len, *dot;
	uint64_t sec;
	long nsec = 0, unit = 100000000;

	text += negative;
	dot = memchr(text, '.', (size_t)(end - text));
	if (!decimal(text, (size_t)((dot ? dot : end) - text), &sec))
		return false;
	for (const char *p = dot ? dot + 1 : end; p < end; p++, unit /= 10) {
		if (*p < '0' || *p > '9')
			return false;
		nsec += (*p - '0') * unit;
	}
	*ret = (struct timespec){.tv_sec = (time_t)sec, .tv_nsec = nsec};
	if (negative) {
		ret->tv_sec = -(time_t)sec - (nsec != 0);
		ret->tv_nsec = nsec ? 1000000000 - nsec : 0;
	}
	return true;
}

/* ---- extended headers ---- */

struct extra {
	char *name, *link, *sparse_name;
	bool has_size, has_mtime, has_real;
	uint64_t size, real_size, major;
	struct timespec mtime;
	bool opaque, foreign_sparse, has_uid, has_gid;
	uint64_t uid, gid;
	struct tar_xattrs xattrs;
};

static char *copy_bytes(const char *p, size_t len)
{
	char *s = must_alloc(malloc(len + 1));

	memcpy(s, p, len);
	s[len] = '\0';
	return s;
}

static bool set_name(char **to, const char *value, size_t len)
{
	if (len >= TAR_MAX_NAME || memchr(value, '\0', len))
		return false;
	free(*to);
	*to = copy_bytes(value, len);
	return true;
}

static bool add_xattr(struct tar_xattrs *x, const char *key, const char *value, size_t len)
{
	if (x->count >= 256)
		return false;
	x->items = must_alloc(realloc(x->items, (x->count + 1) * sizeof(*x->items)));
	x->items[x->count++] = (struct tar_xattr){str_copy(key), copy_bytes(value, len), len};
	return true;
}

static void xattrs_done(struct tar_xattrs *x)
{
	for (size_t i = 0; i < x->count; i++) {
		free(x->items[i].name);
		free(x->items[i].value);
	}
	free(x->items);
	*x = (struct tar_xattrs){0};
}

static bool take_record(struct extra *x, const char *key, const char *value, size_t len)
{
	if (str_equal(key, "path"))
		return set_name(&x->name, value, len);
	if (str_equal(key, "linkpath"))
		return set_name(&x->link, value, len);
	if (str_equal(key, "size"))
		return x->has_size = decimal(value, len, &x->size);
	if (str_equal(key, "uid"))
		return x->has_uid = decimal(value, len, &x->uid);
	if (str_equal(key, "gid"))
		return x->has_gid = decimal(value, len, &x->gid);
	if (str_equal(key, "mtime"))
		return x->has_mtime = pax_time(value, len, &x->mtime);
	if (str_equal(key, "GNU.sparse.name"))
		return set_name(&x->sparse_name, value, len);
	if (str_equal(key, "GNU.sparse.major"))
		return decimal(value, len, &x->major);
	if (str_equal(key, "GNU.sparse.realsize"))
		return x->has_real = decimal(value, len, &x->real_size);
	if (str_equal(key, "GNU.sparse.numblocks") || str_equal(key, "GNU.sparse.map"))
		x->foreign_sparse = true;
	if (str_equal(key, "CLOCHE.opaque"))
		x->opaque = true;
	if (str_starts(key, "SCHILY.xattr."))
		return add_xattr(&x->xattrs, key + strlen("SCHILY.xattr."), value, len);
	return true;
}

static bool take_records(struct extra *x, char *text, size_t size)
{
	while (size > 0) {
		char *blank = memchr(text, ' ', size < 20 ? size : 20), *key, *equals;
		uint64_t len;

		if (!blank || !decimal(text, (size_t)(blank - text), &len) || len > size ||
		    len < (size_t)(blank - text) + 3 || text[len - 1] != '\n')
			return false;
		key = blank + 1;
		equals = memchr(key, '=', (size_t)(text + len - key));
		if (!equals || memchr(key, '\0', (size_t)(equals - key)))
			return false;
		*equals = '\0';
		if (!take_record(x, key, equals + 1, (size_t)(text + len - 1 - (equals + 1))))
			return false;
		text += len;
		size -= (size_t)len;
	}
	return true;
}

static void extra_done(struct extra *x)
{
	free(x->name);
	free(x->link);
	free(x->sparse_name);
	xattrs_done(&x->xattrs);
	*x = (struct extra){0};
}

/* ---- a file with holes: a map precedes its data ---- */

struct map_reader {
	struct tar_in *tar;
	char block[TAR_BLOCK];
	size_t at, len;
};

static bool map_number(struct map_reader *m, uint64_t *ret, struct err *e)
{
	char digits[20];
	size_t n = 0;

	for (;;) {
		if (m->at == m->len) {
			if (tar_in_data(m->tar, m->block, TAR_BLOCK, e) != TAR_BLOCK)
				return false;
			m->at = 0;
			m->len = TAR_BLOCK;
		}
		if (m->block[m->at] == '\n') {
			m->at++;
			return decimal(digits, n, ret);
		}
		if (n == sizeof(digits))
			return false;
		digits[n++] = m->block[m->at++];
	}
}

static int read_map(struct tar_in *t, struct tar_entry *ret, struct err *e)
{
	struct map_reader m = {.tar = t};
	uint64_t count, end = 0, total = 0;

	if (!map_number(&m, &count, e) || count > TAR_MAX_RANGES)
		return malformed(e, "a map of holes");
	ret->ranges = must_alloc(calloc((size_t)count + 1, sizeof(*ret->ranges)));
	for (uint64_t i = 0; i < count; i++) {
		struct tar_range *r = &ret->ranges[i];

		if (!map_number(&m, &r->offset, e) || !map_number(&m, &r->size, e) ||
		    r->offset < end || r->offset > ret->size || r->size > ret->size - r->offset)
			return malformed(e, "a map of holes");
		end = r->offset + r->size;
		total += r->size;
	}
	ret->range_count = (size_t)count;
	ret->data_size = total;
	return t->left == total ? 0 : malformed(e, "a map of holes");
}

/* Rows of a map as GNU tar has them in the header and in blocks behind it. False: it is malformed. */
static bool take_rows(struct tar_entry *ret, const char *at, size_t rows, uint64_t real_size)
{
	for (size_t i = 0; i < rows && at[0]; i++, at += 24) {
		struct tar_range *last =
			ret->range_count ? &ret->ranges[ret->range_count - 1] : NULL;
		struct tar_range r;

		if (ret->range_count == TAR_MAX_RANGES || !header_number(at, 12, &r.offset) ||
		    !header_number(at + 12, 12, &r.size) || r.offset > real_size ||
		    r.size > real_size - r.offset || (last && r.offset < last->offset + last->size))
			return false;
		ret->ranges = must_alloc(
			realloc(ret->ranges, (ret->range_count + 1) * sizeof(*ret->ranges)));
		ret->ranges[ret->range_count++] = r;
	}
	return true;
}

/* GNU's own format of a file with holes, type 'S'. The blocks with more rows precede the data. */
static int read_gnu_map(struct tar_in *t, const char *h, struct tar_entry *ret, struct err *e)
{
	char block[TAR_BLOCK];
	uint64_t real, total = 0;
	bool more = h[482];

	if (!header_number(h + 483, 12, &real) || real > INT64_MAX ||
	    !take_rows(ret, h + 386, 4, real))
		return malformed(e, "a map of holes");
	while (more) {
		int rc = read_exactly(t, block, sizeof(block), e);

		if (rc < 0)
			return -1;
		if (rc == 0 || !take_rows(ret, block, 21, real))
			return malformed(e, "a map of holes");
		more = block[504];
	}
	for (size_t i = 0; i < ret->range_count; i++)
		total += ret->ranges[i].size;
	if (total != ret->data_size)
		return malformed(e, "a map of holes");
	begin_data(t, ret->data_size);
	ret->size = real;
	ret->sparse = true;
	ret->type = '0';
	return 1;
}

/* ---- entries ---- */

static bool sum_is_right(const unsigned char *h)
{
	unsigned sum = 0;
	uint64_t stored;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return header_number((const char *)h + 148, 8, &stored) && stored == sum;
}

static bool is_zero(const unsigned char *h)
{
	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (h[i])
			return false;
	return true;
}

static void header_name(const char *h, char *ret)
{
	bool posix = memcmp(h + 257, "ustar\0", 6) == 0;
	size_t n = 0;

	if (posix && h[345]) {
		n = strnlen(h + 345, 155);
		memcpy(ret, h + 345, n);
		ret[n++] = '/';
	}
	memcpy(ret + n, h, strnlen(h, 100));
	ret[n + strnlen(h, 100)] = '\0';
}

static bool fill_numbers(const char *h, struct tar_entry *ret)
{
	uint64_t mode, size, mtime, major = 0, minor = 0;

	if (!header_number(h + 100, 8, &mode) || !header_number(h + 124, 12, &size) ||
	    !header_number(h + 136, 12, &mtime))
		return false;
	if (!header_number(h + 108, 8, &ret->uid))
		ret->uid = UINT64_MAX;
	if (!header_number(h + 116, 8, &ret->gid))
		ret->gid = UINT64_MAX;
	header_number(h + 329, 8, &major);
	header_number(h + 337, 8, &minor);
	ret->mode = (mode_t)(mode & 07777);
	ret->size = ret->data_size = size;
	ret->mtime = (struct timespec){.tv_sec = (time_t)(mtime & INT64_MAX)};
	ret->major = (unsigned)major;
	ret->minor = (unsigned)minor;
	return true;
}

static int apply_extra(struct extra *x, struct tar_entry *ret, struct err *e)
{
	const char *name = x->sparse_name ? x->sparse_name : x->name;

	if (x->foreign_sparse || x->major > 1)
		return err_set(e, ERR_UNSUPPORTED, "only sparse files of format 1.0 can be read");
	if (name)
		snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (x->link)
		snprintf(ret->link, sizeof(ret->link), "%s", x->link);
	if (x->has_size)
		ret->size = ret->data_size = x->size;
	if (x->has_uid)
		ret->uid = x->uid;
	if (x->has_gid)
		ret->gid = x->gid;
	if (x->has_mtime)
		ret->mtime = x->mtime;
	ret->opaque = x->opaque;
	ret->sparse = x->major == 1 && x->has_real;
	ret->xattrs = x->xattrs;
	x->xattrs = (struct tar_xattrs){0};
	return 0;
}

/* Takes a header that describes the next entry. 1: it was one; 0: it is an entry itself. */
static int take_extra(struct tar_in *t, const struct tar_entry *h, struct extra *x, struct err *e)
{
	char *text;
	bool ok = true;

	if (!strchr("xgLK", h->type))
		return 0;
	text = read_member(t, h->size, e);
	if (!text)
		return -1;
	if (h->type == 'x')
		ok = take_records(x, text, (size_t)h->size);
	else if (h->type == 'L')
		ok = set_name(&x->name, text, strlen(text));
	else if (h->type == 'K')
		ok = set_name(&x->link, text, strlen(text));
	free(text);
	return ok ? 1 : malformed(e, "an extended header");
}

static int finish_entry(struct tar_in *t, struct extra *x, struct tar_entry *ret, struct err *e)
{
	size_t len;

	if (apply_extra(x, ret, e) < 0)
		return -1;
	if (ret->type == '\0' || ret->type == '7')
		ret->type = '0';
	/* Before POSIX a directory was a file whose name ends with a slash. */
	len = strlen(ret->name);
	if (ret->type == '0' && len && ret->name[len - 1] == '/')
		ret->type = '5';
	if (ret->data_size > INT64_MAX)
		return malformed(e, "a size");
	/* Links and directories have no data, whatever their size says. */
	begin_data(t, strchr("123456", ret->type) ? 0 : ret->data_size);
	if (!ret->sparse || ret->type != '0')
		return 1;
	ret->size = x->real_size;
	return read_map(t, ret, e) < 0 ? -1 : 1;
}

int tar_in_next(struct tar_in *t, struct tar_entry *ret, struct err *e)
{
	unsigned char block[TAR_BLOCK];
	struct extra x = {0};
	int rc;

	for (;;) {
		rc = skip_data(t, e) < 0 ? -1 : read_exactly(t, block, sizeof(block), e);
		if (rc < 0)
			break;
		memset(ret, 0, offsetof(struct tar_entry, name));
		*ret->name = *ret->link = '\0';
		memset(&ret->mode, 0, sizeof(*ret) - offsetof(struct tar_entry, mode));
		if (rc == 0 || is_zero(block)) {
			rc = 0;
			break;
		}
		rc = -1;
		if (!sum_is_right(block) || !fill_numbers((char *)block, ret)) {
			malformed(e, "a header");
			break;
		}
		ret->type = (char)block[156];
		header_name((char *)block, ret->name);
		snprintf(ret->link, sizeof(ret->link), "%.100s", (char *)block + 157);
		rc = take_extra(t, ret, &x, e);
		if (rc == 1)
			continue;
		if (rc == 0)
			rc = finish_entry(t, &x, ret, e);
		if (rc == 1 && ret->type == 'S')
			rc = read_gnu_map(t, (char *)block, ret, e);
		break;
	}
	extra_done(&x);
	if (rc <= 0)
		tar_entry_done(ret);
	return rc;
}

void tar_entry_done(struct tar_entry *t)
{
	xattrs_done(&t->xattrs);
	free(t->ranges);
	t->ranges = NULL;
	t->range_count = 0;
}
