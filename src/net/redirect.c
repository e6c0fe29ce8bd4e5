/*
 * Redirects a network namespace to listeners of ours: addresses and routes by rtnetlink, sockets, the tproxy rule,
 * and a connection that proves them.
 */
#include "net/redirect.h"

#include "net/netlink.h"
#include "net/tproxy.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define LOOPBACK_INDEX 1 /* of lo in every network namespace */
#define BACKLOG 4096
#define PROBE_MS 2000

/* ---- synthetic addresses ---- */

#define SYNTHETIC4 0xc6120000u /* 198.18.0.0/15 */
#define SYNTHETIC4_BITS 15

void net_synthetic4(uint32_t index, unsigned char ret[4])
{
	uint32_t address = htonl(SYNTHETIC4 + index);

	memcpy(ret, &address, sizeof(address));
}

void net_synthetic6(const unsigned char prefix[8], uint32_t index, unsigned char ret[16])
{
	index = htonl(index);
	memcpy(ret, prefix, 8);
	memset(ret + 8, 0, 4);
	memcpy(ret + 12, &index, sizeof(index));
}

uint32_t net_synthetic_index(const unsigned char prefix[8], const unsigned char address[16])
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff}, zero[4];
	uint32_t low, index;

	memcpy(&low, address + 12, sizeof(low));
	low = ntohl(low);
	if (memcmp(address, mapped, sizeof(mapped)) == 0)
		index = low >= SYNTHETIC4 ? low - SYNTHETIC4 : 0;
	else if (memcmp(address, prefix, 8) == 0 && memcmp(address + 8, zero, sizeof(zero)) == 0)
		index = low;
	else
		return 0;
	return index <= NET_GATEWAY_INDEX ? index : 0;
}

/* ---- addresses and routes ---- */

static void add_address(struct netlink *n, int family, const void *address, size_t len)
{
	struct ifaddrmsg head = {.ifa_family = (uint8_t)family,
				 .ifa_prefixlen = (uint8_t)(len * 8),
				 .ifa_flags = IFA_F_NODAD,
				 .ifa_scope = RT_SCOPE_UNIVERSE,
				 .ifa_index = LOOPBACK_INDEX};

	netlink_begin(n, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof(head));
	netlink_attr(n, IFA_LOCAL, address, len);
	netlink_attr(n, IFA_ADDRESS, address, len);
}

/*
 * Without the preferred source a connection would come from its own destination. family also says how long an
 * address is.
 */
static void add_local_route(struct netlink *n, int family, const void *to, unsigned bits,
			    const void *own)
{
	size_t len = family == AF_INET ? 4 : 16;
	struct rtmsg head = {.rtm_family = (uint8_t)family,
			     .rtm_dst_len = (uint8_t)bits,
			     .rtm_table = RT_TABLE_LOCAL,
			     .rtm_protocol = RTPROT_BOOT,
			     .rtm_scope = RT_SCOPE_HOST,
			     .rtm_type = RTN_LOCAL};

	netlink_begin(n, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof(head));
	if (bits)
		netlink_attr(n, RTA_DST, to, len);
	netlink_attr(n, RTA_PREFSRC, own, len);
	netlink_attr_u32(n, RTA_OIF, LOOPBACK_INDEX);
}

/* Connects fail at once with EACCES instead of ENETUNREACH: it is forbidden, not broken. */
static void add_prohibit_route(struct netlink *n, int family)
{
	struct rtmsg head = {.rtm_family = (uint8_t)family,
			     .rtm_table = RT_TABLE_MAIN,
			     .rtm_protocol = RTPROT_BOOT,
			     .rtm_scope = RT_SCOPE_UNIVERSE,
			     .rtm_type = RTN_PROHIBIT};

	netlink_begin(n, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof(head));
}

