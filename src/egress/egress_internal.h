/*
 * What the files of the egress program share.
 *
 * Theory of operation. One process, one thread, one loop. The uplink of a sandbox (struct uplink) has listeners inside its
 * network namespace, rules, a map of names, and connections. A connection (struct conn) has two sides: the
 * client, accepted from inside, and the server, dialled outside. Between both sits a handler, which judges the
 * bytes of each side (`in`) and passes them on (`out` of the other side). Every connection begins with the
 * handler conn_first_bytes, which relays the server's bytes at once and chooses another handler by the client's
 * first bytes. The last handler of most connections is conn_relay: nothing is judged any more.
 *
 * Nothing is dialled that net_decide has not allowed twice: by name, then with the resolved address.
 */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "base/loop.h"
#include "net/redirect.h"
#include "net/rules.h"
#include "wire/egress.h"

#include <sys/socket.h>

#define CONN_BUFFER (64u << 10)	 /* unsent or unjudged bytes of one side, roughly */
#define PORT_ROWS 256		 /* see ports.c */
#define CONN_JUDGED (128u << 10) /* most bytes that a handler may hold back of one side */

struct resolver;
struct asker;
struct ports;
struct conn;
struct names;
struct records;
struct flows;
struct pending;
struct secrets;

struct role {
	struct loop *loop;
	struct loop_watch control; /* the socket to the broker or keeper */
	struct records *records;
	struct egress_settings settings;
	struct resolver *resolver;
	struct uplink *uplinks;
	struct shared_index *indexes;	/* compiled rules */
	uint64_t serial;		/* of the last connection */
	struct budget_pool open_pool;	/* connections, bounded by fds */
	struct budget_pool lookup_pool; /* names that are being resolved */
	struct loop_timer tick;		/* once a second: meters, denials, rates */
	uint32_t ticks;
	uint32_t port_count, ports_used[PORT_ROWS]; /* of the host; see ports.c */
	struct ports *ports_of_gone;		    /* sandboxes; or NULL */
	int route;	 /* netlink socket that tells the host's own addresses */
	int pipe[2];	 /* what is relayed passes through it, and none stays */
	bool one_run;	 /* serves one `cloche run`, and ends with its keeper */
	bool is_held;	 /* the audit log cannot be written: nothing new is opened or looked up */
	void *inspector; /* what TLS inspection keeps for all sandboxes */
	char scratch[256 << 10];
};

/* ---- uplinks: uplink.c ---- */

/* A bucket of bytes that fills at a rate. */
struct bucket {
	uint64_t rate; /* bytes a second; 0: no bound */
	int64_t left, filled_ns;
};

struct listener {
	struct loop_watch watch;
	struct uplink *uplink;
	bool is_udp;
	uint16_t port;
};

struct uplink {
	struct role *role;
	struct uplink *next, **back;
	char id[IPC_ID], owner[IPC_ID];
	char group[IPC_NAME], name[IPC_NAME]; /* of its isolated segment, or "" */
	bool peer_is_asked;		      /* the broker owes a socket; see segment.c */
	struct loop_timer peer_next;
	bool asks;
	unsigned char own4[4], own6[16], prefix6[8];
	struct loop_user user; /* its share of the loop */
	struct listener *listeners;
	size_t listener_count;
	struct shared_index *rules; /* NULL: everything is refused */
	struct names *names;
	struct conn *conns;
	struct flows *flows;	 /* UDP by rule; or NULL */
	struct pending *pending; /* queries that wait for an answer from outside */
	size_t pending_count;
	bool has_v6;
	uint32_t wildcard_names; /* that were given an address; see dns.c */
	struct groups *groups;	 /* of records; or NULL */
	uint32_t told_alone;	 /* records of this second; see record.c */
	struct budget open;	 /* connections */
	struct ports *ports;	 /* that it has left behind; or NULL */
	struct asker *asker;
	struct egress_meter meter, told;
	struct bucket up, down;
	size_t buffered; /* bytes that wait in its connections */
	struct loop_timer refill;
	uint32_t requests, requests_minute; /* in this minute of the clock */
	struct secrets *secrets;	    /* or NULL */
	void *inspection; /* CA and certificates of this sandbox; owner: inspect.c */
};

