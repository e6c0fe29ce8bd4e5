/* A command's output as server-sent events: start, stdout, stderr, exit, error. */
#pragma once

#include "api/http/http.h"
#include "manager/manager.h"

/* input: given to it, then closed; must live as long as the exchange. NULL: none. */
void stream_start(struct exchange *x, struct sandbox *s, const struct exec_request *r,
		  const char *input, size_t len);
/* {"status","exit_code","signal",...}: how a command ended. */
json_t *stream_describe_exit(const struct outcome *x);
void stream_attach(struct exchange *x, struct sandbox *s, uint32_t eid, uint64_t from);
