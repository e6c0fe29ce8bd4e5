/* The one reader of HTTP/1: heads of requests and answers, bodies in all framings, and whole answers. */
#include "wire/http1.h"

#include <ctype.h>
#include <strings.h>

#define METHOD_MAX 20

size_t http1_head_length(const char *bytes, size_t len)
{
	const char *end = len >= 4 ? memmem(bytes, len, "\r\n\r\n", 4) : NULL;

	return end ? (size_t)(end - bytes) + 4 : 0;
}

static bool is_token_char(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool http1_is_token(const char *s)
{
	for (const char *c = s; *c; c++)
		if (!is_token_char(*c))
			return false;
	return *s != '\0';
}

static bool is_value(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' && *s != '\t')
			return false;
	return true;
}

static int read_status(const char *line, int *ret, struct err *e)
{
	if (!str_starts(line, "HTTP/1.1 ") && !str_starts(line, "HTTP/1.0 "))
		return err_set(e, ERR_INVALID, "the answer is not HTTP/1");
	line += 9;
	if (!isdigit((unsigned char)line[0]) || !isdigit((unsigned char)line[1]) ||
	    !isdigit((unsigned char)line[2]) || (line[3] && line[3] != ' '))
		return err_set(e, ERR_INVALID, "the answer has no status");
	*ret = (line[0] - '0') * 100 + (line[1] - '0') * 10 + (line[2] - '0');
	if (*ret < 100 || *ret > 599)
		return err_set(e, ERR_INVALID, "the answer's status is %d", *ret);
	return 0;
}

static int read_framing(struct http1_head *h, const struct http1_field *f, struct err *e)
{
	uint64_t n;
	struct err inner;

	if (!strcasecmp(f->name, "Transfer-Encoding")) {
		if (strcasecmp(f->value, "chunked") != 0 || h->chunked)
			return err_set(e, ERR_INVALID, "an unknown transfer encoding");
		h->chunked = true;
	} else if (!strcasecmp(f->name, "Content-Length")) {
		if (parse_count(f->value, &n, &inner) < 0 || n > INT64_MAX ||
		    (h->length >= 0 && h->length != (int64_t)n))
			return err_set(e, ERR_INVALID, "a malformed length");
		h->length = (int64_t)n;
	}
	return 0;
}

static int read_field(struct http1_head *h, char *line, struct err *e)
{
	struct http1_field *f = &h->fields[h->count];
	char *colon = strchr(line, ':'), *end;

	if (!colon || h->count == HTTP1_FIELDS)
		return err_set(e, ERR_INVALID, "too many header fields, or one without a colon");
	*colon++ = '\0';
	colon += strspn(colon, " \t");
	for (end = colon + strlen(colon); end > colon && strchr(" \t", end[-1]); end--)
		end[-1] = '\0';
	*f = (struct http1_field){line, colon};
	if (!http1_is_token(f->name) || !is_value(f->value))
		return err_set(e, ERR_INVALID, "a malformed header field");
	h->count++;
	return read_framing(h, f, e);
}

/* "METHOD TARGET HTTP/1.1" with single blanks. */
static int read_request_line(char *line, struct http1_head *h, struct err *e)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

	if (!version)
		return err_set(e, ERR_INVALID, "a malformed request line");
	*target++ = *version++ = '\0';
	h->method = line;
	h->target = target;
	h->is_old = str_equal(version, "HTTP/1.0");
	if (!http1_is_token(line) || strlen(line) > METHOD_MAX)
		return err_set(e, ERR_INVALID, "a malformed method");
	if (!h->is_old && !str_equal(version, "HTTP/1.1"))
		return err_set(e, ERR_INVALID, "the request is not HTTP/1.1");
	for (const char *c = target; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			return err_set(e, ERR_INVALID, "the request target has a blank in it");
	return *target ? 0 : err_set(e, ERR_INVALID, "the request has no target");
}

static int read_head(char *bytes, size_t len, bool is_request, struct http1_head *ret,
		     struct err *e)
{
	char *at = bytes, *end = bytes + len - 2; /* before the empty line */
	bool first = true;

	*ret = (struct http1_head){.length = -1};
	if (len < 4 || memchr(bytes, '\0', len))
		return err_set(e, ERR_INVALID, "a malformed head");
	while (at < end) {
		char *eol = memmem(at, (size_t)(end - at) + 2, "\r\n", 2);
		int rc;

		if (!eol)
			return err_set(e, ERR_INVALID, "a malformed head");
		*eol = '\0';
		if (strchr(at, '\r') || strchr(at, '\n'))
			return err_set(e, ERR_INVALID, "a bare line break in the head");
		if (!first)
			rc = read_field(ret, at, e);
		else
			rc = is_request ? read_request_line(at, ret, e)
					: read_status(at, &ret->status, e);
		if (rc < 0)
			return -1;
		first = false;
		at = eol + 2;
	}
	if (first)
		return err_set(e, ERR_INVALID, "an empty head");
	if (ret->chunked && ret->length >= 0)
		return err_set(e, ERR_INVALID, "both Content-Length and Transfer-Encoding");
	return 0;
}

int http1_head_read(char *bytes, size_t len, struct http1_head *ret, struct err *e)
{
	return read_head(bytes, len, false, ret, e);
}

ssize_t http1_request_length(const char *bytes, size_t len, size_t *scanned)
{
	for (size_t i = *scanned; i < len; i++) {
		/* The last byte may be a CR whose LF has not arrived yet. */
		if (bytes[i] == '\0' || (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r')) ||
		    (i > 0 && bytes[i - 1] == '\r' && bytes[i] != '\n'))
			return -1;
		if (bytes[i] == '\n' && i >= 3 && bytes[i - 2] == '\n')
			return (ssize_t)i + 1;
		*scanned = i + 1;
	}
	return 0;
}

/* Fields that must not occur twice, since a proxy may use the other one. */
static int check_single(const struct http1_head *h, struct err *e)
{
	static const char *const single[] = {"Authorization", "Content-Length", "Host",
					     "Transfer-Encoding"};

	for (size_t i = 0; i < ARRAY_LEN(single); i++) {
		size_t n = 0;

		for (size_t j = 0; j < h->count; j++)
			n += !strcasecmp(h->fields[j].name, single[i]);
		if (n > 1)
			return err_set(e, ERR_INVALID, "%s is there twice", single[i]);
	}
	return 0;
}

int http1_request_read(char *bytes, size_t len, struct http1_head *ret, struct err *e)
{
	if (read_head(bytes, len, true, ret, e) < 0 || check_single(ret, e) < 0)
		return -1;
	if (ret->chunked && ret->is_old)
		return err_set(e, ERR_INVALID, "HTTP/1.0 has no chunks");
	return 0;
}

const char *http1_reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} rows[] = {
		{100, "Continue"},
		{101, "Switching Protocols"},
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{206, "Partial Content"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{303, "See Other"},
		{304, "Not Modified"},
		{307, "Temporary Redirect"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{411, "Length Required"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{415, "Unsupported Media Type"},
		{416, "Range Not Satisfiable"},
		{422, "Unprocessable Content"},
		{426, "Upgrade Required"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].text;
	return "Unknown";
}

const char *http1_field(const struct http1_head *h, const char *name)
{
	for (size_t i = 0; i < h->count; i++)
		if (!strcasecmp(h->fields[i].name, name))
			return h->fields[i].value;
	return NULL;
}

bool http1_is_hop_header(const char *name)
{
	static const char *const names[] = {"Connection",
					    "Keep-Alive",
					    "Proxy-Authenticate",
					    "Proxy-Authorization",
					    "Proxy-Connection",
					    "TE",
					    "Trailer",
					    "Transfer-Encoding",
					    "Upgrade",
					    "Content-Length"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcasecmp(name, names[i]))
			return true;
	return false;
}

bool http1_list_has(const char *list, const char *name)
{
	size_t wanted = strlen(name);

	while (*list) {
		size_t len;

		list += strspn(list, ", \t");
		len = strcspn(list, ", \t");
		if (len == wanted && len && !strncasecmp(list, name, len))
			return true;
		list += len;
	}
	return false;
}

void http1_add_field(struct buf *b, const char *name, const char *value)
{
	buf_add(b, name, strlen(name));
	buf_add(b, ": ", 2);
	buf_add(b, value, strlen(value));
	buf_add(b, "\r\n", 2);
}

bool http1_unescape(const char *text, size_t len, bool is_query, char *ret)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '+' && is_query) {
			c = ' ';
		} else if (c == '%') {
			int high = i + 2 < len ? str_hex_digit(text[i + 1]) : -1;
			int low = high < 0 ? -1 : str_hex_digit(text[i + 2]);

			if (low < 0 || high + low == 0)
				return false;
			c = (char)(high << 4 | low);
			i += 2;
		}
		*ret++ = c;
	}
	*ret = '\0';
	return true;
}

/* ---- bodies ---- */

enum stage {
	SIZE,
	EXTENSION,
	SIZE_LF,
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER,
	TRAILER_LF,
	NAME,
	FIELD,
	FIELD_LF
};

#define TRAILER_MAX (8u << 10)

void http1_body_begin(struct http1_body *b, const struct http1_head *h, bool no_body)
{
	*b = (struct http1_body){.kind = HTTP1_TO_END};
	if (no_body || h->status < 200 || h->status == 204 || h->status == 304)
		b->kind = HTTP1_NONE;
	else if (h->chunked)
		b->kind = HTTP1_CHUNKED;
	else if (h->length >= 0)
		b->kind = HTTP1_LENGTH;
	if (b->kind == HTTP1_LENGTH)
		b->left = (uint64_t)h->length;
	b->done = b->kind == HTTP1_NONE || (b->kind == HTTP1_LENGTH && !b->left);
}

/* One byte of the framing between the data of chunks. */
static int frame_byte(struct http1_body *b, char c)
{
	switch (b->stage) {
	case SIZE:
		if (str_hex_digit(c) >= 0 && b->digits < 15) {
			b->left = b->left << 4 | (unsigned)str_hex_digit(c);
			b->digits++;
			return 0;
		}
		if (!b->digits || (c != '\r' && c != ';'))
			return -1;
		b->stage = c == '\r' ? SIZE_LF : EXTENSION;
		b->digits = 0;
		return 0;
	case EXTENSION:
		if (c == '\n' || ++b->digits > 256)
			return -1;
		if (c == '\r')
			b->stage = SIZE_LF;
		return 0;
	case SIZE_LF:
		b->stage = b->left ? DATA : TRAILER;
		b->digits = 0;
		return c == '\n' ? 0 : -1;
	case DATA_CR:
		b->stage = DATA_LF;
		return c == '\r' ? 0 : -1;
	case DATA_LF:
		b->stage = SIZE;
		b->digits = 0;
		return c == '\n' ? 0 : -1;
	case TRAILER: /* fields after the last chunk are read and thrown away */
		b->stage = c == '\r' ? TRAILER_LF : NAME;
		return c == '\r' || is_token_char(c) ? 0 : -1;
	case NAME:
		if (c == ':')
			b->stage = FIELD;
		return (c == ':' || is_token_char(c)) && ++b->digits <= TRAILER_MAX ? 0 : -1;
	case FIELD:
		if (c == '\r')
			b->stage = FIELD_LF;
		return c == '\n' || c == '\0' || ++b->digits > TRAILER_MAX ? -1 : 0;
	case FIELD_LF:
		b->stage = TRAILER;
		return c == '\n' ? 0 : -1;
	default:
		b->done = c == '\n';
		return b->done ? 0 : -1;
	}
}

void http1_body_begin_request(struct http1_body *b, const struct http1_head *h)
{
	*b = (struct http1_body){.kind = h->chunked ? HTTP1_CHUNKED : HTTP1_LENGTH};
	if (!h->chunked) {
		b->left = h->length > 0 ? (uint64_t)h->length : 0;
		b->done = !b->left;
	}
}

ssize_t http1_body_framing(struct http1_body *b, const char *bytes, size_t len)
{
	size_t n = 0;

	while (b->kind == HTTP1_CHUNKED && !b->done && b->stage != DATA && n < len)
		if (frame_byte(b, bytes[n++]) < 0)
			return -1;
	return (ssize_t)n;
}

size_t http1_body_content(const struct http1_body *b, size_t len)
{
	if (b->done)
		return 0;
	return b->kind == HTTP1_TO_END || len < b->left ? len : b->left;
}

void http1_body_took(struct http1_body *b, size_t len)
{
	if (b->kind == HTTP1_TO_END || !len)
		return;
	b->left -= len;
	if (b->left)
		return;
	if (b->kind == HTTP1_CHUNKED)
		b->stage = DATA_CR;
	else
		b->done = true;
}

int http1_body_feed(struct http1_body *b, const char *bytes, size_t len, struct buf *out)
{
	while (len && !b->done) {
		ssize_t framing = http1_body_framing(b, bytes, len);
		size_t content;

		if (framing < 0)
			return -1;
		bytes += framing;
		len -= (size_t)framing;
		content = http1_body_content(b, len);
		if (!content)
			continue;
		buf_add(out, bytes, content);
		http1_body_took(b, content);
		bytes += content;
		len -= content;
	}
	return len ? -1 : 0;
}

bool http1_body_end(const struct http1_body *b)
{
	return b->done || b->kind == HTTP1_TO_END;
}

/* ---- whole answers ---- */

/* The head, once all of it is there: 1. What is behind it stays in a->text. */
static int take_head(struct http1_answer *a, size_t *ret_len)
{
	struct err ignored;

	while ((*ret_len = http1_head_length(buf_head(&a->text), a->text.len))) {
		if (http1_head_read(buf_head(&a->text), *ret_len, &a->head, &ignored) < 0)
			return -1;
		if (a->head.status >= 200 || a->head.status == 101)
			return 1;
		buf_drop(&a->text, *ret_len);
	}
	return a->text.len > HTTP1_HEAD_MAX ? -1 : 0;
}

int http1_answer_feed(struct http1_answer *a, const char *bytes, size_t len, struct buf *body)
{
	size_t head_len;
	int rc;

	if (!a->has_head) {
		buf_add(&a->text, bytes, len);
		rc = take_head(a, &head_len);
		if (rc <= 0)
			return rc;
		a->has_head = true;
		http1_body_begin(&a->body, &a->head, false);
		bytes = buf_head(&a->text) + head_len;
		len = a->text.len - head_len;
	}
	if (a->head.status == 101)
		buf_add(body, bytes, len);
	else if (http1_body_feed(&a->body, bytes, len, body) < 0)
		return -1;
	return a->body.done;
}

int http1_answer_end(const struct http1_answer *a)
{
	return a->has_head && http1_body_end(&a->body) ? 1 : -1;
}

void http1_answer_done(struct http1_answer *a)
{
	buf_done(&a->text);
}
