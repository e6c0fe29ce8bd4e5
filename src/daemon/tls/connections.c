/*
 * Accepts TCP connections, does their TLS handshakes and relays the plain bytes to one end of a socket pair, whose
 * other end the front serves.
 *
 * Nobody is authenticated here, so nobody is trusted to end: a handshake has HANDSHAKE_MS. One address (an IPv6 /64)
 * has at most ADDRESS_HANDSHAKES of them, and all have HANDSHAKES; where there is one too many, the oldest goes, so a
 * new client always gets a chance. Addresses share the loop's time equally (base/loop.h). Connections that are open
 * are bounded by the front, which closes its end.
 */
#include "daemon/tls/tls_internal.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>

#define HANDSHAKE_MS 10000
#define LINGER_MS 2000
#define ADDRESS_HANDSHAKES 64
#define HANDSHAKES 2048
#define ACCEPT_AT_ONCE 16
#define PAUSE_MS 50
#define PIECE 16384
#define ROUNDS 8 /* pieces in one turn */
#define BUCKETS 1024

TAILQ_HEAD(connections, connection);

/* One address, while it has connections. */
struct address {
	struct address *next; /* in its bucket */
	unsigned char key[16];
	struct loop_user user;
	size_t connection_count, handshake_count;
	struct connections handshakes; /* the oldest first */
};

struct connection {
	struct door *door;
	struct address *from;
	char address[INET6_ADDRSTRLEN];
	SSL *ssl;
	struct loop_watch tcp, plain; /* fd -1: not open yet, or closed */
	struct loop_timer deadline;
	struct loop_task more;
	struct buf up, down; /* bytes that the front or the client has no room for */
	bool is_open;	     /* the handshake is done */
	bool plain_closed;   /* the front has closed its end; what it sent before can be read */
	bool up_ended;	     /* the client sends no more */
	bool down_ended;     /* the front sends no more, */
	bool told_end;	     /* and the client was told */
	bool waits_to_write; /* the library wants to write before it reads */
	TAILQ_ENTRY(connection) all, of_address; /* of those in their handshake */
};

struct listener {
	struct door *door;
	struct loop_watch watch;
	struct loop_timer again;
};

struct door {
	struct loop *loop;
	door_open *on_open;
	void *arg;
	SSL_CTX *ctx;
	uint64_t seed;
	struct address *addresses[BUCKETS];
	struct connections handshakes; /* the oldest first */
	size_t handshake_count;
	char scratch[PIECE];
};

/* ---- addresses ---- */

static struct address **address_place(struct door *d, const unsigned char key[16])
{
	uint64_t hash = d->seed;
	struct address **at;

	for (size_t i = 0; i < 16; i++)
		hash = (hash ^ key[i]) * 0x100000001b3ULL;
	at = &d->addresses[(hash ^ hash >> 32) % BUCKETS];
	while (*at && memcmp((*at)->key, key, 16) != 0)
		at = &(*at)->next;
	return at;
}

static struct address *address_of(struct door *d, const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;
	unsigned char key[16] = {0};
	struct address **at;

	if (sa->ss_family == AF_INET) {
		key[10] = key[11] = 0xff;
		memcpy(key + 12, &v4->sin_addr, 4);
	} else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(key, &v6->sin6_addr, 16);
	} else {
		memcpy(key, &v6->sin6_addr, 8);
	}
	at = address_place(d, key);
	if (!*at) {
		*at = must_alloc(calloc(1, sizeof(**at)));
		memcpy((*at)->key, key, sizeof(key));
		TAILQ_INIT(&(*at)->handshakes);
	}
	return *at;
}

static void address_drop(struct door *d, struct address *a)
{
	struct address **at = address_place(d, a->key);

	if (a->connection_count)
		return;
	*at = a->next;
	free(a);
}

/* ---- the end of a connection ---- */

static void end_handshake(struct connection *c)
{
	TAILQ_REMOVE(&c->door->handshakes, c, all);
	TAILQ_REMOVE(&c->from->handshakes, c, of_address);
	c->door->handshake_count--;
	c->from->handshake_count--;
	loop_timer_stop(c->door->loop, &c->deadline);
}

static void close_connection(struct connection *c)
{
	struct door *d = c->door;

	if (!c->is_open)
		end_handshake(c);
	loop_timer_stop(d->loop, &c->deadline);
	loop_task_remove(d->loop, &c->more);
	loop_unwatch(d->loop, &c->tcp);
	loop_unwatch(d->loop, &c->plain);
	SSL_free(c->ssl);
	ERR_clear_error();
	close_fd(&c->tcp.fd);
	close_fd(&c->plain.fd);
	buf_done(&c->up);
	buf_done(&c->down);
	c->from->connection_count--;
	address_drop(d, c->from);
	free(c);
}

static void on_deadline(void *arg)
{
	close_connection(arg);
}

/* ---- plain bytes, both ways ---- */

