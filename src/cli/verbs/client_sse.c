/* Splits the body of an answer into server-sent events. */
#include "cli/verbs/client_sse.h"

#define EVENT_MAX ((size_t)32 << 20)

void sse_init(struct sse_reader *s, struct http_client *h)
{
	*s = (struct sse_reader){.http = h};
}

void sse_done(struct sse_reader *s)
{
	buf_done(&s->in);
	buf_done(&s->data);
}

static void take_field(struct sse_reader *s, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	size_t name = colon ? (size_t)(colon - line) : len;
	const char *value = colon ? colon + 1 : line + len;
	size_t value_len = (size_t)(line + len - value);

	if (value_len && *value == ' ') {
		value++;
		value_len--;
	}
	if (name == 5 && memcmp(line, "event", 5) == 0) {
		snprintf(s->name, sizeof(s->name), "%.*s", (int)value_len, value);
	} else if (name == 4 && memcmp(line, "data", 4) == 0) {
		if (s->data.len)
			buf_add(&s->data, "\n", 1);
		buf_add(&s->data, value, value_len);
	}
}

/* Takes one line; true if an event is complete. */
static bool take_line(struct sse_reader *s, size_t len)
{
	const char *line = buf_head(&s->in);
	size_t used = len && line[len - 1] == '\r' ? len - 1 : len;
	bool complete = used == 0 && (s->data.len || *s->name);

	if (used)
		take_field(s, line, used);
	buf_drop(&s->in, len + 1);
	return complete;
}

int sse_next(struct sse_reader *s, struct err *e)
{
	*s->name = '\0';
	buf_drop(&s->data, s->data.len);
	for (;;) {
		char *nl = s->in.len ? memchr(buf_head(&s->in), '\n', s->in.len) : NULL;
		ssize_t n;

		if (nl) {
			if (!take_line(s, (size_t)(nl - buf_head(&s->in))))
				continue;
			buf_add(&s->data, "", 1);
			return 1;
		}
		if (s->in.len > EVENT_MAX || s->data.len > EVENT_MAX)
			return err_set(e, ERR_SYSTEM, "the daemon sent an event that is too long");
		n = http_read(s->http, buf_reserve(&s->in, 65536), 65536, e);
		if (n <= 0)
			return (int)n;
		buf_added(&s->in, (size_t)n);
	}
}
