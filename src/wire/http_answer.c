#include "wire/http_answer.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Takes one line out of the bytes; NULL: not all of it is there yet, or it is too long. */
static const char *take_line(struct http_answer *a, const char **bytes, size_t *len)
{
	const char *end = memchr(*bytes, '\n', *len);
	size_t n = end ? (size_t)(end - *bytes) + 1 : *len;

	if (a->line.len + n > HTTP_ANSWER_LINE) {
		a->state = HTTP_BROKEN;
		return NULL;
	}
	buf_add(&a->line, *bytes, n);
	*bytes += n;
	*len -= n;
	if (!end)
		return NULL;
	n = a->line.len - 1;
	if (n && buf_head(&a->line)[n - 1] == '\r')
		n--;
	buf_head(&a->line)[n] = '\0';
	return buf_head(&a->line);
}

static void take_status(struct http_answer *a, const char *line)
{
	if (sscanf(line, "HTTP/1.%*1[01] %3d", &a->status) != 1 || a->status < 100)
		a->state = HTTP_BROKEN;
	else
		a->state = HTTP_HEADERS;
}

static bool parse_number(const char *s, int base, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(s, &end, base);
	return end != s && !errno && *s != '-' && *s != '+' &&
	       strspn(end, " \t") == strcspn(end, ";");
}

static void take_header(struct http_answer *a, const char *line)
{
	const char *colon = strchr(line, ':'), *value;
	size_t n = colon ? (size_t)(colon - line) : 0;

	if (!colon)
		return;
	value = colon + 1 + strspn(colon + 1, " \t");
	if (n == 14 && strncasecmp(line, "Content-Length", n) == 0) {
		a->has_length = true;
		if (!parse_number(value, 10, &a->left))
			a->state = HTTP_BROKEN;
	} else if (n == 17 && strncasecmp(line, "Transfer-Encoding", n) == 0) {
		a->chunked = true;
	} else if (n == 12 && strncasecmp(line, "Content-Type", n) == 0) {
		a->is_events = strncasecmp(value, "text/event-stream", 17) == 0;
	} else if (n == 14 && strncasecmp(line, "Mcp-Session-Id", n) == 0) {
		snprintf(a->session, sizeof(a->session), "%s", value);
	}
}

static void end_head(struct http_answer *a)
{
	if (a->status < 200) {
		struct buf line = a->line;

		*a = (struct http_answer){.line = line};
	} else if (a->status == 204 || a->status == 304) {
		a->state = HTTP_COMPLETE;
	} else if (a->chunked) {
		a->state = HTTP_CHUNK_SIZE;
	} else {
		a->state = a->has_length && a->left == 0 ? HTTP_COMPLETE : HTTP_BODY;
	}
}

static void take_chunk_size(struct http_answer *a, const char *line)
{
	if (!parse_number(line, 16, &a->left))
		a->state = HTTP_BROKEN;
	else
		a->state = a->left ? HTTP_CHUNK : HTTP_TRAILERS;
}

static void use_line(struct http_answer *a, const char *line)
{
	switch (a->state) {
	case HTTP_STATUS_LINE:
		take_status(a, line);
		break;
	case HTTP_HEADERS:
		if (*line)
			take_header(a, line);
		else
			end_head(a);
		break;
	case HTTP_CHUNK_SIZE:
		take_chunk_size(a, line);
		break;
	case HTTP_CHUNK_END:
		a->state = *line ? HTTP_BROKEN : HTTP_CHUNK_SIZE;
		break;
	default:
		if (!*line)
			a->state = HTTP_COMPLETE;
		break;
	}
}

int http_answer_feed(struct http_answer *a, const char *bytes, size_t len,
		     void (*on_body)(void *arg, const char *bytes, size_t len), void *arg)
{
	while (len && a->state != HTTP_COMPLETE && a->state != HTTP_BROKEN) {
		bool bounded = a->state == HTTP_CHUNK || a->has_length;
		const char *line;
		size_t n;

		if (a->state != HTTP_BODY && a->state != HTTP_CHUNK) {
			line = take_line(a, &bytes, &len);
			if (!line)
				continue;
			use_line(a, line);
			buf_drop(&a->line, a->line.len);
			continue;
		}
		n = bounded && a->left < len ? (size_t)a->left : len;
		on_body(arg, bytes, n);
		bytes += n;
		len -= n;
		a->left -= bounded ? n : 0;
		if (bounded && a->left == 0)
			a->state = a->state == HTTP_CHUNK ? HTTP_CHUNK_END : HTTP_COMPLETE;
	}
	return a->state == HTTP_BROKEN ? -1 : a->state == HTTP_COMPLETE;
}

int http_answer_end(struct http_answer *a)
{
	if (a->state == HTTP_BODY && !a->has_length)
		a->state = HTTP_COMPLETE;
	return a->state == HTTP_COMPLETE ? 1 : -1;
}

void http_answer_done(struct http_answer *a)
{
	buf_done(&a->line);
}
