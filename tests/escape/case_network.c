/* Ways to a network: socket families, the host's loopback, routes, interfaces. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NO_FAMILY ERRS(EAFNOSUPPORT, EPERM, EACCES, EPROTONOSUPPORT, ESOCKTNOSUPPORT)

struct family {
	int family, type, protocol;
};

static void make_socket(struct probe *p)
{
	const struct family *f = p->c->arg;
	auto_close int fd = socket(f->family, f->type, f->protocol);

	judge(p, "socket", fd, NO_FAMILY);
}

/* The kernel takes the low 32 bits of the family. */
static void family_high_bits(struct probe *p)
{
	static const struct family rows[] = {
		{38, SOCK_SEQPACKET, 0},
		{40, SOCK_STREAM, 0},
		{17, SOCK_RAW, 0},
		{16, SOCK_RAW, 6},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		unsigned long family = (unsigned long)rows[i].family | 1ul << 32;
		long fd = syscall(SYS_socket, family, rows[i].type, rows[i].protocol);

		judge(p, "socket with high bits", fd, NO_FAMILY);
		if (fd >= 0)
			close((int)fd);
	}
}

static const struct family f_vsock = {40, SOCK_STREAM, 0}, f_alg = {38, SOCK_SEQPACKET, 0},
			   f_rxrpc = {33, SOCK_DGRAM, 2}, f_key = {15, SOCK_RAW, 2},
			   f_packet = {17, SOCK_DGRAM, 0}, f_xfrm = {16, SOCK_RAW, 6},
			   f_netfilter = {16, SOCK_RAW, 12}, f_audit = {16, SOCK_RAW, 9},
			   f_uevent = {16, SOCK_RAW, 15}, f_sock_diag = {16, SOCK_RAW, 4},
			   f_generic = {16, SOCK_RAW, 16}, f_xdp = {44, SOCK_RAW, 0},
			   f_tipc = {30, SOCK_RDM, 0}, f_can = {29, SOCK_RAW, 1},
			   f_bluetooth = {31, SOCK_RAW, 1}, f_smc = {43, SOCK_STREAM, 0},
			   f_raw = {AF_INET, SOCK_RAW, 1}, f_raw6 = {AF_INET6, SOCK_RAW, 58},
			   f_ping = {AF_INET, SOCK_DGRAM, 1}, f_pppox = {24, SOCK_STREAM, 0},
			   f_qipcrtr = {42, SOCK_DGRAM, 0}, f_kcm = {41, SOCK_DGRAM, 0},
			   f_nfc = {39, SOCK_SEQPACKET, 0}, f_sctp = {AF_INET, SOCK_STREAM, 132},
			   f_mctp = {45, SOCK_DGRAM, 0}, f_ib = {27, SOCK_RAW, 0};

#define FAMILY(name, title, arg)                                                                   \
	{                                                                                          \
		"family-" name, 25, "a socket of " title, SAFE | CONTROL_NS, L(SECCOMP), 0,        \
			make_socket, &arg                                                          \
	}

static const struct probe_case family_cases[] = {
	FAMILY("vsock", "AF_VSOCK", f_vsock),
	FAMILY("alg", "AF_ALG", f_alg),
	FAMILY("rxrpc", "AF_RXRPC", f_rxrpc),
	FAMILY("key", "AF_KEY", f_key),
	FAMILY("packet", "AF_PACKET", f_packet),
	FAMILY("netlink-xfrm", "NETLINK_XFRM", f_xfrm),
	FAMILY("netlink-netfilter", "NETLINK_NETFILTER", f_netfilter),
	FAMILY("netlink-audit", "NETLINK_AUDIT", f_audit),
	FAMILY("netlink-uevent", "NETLINK_KOBJECT_UEVENT", f_uevent),
	FAMILY("netlink-diag", "NETLINK_SOCK_DIAG", f_sock_diag),
	FAMILY("netlink-generic", "NETLINK_GENERIC", f_generic),
	FAMILY("xdp", "AF_XDP", f_xdp),
	FAMILY("tipc", "AF_TIPC", f_tipc),
	FAMILY("can", "AF_CAN", f_can),
	FAMILY("bluetooth", "AF_BLUETOOTH", f_bluetooth),
	FAMILY("smc", "AF_SMC", f_smc),
	FAMILY("raw", "AF_INET, raw", f_raw),
	FAMILY("raw6", "AF_INET6, raw", f_raw6),
	FAMILY("ping", "AF_INET, ICMP", f_ping),
	FAMILY("pppox", "AF_PPPOX", f_pppox),
	FAMILY("qipcrtr", "AF_QIPCRTR", f_qipcrtr),
	FAMILY("kcm", "AF_KCM", f_kcm),
	FAMILY("nfc", "AF_NFC", f_nfc),
	FAMILY("sctp", "SCTP", f_sctp),
	FAMILY("mctp", "AF_MCTP", f_mctp),
	FAMILY("ib", "AF_IB", f_ib),
	{"family-high-bits", 25, "a forbidden family with bits above 32 set", SAFE, L(SECCOMP), 0,
	 family_high_bits, 0},
};
const struct case_group group_families = {family_cases, ARRAY_LEN(family_cases)};

