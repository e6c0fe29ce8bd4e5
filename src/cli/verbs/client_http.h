/*
 * A small HTTP/1.1 client for the daemon's own API: over its Unix socket or loopback TCP, one
 * request at a time, bodies streamed both ways. Blocking; the caller may poll http_fd.
 *
 *   struct http_client *h = http_open(&target, &e);
 *   http_send(h, &(struct http_request){.method = "GET", .path = "/v1/sandboxes"}, &e);
 *   http_receive(h, &response, &e);            head
 *   while ((n = http_read(h, buf, sizeof(buf), &e)) > 0) ...
 *   http_close(h);                             or http_send again, once the body was read
 */
#pragma once

#include "base/base.h"

struct http_target {
	char unix_path[108]; /* "": TCP */
	char host[256], port[8];
	char token[256]; /* "": none */
};

enum { HTTP_NO_BODY = -1, HTTP_CHUNKED = -2 };

struct http_request {
	const char *method, *path;
	const char *accept;	  /* or NULL */
	const char *content_type; /* or NULL */
	const char *const (
		*extra)[2]; /* more headers: name and value (NULL: left out), ends with NULL */
	const void *body;   /* whole, or NULL */
	size_t body_len;
	int64_t stream_len; /* without body: bytes that follow by http_write; 0: no body */
};

struct http_response {
	int status;
	int64_t length; /* of the body; -1: not known beforehand */
};

struct http_client;

/* Parses "http://HOST:PORT" or "unix:/PATH". */
int http_target_parse(const char *url, struct http_target *ret, struct err *e);
struct http_client *http_open(const struct http_target *t, struct err *e);
void http_close(struct http_client *h);

/* Formats the head of a request, and its body if that is whole. */
void http_format(struct buf *out, const struct http_target *t, const struct http_request *r);
int http_send(struct http_client *h, const struct http_request *r, struct err *e);
/* Sends pieces of a streamed body. 1: the other side reads no more; its answer says why. */
int http_write(struct http_client *h, const void *bytes, size_t len, struct err *e);
int http_write_end(struct http_client *h, struct err *e);

int http_receive(struct http_client *h, struct http_response *ret, struct err *e);
/* Reads up to len bytes of the body; 0 at its end; -1. */
ssize_t http_read(struct http_client *h, void *bytes, size_t len, struct err *e);
/* After 101: the bytes received after the head. The caller drops those that it used. */
struct buf *http_rest(struct http_client *h);
/* A header of the last answer, or NULL. */
const char *http_header(const struct http_client *h, const char *name);
int http_fd(const struct http_client *h);
/* While an answer is awaited, called after each so many milliseconds without a byte. */
void http_on_idle(struct http_client *h, int ms, void (*call)(void *arg), void *arg);

/* Encodes text as part of a URL: all but letters, digits and -._~ (and '/' if keep_slash). */
void http_encode(char *dst, size_t size, const char *text, bool keep_slash);
