/*
 * Makes a network namespace lead to listeners instead of nowhere: local routes for everything that may be asked
 * for, and a tproxy rule for all TCP ports. No interface but loopback exists, so a rule that is lost only refuses.
 */
#pragma once

#include "base/base.h"
#include "net/rules.h"

#define NET_LOCALHOST_PORTS 12 /* of the host's loopback, at their own places */
#define NET_PORTS_MAX 12       /* TCP ports that can be redirected without tproxy */
/* A pair (IPv4, IPv6) for names, for each UDP port and for TCP; without tproxy for each TCP port, and the proxies. */
#define NET_LISTENERS_MAX (2 + 2 * NET_UDP_PORTS + 2 * NET_PORTS_MAX + 2)

enum net_redirect { NET_REDIRECT_NONE, NET_REDIRECT_TPROXY, NET_REDIRECT_PORTS, NET_REDIRECT_LOST };

struct net_setup {
	uint8_t everything; /* routes for all addresses, not only for names and networks */
	uint8_t network_count;
	uint8_t udp_count;
	unsigned char own4[4], own6[16]; /* the sandbox's own: the source of its connections */
	unsigned char prefix6[8];	 /* ULA /64 of its synthetic addresses */
	struct network networks[64];	 /* of rules */
	uint16_t udp_ports[NET_UDP_PORTS];
	uint16_t localhost_ports[NET_LOCALHOST_PORTS + 1]; /* TCP; 0 ends */
	uint16_t tcp_ports[NET_PORTS_MAX + 1];		   /* for kernels without tproxy: 0 ends */
};

/*
 * Listening TCP sockets and UDP sockets, in no order: SO_TYPE and SO_DOMAIN tell them apart, getsockname tells
 * the port. All are non-blocking. UDP sockets have IP_PKTINFO or IPV6_RECVPKTINFO. No IPv6 ones where the host
 * has no IPv6.
 */
struct net_listeners {
	int how; /* enum net_redirect */
	uint32_t count;
	int fds[NET_LISTENERS_MAX];
};

/* Do connections to this address arrive at a listener? */
bool net_setup_leads_to(const struct net_setup *s, const unsigned char address[16]);
/* From the compiled rules (checked), with new random addresses. */
void net_setup_from(struct net_setup *s, const void *policy);
/*
 * In the network namespace of this process, with CAP_NET_ADMIN over it. Straight-line system calls, no
 * allocation: usable in a child that shares memory. A namespace that was redirected before gets new listeners;
 * the old ones must be closed.
 */
int net_redirect(const struct net_setup *s, struct net_listeners *ret, struct err *e);
void net_listeners_close(struct net_listeners *l);

/*
 * Synthetic addresses: 198.18.0.0/15 and the sandbox's ULA /64 + index. Index 0 is no address. The gateway's
 * address is redirected like any other: connections to it on these ports want an explicit proxy.
 */
#define NET_SYNTHETIC_MAX 131068 /* of names */
#define NET_GATEWAY_INDEX 131070 /* 198.19.255.254 */
#define NET_HTTP_PROXY_PORT 3128
#define NET_SOCKS_PORT 1080
void net_synthetic4(uint32_t index, unsigned char ret[4]);
void net_synthetic6(const unsigned char prefix[8], uint32_t index, unsigned char ret[16]);
/* 0: not synthetic. */
uint32_t net_synthetic_index(const unsigned char prefix[8], const unsigned char address[16]);
