/* Server-sent events, kept alive by comments. A struct sse is embedded by its owner and closed before its memory goes. */
#pragma once

#include "api/http/http.h"
#include "base/loop.h"

#include <jansson.h>

struct sse {
	struct exchange *x;
	struct loop_timer ping;
};
void sse_open(struct sse *s, struct exchange *x);
/* Takes the value over. */
void sse_send(struct sse *s, const char *event, json_t *value);
void sse_close(struct sse *s);
