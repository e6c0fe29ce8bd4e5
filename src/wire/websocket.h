/*
 * WebSocket frames (RFC 6455), for both ends of a connection: no extensions, bounded messages. Pure
 * bytes; the caller has the socket.
 *
 *   struct ws_reader r = {.is_server = true, .max = 65536};
 *   ws_feed(&r, bytes, len);
 *   while ((rc = ws_next(&r, &message)) > 0) ...       rc < 0: close with message.code
 *   ws_write(&out, WS_BINARY, bytes, len, NULL);       a client gives a fresh random mask
 */
#pragma once

#include "base/base.h"

enum ws_opcode {
	WS_CONTINUATION = 0,
	WS_TEXT = 1,
	WS_BINARY = 2,
	WS_CLOSE = 8,
	WS_PING = 9,
	WS_PONG = 10,
};

/* Why a connection is closed. */
enum ws_code {
	WS_NORMAL = 1000,
	WS_PROTOCOL = 1002,
	WS_BAD_DATA = 1007,
	WS_TOO_BIG = 1009,
	WS_INTERNAL = 1011,
};

#define WS_MASK 4
#define WS_KEY 24	   /* characters of Sec-WebSocket-Key */
#define WS_ACCEPT 29	   /* Sec-WebSocket-Accept with its NUL */
#define WS_CONTROL_MAX 125 /* bytes of a ping, pong or close */

struct ws_reader {
	bool is_server; /* frames of clients are masked, those of servers are not */
	size_t max;	/* bytes of one message, whole or in fragments */
	/* Its own: */
	struct buf in;	   /* frames */
	struct buf parts;  /* of a message in fragments */
	size_t used;	   /* of in: the message that was returned last */
	uint8_t fragments; /* the opcode of the message in fragments; 0: there is none */
	bool parts_used;   /* parts is the message that was returned last */
};

struct ws_message {
	enum ws_opcode opcode; /* never a continuation */
	const char *bytes;     /* valid until the next ws_feed or ws_next */
	size_t len;
	enum ws_code code; /* after an error */
};

void ws_feed(struct ws_reader *r, const void *bytes, size_t len);
/* 1: a message; 0: more bytes are needed; -1: the other side broke the rules, and it is over. */
int ws_next(struct ws_reader *r, struct ws_message *ret);
void ws_reader_done(struct ws_reader *r);

/* One frame. mask: of a client, WS_MASK bytes that nobody can guess; NULL: of a server. */
void ws_write(struct buf *out, enum ws_opcode opcode, const void *bytes, size_t len,
	      const uint8_t *mask);
void ws_write_close(struct buf *out, enum ws_code code, const uint8_t *mask);

/* Is it base64 of 16 bytes? */
bool ws_key_is_valid(const char *key);
/* What a server answers to a key. */
void ws_accept(const char *key, char ret[WS_ACCEPT]);
