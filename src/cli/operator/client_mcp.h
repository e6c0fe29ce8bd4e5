/*
 * One request to a daemon's /mcp, inside an event loop: `cloche mcp` has many of them open at once.
 * Answers come as one JSON body or as a stream of events; either way each message is handed on as
 * one line of text.
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "cli/verbs/client_http.h"

struct mcp_exchange;

struct mcp_request {
	const char *verb; /* "POST" "DELETE" */
	const char *body;
	size_t body_len;
	const char *session; /* or NULL */
	const char *method;  /* of a modern request, or NULL */
	const char *name;    /* what its Mcp-Name header repeats, or NULL */
};

struct mcp_exchange_ops {
	/* One message; the text has no line break. May be NULL. */
	void (*on_message)(void *arg, const char *text, size_t len);
	/*
	 * The last callback; x is gone after it. status 0: there was no whole answer, e says why. May be
	 * NULL.
	 */
	void (*on_end)(void *arg, int status, const char *session, const struct err *e);
};

/* NULL: the daemon cannot be reached. Callbacks come later. */
struct mcp_exchange *mcp_exchange_start(struct loop *l, const struct http_target *t,
					const struct mcp_request *r,
					const struct mcp_exchange_ops *ops, void *arg,
					struct err *e);
/* Hangs up, which cancels what the daemon does for it. No more callbacks. */
void mcp_exchange_drop(struct mcp_exchange *x);
