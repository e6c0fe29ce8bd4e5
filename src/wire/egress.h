/*
 * Messages to and from the egress program, over SOCK_SEQPACKET. Its other end is the broker, or the keeper of a
 * `cloche run`. One message is one struct egress, cut to the size that its type needs, with the fds that the type
 * says. Neither side believes the other: strings must be terminated, counts within bounds.
 */
#pragma once

#include "base/base.h"
#include "wire/ids.h"

#define EGRESS_TEXT 256
#define EGRESS_PEM_MAX (1u << 20)
#define EGRESS_FDS 64 /* of one message */

enum egress_type {
	/* to egress */
	EGRESS_SETTINGS = 1, /* fd: memfd by egress_settings_fd; first of all, and after a reload */
	EGRESS_ADD, /* egress_add; fds: the listeners, in any order: type and port say which is which. Refuses everything until EGRESS_RULES */
	EGRESS_RULES, /* id; fd: sealed memfd, a struct net_policy. Closes connections that it forbids */
	EGRESS_NAMES, /* id; fd: the name file, O_APPEND: names of earlier instances first, new ones are appended */
	EGRESS_SECRETS, /* id; fd: sealed memfd, rows of struct egress_secret. Replaces all */
	EGRESS_SEGMENT, /* egress_segment: the isolated segment that it belongs to */
	EGRESS_PEER_SOCKET, /* egress_peer as in EGRESS_WANT_PEER; fd: a TCP socket in the peer's namespace; none: refused */
	EGRESS_VERDICT, /* egress_verdict: the answer to EGRESS_ASK */
	EGRESS_REMOVE,	/* id: closes everything, answers EGRESS_GONE with the last numbers */
	EGRESS_PING,	/* answered by EGRESS_PONG, to prove that its loop runs */
	EGRESS_HOLD,	/* new connections and lookups of all sandboxes are refused ("audit"), */
	EGRESS_GO_ON,	/* until this */
	EGRESS_FLUSH,	/* id: tells at once what is known of it, then answers EGRESS_FLUSHED */
	EGRESS_LISTENERS, /* egress_add; fds: the listeners of a sandbox that was added without: they come after its rules */
	/* from egress */
	EGRESS_METER = 32, /* egress_meter: once a second while it changes, and at the end */
	EGRESS_RECORD,	   /* egress_record: an attempt was decided, or a connection has ended */
	EGRESS_ASK,	   /* egress_record: mode ask; the connection waits */
	EGRESS_CA, /* id; fd: memfd, the sandbox's CA certificate in PEM; after EGRESS_RULES that inspect */
	EGRESS_WANT_PEER, /* egress_peer: a socket in the peer's namespace is needed; answered by EGRESS_PEER_SOCKET */
	EGRESS_GONE, /* egress_meter: EGRESS_REMOVE is done */
	EGRESS_PONG,
	EGRESS_FLUSHED, /* egress_meter */
};

struct egress_settings {
	uint32_t dns_count;
	char dns[8][64];	      /* "1.1.1.1", "[::1]:5353"; none: as /etc/resolv.conf says */
	char proxy[256];	      /* "http://host:port", or "" */
	char proxy_auth[256];	      /* "user:password", or "" */
	char ca_file[256];	      /* trusted besides the system's, or "" */
	uint64_t connect_ms, idle_ms; /* 0: 10 s, 1 h */
};

struct egress_add {
	char id[IPC_ID];
	char owner[IPC_ID];
	uint8_t how;	  /* enum net_redirect */
	uint8_t asks;	  /* a refused destination is asked for, EGRESS_ASK */
	uint8_t fd_count; /* of the listeners */
	unsigned char own4[4], own6[16], prefix6[8];
	uint32_t names_max;
};

struct egress_meter {
	char id[IPC_ID];
	uint64_t tx_bytes, rx_bytes, connections, open, denied;
};

enum egress_phase { EGRESS_OPENED = 1, EGRESS_DENIED, EGRESS_CLOSED, EGRESS_FAILED, EGRESS_LOOKUP };

struct egress_record {
	char id[IPC_ID];
	uint64_t serial;     /* of the connection; the same when it has ended */
	uint64_t started_ms; /* unix */
	uint8_t phase, udp, inspected;
	uint16_t port;
	char name[EGRESS_TEXT]; /* "" if an address was dialled */
	char address[64];	/* "" if it was not resolved */
	char rule[EGRESS_TEXT]; /* that decided */
	char why[EGRESS_TEXT]; /* of a denial or a failure; the method and path of an HTTP request */
	char remedy[EGRESS_TEXT + 64]; /* the smallest rule that would allow it */
	char secret[IPC_NAME];	       /* its value was put into a request, or "" */
	uint64_t tx_bytes, rx_bytes, duration_ms;
	uint32_t count; /* of denials that are told together */
};

struct egress_verdict {
	char id[IPC_ID];
	uint64_t serial;
	uint8_t allow; /* once; a rule comes as EGRESS_RULES */
};

/* Sandboxes of one owner with the same group reach each other, if each of them has mode isolated. */
struct egress_segment {
	char id[IPC_ID];
	char group[IPC_NAME]; /* "": none */
	char name[IPC_NAME];  /* by which others call it, besides its id; or "" */
};

struct egress_peer {
	char id[IPC_ID];   /* of the sandbox that asks */
	char peer[IPC_ID]; /* of the one that is meant */
	uint64_t serial;   /* of the connection */
};

/* One row of EGRESS_SECRETS. The value is wiped with the sandbox. */
struct egress_secret {
	char name[IPC_NAME];
	char placeholder
		[80]; /* what the program has instead; "": the header is set in every request */
	char hosts[16][128]; /* canonical names, or name:port; port 443 otherwise */
	char header[128];    /* "Authorization: Bearer {}"; "basic"; "query:NAME" */
	uint64_t uses_max;   /* 0: no bound */
	uint64_t used;	     /* before this instance of egress */
	uint32_t value_len;
	char value[16384];
};

struct egress {
	uint32_t type, zero;
	union {
		char id[IPC_ID];
		struct egress_add add;
		struct egress_meter meter;
		struct egress_record record;
		struct egress_verdict verdict;
		struct egress_segment segment;
		struct egress_peer peer;
	};
};

/* How many bytes of a struct egress a message of this type has; 0: unknown type. */
size_t egress_size(uint32_t type);
/* Length, count of fds, ends of strings, the id. */
bool egress_is_well_formed(const struct egress *m, size_t len, size_t fd_count);
bool egress_settings_are_well_formed(const struct egress_settings *s);
/*
 * A memfd with the settings and behind them the text of ca_file, since the egress program may not open files of the
 * operator. -1: e says why.
 */
int egress_settings_fd(const struct egress_settings *s, struct err *e);
bool egress_secret_is_well_formed(const struct egress_secret *s);
/* -1 with errno. */
int egress_send(int sock, const struct egress *m, const int *fds, size_t count);
/*
 * 1: done, ret_fds holds *ret_count fds of the caller; 0: the other side is gone; -1 with errno (EAGAIN;
 * EBADMSG: not as the type says; its fds were closed).
 */
int egress_receive(int sock, struct egress *ret, int *ret_fds, size_t room, size_t *ret_count);
