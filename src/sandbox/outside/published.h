/*
 * --publish: ports of the host that lead to ports of the sandbox's loopback. The keeper accepts outside, connects
 * inside, and passes bytes on; nothing here waits.
 */
#pragma once

#include "base/base.h"
#include "net/publish.h"

#include <poll.h>

#define PUBLISHED_PORTS 16
#define PUBLISHED_CONNECTIONS 64 /* at one time; more wait in the backlog */
#define PUBLISHED_POLLS (PUBLISHED_PORTS + 2 * PUBLISHED_CONNECTIONS)

struct published_connection;

struct published {
	int listeners[PUBLISHED_PORTS];
	uint16_t inner[PUBLISHED_PORTS];
	size_t port_count;
	struct published_connection *connections[PUBLISHED_CONNECTIONS];
	size_t count;
};

/* Opens the ports of the host. */
int published_open(struct published *p, const struct list *texts, struct err *e);
/* Returns how many it has filled in; published_serve wants the same. */
size_t published_polls(const struct published *p, struct pollfd polls[PUBLISHED_POLLS]);
/* anchor: see struct net_made. */
void published_serve(struct published *p, const struct pollfd *polls, int anchor);
void published_done(struct published *p);
