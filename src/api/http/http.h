/*
 * HTTP for the doors: one request and its answer is one exchange. The server (server.h) reads the head,
 * finds the route, authenticates the caller, reads the body as the route says, and calls the handler.
 * The handler answers at once or later, exactly once; nothing blocks.
 *
 *   static void on_made(void *arg, struct sandbox *s, const struct err *e)
 *   {
 *           struct exchange *x = arg;
 *
 *           if (!s)
 *                   exchange_error(x, e);
 *           else
 *                   exchange_json(x, 201, sandbox_describe(s));
 *   }
 *   static void create(struct exchange *x)
 *   {
 *           manager_create(x->api->manager, &x->caller, options, on_made, x);
 *   }
 *   static const struct route routes[] = {
 *           {"POST", "/v1/sandboxes", create, SCOPE_RUN, BODY_JSON, 0, "Makes a sandbox"},
 *   };
 *
 * Life of an exchange. It stays valid until the handler has answered (exchange_reply, _json, _error,
 * _finish, _upgrade ...), also if the client has gone away meanwhile: bytes written then are dropped.
 * So every callback may simply answer. A handler that wants to stop early uses exchange_on_gone; the
 * exchange still needs its answer then, which frees it. After the answer the exchange must not be used.
 */
#pragma once

#include "base/base.h"
#include "auth/auth.h"
#include "base/loop.h"

#include <jansson.h>

struct agents;
struct audit;
struct broker;
struct config;
struct exchange;
struct mail;
struct manager;
struct metrics;
struct sandbox;
struct server;
struct tokens;

/* What the broker's last ping said about the roles of the daemon. */
struct api_roles {
	int64_t told_ns;      /* 0: no ping came yet */
	uint32_t interval_ms; /* of the pings */
	char silent[128];     /* names of roles that do not answer, separated by blanks */
};

/* For every handler. Made by the front, lives as long as the server. */
struct api {
	struct loop *loop;
	struct manager *manager;
	struct broker *broker;
	struct agents *agents;
	struct mail *mail;
	struct agent_runs *agent_runs;
	json_t *agent_types; /* {"NAME": type}, checked (api/rest/agent_types.c) */
	struct audit *audit;
	const struct config *config; /* replaced by a reload: do not keep pointers into it */
	struct tokens *tokens;
	struct metrics *metrics;
	struct server *server;
	struct api_roles roles;
	void *door_state[5]; /* by enum door_id: for the door's own use; DOOR_AGENT has none */
};

enum door_id { DOOR_REST, DOOR_E2B, DOOR_MCP, DOOR_AGENT, DOOR_DOCKER, DOOR_COUNT };

enum body_mode {
	BODY_NONE,     /* a body that is not empty is refused */
	BODY_JSON,     /* one JSON value, at most 2 MB: x->json; an empty body is NULL */
	BODY_JSON_BIG, /* the same, at most 16 MB (runs with files) */
	BODY_RPC, /* one JSON value, at most 16 MB: x->json; NULL: it is none, or refused by its bounds */
	BODY_BYTES,  /* at most 16 MB: x->body */
	BODY_STREAM, /* the handler is called after the head, then asks for exchange_take_body */
};

enum route_flags {
	ROUTE_OPEN = 1,	    /* without authentication: x->caller has no scope */
	ROUTE_OWN_AUTH = 2, /* the handler authenticates, and fills in x->caller */
	ROUTE_ANY_METHOD = 4,
	ROUTE_NO_ORIGIN_CHECK = 8, /* pages of other sites may call it (signed URLs) */
	ROUTE_AUDIT = 16, /* audited before the handler is called; so is what SCOPE_FILES changes */
	/* For the door's `enter`: */
	ROUTE_SANDBOX = 32,   /* the first parameter names a sandbox: x->sandbox */
	ROUTE_AWAKE = 64,     /* the same, and the sandbox is woken first */
	ROUTE_PATH = 128,     /* the query must name a path */
	ROUTE_OWN_BODY = 256, /* the handler checks the body, or ignores it */
};