#define NO_ROUTE                                                                                   \
	ERRS(ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EPERM, EACCES, EAFNOSUPPORT, EADDRNOTAVAIL,  \
	     ENETDOWN)

/* Connects and waits for the planted process to say its tag. */
static void reach(struct probe *p, const struct sockaddr *to, socklen_t len, int type)
{
	const char *tag = need(p, "host");
	auto_close int fd = -1;
	struct pollfd poll_fd;
	char buf[128] = "";

	if (!tag)
		return;
	fd = socket(to->sa_family, type | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
		return;
	}
	if (connect(fd, to, len) < 0) {
		judge(p, "connect", -1, NO_ROUTE);
		return;
	}
	if (type == SOCK_DGRAM && send(fd, "?", 1, MSG_NOSIGNAL) < 0) {
		judge(p, "send", -1, NO_ROUTE);
		return;
	}
	poll_fd = (struct pollfd){.fd = fd, .events = POLLIN};
	if (poll(&poll_fd, 1, 1000) != 1 || recv(fd, buf, sizeof(buf) - 1, 0) <= 0)
		refused(p, "nobody answers: %s", errno_name(errno));
	else if (strstr(buf, tag))
		got_through(p, "the host's listener answered");
	else
		refused(p, "somebody else answers");
}

static void reach4(struct probe *p, const char *addr, const char *port, int type)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	if (inet_pton(AF_INET, addr, &to.sin_addr) == 1)
		reach(p, (struct sockaddr *)&to, sizeof(to), type);
}

static void host_tcp(struct probe *p)
{
	const char *port = need(p, "tcp"), *addr = given("addr");

	if (!port)
		return;
	reach4(p, "127.0.0.1", port, SOCK_STREAM);
	reach4(p, "0.0.0.0", port, SOCK_STREAM);
	reach4(p, "127.1.2.3", port, SOCK_STREAM);
	if (addr)
		reach4(p, addr, port, SOCK_STREAM);
}

static void host_udp(struct probe *p)
{
	const char *port = need(p, "udp"), *addr = given("addr");

	if (!port)
		return;
	reach4(p, "127.0.0.1", port, SOCK_DGRAM);
	if (addr)
		reach4(p, addr, port, SOCK_DGRAM);
}

static void host_tcp6(struct probe *p)
{
	static const char *const addrs[] = {"::1", "::ffff:127.0.0.1"};
	const char *port = need(p, "tcp6");
	struct sockaddr_in6 to = {.sin6_family = AF_INET6};

	for (size_t i = 0; port && i < ARRAY_LEN(addrs); i++) {
		const char *use = i == 0 ? port : given("tcp");

		to.sin6_port = htons((uint16_t)atoi(use ? use : port));
		inet_pton(AF_INET6, addrs[i], &to.sin6_addr);
		reach(p, (struct sockaddr *)&to, sizeof(to), SOCK_STREAM);
	}
}

/* sendto with MSG_FASTOPEN connects without connect(). */
static void host_fastopen(struct probe *p)
{
	const char *port = need(p, "tcp"), *tag = need(p, "host");
	struct sockaddr_in to = {.sin_family = AF_INET};
	auto_close int fd = -1;
	char buf[128] = "";

	if (!port || !tag)
		return;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
		return;
	}
	to.sin_port = htons((uint16_t)atoi(port));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (sendto(fd, "?", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof(to)) < 0)
		judge(p, "sendto", -1, ERRS(ECONNREFUSED, ENETUNREACH, EPERM, EACCES, EOPNOTSUPP));
	else if (recv(fd, buf, sizeof(buf) - 1, 0) > 0 && strstr(buf, tag))
		got_through(p, "the host's listener answered");
	else
		refused(p, "nobody answers");
}

