/* An incremental reader of multipart/form-data: a state machine over one buffer. */
#include "wire/multipart.h"

#include <strings.h>

/* ---- parameters of a header: ; name=value or name="value" ---- */

/* Clients write a quote, a line feed and a carriage return in a name as %22, %0A and %0D. */
static void unescape(char *text)
{
	static const char *const escapes[] = {"\"%22", "\n%0A", "\r%0D"};
	char *to = text;

	for (const char *p = text; *p; p++) {
		char c = *p;

		for (size_t i = 0; i < ARRAY_LEN(escapes) && c == '%'; i++)
			if (strncasecmp(p, escapes[i] + 1, 3) == 0)
				c = escapes[i][0];
		p += c == *p ? 0 : 2;
		*to++ = c;
	}
	*to = '\0';
}

/* Copies a value; false if it has no end or does not fit. */
static bool copy_value(const char **at, char *dst, size_t size)
{
	const char *p = *at;
	bool quoted = *p == '"';
	size_t len = 0;

	for (p += quoted; *p && (quoted ? *p != '"' : *p != ';' && *p != ' ' && *p != '\t'); p++) {
		if (quoted && p[0] == '\\' && p[1] == '"')
			p++;
		if (len + 1 >= size)
			return false;
		dst[len++] = *p;
	}
	dst[len] = '\0';
	if (quoted && *p != '"')
		return false;
	*at = p + quoted;
	return true;
}

/* The parameter of this name: 1 found, 0 not there, -1 malformed. */
static int parameter(const char *header, const char *name, char *dst, size_t size)
{
	const char *p = strchr(header, ';');
	char other[4097];
	size_t len = strlen(name);

	dst[0] = '\0';
	while (p && *p == ';') {
		bool is_it;
		size_t key;

		p += 1 + strspn(p + 1, " \t");
		key = strcspn(p, "=;");
		if (p[key] != '=') {
			p += key;
			continue;
		}
		is_it = key == len && strncasecmp(p, name, len) == 0;
		p += key + 1;
		if (!copy_value(&p, is_it ? dst : other, is_it ? size : sizeof(other)))
			return -1;
		if (is_it)
			return 1;
		p += strspn(p, " \t");
	}
	return 0;
}

/* ---- life ---- */

int multipart_init(struct multipart *m, const char *content_type, struct err *e)
{
	char boundary[MULTIPART_BOUNDARY + 2];

	*m = (struct multipart){0};
	if (!content_type || strncasecmp(content_type, "multipart/form-data", 19) != 0)
		return err_set(e, ERR_INVALID, "Content-Type: not multipart/form-data");
	if (parameter(content_type, "boundary", boundary, sizeof(boundary)) != 1 || !boundary[0] ||
	    strlen(boundary) > MULTIPART_BOUNDARY)
		return err_set(e, ERR_INVALID,
			       "Content-Type: names no boundary of at most %d bytes",
			       MULTIPART_BOUNDARY);
	m->delimiter_len = 4 + strlen(boundary);
	memcpy(m->delimiter, "\r\n--", 4);
	memcpy(m->delimiter + 4, boundary, strlen(boundary) + 1);
	/* The first delimiter has no line end before it; with one, all are alike. */
	buf_add(&m->in, "\r\n", 2);
	return 0;
}

void multipart_init_bare(struct multipart *m)
{
	*m = (struct multipart){.is_bare = true};
}

void multipart_done(struct multipart *m)
{
	buf_done(&m->in);
}

void multipart_add(struct multipart *m, const void *bytes, size_t len)
{
	if (m->state != MULTIPART_AFTER)
		buf_add(&m->in, bytes, len);
}

void multipart_used(struct multipart *m, size_t len)
{
	buf_drop(&m->in, len);
}

/* ---- reading ---- */

static const char *find_bytes(const struct multipart *m, const char *what, size_t len)
{
	return m->in.len ? memmem(buf_head(&m->in), m->in.len, what, len) : NULL;
}

/* Bytes at the front that cannot belong to a delimiter. */
static size_t safe_len(const struct multipart *m)
{
	return m->in.len < m->delimiter_len ? 0 : m->in.len - m->delimiter_len + 1;
}

static void head_line(const char *line, struct multipart_event *ret, bool *bad)
{
	static const char disposition[] = "Content-Disposition:";

	if (strncasecmp(line, disposition, sizeof(disposition) - 1) != 0)
		return;
	if (parameter(line, "name", ret->name, sizeof(ret->name)) < 0 ||
	    parameter(line, "filename", ret->filename, sizeof(ret->filename)) < 0)
		*bad = true;
	unescape(ret->name);
	unescape(ret->filename);
}