/* Without rules everything is refused. */
void uplink_decide(const struct uplink *s, const struct net_question *q, struct net_answer *ret);
/* NULL: it has no rules. */
const struct net_policy *uplink_policy(const struct uplink *s);
const struct net_budget *uplink_budget(const struct uplink *s);
/* What may be spoken with a name can depend on its address. */
bool uplink_judges_addresses(const struct uplink *s);
/* Accepts nothing until the next tick. */
void uplink_pause(struct uplink *s);
/* A bucket is empty: connections go on when it has filled. */
void uplink_refill_later(struct uplink *s);
/* Counts a request or connection of this minute. NULL, or the name of the budget that is used up. */
const char *uplink_count_request(struct uplink *s);
/* The budget that forbids one more connection, or NULL. It counts as a request. */
const char *uplink_used_up(struct uplink *s);
/* The name that an address stands for; "": none, the address itself is meant; NULL: it stands for nothing. */
const char *uplink_name_of(const struct uplink *s, const unsigned char to[16], uint32_t *ret_index);
/* Bytes that passed; up: from the sandbox. NULL, or the name of the budget that is used up. */
const char *uplink_count_bytes(struct uplink *s, bool up, size_t len);

struct uplink *uplink_find(struct role *r, const char *id);
/* Takes over the fds. */
int uplink_add(struct role *r, const struct egress_add *a, const int *fds, struct err *e);
int uplink_listen(struct uplink *s, const struct egress_add *a, const int *fds, struct err *e);
/* Each takes over the fd. After an error the sandbox has no rules. */
int uplink_set_rules(struct uplink *s, int fd, struct err *e);
int uplink_set_secrets(struct uplink *s, int fd, struct err *e);
void uplink_remove(struct uplink *s);
void uplink_tick(struct uplink *s);

/* ---- connections: conn.c, dial.c ---- */

enum upstream {
	UPSTREAM_NONE,	  /* no destination yet: an explicit proxy */
	UPSTREAM_WAITING, /* asked for, resolved, or dialled */
	UPSTREAM_OPEN,
	UPSTREAM_REFUSED, /* by a rule; recorded */
	UPSTREAM_FAILED,  /* could not be reached; recorded */
};

/* Of a connection into another sandbox. */
enum peer_step { PEER_NONE, PEER_WAITS, PEER_IS_ASKED };

/* One side of a connection. */
struct stream {
	struct conn *conn;
	struct loop_watch watch; /* fd -1: not open */
	struct buf in;		 /* received, not yet judged by the handler */
	struct buf out;		 /* to be sent */
	bool ended;	  /* the other party sends no more; what it sent may still be in `in` */
	bool finish;	  /* set by the handler: end our direction once `out` is sent */
	bool finished;	  /* that was done */
	uint32_t at_once; /* bytes that one read may take */
};

/*
 * A protocol between both sides. `step` is called when bytes or an end have arrived on a side, when `out` of a side
 * has been sent, and when `upstream` has changed. It takes bytes from c->client.in and c->server.in, adds bytes to
 * c->server.out and c->client.out, and sets `finish`. It should stop adding to an `out` that holds more than
 * CONN_BUFFER; a side is not read while its `in` holds CONN_BUFFER bytes or the other's `out` holds as much.
 * It may end the connection by conn_deny, conn_fail, conn_close or conn_reset and must return at once then.
 */
struct handler {
	const char *name;
	bool passes_server; /* what the server sends is not judged */
	void (*step)(struct conn *c);
	void (*done)(struct conn *c);	      /* frees c->state; or NULL */
	size_t (*held)(const struct conn *c); /* bytes that wait in c->state; or NULL */
};

