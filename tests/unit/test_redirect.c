/* Redirected network namespaces, as seen by a program without any capability in them. */
#include "net/redirect.h"

#include "base/auto.h"
#include "kern/caps.h"
#include "kern/userns.h"
#include "net/netlink.h"
#include "net/tproxy.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#define CANNOT 77

/* In the child: cmocka's own assertions would end the wrong process. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct inside {
	struct net_setup setup;
	struct net_listeners listeners;
};

static void make_setup(struct net_setup *s)
{
	*s = (struct net_setup){.own6 = {0xfd, 1, 2, 3, 4, 5, [9] = 1, [15] = 1},
				.prefix6 = {0xfd, 1, 2, 3, 4, 5},
				.network_count = 2,
				.udp_count = 1,
				.udp_ports = {4000},
				.tcp_ports = {443, 8080}};
	net_synthetic4(NET_GATEWAY_INDEX - 1, s->own4);
	network_parse("10.1.0.0/16", &s->networks[0]);
	network_parse("127.0.0.0/8", &s->networks[1]);
}

/* Runs in a network and user namespace of its own, without capabilities after the set-up. */
static void in_namespace(void (*run)(struct inside *), void (*before)(struct inside *), uid_t uid)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct inside in;
		struct err e = {0};

		if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
			_exit(CANNOT);
		prctl(PR_SET_DUMPABLE, 1);
		uid = getuid();
		gid_t gid = getgid();
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ||
		    userns_map_self(1000, uid, 1000, gid, &e) < 0)
			_exit(CANNOT);
		make_setup(&in.setup);
		if (before)
			before(&in);
		if (net_redirect(&in.setup, &in.listeners, &e) < 0) {
			fprintf(stderr, "%s\n", e.msg);
			_exit(1);
		}
		CHECK(caps_clear(&e) == 0);
		run(&in);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
		skip();
	assert_int_equal(status, 0);
}

/* ---- what a program does ---- */

static socklen_t address_of(struct sockaddr_storage *ret, const char *host, int port)
{
	struct sockaddr_in *v4 = (void *)ret;
	struct sockaddr_in6 *v6 = (void *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof(*v4);
	}
	CHECK(inet_pton(AF_INET6, host, &v6->sin6_addr) == 1);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	return sizeof(*v6);
}

/* 0 or the errno. */
static int try_connect(const char *host, int port, int type, int *ret_fd)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(&a, host, port);
	int fd = socket(a.ss_family, type | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	if (connect(fd, (void *)&a, len) < 0) {
		int errnum = errno;

		close(fd);
		return errnum;
	}
	*ret_fd = fd;
	return 0;
}

static int accept_one(const struct net_listeners *l)
{
	for (int tries = 0; tries < 1000; tries++, poll(NULL, 0, 1))
		for (uint32_t i = 0; i < l->count; i++) {
			int fd = accept4(l->fds[i], NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0)
				return fd;
		}
	return -1;
}

/* It arrives at a listener, which sees where it was to go. */
static void check_arrives(const struct inside *in, const char *host, const char *seen, int port)
{
	struct sockaddr_storage got, want;
	socklen_t len = sizeof(got), want_len = address_of(&want, seen, port);
	int client = -1, server;
	char byte = 0;

	CHECK(try_connect(host, port, SOCK_STREAM, &client) == 0);
	server = accept_one(&in->listeners);
	CHECK(server >= 0);
	CHECK(getsockname(server, (void *)&got, &len) == 0 && len == want_len);
	CHECK(memcmp(&got, &want, len) == 0);
	CHECK(write(server, "x", 1) == 1 && read(client, &byte, 1) == 1 && byte == 'x');
	CHECK(write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
	/* The program sees the address that it asked for. */
	len = sizeof(got);
	CHECK(getpeername(client, (void *)&got, &len) == 0);
	close(client);
	close(server);
}

static void check_own_server(const char *bound, const char *host, int port)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(&a, bound, port);
	int listener = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), client = -1, server;
	char byte = 0;

	CHECK(listener >= 0 && bind(listener, (void *)&a, len) == 0 && listen(listener, 1) == 0);
	CHECK(try_connect(host, port, SOCK_STREAM, &client) == 0);
	server = accept(listener, NULL, NULL);
	CHECK(server >= 0 && write(server, "x", 1) == 1 && read(client, &byte, 1) == 1);
	close(client);
	close(server);
	close(listener);
}

