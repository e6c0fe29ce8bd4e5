/* Server-sent events in the body of an answer. */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"

struct sse_reader {
	struct http_client *http;
	struct buf in;
	char name[32];
	struct buf data; /* of the event, NUL-terminated */
};

void sse_init(struct sse_reader *s, struct http_client *h);
void sse_done(struct sse_reader *s);
/* Waits for the next event. 1: it is in name and data; 0: the stream has ended; -1. */
int sse_next(struct sse_reader *s, struct err *e);
