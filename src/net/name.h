/*
 * The one reader of host names and addresses that come from rules, queries, SNI, Host headers and proxy
 * requests. Whatever compares two names compares what this returns.
 */
#pragma once

#include "base/base.h"
#include "base/network.h"

#define NET_NAME 256 /* with its end */

enum net_target { NET_IS_NAME = 1, NET_IS_ADDRESS };

/*
 * Reads a host: NET_IS_NAME with ret_name in lower case, in ASCII (other letters as xn--), without a dot at its
 * end; or NET_IS_ADDRESS with ret_address (digits in the usual form, in brackets or not; IPv4 as its mapped
 * IPv6 address). -1: neither; e says why. Octal, hexadecimal and short forms of addresses, scope ids, NUL,
 * percent signs, blanks and '@' are refused, not interpreted.
 */
int net_host(const char *text, size_t len, char ret_name[NET_NAME], struct network *ret_address,
	     struct err *e);

/* What kind of address it is; everything but NET_PUBLIC_ADDRESS needs a rule that names it. */
enum net_address_kind {
	NET_PUBLIC_ADDRESS,
	NET_LOOPBACK_ADDRESS,
	NET_PRIVATE_ADDRESS,
	NET_CGNAT_ADDRESS,
	NET_LINK_LOCAL_ADDRESS, /* metadata services are here, too */
	NET_MULTICAST_ADDRESS,
	NET_RESERVED_ADDRESS, /* documentation, benchmarks, this network, whatever is not assigned */
};

/* Looks through mapped, compatible, 6to4, Teredo and NAT64 forms. */
enum net_address_kind net_address_kind(const unsigned char address[16]);
/*
 * The same, and how many bits a network must have to be about such addresses only: 10.0.0.0/8 names private
 * addresses, 8.0.0.0/5 and 0.0.0.0/0 do not. Of a public address: 0, of a mapped one 96.
 */
enum net_address_kind net_address_range(const unsigned char address[16], unsigned *ret_bits);
const char *net_address_kind_name(enum net_address_kind kind);
/* In digits, IPv6 in brackets if `brackets`. */
#define NET_ADDRESS_TEXT 56
void net_address_text(const unsigned char address[16], bool brackets, char ret[NET_ADDRESS_TEXT]);