struct route {
	const char *method;  /* HEAD uses the route of GET */
	const char *pattern; /* "/v1/sandboxes/{id}/files"; a last "*" takes the rest of the path */
	void (*handle)(struct exchange *x);
	unsigned scope; /* all of these bits of enum scope; 0: any caller */
	enum body_mode body;
	unsigned flags;
	const char *summary; /* for /openapi.json */
	/* The door's own. REST: fields of the JSON body, or, if it takes none, the names of what may stand in
	 * the query, blanks between. */
	const void *describe;
};

static inline const char *route_query(const struct route *r)
{
	return r->body == BODY_NONE || r->body == BODY_STREAM ? r->describe : NULL;
}

struct door {
	enum door_id id;
	const char *name; /* "rest" "e2b" "mcp" "docker" */
	const struct route *routes;
	size_t route_count;
	/* NULL: whatever its table names. Doors are asked in the order of server_add_door. */
	bool (*claims)(const struct exchange *x);
	/* Answers with an error in the door's own shape; NULL: as the contract says. */
	void (*error)(struct exchange *x, int status, const struct err *e);
	/* Called instead of a route's handler, to do what the route's flags say and then call the handler;
	 * NULL: the handler is called. */
	void (*enter)(struct exchange *x);
	/*
	 * Checks the door's own credentials on routes with ROUTE_OPEN before the body is read: calls
	 * exchange_admit, or answers. NULL: these routes stay open.
	 */
	void (*admit)(struct exchange *x);
	/* The path as the table has it, without a version in front; NULL: as it was sent. */
	const char *(*path)(const struct exchange *x);
};

#define EXCHANGE_PARAMS 4
#define EXCHANGE_ARGS 64

struct exchange_arg {
	const char *name, *value;
};

/* Read-only for handlers, but for data; filled in before the handler is called. */
struct exchange {
	struct api *api;
	const struct door *door;
	const struct route *route;
	const char *method;		     /* "GET" ... */
	const char *path;		     /* as it was sent, without the query, not decoded */
	const char *query;		     /* as it was sent, without '?'; "" for none */
	const char *params[EXCHANGE_PARAMS]; /* of the pattern, decoded; of '*': not decoded */
	size_t arg_count;
	struct exchange_arg args[EXCHANGE_ARGS]; /* of the query, decoded */
	struct caller caller;
	struct sandbox *sandbox; /* ROUTE_SANDBOX, ROUTE_AWAKE: valid while the handler is called */
	json_t *json;		 /* BODY_JSON */
	const char *body;
	size_t body_len;	/* BODY_BYTES */
	int64_t content_length; /* -1: not said */
	int64_t started_ns;
	bool gone;  /* the client went away */
	void *data; /* the handler's own, see exchange_attach */
	struct exchange_internal *internal;
};

/* Did the request come to the socket of the Docker API? */
bool exchange_is_docker(const struct exchange *x);

/* The sandbox whose agent asks, over its own socket; NULL: it is somebody else. */
struct sandbox *exchange_agent_box(const struct exchange *x);

/* ---- authentication by the handler (ROUTE_OWN_AUTH) ---- */
/* By the headers, or as the operator by the socket. -1 and e: answer 401. */
int exchange_authenticate(struct exchange *x, struct err *e);
/* By this key. */
bool exchange_login(struct exchange *x, const char *key);
/*
 * The request is authenticated, by the daemon's token or by one of a sandbox: what it uses is counted as
 * this tenant's, and the limits of strangers no longer hold. -1 and e: the tenant has too many connections.
 */
int exchange_admit(struct exchange *x, const char *tenant, struct err *e);

/*
 * Writes the decision to the audit log, then calls; answers 503 if it cannot be written. For requests
 * with ROUTE_OWN_AUTH or ROUTE_OPEN that reach a guest (files) without the manager. target NULL: the
 * path and the query; why NULL: the door.
 */
void exchange_decide(struct exchange *x, const char *target, const char *why,
		     void (*then)(struct exchange *x));

