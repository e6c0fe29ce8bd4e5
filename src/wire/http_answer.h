/*
 * Reads an HTTP/1.1 response as its bytes come in: status, the few headers that we ask for, and the
 * body without its framing. For clients inside an event loop; nothing blocks, nothing is kept but the
 * line that is being read.
 *
 *   struct http_answer a = {0};
 *   rc = http_answer_feed(&a, bytes, len, on_body, arg);     1: complete, 0: more to come, -1: broken
 *   rc = http_answer_end(&a);                                the connection was closed
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_ANSWER_LINE 16384 /* bytes of one line of the head */

enum http_answer_state {
	HTTP_STATUS_LINE,
	HTTP_HEADERS,
	HTTP_BODY,
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK,
	HTTP_CHUNK_END,
	HTTP_TRAILERS,
	HTTP_COMPLETE,
	HTTP_BROKEN,
};

struct http_answer {
	enum http_answer_state state;
	int status;
	bool chunked, has_length;
	bool is_events;	  /* text/event-stream */
	uint64_t left;	  /* of the body, or of the chunk */
	char session[80]; /* Mcp-Session-Id, or "" */
	struct buf line;
};

int http_answer_feed(struct http_answer *a, const char *bytes, size_t len,
		     void (*on_body)(void *arg, const char *bytes, size_t len), void *arg);
/* 1: that was its proper end; -1: something is missing. */
int http_answer_end(struct http_answer *a);
void http_answer_done(struct http_answer *a);