static void check_refused(struct inside *in)
{
	static const char *const literals[] = {"8.8.8.8",      "169.254.169.254", "10.2.0.1",
					       "192.168.1.1",  "100.64.0.1",	  "2606:4700::1",
					       "fd00:ec2::254"};
	int fd = -1;

	(void)in;
	for (size_t i = 0; i < ARRAY_LEN(literals); i++) {
		CHECK(try_connect(literals[i], 443, SOCK_STREAM, &fd) == EACCES);
		CHECK(try_connect(literals[i], 443, SOCK_DGRAM, &fd) == EACCES);
	}
	/* QUIC falls back to TCP at once. */
	CHECK(try_connect("198.18.0.5", 443, SOCK_DGRAM, &fd) == 0);
	CHECK(write(fd, "x", 1) == 1);
	CHECK(read(fd, &(char){0}, 1) == -1 && errno == ECONNREFUSED);
	close(fd);
}

static int add_route(void)
{
	struct rtmsg head = {.rtm_family = AF_INET,
			     .rtm_table = RT_TABLE_LOCAL,
			     .rtm_scope = RT_SCOPE_HOST,
			     .rtm_type = RTN_LOCAL};
	struct netlink n;

	CHECK(netlink_init(&n, NETLINK_ROUTE) == 0);
	netlink_begin(&n, RTM_NEWROUTE, NLM_F_CREATE, &head, sizeof(head));
	netlink_attr_u32(&n, RTA_OIF, 1);
	netlink_confirm(&n);
	CHECK(netlink_send(&n) == -1);
	netlink_done(&n);
	return errno;
}

static void check_no_rights(struct inside *in)
{
	int raw, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(add_route() == EPERM);
	CHECK(tproxy_add(&in->setup) == -1 && errno == EPERM);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &(int){1}, sizeof(int)) == -1);
	CHECK(errno == EPERM);
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	CHECK(raw < 0 && errno == EPERM);
	raw = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(raw < 0 && errno == EPERM);
	close(fd);
}

/* A packet to any address and port 53 arrives, and the answer leaves from the address that was asked. */
static void check_names(const struct inside *in, const char *host)
{
	int client = -1, server = -1;
	struct sockaddr_storage from;
	struct sockaddr_storage want;
	char byte = 0, control[256];
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_name = &from,
			   .msg_namelen = sizeof(from),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};

	address_of(&want, host, 53);
	CHECK(try_connect(host, 53, SOCK_DGRAM, &client) == 0 && write(client, "q", 1) == 1);
	for (uint32_t i = 0; i < in->listeners.count && server < 0; i++)
		if (recvmsg(in->listeners.fds[i], &m, MSG_DONTWAIT) == 1)
			server = in->listeners.fds[i];
	CHECK(server >= 0 && byte == 'q' && CMSG_FIRSTHDR(&m));
	/* The same control message, as an answer: its source is the address asked. */
	byte = 'a';
	CHECK(sendmsg(server, &m, 0) == 1);
	byte = 0;
	CHECK(read(client, &byte, 1) == 1 && byte == 'a');
	close(client);
}

static void see_all(struct inside *in)
{
	CHECK(in->listeners.how == NET_REDIRECT_TPROXY);
	for (int port = 1; port < 65536; port += 13107)
		check_arrives(in, "198.18.0.5", "198.18.0.5", port);
	check_arrives(in, "198.19.255.254", "198.19.255.254", NET_HTTP_PROXY_PORT);
	check_arrives(in, "fd01:203:405::7", "fd01:203:405::7", 443);
	check_arrives(in, "::ffff:198.18.0.9", "198.18.0.9", 22);
	check_arrives(in, "10.1.2.3", "10.1.2.3", 5432);
	check_refused(in);
	check_no_rights(in);
	check_names(in, "127.0.0.1");
	check_names(in, "10.1.0.53");
	check_names(in, "fd01:203:405::7");
	/* Own servers on any port, also where an address outside would be redirected. */
	check_own_server("127.0.0.1", "127.0.0.1", 8080);
	check_own_server("127.0.0.1", "127.0.0.1", 4430);
	check_own_server("0.0.0.0", "127.1.2.3", 8080);
	check_own_server("::1", "::1", 8080);
	check_own_server("::", "127.0.0.1", 8081);
	check_own_server("0.0.0.0", "198.19.255.253", 8080);
}

/* A server of the program's own on all addresses must not catch what goes out. */
static void see_wildcard_server(struct inside *in)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(&a, "0.0.0.0", 8080);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(bind(fd, (void *)&a, len) == 0 && listen(fd, 1) == 0);
	check_arrives(in, "198.18.0.5", "198.18.0.5", 8080);
}

static void see_listeners_gone(struct inside *in)
{
	int fd = -1;

	net_listeners_close(&in->listeners);
	CHECK(try_connect("198.18.0.5", 443, SOCK_STREAM, &fd) == ECONNREFUSED);
	CHECK(try_connect("fd01:203:405::7", 443, SOCK_STREAM, &fd) == ECONNREFUSED);
}

