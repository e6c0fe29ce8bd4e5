/*
 * Shared by the files of this folder; doors do not include it.
 *
 * Theory of operation. One connection is one struct peer (peer.c), a state machine: it reads a head, then a
 * request with its body, sends the answer, and reads the next head. One request and its answer is one
 * exchange. Nothing is read while an answer is pending, so a client that sends requests ahead is held up by
 * its own socket. Buffers exist only while something waits in them.
 *
 * Work happens in peer_run, in turns (lanes.c): events of a socket, and handlers that answer, write, or take
 * more of a body, only put the connection into the lane of its tenant. Lanes take turns of TURN_NS, and a
 * connection's turn is one request or TURN_BYTES, so that no tenant and no connection holds up another.
 * Neither a peer nor its exchange ends within a call of a handler.
 *
 * An exchange is freed when its connection is done with it and the handler has answered, whichever is
 * last; `hold` keeps it through our own callbacks.
 */
#pragma once

#include "base/base.h"
#include "api/http/http.h"
#include "api/http/server.h"
#include "auth/buckets.h"
#include "auth/shares.h"
#include "calls/calls.h"
#include "wire/http1.h"
#include "wire/json_feed.h"

#include <sys/queue.h>

#define HEAD_MAX (16u << 10)
#define REQUEST_MS 10000 /* from the first byte of a head until the request is authenticated */
#define IDLE_MS 60000	 /* kept alive between requests; strangers: REQUEST_MS */
#define WINDOW_MS 30000	 /* within which a body or an answer must move by WINDOW_BYTES */
#define WINDOW_BYTES (30u << 10)
#define LINGER_MS 2000 /* for a client to read an answer that came before the end of its body */
#define LINGER_BYTES (128u << 20)
#define HALF_CLOSED_MS 200	  /* after a request: until then its end of file is no hang-up */
#define TURN_BYTES (64u << 10)	  /* read or written for one connection before the others */
#define JSON_PIECE (4u << 10)	  /* built of a JSON body at once */
#define TURN_NS 50000		  /* for one tenant before the others */
#define ROUND_NS 50000		  /* for all tenants before the rest of the loop */
#define OPEN_BODY_MAX (64u << 10) /* of a request without authentication */
#define JSON_MAX (2u << 20)
#define BIG_MAX (16u << 20)
#define BUFFERED_MAX (512u << 20) /* all bodies held in memory at one time */
#define DISCARD_MAX (64u << 10)	  /* what is read and thrown away to keep a connection usable */
#define DOORS_MAX 9
#define IDEMPOTENCY_ID 32	/* bytes of a hash */
#define COUNTED_MIN (64u << 10) /* smaller answers are bounded by the number of connections */

struct upgraded {
	struct peer *peer;
	int fd;
};

/* An object that is freed with an exchange. */
struct exchange_owned {
	void *data;
	void (*done)(void *data);
	struct exchange_owned *next;
};

enum peer_state {
	PEER_HEAD,    /* idle, or a part of a head has arrived */
	PEER_REQUEST, /* until the answer is sent and the body read */
	PEER_LINGER,  /* the answer is sent, our half is closed: waits for the client's end */
	PEER_UPGRADED,
};

/* One connection. */
struct peer {
	struct server *server;
	TAILQ_ENTRY(peer) all, line;
	bool in_line; /* of its lane: may be closed to make room */
	enum peer_state state;
	bool is_unix, is_operator, is_remote;
	bool is_docker; /* came to the socket of the Docker API, and reaches that door only */
	bool is_tls;	/* the client speaks TLS with the role tls */
	bool is_known;	/* a request was authenticated */
	bool broken;	/* the socket is of no use: closed at the end of its turn */
	bool last;	/* nothing is read after this request */
	bool timed;	/* the deadline of a head runs */
	bool opening;	/* upgrade_open calls */
	/* What events and calls said of the socket. */
	bool can_read, can_write, eof;
	bool hung_up; /* the client sends no more, or has closed */
	bool dead;    /* the client reads no more either */
	char address[64];
	char agent_box[IPC_ID]; /* the sandbox whose agent this is, or "" */
	char caller[IPC_ID];	/* token of the last request that was authenticated */
	struct budget *budget;	/* of connections, in which this one is counted */
	uint32_t *same_address;
	struct loop_watch watch;
	struct loop_timer timer;
	struct lane *lane;
	TAILQ_ENTRY(peer) ready;
	bool is_ready; /* in its lane */
	bool has_more; /* of a body, for its next turn */
	/* Bytes that were read: `at` is in `in`, or, during a step, in the server's scratch. */
	struct buf in;
	const char *at;
	size_t left, scanned;
	struct http1_body body;
	uint64_t moved;		/* bytes in and out since the window began, or while lingering */
	int64_t waits_since_ns; /* for the client; 0: it does not */
	int64_t complete_ns;	/* when the request was */
	struct exchange *now;
	struct upgraded upgraded;
};
TAILQ_HEAD(peers, peer);