/* To the front. */
static void send_up(struct connection *c, const char *bytes, size_t len)
{
	ssize_t n = send(c->plain.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return; /* the front reads no more: dropped */
	n = n < 0 ? 0 : n;
	if ((size_t)n < len)
		buf_add(&c->up, bytes + n, len - (size_t)n);
}

/* From the client. 1: something was read; 0: not now; -1: the connection is of no use. */
static int move_up(struct connection *c)
{
	int n, why;

	if (c->up.len) {
		struct buf rest = c->up;

		c->up = (struct buf){0};
		send_up(c, buf_head(&rest), rest.len);
		buf_done(&rest);
	}
	if (c->up.len || c->up_ended)
		return 0;
	c->waits_to_write = false;
	n = SSL_read(c->ssl, c->door->scratch, PIECE);
	if (n > 0) {
		send_up(c, c->door->scratch, (size_t)n);
		return 1;
	}
	why = SSL_get_error(c->ssl, n);
	c->waits_to_write = why == SSL_ERROR_WANT_WRITE;
	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
		return 0;
	if (why != SSL_ERROR_ZERO_RETURN)
		return -1;
	c->up_ended = true;
	shutdown(c->plain.fd, SHUT_WR);
	return 0;
}

/* To the client: 0, or -1. */
static int send_down(struct connection *c, const char *bytes, size_t len)
{
	size_t done = 0;

	if (SSL_write_ex(c->ssl, bytes, len, &done) != 1) {
		if (SSL_get_error(c->ssl, 0) != SSL_ERROR_WANT_WRITE)
			return -1;
		done = 0;
	}
	if (done < len)
		buf_add(&c->down, bytes + done, len - done);
	return 0;
}

/* From the front, as move_up. */
static int move_down(struct connection *c)
{
	ssize_t n;

	if (c->down.len) {
		struct buf rest = c->down;
		int rc;

		c->down = (struct buf){0};
		rc = send_down(c, buf_head(&rest), rest.len);
		buf_done(&rest);
		if (rc < 0)
			return -1;
	}
	if (c->down.len || c->down_ended)
		return 0;
	n = recv(c->plain.fd, c->door->scratch, PIECE, MSG_DONTWAIT);
	if (n > 0)
		return send_down(c, c->door->scratch, (size_t)n) < 0 ? -1 : 1;
	c->down_ended = n == 0 || (errno != EAGAIN && errno != EINTR);
	return 0;
}

static void set_events(struct connection *c)
{
	uint32_t tcp = (!c->up.len && !c->up_ended ? EPOLLIN : 0) |
		       (c->down.len || c->waits_to_write ? EPOLLOUT : 0);
	uint32_t plain =
		(!c->down.len && !c->down_ended ? EPOLLIN : 0) | (c->up.len ? EPOLLOUT : 0);

	loop_change(c->door->loop, &c->tcp, tcp);
	if (!c->plain_closed)
		loop_change(c->door->loop, &c->plain, plain);
}

/*
 * The front has said everything. The client may still be sending: were the socket closed now, the reset would
 * take the end of the answer away.
 */
static void end_down(struct connection *c)
{
	if (c->told_end)
		return;
	c->told_end = true;
	(void)SSL_shutdown(c->ssl);
	ERR_clear_error();
	shutdown(c->tcp.fd, SHUT_WR);
	loop_timer_set(c->door->loop, &c->deadline, LINGER_MS);
}

static void move_bytes(void *arg)
{
	struct connection *c = arg;
	int up = 1, down = 1;

	for (int i = 0; (up || down) && i < ROUNDS; i++) {
		up = move_up(c);
		down = up < 0 ? -1 : move_down(c);
		if (up < 0 || down < 0) {
			close_connection(c);
			return;
		}
	}
	if (c->down_ended && !c->down.len)
		end_down(c);
	if (c->told_end && c->up_ended) {
		close_connection(c);
		return;
	}
	if (up || down)
		loop_task_add(c->door->loop, &c->more);
	set_events(c);
}

static void on_plain(void *arg, uint32_t events)
{
	struct connection *c = arg;

	/* The event would come again and again while the client is slow. */
	if (events & (EPOLLHUP | EPOLLERR)) {
		c->plain_closed = true;
		loop_unwatch(c->door->loop, &c->plain);
	}
	move_bytes(c);
}

/* ---- handshake ---- */

static int open_connection(struct connection *c)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -1;
	c->plain = (struct loop_watch){.fd = pair[0],
				       .events = EPOLLIN,
				       .call = on_plain,
				       .arg = c,
				       .user = &c->from->user};
	if (loop_watch(c->door->loop, &c->plain) < 0) {
		close(pair[1]);
		return -1;
	}
	end_handshake(c);
	c->is_open = true;
	c->door->on_open(c->door->arg, pair[1], c->address);
	return 0;
}

/* The client speaks plain HTTP. */
static void say_https(int fd)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
				   "Connection: close\r\nContent-Length: 37\r\n\r\n"
				   "This port speaks TLS: use https://.\r\n";
	char ignored[4096];

	if (send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
		shutdown(fd, SHUT_WR);
	/* What is left unread would become a reset, which takes the answer away. */
	while (recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT) == (ssize_t)sizeof(ignored))
		;
}

