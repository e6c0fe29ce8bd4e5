/* What the files of the role `remote` share. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "policy/config.h"
#include "wire/service.h"

/*
 * ---- http.c ----
 * Requests to another service, by libcurl within the event loop: nothing blocks.
 *
 *   struct http *h = http_new(loop);
 *   struct http_ask ask = {.what = "...", .method = "POST", .url = url, .headers = &list, ...};
 *   call = http_start(h, &ask, done, arg);      done is called once, from the loop
 *   http_stop(call);                            and then no more
 */
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

/* ---- service.c: requests that an E2B-compatible service understands ---- */
#define SERVICE_KEY 512

struct service {
	struct http *http;
	struct config_e2b settings;
	char key[SERVICE_KEY];
	int guest; /* the program that is put into each sandbox */
	size_t guest_size;
};

/* id is ours, and goes into the sandbox's metadata. */
struct http_call *service_create(struct service *s, const char *id, http_done done, void *arg);
/* The error of an answer that is no success: e if there was no answer, or the service's refusal. */
struct err service_failure(const char *what, long status, const struct buf *body,
			   const struct err *e);

enum service_verb {
	SERVICE_CONNECT, /* also resumes a paused sandbox */
	SERVICE_PAUSE,
	SERVICE_KEEP,
	SERVICE_KILL,
	SERVICE_LIST, /* running sandboxes whose metadata has our id, which is passed as the name */
};
struct http_call *service_ask(struct service *s, enum service_verb verb, const char *name,
			      http_done done, void *arg);

struct http_call *service_upload(struct service *s, const struct service_sandbox *to,
				 const char *id, http_done done, void *arg);
struct http_call *service_bridge(struct service *s, const struct service_sandbox *to,
				 const char *id, http_data on_data, http_done done, void *arg);
struct http_call *service_input(struct service *s, const struct service_sandbox *to, uint32_t pid,
				const void *bytes, size_t len, http_done done, void *arg);

/*
 * ---- link.c ----
 * The link to a guest in a sandbox of the service. It carries bytes from one end of a socket pair to the
 * stdin of a bridge there (guest/link/bridge.h), and the bridge's stdout back. Both directions have bounded
 * buffers, so a slow side slows the other down. When anything breaks, the link ends: the guest keeps its
 * commands, and the next link continues them.
 */
struct remote_link;

struct remote_link_ops {
	/* Once, if it comes up: fd is the other end. */
	void (*on_up)(void *arg, int fd);
	/* Once; the link is freed then. Before on_up: it could not be made. */
	void (*on_end)(void *arg, const struct err *e);
};

struct remote_link *remote_link_open(struct loop *l, struct service *s,
				     const struct service_sandbox *to, const char *id,
				     const struct remote_link_ops *ops, void *arg);
/* Calls no callback. NULL: does nothing. */
void remote_link_close(struct remote_link *k);

/* ---- role.c: does what the broker asks (IPC_REMOTE_*) ---- */
/* Serves until the broker is gone; returns an exit status. */
int remote_role_run(struct loop *l, int broker, struct service *s);