/* Writes what came of a tool call to the audit log, without waiting for it. */
void exchange_note(struct exchange *x, const char *tool, const char *verdict, const char *why);

/* ---- reading ---- */
/* Header by name, any case; NULL if it is not there or the client has gone. */
const char *exchange_header(const struct exchange *x, const char *name);
void exchange_each_header(const struct exchange *x,
			  void (*call)(void *arg, const char *name, const char *value), void *arg);
/* The first value of a query argument, or NULL. */
const char *exchange_arg(const struct exchange *x, const char *name);
/* A whole number of the query; dflt if it is not there. Refused (-1, e) if it is something else. */
int exchange_arg_uint(const struct exchange *x, const char *name, uint64_t dflt, uint64_t max,
		      uint64_t *ret, struct err *e);
/* The same for times: seconds, or "500ms". */
int exchange_arg_time(const struct exchange *x, const char *name, uint64_t dflt_ms, uint64_t max_ms,
		      uint64_t *ret_ms, struct err *e);
/* "1", "true", "yes" or nothing behind the name. */
bool exchange_arg_flag(const struct exchange *x, const char *name);
/* The error that follows says when to come again. */
void exchange_retry_after(struct exchange *x, unsigned seconds);
/* Does the Accept header name this type? */
bool exchange_accepts(const struct exchange *x, const char *type);
/* Memory of the handler's own, zeroed, in x->data; freed with the exchange, after done(data). */
void *exchange_attach(struct exchange *x, size_t size, void (*done)(void *data));
/* The answer holds so many bytes more: counted with the output that the daemon keeps. */
void exchange_keep(struct exchange *x, size_t bytes);

/* For objects of helpers: done(data), then free(data), with the exchange. */
void exchange_also_free(struct exchange *x, void *data, void (*done)(void *data));

/* ---- a streamed request body ---- */
struct body_ops {
	/* Takes up to len bytes and returns how many; fewer: no more come until exchange_more. */
	size_t (*take)(void *arg, const char *bytes, size_t len);
	/* The body is complete. */
	void (*end)(void *arg);
};
/* In the handler, or later. Callbacks come later, never from within; none after the answer or gone. */
void exchange_take_body(struct exchange *x, const struct body_ops *ops, void *arg);
void exchange_more(struct exchange *x);

/* ---- answers ---- */
/* Before the answer; again: the last value counts. Copied; a value with a line break is dropped. */
void exchange_set_header(struct exchange *x, const char *name, const char *value);
/* The same for a field that may be there several times, such as Set-Cookie. */
void exchange_add_header(struct exchange *x, const char *name, const char *value);
/* Bytes are copied. type NULL: no Content-Type. */
void exchange_reply(struct exchange *x, int status, const char *type, const void *bytes,
		    size_t len);
