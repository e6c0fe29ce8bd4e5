/* SOCKS5 (RFC 1928) as far as it is served: CONNECT without authentication. Lengths are taken literally. */
#pragma once

#include "base/base.h"

enum socks_reply {
	SOCKS_DONE,
	SOCKS_FAILURE,
	SOCKS_NOT_ALLOWED,
	SOCKS_NET_UNREACHABLE,
	SOCKS_UNREACHABLE,
	SOCKS_REFUSED,
	SOCKS_TTL,
	SOCKS_NO_COMMAND,
	SOCKS_NO_ADDRESS_TYPE,
};

struct socks_request {
	char host[256];		   /* as it was sent, without a zero byte; "": an address */
	unsigned char address[16]; /* IPv4 as its mapped IPv6 address */
	uint16_t port;
};

/*
 * Each: how many bytes it is long; 0: more are needed; -1: refused. The greeting is answered with 5, 0 then, or with
 * 5, 255; a request with *ret_reply.
 */
ssize_t socks_greeting(const unsigned char *bytes, size_t len);
ssize_t socks_request(const unsigned char *bytes, size_t len, struct socks_request *ret,
		      enum socks_reply *ret_reply);
/* An answer to a request; the address in it says nothing. */
void socks_answer(struct buf *out, enum socks_reply reply);