/* 1: done; 0: not yet; -1: failed. */
static int shake_hands(struct connection *c)
{
	int rc = SSL_accept(c->ssl), why;

	if (rc == 1)
		return open_connection(c) < 0 ? -1 : 1;
	why = SSL_get_error(c->ssl, rc);
	if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST)
		say_https(c->tcp.fd);
	ERR_clear_error();
	if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
		return -1;
	loop_change(c->door->loop, &c->tcp, why == SSL_ERROR_WANT_WRITE ? EPOLLOUT : EPOLLIN);
	return 0;
}

static void on_tcp(void *arg, uint32_t events)
{
	struct connection *c = arg;
	int rc = c->is_open ? 1 : shake_hands(c);

	if (rc < 0 || (c->is_open && events & (EPOLLERR | EPOLLHUP)))
		close_connection(c);
	else if (rc > 0)
		move_bytes(c);
}

/* One too many goes, the oldest of the same address first. */
static void make_room(struct door *d, struct address *a)
{
	if (a->handshake_count > ADDRESS_HANDSHAKES ||
	    (d->handshake_count > HANDSHAKES && a->handshake_count > 1))
		close_connection(TAILQ_FIRST(&a->handshakes));
	else if (d->handshake_count > HANDSHAKES)
		close_connection(TAILQ_FIRST(&d->handshakes));
}

static void name_address(struct connection *c, const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->ss_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, c->address, sizeof(c->address));
	else
		inet_ntop(AF_INET6, &v6->sin6_addr, c->address, sizeof(c->address));
}

static void begin_connection(struct door *d, int fd, const struct sockaddr_storage *sa)
{
	static const int on = 1;
	struct connection *c = must_alloc(calloc(1, sizeof(*c)));
	struct address *a = address_of(d, sa);

	*c = (struct connection){.door = d, .from = a, .plain.fd = -1};
	c->tcp = (struct loop_watch){
		.fd = fd, .events = EPOLLIN, .call = on_tcp, .arg = c, .user = &a->user};
	c->more = (struct loop_task){.call = move_bytes, .arg = c, .user = &a->user};
	c->deadline = (struct loop_timer){.call = on_deadline, .arg = c};
	name_address(c, sa);
	a->connection_count++;
	a->handshake_count++;
	d->handshake_count++;
	TAILQ_INSERT_TAIL(&a->handshakes, c, of_address);
	TAILQ_INSERT_TAIL(&d->handshakes, c, all);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	c->ssl = d->ctx ? SSL_new(d->ctx) : NULL;
	if (!c->ssl || SSL_set_fd(c->ssl, fd) != 1 || loop_watch(d->loop, &c->tcp) < 0) {
		close_connection(c);
		return;
	}
	SSL_set_accept_state(c->ssl);
	loop_timer_set(d->loop, &c->deadline, HANDSHAKE_MS);
	make_room(d, a);
}

/* ---- listeners ---- */

static void listen_again(void *arg)
{
	struct listener *l = arg;

	loop_change(l->door->loop, &l->watch, EPOLLIN);
}

static void on_accept(void *arg, uint32_t events)
{
	struct listener *l = arg;

	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t len = sizeof(sa);
		int fd = accept4(l->watch.fd, (void *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			begin_connection(l->door, fd, &sa);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			loop_change(l->door->loop, &l->watch, 0);
			loop_timer_set(l->door->loop, &l->again, PAUSE_MS);
		}
		return;
	}
}

int door_listen(struct door *d, int fd, struct err *e)
{
	struct listener *l = must_alloc(calloc(1, sizeof(*l)));

	l->door = d;
	l->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_accept, .arg = l};
	l->again = (struct loop_timer){.call = listen_again, .arg = l};
	if (loop_watch(d->loop, &l->watch) == 0)
		return 0;
	free(l);
	close(fd);
	return err_sys(e, "cannot watch a listening socket");
}

/* The front speaks HTTP/1.1 only. A client that offers none but other protocols is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
			   const unsigned char *in, unsigned int len, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";
	unsigned char *found = NULL;

	if (SSL_select_next_proto(&found, ret_len, ours, sizeof(ours) - 1, in, len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = found;
	return SSL_TLSEXT_ERR_OK;
}

void door_set_context(struct door *d, SSL_CTX *ctx)
{
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20");
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					 SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	/* One record for each call, so that records without data do not keep the loop. */
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	SSL_CTX_free(d->ctx);
	d->ctx = ctx;
}

struct door *door_new(struct loop *loop, door_open *on_open, void *arg)
{
	struct door *d = must_alloc(calloc(1, sizeof(*d)));

	d->loop = loop;
	d->on_open = on_open;
	d->arg = arg;
	TAILQ_INIT(&d->handshakes);
	if (getrandom(&d->seed, sizeof(d->seed), 0) < 0)
		log_warn("no random numbers for the table of addresses");
	return d;
}