struct conn {
	struct uplink *uplink;
	struct conn *next, **back;
	uint64_t serial, started_ms;
	int64_t started_ns, active_ns;
	struct stream client, server;
	const struct handler *handler;
	void *state; /* of the handler */
	/* The destination. name is canonical; "": an address was dialled. */
	char *name;
	char peer[IPC_ID]; /* the sandbox of the same segment that has the name; or "" */
	enum peer_step peer_step;
	unsigned char address[16]; /* the literal one, or the one that was checked and dialled */
	uint16_t port;
	enum upstream upstream;
	struct net_answer answer; /* by name and port; with the address once it is open */
	bool opened;		  /* EGRESS_OPENED was told */
	bool inspected;
	bool closing;		     /* no more reads; ends when client.out is sent */
	bool dead;		     /* ended; freed at the end of the round */
	bool is_own;		     /* address is one of this host's own */
	bool tunnelled;		     /* through the operator's proxy, which is being asked */
	bool tunnel_asked;	     /* the question was written */
	bool is_asked;		     /* --net ask: a person is being asked, or has allowed it */
	uint64_t tx_bytes, rx_bytes; /* from the sandbox, to it */
	size_t counted;		     /* its part of uplink.buffered */
	struct loop_timer timer;     /* until open: deadline; then idleness */
	struct loop_timer hold;	     /* see conn_hold */
	const char *hold_why;
	struct dial *dial;     /* addresses that are left; or NULL */
	struct loop_task task; /* a step that was put off, or the end */
};

/* conn.c. */
void conn_accept(struct listener *l);
/*
 * Decides on a destination and dials it; name "" for a literal address. The result is c->upstream, at once or later
 * (then step is called). Any earlier server side is closed first. An explicit proxy may call it again.
 */
void conn_dial(struct conn *c, const char *name, const unsigned char address[16], uint16_t port);
/* Hands the connection to another handler, whose step runs at once. */
void conn_hand_over(struct conn *c, const struct handler *h);
/* What the handler may still use: rules of the destination for one request. Refuses without rules. */
void conn_decide(const struct conn *c, unsigned method, const char *path, struct net_answer *ret);
/*
 * Ends a connection because of a rule or malformed bytes: a denial is recorded. What is in client.out is still
 * sent (an HTTP error page); with an empty client.out the client sees a reset. remedy may be NULL.
 */
void conn_deny(struct conn *c, const char *why, const char *remedy);
/* The same for faults outside: EGRESS_FAILED. */
void conn_fail(struct conn *c, const char *why);
/* Records an HTTP request that was allowed: what is its method and path. */
void conn_note(struct conn *c, const char *what);
/*
 * Denies the connection for this reason (a constant; NULL: just closes it) after so long, unless it is called
 * again; 0 ms: no more.
 */
void conn_hold(struct conn *c, uint64_t ms, const char *why);
/* Ends both sides as soon as their `out` is sent. */
void conn_close(struct conn *c);
/* Ends both sides at once, with resets. */
void conn_reset(struct conn *c);
/* The server side only, for a proxy that dials again. */
void conn_close_server(struct conn *c);
/* Runs the handler soon: after a callback that came from outside the connection. */
void conn_step_soon(struct conn *c);
/*
 * May the client call the destination by this host (SNI, Host, :authority)? It must be the very name; after an
 * address was dialled, any that is not denied.
 */
bool conn_may_call_it(const struct conn *c, const char *host, size_t len);
/* Names by which programs in containers are used to call the host. */
bool conn_is_host(const char *name);
/* Closes what the present rules forbid. */
void conn_check_again(struct conn *c);
void conn_free(struct conn *c);
/* A verdict of a person (--net ask). */
void conn_verdict(struct uplink *s, uint64_t serial, bool allow);

/* Passes on whatever a side has sent, unjudged. */
void conn_pass(struct stream *from, struct stream *to);

