/* Server-sent events out of a response's body. */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"

struct sse {
	struct http *http;
	struct buf in;
	char name[32];
	struct buf data; /* of the event, NUL-terminated */
};

void sse_init(struct sse *s, struct http *h);
void sse_done(struct sse *s);
/* 1: an event is in name and data; 0: the stream has ended; -1. Waits for it. */
int sse_next(struct sse *s, struct err *e);
