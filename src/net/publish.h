/*
 * A port of the host that leads to a port inside a sandbox: [ADDRESS:]PORT:PORT, the host's first; "8080:80",
 * "127.0.0.1:8080:80", "[::1]:8080:80". Without an address the host's loopback is meant.
 */
#pragma once

#include "base/base.h"

struct net_publish {
	unsigned char address[16]; /* IPv4 as its mapped IPv6 address */
	uint16_t port;		   /* of the host */
	uint16_t inner;
};

#define NET_PUBLISH_TEXT 64

int net_publish_parse(const char *text, struct net_publish *ret, struct err *e);
/* In the usual form, with the address. */
void net_publish_text(const struct net_publish *p, char ret[NET_PUBLISH_TEXT]);
/* A listening TCP socket on that address and port, which does not block. -1 with errno. */
int net_publish_listen(const struct net_publish *p);
