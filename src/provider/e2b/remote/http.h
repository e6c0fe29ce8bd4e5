/*
 * Requests to another service, by libcurl within our loop: nothing here waits.
 *
 *   struct http *h = http_new(loop);
 *   struct http_ask ask = {.what = "...", .method = "POST", .url = url, .headers = &list, ...};
 *   call = http_start(h, &ask, done, arg);      done is called once, from the loop
 *   http_stop(call);                            and then no more
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"

struct http;
struct http_call;

/* status 0: e says why there is no answer; else body is what came (empty for a stream). */
typedef void (*http_done)(void *arg, long status, const struct buf *body, const struct err *e);
/* Bytes of a stream's answer. False: not now; they come again after http_go_on. */
typedef bool (*http_data)(void *arg, const char *bytes, size_t len);

struct http_ask {
	const char *what; /* for messages: "make a sandbox"; lives as long as the call */
	const char *method;
	const char *url;
	const struct list *headers; /* "Name: value"; copied */
	const void *body;	    /* copied, or NULL */
	size_t len;
	int file; /* with file_name: uploaded as the form's part `file`, read from its start */
	size_t file_size;
	const char *file_name;
	http_data on_data; /* a stream: no limit to its length and duration */
};

struct http *http_new(struct loop *l, struct err *e);
struct http_call *http_start(struct http *h, const struct http_ask *ask, http_done done, void *arg);
void http_stop(struct http_call *c);
void http_go_on(struct http_call *c);