/* dial.c: names to addresses to a connected socket. Ends with one of the three calls below. */
void dial_start(struct conn *c);
void dial_stop(struct conn *c);
/* The same for a peer: takes over a socket of its namespace. Both addresses are in that namespace. */
void dial_peer(struct conn *c, int fd, const unsigned char from[16], const unsigned char to[16]);
/* Does the connection go through the operator's proxy? */
bool dial_is_by_proxy(const struct conn *c);
/* conn.c, called by dial.c: takes over the fd. */
void conn_dialled(struct conn *c, int fd);
void conn_not_dialled(struct conn *c, const char *why);
void conn_dial_refused(struct conn *c, const struct net_answer *a);

/* Handlers: each decides for itself when it has seen enough. */
extern const struct handler conn_first_bytes; /* first_bytes.c */
extern const struct handler conn_relay;	      /* conn.c: nothing is judged */
extern const struct handler conn_tls;	      /* first_bytes.c: TLS that is not opened */
extern const struct handler
	conn_http; /* http.c: plain HTTP; Host, methods and paths of every request */
extern const struct handler
	conn_http_once; /* http.c: the same for one request, of a proxy's client */
extern const struct handler conn_inspect; /* inspect.c: TLS that is opened */
extern const struct handler conn_proxy;	  /* proxy.c: explicit proxy, HTTP and SOCKS5 */
extern const struct handler conn_dns;	  /* dns.c: DNS over TCP */
/*
 * upstream.c: an HTTP proxy of the operator. With settings.proxy the socket is connected to the proxy; this writes
 * the CONNECT request to c->server.out and reads the answer from c->server.in. 1: the tunnel is there; 0: call again
 * with more bytes; -1: refused, e says why.
 */
int upstream_step(struct conn *c, struct err *e);

/* inspect.c: what belongs to the role and to a sandbox. Called once, before the confinement. */
int inspect_start(struct role *r, struct err *e);
/* After EGRESS_SETTINGS: certificates that are believed besides the system's. */
int inspect_settings(struct role *r, const char *pem, struct err *e);
/* After EGRESS_RULES and EGRESS_SECRETS; makes the CA and sends EGRESS_CA if rules or secrets need one. */
int inspect_uplink(struct uplink *s, struct err *e);
void inspect_uplink_done(struct uplink *s);

/* ---- records: record.c ---- */

struct records *records_new(struct role *r);
/* Queued if the other side is slow; see records_full. */
void records_send(struct role *r, const struct egress *m, int fd);
/* Too much is queued: nothing may be opened until it is sent. */
bool records_full(const struct role *r);
void records_flush(struct role *r);
void record_conn(struct conn *c, enum egress_phase phase, const char *why);
/* The value of this secret went into a request. */
void record_use(struct conn *c, const char *secret);
void record_ask(struct conn *c);
void record_meter(struct uplink *s, uint32_t type);
struct denial {
	const char *name, *address, *rule, *why, *remedy; /* each may be NULL */
	uint16_t port;
	bool udp;
	enum egress_phase phase; /* EGRESS_DENIED or EGRESS_LOOKUP */
};
void record_denial(struct uplink *s, const struct denial *d);
/* Fills in the id. Many of a second are told together. */
void record_send(struct uplink *s, const struct egress_record *r);
void record_tick(struct uplink *s);
void record_done(struct uplink *s);

/* ---- names: names.c ---- */

struct names *names_new(uint32_t max);
void names_free(struct names *n);
/* Reads the file and appends to it from now on. Takes over the fd. */
int names_open(struct names *n, int fd, struct err *e);
/* The index of a name, which is appended to the file if it is new; 0: there is no room, or it cannot be written. */
uint32_t names_index(struct names *n, const char *name);
/* 0: it has none yet. */
uint32_t names_find(const struct names *n, const char *name);
/* NULL: there is none. */
const char *names_name(const struct names *n, uint32_t index);
size_t names_count(const struct names *n);

/* ---- resolver.c: c-ares ---- */

#define RESOLVED_MAX 16