static int read_head(struct multipart *m, struct multipart_event *ret, struct err *e)
{
	/* The line end of the delimiter stands before, so that no header at all is no special case. */
	const char *end = find_bytes(m, "\r\n\r\n", 4), *line = m->in.len ? buf_head(&m->in) : "";
	char text[MULTIPART_HEADERS + 1];
	bool bad = false;

	if (!end && m->in.len > MULTIPART_HEADERS)
		return err_set(e, ERR_INVALID, "the headers of a part are too large");
	if (!end)
		return 0;
	if ((size_t)(end - line) > MULTIPART_HEADERS)
		return err_set(e, ERR_INVALID, "the headers of a part are too large");
	ret->kind = MULTIPART_PART;
	ret->name[0] = ret->filename[0] = '\0';
	while (line < end) {
		const char *stop;
		size_t len;

		line += 2;
		stop = memmem(line, (size_t)(end - line) + 2, "\r\n", 2);
		len = (size_t)(stop - line);
		memcpy(text, line, len);
		text[len] = '\0';
		head_line(text, ret, &bad);
		line = stop;
	}
	if (bad)
		return err_set(e, ERR_INVALID, "the Content-Disposition of a part is malformed");
	buf_drop(&m->in, (size_t)(end - buf_head(&m->in)) + 4);
	m->state = MULTIPART_BODY;
	return 1;
}

/* "--" ends it all; blanks and a line end begin a part. */
static int read_between(struct multipart *m, struct multipart_event *ret, struct err *e)
{
	const char *p = m->in.len ? buf_head(&m->in) : "";
	size_t blanks = 0;

	while (blanks < m->in.len && (p[blanks] == ' ' || p[blanks] == '\t'))
		blanks++;
	if (m->in.len - blanks < 2)
		return blanks > 256 ? err_set(e, ERR_INVALID, "a delimiter is malformed") : 0;
	if (p[blanks] == '-' && p[blanks + 1] == '-' && blanks == 0) {
		buf_drop(&m->in, m->in.len);
		m->state = MULTIPART_AFTER;
		ret->kind = MULTIPART_END;
		return 1;
	}
	if (p[blanks] != '\r' || p[blanks + 1] != '\n')
		return err_set(e, ERR_INVALID, "a delimiter is malformed");
	buf_drop(&m->in, blanks);
	m->state = MULTIPART_HEAD;
	return read_head(m, ret, e);
}

static int read_body(struct multipart *m, struct multipart_event *ret)
{
	const char *at = find_bytes(m, m->delimiter, m->delimiter_len);

	ret->kind = MULTIPART_DATA;
	ret->data = m->in.len ? buf_head(&m->in) : "";
	ret->len = at ? (size_t)(at - ret->data) : safe_len(m);
	if (!at || ret->len)
		return ret->len > 0;
	ret->kind = MULTIPART_PART_END;
	buf_drop(&m->in, m->delimiter_len);
	m->state = MULTIPART_BETWEEN;
	return 1;
}

static int read_bare(struct multipart *m, struct multipart_event *ret)
{
	bool begins = m->state == MULTIPART_BEFORE;

	*ret = (struct multipart_event){.kind = begins ? MULTIPART_PART : MULTIPART_DATA,
					.name = "file",
					.data = m->in.len ? buf_head(&m->in) : "",
					.len = m->in.len};
	m->state = MULTIPART_BODY;
	if (begins || m->in.len)
		return 1;
	ret->kind = MULTIPART_PART_END;
	m->state = m->is_complete ? MULTIPART_AFTER : MULTIPART_BODY;
	return m->is_complete;
}

int multipart_next(struct multipart *m, struct multipart_event *ret, struct err *e)
{
	const char *at;

	if (m->is_bare && m->state != MULTIPART_AFTER)
		return read_bare(m, ret);
	switch (m->state) {
	case MULTIPART_BEFORE:
		at = find_bytes(m, m->delimiter, m->delimiter_len);
		if (!at) {
			buf_drop(&m->in, safe_len(m));
			return 0;
		}
		buf_drop(&m->in, (size_t)(at - buf_head(&m->in)) + m->delimiter_len);
		m->state = MULTIPART_BETWEEN;
		return read_between(m, ret, e);
	case MULTIPART_BETWEEN:
		return read_between(m, ret, e);
	case MULTIPART_HEAD:
		return read_head(m, ret, e);
	case MULTIPART_BODY:
		return read_body(m, ret);
	default:
		ret->kind = MULTIPART_END;
		return 1;
	}
}
