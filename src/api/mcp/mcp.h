/*
 * The MCP door: /mcp of the daemon (streamable HTTP), and the methods that `cloche mcp` (stdio) answers
 * without a daemon.
 *
 * Two eras are served side by side, told apart by each message: legacy (up to 2025-11-25) opens a
 * session with `initialize`; modern (2026-07-28) has neither, every request carries an envelope in
 * params._meta. Methods answer the same for both; mcp_finish adds the members that an era wants.
 */
#pragma once

#include "api/http/http.h"
#include "wire/jsonrpc.h"

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_NEWEST_LEGACY "2025-11-25"
#define MCP_META "io.modelcontextprotocol/"
/* In params._meta of initialize: options of the session's sandboxes. Set by the client, never by a model. */
#define MCP_OPTIONS_KEY "cloche/options"

struct mcp_call;

enum mcp_era { MCP_LEGACY = 1, MCP_MODERN = 2 };

enum mcp_code {
	MCP_NO_SESSION_HEADER = -32000,
	MCP_NO_SESSION = -32001,
	MCP_NO_RESOURCE = -32002, /* legacy only */
	MCP_HEADER_MISMATCH = -32020,
	MCP_BAD_VERSION = -32022,
};

/* Why a message is refused. */
struct mcp_fault {
	int status; /* of HTTP */
	int code;
	char text[256];
	json_t *data; /* owned, or NULL */
};
int mcp_fault_set(struct mcp_fault *f, int status, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

extern const struct door mcp_door;

bool mcp_is_legacy_version(const char *version);
/* Has it an envelope? */
enum mcp_era mcp_era_of(const struct jsonrpc *m);
/* A modern request: is its envelope whole and its version one of ours? */
int mcp_check_envelope(const struct jsonrpc *m, struct mcp_fault *f);

struct mcp_method {
	const char *name;
	unsigned eras;
	/* NULL returned: f says why. */
	json_t *(*answer)(const struct jsonrpc *m, struct mcp_fault *f);
	void (*start)(struct mcp_call *c); /* instead of answer: it needs the daemon */
	bool cacheable;			   /* modern: ttlMs and cacheScope */
};
const struct mcp_method *mcp_method_find(const char *name, enum mcp_era era);
/* Takes the result over and returns it with the members that the era wants. */
json_t *mcp_finish(enum mcp_era era, const struct mcp_method *method, json_t *result);
/* 0 (debug) to 7 (emergency); -1: unknown. */
int mcp_level_find(const char *name);
