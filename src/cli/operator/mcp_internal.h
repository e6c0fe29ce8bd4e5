/*
 * What the files of `cloche mcp` share: its options, which are all that decides what a model may do, and
 * requests to a daemon's /mcp inside an event loop.
 */
#pragma once

#include "base/loop.h"
#include "cli/verbs/client_http.h"
#include "model/spec.h"

#include <jansson.h>

/* ---- options ---- */

struct mcp_options {
	struct sandbox_spec spec;
	bool ephemeral_only;
	json_t *session; /* the options of a session of the daemon */
};

extern const char mcp_usage[];

/* 0; 1: help is wanted; -1. mcp_options_done in any case. */
int mcp_options_read(struct mcp_options *ret, int argc, char **argv, struct err *e);
void mcp_options_done(struct mcp_options *o);

/* ---- a user's own server in a sandbox (mcp_server_cmd.c) ---- */
bool mcp_is_server(int argc, char **argv);
int mcp_server(int argc, char **argv);

/* ---- requests ---- */

/*
 * One request. `cloche mcp` has many of them open at once. An answer is one JSON body or a stream of
 * events; either way each message is passed on as one line of text.
 */
struct mcp_exchange;

struct mcp_request {
	const char *verb; /* "POST" "DELETE" */
	const char *body;
	size_t body_len;
	const char *session; /* or NULL */
	const char *method;  /* of a modern request, or NULL */
	const char *name;    /* the value of its Mcp-Name header, or NULL */
};

struct mcp_exchange_ops {
	/* One message; the text has no line break. May be NULL. */
	void (*on_message)(void *arg, const char *text, size_t len);
	/*
	 * The last callback; the exchange is freed after it. status 0: there was no whole answer, e says
	 * why. May be NULL.
	 */
	void (*on_end)(void *arg, int status, const char *session, const struct err *e);
};

/* NULL: the daemon cannot be reached. Callbacks come later. */
struct mcp_exchange *mcp_exchange_start(struct loop *l, const struct http_target *t,
					const struct mcp_request *r,
					const struct mcp_exchange_ops *ops, void *arg,
					struct err *e);
/* Hangs up, which makes the daemon cancel the request. No more callbacks. Accepts NULL. */
void mcp_exchange_drop(struct mcp_exchange *x);
