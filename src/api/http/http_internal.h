/*
 * Shared by the files of this folder; doors do not include it.
 *
 * Theory of operation. libmicrohttpd owns the sockets and parses. It calls on_uri when a request line
 * has arrived (an exchange is made), then the access handler: once after the head, for each piece of the
 * body, once after the body. An exchange without an answer then suspends its connection; the answer
 * resumes it and the access handler is called again to queue it. Streamed answers are pulled by a
 * reader callback, which suspends while there is nothing to send. While a connection is suspended
 * libmicrohttpd does not poll its socket, so we watch it for the client's end (rule 25).
 * An exchange is freed when libmicrohttpd is done with it and the handler has answered, whichever is
 * last; `hold` keeps it through our own callbacks.
 */
#pragma once

#include "base/base.h"
#include "api/http/http.h"
#include "api/http/server.h"
#include "auth/buckets.h"
#include "calls/calls.h"

#include <microhttpd.h>
#include <sys/queue.h>

#define HEAD_MS 10000  /* for a request's head, from its first byte of a connection */
#define IDLE_MS 640000 /* kept alive between requests */
#define STALL_MS 60000 /* a body that does not move */
#define ENDING_MS 5000 /* for a client to read an answer that came before the end of its body */
#define JSON_MAX (1u << 20)
#define BIG_MAX (16u << 20)
#define BUFFERED_MAX (512u << 20) /* all bodies held in memory at one time */
#define JSON_DEPTH 64
#define DISCARD_MAX (256u << 10) /* what is read and thrown away to keep a connection usable */
#define LATE_MAX (128u << 20)	 /* sent by a client that has not read its answer yet */
#define DOORS_MAX 8
#define DIRECT_MIN (1 << 20)
#define COUNTED_MIN (64u << 10) /* smaller answers are bounded by the number of connections */

struct upgraded {
	struct MHD_UpgradeResponseHandle *handle;
	struct peer *peer;
	int fd;
};

/* An object that is freed with an exchange. */
struct exchange_owned {
	void *data;
	void (*done)(void *data);
	struct exchange_owned *next;
};

/* One connection. */
struct peer {
	struct server *server;
	TAILQ_ENTRY(peer) all, idle;
	bool is_idle, is_unix, is_operator, is_remote;
	int fd;
	char address[64];
	struct loop_timer timer;
	struct exchange *now;
	struct upgraded upgraded;
};
TAILQ_HEAD(peers, peer);

struct http_listener {
	struct server *server;
	struct loop_watch watch;
	struct loop_timer again; /* after running out of descriptors */
	struct http_listener *next;
};

struct server {
	struct api *api;
	struct MHD_Daemon *mhd;
	struct loop_watch watch;
	struct loop_timer timer;
	struct loop_task task;
	struct peers peers, idle;
	size_t peer_count, exchange_count, endless_count, buffered;
	struct http_listener *listeners;
	struct peer *adding; /* during MHD_add_connection */
	struct buckets *by_token, *by_address;
	const struct door *doors[DOORS_MAX];
	size_t door_count;
	bool draining;
};

struct exchange_internal {
	struct server *server;
	struct peer *peer; /* NULL once the connection is done with this exchange */
	struct MHD_Connection *conn;
	char method[24];
	char *uri, *scratch; /* the request target, and room for what is decoded */
	size_t scratch_used;
	unsigned hold;
	bool begun, complete, called, suspended, queued, answered, cut, told_gone, in_mhd;
	bool is_endless; /* does not hold up a shutdown */
	bool quiet;	 /* no audit entry: a repeated refusal */
	bool retry_set;	 /* Retry-After is there */
	/* request body */
	struct buf body;
	size_t body_max, discarded;
	uint64_t received;
	const struct body_ops *ops;
	void *ops_arg;
	bool paused, discarding, end_told, early_reply;
	/* answer */
	int status;
	struct list names, values;
	char *reply, *reply_type;
	size_t reply_len;
	bool has_reply, is_stream, is_upgrade, finished, aborted, want_room;
	bool is_direct, head_sent; /* a long body is written past libmicrohttpd; its head is out */
	int64_t length;
	struct buf out;
	size_t extra;	       /* held for it elsewhere */
	struct budget *output; /* the caller's share of output, once something is counted */
	size_t counted;	       /* of what is held, in that budget */
	void (*on_room)(void *arg);
	void *room_arg;
	void (*on_gone)(void *arg);
	void *gone_arg;
	upgrade_done on_open;
	void *open_arg;
	struct loop_watch hup;
	struct loop_task task;
	struct exchange_owned *owned;
	void (*then)(struct exchange *x); /* called once the decision is in the audit log */
};

/* server.c */
void server_kick(struct server *s);
void peer_set_timer(struct peer *p, uint64_t ms); /* 0: none */
void peer_cut(struct peer *p);

/* exchange.c */
/* Counts the bytes held for the client again. */
void exchange_count(struct exchange *x);
struct exchange *exchange_new(struct peer *p, const char *uri);
void exchange_hold(struct exchange *x);
void exchange_release(struct exchange *x); /* frees it if it is no longer in use */
void exchange_suspend(struct exchange *x);
void exchange_resume(struct exchange *x);
void exchange_tell_gone(struct exchange *x);
/* Decodes %XX (and '+' in a query) into the exchange's scratch; NULL if it is malformed or holds a NUL. */
const char *exchange_decode(struct exchange *x, const char *text, size_t len, bool query);
/* The access handler's work. */
enum MHD_Result exchange_step(struct exchange *x, struct MHD_Connection *c, const char *method,
			      const char *data, size_t *size);
/* libmicrohttpd is done with it. */
void exchange_completed(struct exchange *x, bool well);

/* reply.c */
/* Queues the answer that is there. */
enum MHD_Result reply_queue(struct exchange *x);
/* The socket takes more of a body that we write ourselves. */
void reply_write_direct(struct exchange *x);
/* Answers while the body still arrives, past libmicrohttpd, which cannot. */
void reply_early(struct exchange *x);
struct MHD_Response *reply_add_headers(struct exchange *x, struct MHD_Response *r);

/* upgrade.c */
enum MHD_Result upgrade_queue(struct exchange *x);

/* router.c */
struct audit_entry;
void exchange_audit_entry(const struct exchange *x, struct audit_entry *ret, const char *verdict,
			  const char *why);
/* The head has arrived: finds the route and authenticates. May answer. */
void router_admit(struct exchange *x);
/* Writes the decision to the audit log where the route wants that, then calls the handler. */
void router_call(struct exchange *x);
/* The buffered body is complete: parses it, then router_call. */
void router_body(struct exchange *x);

/*
 * Bytes both ways between an upgraded connection and a guest's stream (upgrade.c). Half-close goes
 * through; the end of both halves, or an error, ends it: u and call are closed, done(arg) is called.
 */
struct tunnel;
struct tunnel *tunnel_new(struct loop *l, struct upgraded *u, struct call *call, struct pump *pump,
			  void (*done)(void *arg), void *arg);
/* For the owner, which has the call's callbacks and pump. False: the tunnel has ended. */
bool tunnel_to_client(struct tunnel *t, const void *bytes, size_t len);
/* How many bytes for the client it has room for. */
size_t tunnel_room(const struct tunnel *t);
void tunnel_to_guest(struct tunnel *t, const void *bytes, size_t len);
void tunnel_guest_room(struct tunnel *t);
void tunnel_guest_closed(struct tunnel *t); /* no more bytes come */
void tunnel_guest_ended(struct tunnel *t);  /* the call is gone */
