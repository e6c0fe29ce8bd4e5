/*
 * Checks the Host and Origin headers, against web pages that reach the daemon under a name of their own
 * (DNS rebinding) or from another site.
 */
#pragma once

#include "base/base.h"

/* Additional names of the daemon: "host", "*.domain", with or without a port. */
struct gate {
	const char (*hosts)[256];
	size_t host_count;
	const char (*origins)[256];
	size_t origin_count;
};

/* Loopback names, addresses in digits (which no name server can rebind), and the configured ones. */
bool gate_host_is_fine(const struct gate *g, const char *host);
/* The page is on this very host, on a loopback name, or on a configured origin. */
bool gate_origin_is_fine(const struct gate *g, const char *origin, const char *host);

/*
 * The client's address behind proxies that are named (addresses or networks): of X-Forwarded-For the last one
 * that is no such proxy. Otherwise, and if the header is malformed, the peer itself.
 */
void gate_client(const char (*proxies)[256], size_t count, const char *peer, const char *forwarded,
		 char *ret, size_t size);
/*
 * Under which name an address is counted: of IPv6 its network of 64 bits, since one client has all of that.
 * What is no address stays as it is.
 */
void gate_neighbours(const char *address, char *ret, size_t size);