static void bring_loopback_up(struct netlink *n)
{
	struct ifinfomsg head = {.ifi_family = AF_UNSPEC,
				 .ifi_index = LOOPBACK_INDEX,
				 .ifi_flags = IFF_UP,
				 .ifi_change = IFF_UP};

	netlink_begin(n, RTM_NEWLINK, 0, &head, sizeof(head));
}

static bool is_mapped(const struct network *a)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	return a->bits >= 96 && memcmp(a->address, mapped, sizeof(mapped)) == 0;
}

/* The kernel has routes for these; ours would change the source of connections to own servers. */
static bool is_loopback(const struct network *a)
{
	static const unsigned char loopback6[16] = {[15] = 1};

	if (is_mapped(a))
		return a->bits >= 104 && a->address[12] == 127;
	return a->bits == 128 && memcmp(a->address, loopback6, sizeof(loopback6)) == 0;
}

static void add_networks(struct netlink *n, const struct net_setup *s, int family)
{
	for (unsigned i = 0; i < s->network_count && i < ARRAY_LEN(s->networks); i++) {
		const struct network *a = &s->networks[i];

		if (is_mapped(a) != (family == AF_INET) || is_loopback(a))
			continue;
		if (family == AF_INET)
			add_local_route(n, family, a->address + 12, a->bits - 96, s->own4);
		else
			add_local_route(n, family, a->address, a->bits, s->own6);
	}
}

static int send_confirmed(struct netlink *n)
{
	netlink_confirm(n);
	return netlink_send(n);
}

static int route4(struct netlink *n, const struct net_setup *s, struct err *e)
{
	unsigned char base[4];

	net_synthetic4(0, base);
	bring_loopback_up(n);
	add_address(n, AF_INET, s->own4, sizeof(s->own4));
	add_local_route(n, AF_INET, base, SYNTHETIC4_BITS, s->own4);
	add_networks(n, s, AF_INET);
	if (s->everything)
		add_local_route(n, AF_INET, NULL, 0, s->own4);
	add_prohibit_route(n, AF_INET);
	return send_confirmed(n) < 0 ? err_sys(e, "cannot set up IPv4 in the network namespace")
				     : 0;
}

/* *ret_has: false where the host has no IPv6. */
static int route6(struct netlink *n, const struct net_setup *s, bool *ret_has, struct err *e)
{
	unsigned char base[16];

	net_synthetic6(s->prefix6, 0, base);
	add_address(n, AF_INET6, s->own6, sizeof(s->own6));
	*ret_has = send_confirmed(n) == 0;
	if (!*ret_has)
		return 0;
	add_local_route(n, AF_INET6, base, 64, s->own6);
	add_networks(n, s, AF_INET6);
	if (s->everything)
		add_local_route(n, AF_INET6, NULL, 0, s->own6);
	add_prohibit_route(n, AF_INET6);
	return send_confirmed(n) < 0 ? err_sys(e, "cannot set up IPv6 in the network namespace")
				     : 0;
}

static int add_routes(const struct net_setup *s, bool *ret_has6, struct err *e)
{
	struct netlink n;
	int rc;

	if (netlink_init(&n, NETLINK_ROUTE) < 0)
		return err_sys(e, "cannot open a netlink socket");
	rc = route4(&n, s, e) < 0 || route6(&n, s, ret_has6, e) < 0 ? -1 : 0;
	netlink_done(&n);
	return rc;
}

/* ---- listeners ---- */

union any_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t make_address(union any_address *ret, int family, const void *address,
			      uint16_t port)
{
	*ret = (union any_address){.any.sa_family = (sa_family_t)family};
	if (family == AF_INET) {
		ret->v4.sin_port = htons(port);
		if (address)
			memcpy(&ret->v4.sin_addr, address, 4);
		return sizeof(ret->v4);
	}
	ret->v6.sin6_port = htons(port);
	if (address)
		memcpy(&ret->v6.sin6_addr, address, 16);
	return sizeof(ret->v6);
}