/* A datagram socket only looks the route up when it is connected: nothing is sent. */
static void any_route(struct probe *p)
{
	static const char *const v4[] = {"198.51.100.1", "169.254.169.254", "10.0.0.1", "8.8.8.8",
					 "224.0.0.1"};
	static const char *const v6[] = {"2001:db8::1", "fd00:ec2::254", "ff02::1%lo"};

	for (size_t i = 0; i < ARRAY_LEN(v4) + ARRAY_LEN(v6); i++) {
		bool old = i < ARRAY_LEN(v4);
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
		struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
		const char *addr = old ? v4[i] : v6[i - ARRAY_LEN(v4)];
		auto_close int fd = socket(old ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (fd < 0) {
			judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
			continue;
		}
		if ((old ? inet_pton(AF_INET, addr, &to.sin_addr)
			 : inet_pton(AF_INET6, addr, &to6.sin6_addr)) != 1)
			continue;
		judge(p, addr,
		      old ? connect(fd, (struct sockaddr *)&to, sizeof(to))
			  : connect(fd, (struct sockaddr *)&to6, sizeof(to6)),
		      NO_ROUTE);
	}
}

static void interfaces(struct probe *p)
{
	char dev[8192], *line, *rest = NULL;
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req = {0};

	for (int i = 1; fd >= 0 && i < 64; i++) {
		req.ifr_ifindex = i;
		if (ioctl(fd, SIOCGIFNAME, &req) == 0 && strcmp(req.ifr_name, "lo"))
			got_through(p, "interface %s is in sight", req.ifr_name);
	}
	if (read_text("/proc/net/dev", dev, sizeof(dev)) > 0) {
		for (line = strtok_r(dev, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
			char *colon = strchr(line, ':');

			while (*line == ' ')
				line++;
			if (colon && strncmp(line, "lo:", 3))
				got_through(p, "/proc/net/dev shows %.16s", line);
		}
	}
	refused(p, "loopback at most");
}

static void low_port(struct probe *p)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(81)};
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
	else
		judge(p, "bind to port 81", bind(fd, (struct sockaddr *)&a, sizeof(a)),
		      ERRS(EACCES, EPERM));
}

static void net_tables(struct probe *p)
{
	static const char *const files[] = {"/proc/net/tcp", "/proc/net/unix", "/proc/net/udp",
					    "/proc/self/net/tcp", "/proc/1/net/tcp"};
	const char *tag = need(p, "host"), *port = need(p, "tcp");
	static char buf[1 << 20];
	char hex[16];

	if (!tag || !port)
		return;
	snprintf(hex, sizeof(hex), ":%04X ", (unsigned)atoi(port));
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (read_text(files[i], buf, sizeof(buf)) > 0 &&
		    (strstr(buf, hex) || strstr(buf, tag)))
			got_through(p, "%s shows the host's sockets", files[i]);
	refused(p, "the host's sockets are not shown");
}

#define NET (L(NET_NS) | L(NETWORK))

static const struct probe_case network_cases[] = {
	{"host-tcp", 45, "connect to a port of the host", SAFE, NET, 0, host_tcp, 0},
	{"host-tcp6", 45, "connect to a port of the host over IPv6", SAFE, NET, 0, host_tcp6, 0},
	{"host-udp", 45, "send a packet to the host", SAFE, NET, 0, host_udp, 0},
	{"host-fastopen", 45, "connect by sending (TCP fast open)", SAFE, NET, 0, host_fastopen, 0},
	{"any-route", 45, "find a route to anywhere", SAFE, NET, 0, any_route, 0},
	{"interfaces", 45, "see an interface other than loopback", SAFE | WEAK, L(NET_NS), 0,
	 interfaces, 0},
	{"low-port", 45, "bind a port below 1024", SAFE | CONTROL_NS, L(CAPS), 0, low_port, 0},
	{"net-tables", 36, "see the host's sockets in /proc/net", SAFE, L(NET_NS) | L(LANDLOCK), 0,
	 net_tables, 0},
};
const struct case_group group_network = {network_cases, ARRAY_LEN(network_cases)};