static void want_everything(struct inside *in)
{
	in->setup.everything = 1;
}

static void see_everything(struct inside *in)
{
	check_arrives(in, "8.8.8.8", "8.8.8.8", 853);
	check_arrives(in, "169.254.169.254", "169.254.169.254", 80);
	check_arrives(in, "2606:4700::1111", "2606:4700::1111", 443);
	check_names(in, "8.8.8.8");
	check_own_server("127.0.0.1", "127.0.0.1", 8080);
	check_own_server("::1", "::1", 8080);
	check_no_rights(in);
}

/* ---- without tproxy ---- */

/* As on a kernel without nf_tables. */
static void deny_netfilter(struct inside *in)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {ARRAY_LEN(filter), filter};

	(void)in;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void see_ports_only(struct inside *in)
{
	int fd = -1;

	CHECK(in->listeners.how == NET_REDIRECT_PORTS);
	check_arrives(in, "198.18.0.5", "198.18.0.5", 443);
	check_arrives(in, "fd01:203:405::7", "fd01:203:405::7", 8080);
	check_arrives(in, "198.19.255.254", "198.19.255.254", NET_SOCKS_PORT);
	CHECK(try_connect("198.18.0.5", 22, SOCK_STREAM, &fd) == ECONNREFUSED);
	check_refused(in);
	check_names(in, "127.0.0.1");
	check_own_server("127.0.0.1", "127.0.0.1", 3128);
	check_own_server("127.0.0.1", "127.0.0.1", 5000);
}

/* ---- again ---- */

/* The listeners are lost with egress; new ones serve the same namespace. */
static void redirect_twice(struct inside *in)
{
	struct err e = {0};

	want_everything(in);
	CHECK(net_redirect(&in->setup, &in->listeners, &e) == 0);
	net_listeners_close(&in->listeners);
}

/* ---- tests ---- */

static void test_tproxy(void **state)
{
	(void)state;
	in_namespace(see_all, NULL, 0);
	in_namespace(see_wildcard_server, NULL, 0);
	in_namespace(see_listeners_gone, NULL, 0);
}

static void test_tproxy_as_a_user(void **state)
{
	(void)state;
	if (getuid() != 0)
		skip();
	in_namespace(see_all, NULL, 65533);
}

static void test_everything(void **state)
{
	(void)state;
	in_namespace(see_everything, want_everything, 0);
	in_namespace(see_everything, redirect_twice, 0);
}

static void test_ports(void **state)
{
	(void)state;
	in_namespace(see_ports_only, deny_netfilter, 0);
}

static void test_needs_rights(void **state)
{
	struct net_listeners l;
	struct net_setup s;
	struct err e = {0};
	int status = 0;
	pid_t pid;

	(void)state;
	make_setup(&s);
	pid = fork();
	if (pid == 0) {
		CHECK(caps_clear(&e) == 0);
		_exit(net_redirect(&s, &l, &e) == -1 && e.errnum == EPERM ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

static void test_synthetic(void **state)
{
	static const unsigned char prefix[8] = {0xfd, 1, 2, 3, 4, 5};
	unsigned char v4[4], v6[16], other[16] = {[10] = 0xff, 0xff, 198, 17, 255, 255};
	static const uint32_t indexes[] = {
		1, 255, 256, 65536, NET_SYNTHETIC_MAX, NET_GATEWAY_INDEX};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(indexes); i++) {
		unsigned char mapped[16] = {[10] = 0xff, [11] = 0xff};

		net_synthetic4(indexes[i], v4);
		memcpy(mapped + 12, v4, 4);
		assert_int_equal(v4[0], 198);
		assert_int_equal(v4[1] & ~1, 18);
		assert_int_equal(net_synthetic_index(prefix, mapped), indexes[i]);
		net_synthetic6(prefix, indexes[i], v6);
		assert_int_equal(net_synthetic_index(prefix, v6), indexes[i]);
		/* Of another sandbox. */
		v6[3] ^= 1;
		assert_int_equal(net_synthetic_index(prefix, v6), 0);
		v6[3] ^= 1;
		v6[9] = 1;
		assert_int_equal(net_synthetic_index(prefix, v6), 0);
	}
	assert_int_equal(net_synthetic_index(prefix, other), 0);
	other[13] = 20;
	other[14] = other[15] = 0;
	assert_int_equal(net_synthetic_index(prefix, other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tproxy),	     cmocka_unit_test(test_tproxy_as_a_user),
		cmocka_unit_test(test_everything),   cmocka_unit_test(test_ports),
		cmocka_unit_test(test_needs_rights), cmocka_unit_test(test_synthetic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