static int set_option(int fd, int level, int option)
{
	return setsockopt(fd, level, option, &(int){1}, sizeof(int));
}

struct wanted {
	int family, type;
	const void *address; /* NULL: any */
	uint16_t port;
	bool transparent;
};

/* A reply to a UDP packet must leave from the address that was asked; an IPv6 one needs FREEBIND for that. */
static int set_options(int fd, const struct wanted *w)
{
	bool v6 = w->family == AF_INET6;

	if (v6 && set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY) < 0)
		return -1;
	if (w->transparent)
		return v6 ? set_option(fd, IPPROTO_IPV6, IPV6_TRANSPARENT)
			  : set_option(fd, IPPROTO_IP, IP_TRANSPARENT);
	if (w->type == SOCK_STREAM)
		return 0;
	if (!v6)
		return set_option(fd, IPPROTO_IP, IP_PKTINFO);
	return set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO) < 0
		       ? -1
		       : set_option(fd, IPPROTO_IPV6, IPV6_FREEBIND);
}

static int add_listener(struct net_listeners *l, const struct wanted *w, struct err *e)
{
	auto_close int fd = socket(w->family, w->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union any_address a;
	socklen_t len = make_address(&a, w->family, w->address, w->port);

	if (l->count == NET_LISTENERS_MAX)
		return err_set(e, ERR_LIMIT, "too many ports to redirect");
	if (fd < 0 || set_options(fd, w) < 0 || bind(fd, &a.any, len) < 0 ||
	    (w->type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return err_sys(e, "cannot listen on port %u of the network namespace", w->port);
	l->fds[l->count++] = take_fd(&fd);
	return 0;
}

static int add_pair(struct net_listeners *l, int type, uint16_t port, bool has6, struct err *e)
{
	if (add_listener(l, &(struct wanted){AF_INET, type, NULL, port, false}, e) < 0)
		return -1;
	if (!has6)
		return 0;
	return add_listener(l, &(struct wanted){AF_INET6, type, NULL, port, false}, e);
}

static int listen_udp(const struct net_setup *s, struct net_listeners *l, bool has6, struct err *e)
{
	if (add_pair(l, SOCK_DGRAM, 53, has6, e) < 0)
		return -1;
	for (unsigned i = 0; i < s->udp_count && i < NET_UDP_PORTS; i++)
		if (s->udp_ports[i] != 53 && add_pair(l, SOCK_DGRAM, s->udp_ports[i], has6, e) < 0)
			return -1;
	return 0;
}

static int listen_transparent(struct net_listeners *l, bool has6, struct err *e)
{
	static const unsigned char loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
	struct wanted v4 = {AF_INET, SOCK_STREAM, loopback4, TPROXY_PORT, true};
	struct wanted v6 = {AF_INET6, SOCK_STREAM, loopback6, TPROXY_PORT, true};

	if (add_listener(l, &v4, e) < 0)
		return -1;
	return has6 ? add_listener(l, &v6, e) : 0;
}

/* localhost:PORT inside is what it is outside, unless a program here has the port already. */
static void listen_on_localhost(const struct net_setup *s, struct net_listeners *l, bool has6)
{
	static const unsigned char loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
	struct err ignored;

	for (unsigned i = 0; i < NET_LOCALHOST_PORTS && s->localhost_ports[i]; i++) {
		uint16_t port = s->localhost_ports[i];
		struct wanted v4 = {AF_INET, SOCK_STREAM, loopback4, port, false};
		struct wanted v6 = {AF_INET6, SOCK_STREAM, loopback6, port, false};

		(void)!add_listener(l, &v4, &ignored);
		if (has6)
			(void)!add_listener(l, &v6, &ignored);
	}
}

static int listen_on_ports(const struct net_setup *s, struct net_listeners *l, bool has6,
			   struct err *e)
{
	static const uint16_t proxies[] = {NET_HTTP_PROXY_PORT, NET_SOCKS_PORT};
	unsigned char gateway[4];

	net_synthetic4(NET_GATEWAY_INDEX, gateway);
	for (size_t i = 0; i < ARRAY_LEN(proxies); i++)
		if (add_listener(l,
				 &(struct wanted){AF_INET, SOCK_STREAM, gateway, proxies[i], false},
				 e) < 0)
			return -1;
	for (unsigned i = 0; i < NET_PORTS_MAX && s->tcp_ports[i]; i++)
		if (add_pair(l, SOCK_STREAM, s->tcp_ports[i], has6, e) < 0)
			return -1;
	return 0;
}

void net_listeners_close(struct net_listeners *l)
{
	while (l->count > 0)
		close_fd(&l->fds[--l->count]);
}

/* ---- proof ---- */

/* A new namespace may have other devices, such as tunl0, but they are down. */
static bool only_loopback_is_up(void)
{
	struct ifinfomsg head = {.ifi_family = AF_UNSPEC};
	struct netlink n;
	bool seen = false, good = true, more = true;

	if (netlink_init(&n, NETLINK_ROUTE) < 0)
		return false;
	netlink_begin(&n, RTM_GETLINK, NLM_F_DUMP, &head, sizeof(head));
	more = send(n.fd, n.bytes, n.len, 0) > 0;
	while (more) {
		ssize_t got = recv(n.fd, n.bytes, sizeof(n.bytes), 0);
		unsigned len = got > 0 ? (unsigned)got : 0;

		good = good && got > 0;
		more = got > 0;
		for (struct nlmsghdr *h = (void *)n.bytes; more && NLMSG_OK(h, len);
		     h = NLMSG_NEXT(h, len)) {
			const struct ifinfomsg *link = NLMSG_DATA(h);

			more = h->nlmsg_type == RTM_NEWLINK;
			seen = seen || (more && link->ifi_index == LOOPBACK_INDEX);
			if (more && link->ifi_index != LOOPBACK_INDEX && (link->ifi_flags & IFF_UP))
				good = false;
		}
	}
	netlink_done(&n);
	return good && seen;
}

static bool same_address(int fd, const union any_address *want, socklen_t len)
{
	union any_address got = {0};
	socklen_t size = sizeof(got);

	if (getsockname(fd, &got.any, &size) < 0 || size != len)
		return false;
	if (want->any.sa_family == AF_INET)
		return got.v4.sin_port == want->v4.sin_port &&
		       got.v4.sin_addr.s_addr == want->v4.sin_addr.s_addr;
	return got.v6.sin6_port == want->v6.sin6_port &&
	       memcmp(&got.v6.sin6_addr, &want->v6.sin6_addr, 16) == 0;
}

/* Somebody's connection to one of our listeners; -1: none is waiting. */
static int accept_any(const struct net_listeners *l)
{
	for (uint32_t i = 0; i < l->count; i++) {
		int fd = accept4(l->fds[i], NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
	}
	return -1;
}

static bool has_peer(int fd, int other)
{
	union any_address peer = {0}, own = {0};
	socklen_t peer_len = sizeof(peer), own_len = sizeof(own);

	return getpeername(fd, &peer.any, &peer_len) == 0 &&
	       getsockname(other, &own.any, &own_len) == 0 && peer_len == own_len &&
	       memcmp(&peer, &own, own_len) == 0;
}

/*
 * The other end of a connection of ours; -1: it does not arrive in time. Programs inside may connect at the same
 * time, when listeners replace others: these connections are closed.
 */
static int accept_own(const struct net_listeners *l, int own)
{
	int64_t deadline = now_ns() + PROBE_MS * 1000000LL, left = PROBE_MS;
	struct pollfd polls[NET_LISTENERS_MAX];
	int fd;

	for (uint32_t i = 0; i < l->count; i++)
		polls[i] = (struct pollfd){l->fds[i], POLLIN, 0};
	for (; left > 0; left = (deadline - now_ns()) / 1000000) {
		fd = accept_any(l);
		if (fd < 0)
			poll(polls, l->count, (int)left);
		else if (has_peer(fd, own))
			return fd;
		else
			close(fd);
	}
	return -1;
}

/* A connection to the gateway must arrive here, with its destination. */
static bool probe_arrives(const struct net_setup *s, const struct net_listeners *l, int family)
{
	const struct linger reset = {.l_onoff = 1};
	auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	auto_close int accepted = -1;
	unsigned char gateway[16];
	union any_address a;
	socklen_t len;

	if (family == AF_INET)
		net_synthetic4(NET_GATEWAY_INDEX, gateway);
	else
		net_synthetic6(s->prefix6, NET_GATEWAY_INDEX, gateway);
	len = make_address(&a, family, gateway, NET_HTTP_PROXY_PORT);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) < 0 ||
	    (connect(fd, &a.any, len) < 0 && errno != EINPROGRESS))
		return false;
	accepted = accept_own(l, fd);
	return accepted >= 0 && same_address(accepted, &a, len);
}

/* An address that no rule names must be refused. */
static bool probe_is_refused(const struct net_setup *s)
{
	static const unsigned char documentation[4] = {192, 0, 2, 1};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct network probe = {.address = {[10] = 0xff, 0xff, 192, 0, 2, 1}, .bits = 128};
	union any_address a;
	socklen_t len = make_address(&a, AF_INET, documentation, 9);

	if (s->everything)
		return true;
	for (unsigned i = 0; i < s->network_count; i++)
		if (network_has(&s->networks[i], &probe))
			return true;
	return fd >= 0 && connect(fd, &a.any, len) < 0 && errno == EACCES;
}

/* ---- all of it ---- */

/* IPv6 has no listener for the gateway where there is no tproxy. */
static bool is_proven(const struct net_setup *s, const struct net_listeners *l, bool has6)
{
	return probe_arrives(s, l, AF_INET) &&
	       (!has6 || l->how != NET_REDIRECT_TPROXY || probe_arrives(s, l, AF_INET6));
}

static int try_tproxy(const struct net_setup *s, struct net_listeners *l, bool has6, struct err *e)
{
	l->how = NET_REDIRECT_TPROXY;
	if (listen_transparent(l, has6, e) < 0)
		return -1;
	if (tproxy_add(s) < 0)
		return err_sys(e, "cannot add a tproxy rule");
	if (!is_proven(s, l, has6))
		return err_set(e, ERR_SYSTEM, "the tproxy rule has no effect");
	listen_on_localhost(s, l, has6);
	return 0;
}

static int try_ports(const struct net_setup *s, struct net_listeners *l, bool has6, struct err *e)
{
	l->how = NET_REDIRECT_PORTS;
	if (listen_on_ports(s, l, has6, e) < 0)
		return -1;
	return is_proven(s, l, has6) ? 0 : err_set(e, ERR_SYSTEM, "connections are not redirected");
}

int net_redirect(const struct net_setup *s, struct net_listeners *ret, struct err *e)
{
	struct net_listeners l = {0};
	bool has6 = false;

	if (add_routes(s, &has6, e) < 0)
		return -1;
	if (!only_loopback_is_up())
		return err_set(e, ERR_SYSTEM, "the network namespace has other interfaces than lo");
	if (!probe_is_refused(s))
		return err_set(e, ERR_SYSTEM, "the network namespace does not refuse addresses");
	if (try_tproxy(s, &l, has6, e) < 0) {
		net_listeners_close(&l);
		if (try_ports(s, &l, has6, e) < 0)
			goto fail;
	}
	if (listen_udp(s, &l, has6, e) < 0)
		goto fail;
	*ret = l;
	return 0;
fail:
	net_listeners_close(&l);
	return -1;
}
