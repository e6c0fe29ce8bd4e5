/*
 * Reads the first message of a TLS client as its bytes arrive, however they are cut into records and segments: is
 * it TLS, and which server name does it ask for?
 */
#pragma once

#include "base/base.h"

#define TLS_NAME 256
#define TLS_HELLO_MAX (64u << 10) /* with the heads of its records */

enum tls_hello {
	TLS_MORE,      /* more bytes are needed */
	TLS_NOT,       /* this is not TLS */
	TLS_MALFORMED, /* it begins like TLS, but is not well-formed, or too long */
	TLS_NO_NAME,   /* a ClientHello without a server name */
	TLS_NAMED,
};

struct tls_hello_found {
	char name[TLS_NAME]; /* as it was sent; printable ASCII only */
	size_t len;	     /* bytes up to the end of the record that ends the hello */
};

enum tls_hello tls_hello_read(const unsigned char *bytes, size_t len, struct tls_hello_found *ret);

/*
 * Does the server ask for a second ClientHello (HelloRetryRequest, RFC 8446 4.1.4)? Its name could be another one.
 * 1: yes; 0: no; -1: more bytes are needed.
 */
int tls_server_retries(const unsigned char *bytes, size_t len);
