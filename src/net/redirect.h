/*
 * Makes a network namespace lead to listeners instead of nowhere: local routes for everything that may be asked
 * for, and a tproxy rule for all TCP ports. No interface but loopback exists, so a rule that is lost only refuses.
 */
#pragma once

#include "base/base.h"
#include "net/rules.h"

#define NET_LISTENERS_MAX (4 + 2 * NET_UDP_PORTS)

enum net_redirect { NET_REDIRECT_NONE, NET_REDIRECT_TPROXY, NET_REDIRECT_PORTS, NET_REDIRECT_LOST };

struct net_setup {
	uint8_t everything; /* routes for all addresses, not only for names and networks */
	uint8_t network_count;
	uint8_t udp_count;
	unsigned char own4[4], own6[16]; /* addresses of the sandbox */
	unsigned char prefix6[8];	 /* ULA /64 of its synthetic addresses */
	struct network networks[64];	 /* of rules */
	uint16_t udp_ports[NET_UDP_PORTS];
	uint16_t tcp_ports[64]; /* for kernels without tproxy: ports that the rules name; 0 ends */
};

/* In this order: TCP 4, TCP 6, UDP 4 and UDP 6 of port 53, then a pair for each UDP port. -1: there is none. */
struct net_listeners {
	int how; /* enum net_redirect */
	uint32_t count;
	int fds[NET_LISTENERS_MAX];
};

/* From the compiled rules. */
void net_setup_from(struct net_setup *s, const void *policy);
/*
 * In the network namespace of this process, with CAP_NET_ADMIN over it. Straight-line system calls, no
 * allocation: usable in a child that shares memory.
 */
int net_redirect(const struct net_setup *s, struct net_listeners *ret, struct err *e);
void net_listeners_close(struct net_listeners *l);

/* Synthetic addresses: 198.18.0.0/15 and the sandbox's ULA /64 + index. */
#define NET_SYNTHETIC_MAX 131070
void net_synthetic4(uint32_t index, unsigned char ret[4]);
void net_synthetic6(const unsigned char prefix[8], uint32_t index, unsigned char ret[16]);
/* 0: not synthetic. */
uint32_t net_synthetic_index(const unsigned char prefix[8], const unsigned char address[16]);
