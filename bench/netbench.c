/*
 * Both ends of the connections that bench/net.py measures.
 *
 *   netbench serve PORT               one byte is answered by one byte; "d" and 7 digits by so many MB; "u": reads to the end
 *   netbench connect HOST PORT COUNT  connects, sends and gets a byte, closes; prints p50 and p99 in microseconds
 *   netbench down|up HOST PORT MB     one stream; prints MB a second
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DOWN = 8, MB = 1 << 20, FDS_MAX = 65536 };

static char bytes[256 << 10];

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- the server ---- */

static uint64_t to_send[FDS_MAX]; /* by fd: what is left of a stream down */
static char is_sink[FDS_MAX];

/* True: the connection goes on. */
static int send_some(int epoll, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	ssize_t n;

	while (to_send[fd]) {
		size_t len = to_send[fd] < sizeof(bytes) ? (size_t)to_send[fd] : sizeof(bytes);

		n = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			e.events |= EPOLLOUT;
			break;
		}
		if (n < 0)
			return 0;
		to_send[fd] -= (uint64_t)n;
	}
	epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &e);
	return 1;
}

static int serve_one(int epoll, int fd)
{
	ssize_t n;

	if (to_send[fd])
		return send_some(epoll, fd);
	n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN;
	if (n == 0) {
		if (is_sink[fd])
			(void)!send(fd, "k", 1, MSG_NOSIGNAL);
		return 0;
	}
	if (is_sink[fd])
		return 1;
	if (n == DOWN && bytes[0] == 'd') {
		bytes[DOWN] = '\0';
		to_send[fd] = strtoull(bytes + 1, NULL, 10) * MB;
		return send_some(epoll, fd);
	}
	if (bytes[0] == 'u') {
		is_sink[fd] = 1;
		return 1;
	}
	return send(fd, bytes, 1, MSG_NOSIGNAL) == 1;
}

static void accept_all(int epoll, int listener)
{
	int fd, on = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

		if (fd >= FDS_MAX || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		to_send[fd] = 0;
		is_sink[fd] = 0;
	}
}

static _Noreturn void serve(const char *port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6,
				  .sin6_port = htons((uint16_t)atoi(port))};
	int on = 1, epoll = epoll_create1(0);
	int listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, got[64];

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (void *)&at, sizeof(at)) < 0 || listen(listener, 4096) < 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) < 0)
		die("cannot listen");
	puts("ready");
	fflush(stdout);
	for (;;) {
		int count = epoll_wait(epoll, got, 64, -1);

		for (int i = 0; i < count; i++) {
			if (got[i].data.fd == listener)
				accept_all(epoll, listener);
			else if (!serve_one(epoll, got[i].data.fd))
				close(got[i].data.fd);
		}
	}
}

/* ---- the clients ---- */

static int dial(const struct addrinfo *to)
{
	int on = 1, fd = socket(to->ai_family, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) < 0)
		die("cannot connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure_connects(const struct addrinfo *to, int count)
{
	double *us = calloc((size_t)count, sizeof(*us));
	char byte = '1';

	if (!us)
		die("cannot get memory");
	close(dial(to)); /* the first one may start something */
	for (int i = 0; i < count; i++) {
		double begun = now_us();
		int fd = dial(to);

		if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
			die("no answer");
		us[i] = now_us() - begun;
		close(fd);
	}
	qsort(us, (size_t)count, sizeof(*us), by_size);
	printf("%.1f %.1f\n", us[count / 2], us[(size_t)count * 99 / 100]);
}

static void measure_down(const struct addrinfo *to, uint64_t megabytes)
{
	uint64_t left = megabytes * MB;
	double begun = now_us();
	char ask[DOWN + 1];
	int fd = dial(to);

	snprintf(ask, sizeof(ask), "d%07llu", (unsigned long long)megabytes % 10000000);
	if (send(fd, ask, DOWN, MSG_NOSIGNAL) != DOWN)
		die("cannot send");
	while (left) {
		ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

		if (n <= 0)
			die("the stream was cut");
		left -= (uint64_t)n;
	}
	printf("%.1f\n", (double)megabytes * 1e6 / (now_us() - begun));
}

static void measure_up(const struct addrinfo *to, uint64_t megabytes)
{
	uint64_t left = megabytes * MB;
	double begun = now_us();
	char byte = 'u';
	int fd = dial(to);

	if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
		die("cannot send");
	/* The server takes the rest for content only once it has seen the first byte. */
	usleep(20000);
	begun += 20000;
	while (left) {
		ssize_t n = send(fd, bytes, left < sizeof(bytes) ? (size_t)left : sizeof(bytes),
				 MSG_NOSIGNAL);

		if (n <= 0)
			die("the stream was cut");
		left -= (uint64_t)n;
	}
	shutdown(fd, SHUT_WR);
	if (recv(fd, &byte, 1, 0) != 1)
		die("the stream was cut");
	printf("%.1f\n", (double)megabytes * 1e6 / (now_us() - begun));
}

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *to;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(argv[2]);
	if (argc != 5) {
		fputs("usage: netbench serve PORT | connect|down|up HOST PORT COUNT\n", stderr);
		return 2;
	}
	if (getaddrinfo(argv[2], argv[3], &hints, &to) != 0) {
		fprintf(stderr, "cannot resolve %s\n", argv[2]);
		return 1;
	}
	if (argv[1][0] == 'c')
		measure_connects(to, atoi(argv[4]));
	else if (argv[1][0] == 'd')
		measure_down(to, strtoull(argv[4], NULL, 10));
	else
		measure_up(to, strtoull(argv[4], NULL, 10));
	return 0;
}
