/*
 * Previews: a request goes on to a port inside a sandbox, and its answer comes back (rule 26). HTTP/1.1,
 * and upgrades (WebSockets) as a tunnel. What tells who the client is to us stays here.
 */
#pragma once

#include "api/http/http.h"
#include "calls/calls.h"
#include "manager/manager.h"

struct ports_target {
	uint32_t port;
	const char *path;   /* with its leading slash, as sent; the query is the exchange's */
	const char *prefix; /* of the public path, for X-Forwarded-Prefix, or "" */
	const char *host;   /* to be named inside; NULL: localhost and the port */
	bool own_host;	    /* a host name of its own: its cookies are its own, and pass */
};

/* The route's body is BODY_STREAM; the sandbox is awake. target is used during the call only. */
void ports_proxy(struct exchange *x, struct sandbox *s, const struct ports_target *target);

/*
 * Bytes both ways between an upgraded connection and a guest's stream (tunnel.c). Half-close goes
 * through; the end of both halves, or an error, ends it: raw and call are closed, done(arg) is called.
 */
struct tunnel;
struct tunnel *tunnel_new(struct loop *l, struct raw *raw, struct call *call, struct pump *pump,
			  void (*done)(void *arg), void *arg);
/* For its owner, who has the call's callbacks and its pump. False: it has ended. */
bool tunnel_to_client(struct tunnel *t, const void *bytes, size_t len);
/* How much it takes for the client. */
size_t tunnel_room(const struct tunnel *t);
void tunnel_to_guest(struct tunnel *t, const void *bytes, size_t len);
void tunnel_guest_room(struct tunnel *t);
void tunnel_guest_closed(struct tunnel *t); /* no more bytes come */
void tunnel_guest_ended(struct tunnel *t);  /* the call is gone */