/* The same, takes the malloc'ed bytes over. */
void exchange_reply_take(struct exchange *x, int status, const char *type, char *bytes, size_t len);
/* Takes the value over. */
void exchange_json(struct exchange *x, int status, json_t *value);
/* In the door's shape, with the status of its kind (exchange_status_of). Counts it in the metrics. */
void exchange_error(struct exchange *x, const struct err *e);
/* With another status: 408, 502 ... */
void exchange_error_as(struct exchange *x, int status, const struct err *e);
/* {"error":{"kind","message","field","retryable","fault"}}, for lists of results and errors. */
json_t *exchange_error_body(int status, const struct err *e);
/* exchange_error with a message of our own. */
void exchange_fail(struct exchange *x, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* This field has an invalid value; the message is "field: " and fmt. field is a literal. */
void exchange_refuse(struct exchange *x, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * invalid 400, denied 403, not found 404, conflict 409, limit 429 (errnum EFBIG or E2BIG: 413),
 * unsupported 501, system 500 (errnum EBUSY, EAGAIN: 503).
 */
int exchange_status_of(const struct err *e);

/* ---- streamed answers ---- */
#define EXCHANGE_UNKNOWN_LENGTH (-1)
#define EXCHANGE_WINDOW (256u << 10)
/* length: Content-Length, or EXCHANGE_UNKNOWN_LENGTH for chunks. */
void exchange_stream(struct exchange *x, int status, const char *type, int64_t length);
/*
 * Adds bytes, copied. A handler that bounds memory stops at exchange_room() == 0 and goes on when on_room
 * is called. Dropped if the client has gone.
 */
void exchange_write(struct exchange *x, const void *bytes, size_t len);
size_t exchange_room(const struct exchange *x);
/* Called whenever written bytes have been sent; may be NULL. */
void exchange_on_room(struct exchange *x, void (*call)(void *arg), void *arg);
/* Paces a guest's stream by this answer: sets the pump's room, and resumes it (exchange_on_room). */
struct pump;
void exchange_pump(struct exchange *x, struct pump *p);
/* One server-sent event: "event: NAME\ndata: TEXT\n\n"; text must be one line. */
void exchange_event(struct exchange *x, const char *name, const char *text, size_t len);
/* The answer has no end of its own (events, watches): a shutdown does not wait for it. */
void exchange_set_endless(struct exchange *x);
/* The answer is complete. */
void exchange_finish(struct exchange *x);
/* The answer cannot be completed: the connection is cut, so that the client notices. */
void exchange_abort(struct exchange *x);

/* ---- the client goes away ---- */
/* Called once, if the client goes before the answer is complete. The answer is still due. */
void exchange_on_gone(struct exchange *x, void (*call)(void *arg), void *arg);
/* Gives the answer that is still due then. Takes a struct exchange, so that it can be the callback. */
void exchange_answer_gone(void *exchange);

/* ---- upgrades: the bare socket ---- */
struct upgraded; /* a connection that no longer speaks HTTP */
/*
 * Answers 101 with the headers set before and hands the socket over. on_open is called once; the bytes
 * that came behind the head are valid during the call only. u is NULL if the client has gone.
 */
typedef void (*upgrade_done)(void *arg, struct upgraded *u, const char *bytes, size_t len);
void exchange_upgrade(struct exchange *x, upgrade_done on_open, void *arg);
/* The same with 200, for clients that did not ask for an upgrade: the answer ends with the connection. */
void exchange_take_over(struct exchange *x, upgrade_done on_open, void *arg);
/* Does not block; for loop_watch. Half-close is not the end (rule 25). */
int upgraded_fd(const struct upgraded *u);
void upgraded_close(struct upgraded *u);

/* ---- server-sent events, kept alive by comments ---- */
/* Embedded by its owner, and closed before the owner's memory is freed. */
struct sse {
	struct exchange *x;
	struct loop_timer ping;
};
void sse_open(struct sse *s, struct exchange *x);
/* Takes the value over. */
void sse_send(struct sse *s, const char *event, json_t *value);
void sse_close(struct sse *s);

/* ---- bytes from anywhere as JSON: the result is always valid ---- */
/* A string; bytes that are not UTF-8 become U+FFFD, NUL stays as \u0000. Never NULL. */
json_t *text_json(const char *bytes, size_t len);
json_t *text_json_of(const char *text); /* up to its end */
json_t *text_json_base64(const void *bytes, size_t len);
/* Adds "cleaned", what was taken out of its texts (base/clean.h), unless that is nothing. */
struct cleaned;
void text_add_cleaned(json_t *to, const struct cleaned *n);

/* ---- previews (ports.c): a request goes on to a port inside a sandbox (rule 26) ---- */
struct ports_target {
	uint32_t port;
	const char *path;   /* with its leading slash, as sent; the query is the exchange's */
	const char *prefix; /* of the public path, for X-Forwarded-Prefix, or "" */
	const char *host;   /* to be named inside; NULL: localhost and the port */
	bool own_host;	    /* a host name of its own: its cookies are its own, and pass */
};
/*
 * HTTP/1.1, and upgrades (WebSockets) as a tunnel. Headers that identify the client to the daemon are not
 * passed on. The route's body is BODY_STREAM; the sandbox is awake. target is used during the call only.
 */
void ports_proxy(struct exchange *x, struct sandbox *s, const struct ports_target *target);