TAILQ_HEAD(idempotents, idempotent);

struct http_listener {
	struct server *server;
	struct loop_watch watch;
	struct loop_timer again; /* after running out of descriptors */
	struct http_listener *next;
};

#define ADDRESS_SLOTS 4096
#define LANE_BUCKETS 256

/* Connections of one tenant that have work to do. All tenants get turns of the same length. */
struct lane {
	const struct budget *budget; /* whose it is */
	struct peers ready;
	struct peers
		line; /* strangers, idle, or at their end: who has waited for longest is first */
	size_t members;
	bool is_active;
	TAILQ_ENTRY(lane) active;
	struct lane *next;
};
TAILQ_HEAD(lanes, lane);

struct server {
	struct api *api;
	struct peers peers;
	size_t peer_count, exchange_count, endless_count;
	uint64_t files_max; /* RLIMIT_NOFILE */
	struct lane *lanes[LANE_BUCKETS];
	struct lanes active;
	struct loop_task task;
	struct loop_timer trim;	  /* gives memory back after large bodies */
	struct loop_timer expiry; /* of the next token */
	struct http_listener *listeners;
	struct published *published;
	struct agent_socket *agent_sockets;
	struct buckets *by_token, *by_address, *refusals;
	struct idempotents idempotent;
	const struct door *doors[DOORS_MAX];
	size_t door_count;
	bool draining;
	time_t date_at;
	char date[40];
	unsigned char address_key[16];
	uint32_t address_counts[ADDRESS_SLOTS]; /* of strangers, by a hash of the address */
	char scratch[64 << 10];			/* a socket is read into it */
};

struct exchange_internal {
	struct server *server;
	struct peer *peer;	   /* NULL once the connection is done with this exchange */
	char *head_text, *scratch; /* the request's head, and room for what is decoded */
	size_t scratch_used;
	struct http1_head head;
	unsigned hold;
	bool complete, called, answered, told_gone;
	bool admitted; /* the caller, or the token of a sandbox, was checked */
	char tenant[IPC_ID];
	bool is_endless; /* does not hold up a shutdown */
	bool quiet;	 /* no audit entry: a repeated refusal */
	bool retry_set;	 /* Retry-After is there */
	bool is_idempotent;
	unsigned char idempotency[IDEMPOTENCY_ID];
	void *body_hash; /* of what has arrived; only for a request with an Idempotency-Key */
	/* request body */
	struct buf body;
	struct json_feed *feed; /* the body instead, if it is JSON */
	json_t *unfinished;	/* what was built of one that was refused */
	size_t json_values;	/* how many it had */
	struct budget *bodies;	/* which the bytes held of it are counted in */
	size_t held;
	size_t body_max, discarded;
	uint64_t received;
	const struct body_ops *ops;
	void *ops_arg;
	bool paused, end_told;
	/* answer */
	int status;
	struct list names, values;
	char *reply, *reply_type;
	size_t reply_len, reply_at;
	bool has_reply, is_stream, is_upgrade, finished, aborted, want_room;
	bool head_made, chunked, no_content, ended;
	int64_t length, written; /* of a stream */
	struct buf pre;		 /* the head, or a chunk's size: before the content */
	struct buf out;
	size_t chunk_left; /* of `out`, in this chunk */
	const char *post;  /* after the content */
	size_t extra;	   /* held for it elsewhere */
	size_t counted;	   /* of what is held, in the budget of outputs */
	struct budget *output;
	void (*on_room)(void *arg);
	void *room_arg;
	void (*on_gone)(void *arg);
	void *gone_arg;
	upgrade_done on_open;
	void *open_arg;
	struct exchange_owned *owned;
	void (*then)(struct exchange *x); /* called once the decision is in the audit log */
};