struct resolved {
	size_t count;
	unsigned char addresses[RESOLVED_MAX][16];
};

struct resolver_query {
	/* r is NULL if there is no address; why says which. Not called any more after resolver_cancel. */
	void (*call)(void *arg, const struct resolved *r, const char *why);
	void *arg;
	struct resolver_job *job; /* kept by the resolver */
	struct resolver_query *next, **back;
};

/* The share of a sandbox in the look-ups of all; it may be gone before they end. */
struct asker *asker_new(struct role *r, bool is_operator);
void asker_unref(struct asker *a);

struct resolver *resolver_new(struct role *r, const struct egress_settings *s, struct err *e);
void resolver_free(struct resolver *x);
void resolver_ask(struct resolver *x, struct asker *a, const char *name, struct resolver_query *q);
void resolver_cancel(struct resolver_query *q);

/* TXT records: each in texts is a length (uint16_t) and so many bytes. rcode as in wire/dns.h. */
struct resolver_text {
	void (*call)(void *arg, const struct buf *texts, size_t count, int rcode);
	void *arg;
	struct text_job *job; /* kept by the resolver */
};
/* False: the sandbox asks for too much at one time. */
bool resolver_ask_text(struct resolver *x, struct asker *a, const char *name,
		       struct resolver_text *t);
void resolver_text_cancel(struct resolver_text *t);

/* ---- datagram.c ---- */

/* One from inside. */
struct datagram {
	struct sockaddr_storage from;
	socklen_t from_len;
	unsigned char to[16]; /* the address that was asked */
	size_t control_len;   /* 0: it is not known */
	char control[64] __attribute__((aligned(16)));
};

/* Its length, or -1. */
ssize_t datagram_receive(int fd, void *room, size_t size, struct datagram *ret);
/* From the address that was asked. */
void datagram_reply(int fd, const struct datagram *to, const void *bytes, size_t len);

/* ---- segment.c: sandboxes that reach each other ---- */

/* The sandbox that s may mean by this name; NULL: none. e, which may be NULL, says why. */
struct uplink *segment_find(const struct uplink *s, const char *name, struct err *e);
bool segment_is_isolated(const struct uplink *s);
void segment_set(struct uplink *s, const struct egress_segment *m);
/* Instead of dial_start. */
void segment_dial(struct conn *c);
/* Takes over the fd; -1: refused. */
void segment_socket(struct uplink *s, const struct egress_peer *m, int fd);
void segment_ask_next(void *uplink);
/* Something about s has changed: connections to it are judged again. */
void segment_check_again(struct uplink *s);

/* ---- dns.c, udp.c ---- */

void dns_udp_ready(struct listener *l);
void lookups_free(struct uplink *s);
/* The index of a name that this rule allows; 0: the budgets have no room for another. */
uint32_t dns_name_index(struct uplink *s, const char *name, const char *rule);
void flows_udp_ready(struct listener *l);
void flows_check_again(struct uplink *s);
void flows_free(struct uplink *s);

/* ---- address.c ---- */

void address_of(const struct sockaddr_storage *a, unsigned char ret[16], uint16_t *ret_port);
socklen_t address_to(const unsigned char address[16], uint16_t port, struct sockaddr_storage *ret);
bool address_is_v4(const unsigned char address[16]);
/* Is it an address of this host, however it is written? */
bool address_is_own(struct role *r, const unsigned char address[16]);

/* ---- ports.c: ports that closed connections keep for a while ---- */

void ports_start(struct role *r);
/* May the sandbox have one more connection to this destination? */
bool ports_has(const struct uplink *s, const unsigned char address[16], uint16_t port);
/* Before the end of this side's connection is sent: who ends first keeps a port. */
void ports_note_end(const struct stream *side);
void ports_minute(struct role *r);
void ports_done(struct uplink *s);

/* ---- role.c ---- */

int role_start(struct role *r, int control, struct err *e);
int role_run(struct role *r);
