/*
 * The link to a guest in a sandbox elsewhere: bytes of one end of a socket pair to the stdin of a
 * bridge there (guest/link/bridge.h), and its stdout back. Both ways what waits is bounded, and whoever is
 * slow slows the other down. When the stream or anything else breaks, the link ends: the guest
 * keeps its commands, and another link takes them up.
 */
#pragma once

#include "provider/e2b/remote/service.h"

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
/* Without a callback. */
void remote_link_close(struct remote_link *k);