/* server.c */
/* Counts the connection as the tenant's from now on. -1 and e: the tenant has too many. */
int server_count_peer(struct peer *p, const char *tenant, struct err *e);
void server_uncount_peer(struct peer *p);

/* lanes.c */
/* Which lane the connection is in follows its budget; NULL: none. */
void lanes_enter(struct peer *p, const struct budget *b);
/* May the connection be closed to make room for another one of its tenant? */
void lanes_line(struct peer *p, bool in_line);
/* Which of them has waited for longest; NULL: there is none. */
struct peer *lanes_oldest(struct server *s, const struct budget *b);
/* There is work to do for it, in a turn of its lane: peer_run. */
void peer_kick(struct peer *p);
void lanes_run(void *server);

/* idempotency.c */
/* A piece of the body: it is compared with the body of an earlier request by its hash. */
void idempotency_feed(struct exchange *x, const char *bytes, size_t len);
/* A request with an Idempotency-Key begins; true: it was answered here. */
bool idempotency_begin(struct exchange *x);
/* The answer is known. */
void idempotency_end(struct exchange *x);
void idempotency_free(struct server *s);

/* peer.c */
/* One turn. */
void peer_run(struct peer *p);
/* Takes the connection over; the server has counted it. */
void peer_begin(struct peer *p);
void peer_close(struct peer *p);
/* The request is authenticated: from now on a minimum rate holds instead of a deadline. */
void peer_admit(struct peer *p);

/* exchange.c */
/* Whose shares the request uses. */
const char *exchange_tenant(const struct exchange *x);
/* Counts the bytes held for the client again. */
void exchange_count(struct exchange *x);
struct exchange *exchange_new(struct peer *p);
/* Reads the head; -1 and e: it is malformed. */
int exchange_read_head(struct exchange *x, const char *bytes, size_t len, struct err *e);
void exchange_hold(struct exchange *x);
void exchange_release(struct exchange *x); /* frees it if it is no longer in use */
void exchange_tell_gone(struct exchange *x);
/* Decodes %XX (and '+' in a query) into the exchange's scratch; NULL if it is malformed or holds a NUL. */
const char *exchange_decode(struct exchange *x, const char *text, size_t len, bool query);
/* A piece of the body; returns how much of it was taken. */
size_t exchange_feed(struct exchange *x, const char *bytes, size_t len);
/* No more of the body is parsed; what there is of it is the exchange's now. */
void exchange_end_feed(struct exchange *x);
/* The body is complete. */
void exchange_complete(struct exchange *x);
/* The connection is done with it. */
void exchange_completed(struct exchange *x, bool well);
/* Calls back about the end of the body and about room for more of the answer. */
void exchange_call_back(struct exchange *x);

/* reply.c */
/* Has the answer begun? */
bool reply_is_begun(const struct exchange *x);
/* Is all of it sent? */
bool reply_is_sent(const struct exchange *x);
/* Is something waiting to be sent? */
bool reply_waits(const struct exchange *x);
/* Writes what the socket takes, at most TURN_BYTES. */
void reply_flush(struct exchange *x);

/* json_bin.c */
/* Is the body built as JSON while it arrives? */
bool exchange_takes_json(const struct exchange *x);
/* Frees the body, in turns if it is large, and gives back what it took of the budget of bodies. */
void json_bin_add(struct exchange *x, json_t *value);

/* long_json.c */
/* Takes an answer with many items over, to print it in turns; false: it is printed at once. */
bool long_json_reply(struct exchange *x, int status, json_t *value);

/* published.c */
void published_free(struct server *s);
/* A connection of the agent in this sandbox; takes fd. */
void server_add_agent(struct server *s, int fd, const char *box);
void agent_sockets_free(struct server *v);

/* upgrade.c */
/* The answer 101 is sent: hands the socket over. */
void upgrade_open(struct exchange *x);

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
