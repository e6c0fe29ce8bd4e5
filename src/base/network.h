/* Addresses and networks in digits: "10.0.0.0/8", "::1". IPv4 is kept as its mapped IPv6 address. */
#pragma once

#include "base/base.h"

struct network {
	unsigned char address[16];
	unsigned bits;
};

/* False: neither an address nor a network. */
bool network_parse(const char *text, struct network *ret);
bool network_has(const struct network *n, const struct network *address);
