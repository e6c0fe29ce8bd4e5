/*
 * One connection of a sandbox from accept to end: both sockets, their buffers, back-pressure, half close, budgets.
 * Protocols are elsewhere (struct handler).
 */
#include "egress/egress_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#define ACCEPTS_AT_ONCE 32
#define READS_AT_ONCE 4
#define READ_LEAST (16u << 10)
#define BUFFERED_MAX (8u << 20)	 /* of one sandbox; beyond it a connection gets READ_TIGHT */
#define BUFFERED_END (64u << 20) /* beyond it connections that have more than READ_LEAST end */
#define READ_TIGHT 4096u
#define CONNECT_MS 10000
#define IDLE_MS 3600000
#define ASK_MS 60000
#define LINGER_MS 2000

static void pump(struct conn *c);

/* ---- life ---- */

static void reset_socket(int fd)
{
	struct linger now = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static void close_stream(struct conn *c, struct stream *s, bool reset)
{
	buf_done(&s->in);
	buf_done(&s->out);
	if (s->watch.fd < 0)
		return;
	loop_unwatch(c->uplink->role->loop, &s->watch);
	if (!reset)
		ports_note_end(s);
	if (reset)
		reset_socket(s->watch.fd);
	else
		close(s->watch.fd);
	s->watch.fd = -1;
}

void conn_free(struct conn *c)
{
	struct loop *l = c->uplink->role->loop;

	if (c->handler->done)
		c->handler->done(c);
	loop_task_remove(l, &c->task);
	*c->back = c->next;
	if (c->next)
		c->next->back = c->back;
	c->uplink->buffered -= c->counted;
	budget_give(&c->uplink->open, 1);
	c->uplink->meter.open--;
	free(c->name);
	free(c);
}

static void on_task(void *arg)
{
	struct conn *c = arg;

	if (c->dead)
		conn_free(c);
	else
		pump(c);
}

/* The struct stays until the end of the round, since callers up the stack still look at it. */
static void end(struct conn *c, bool reset)
{
	struct loop *l = c->uplink->role->loop;

	if (c->dead)
		return;
	c->dead = true;
	dial_stop(c);
	loop_timer_stop(l, &c->timer);
	loop_timer_stop(l, &c->hold);
	close_stream(c, &c->client, reset);
	close_stream(c, &c->server, reset);
	if (c->opened)
		record_conn(c, EGRESS_CLOSED, NULL);
	loop_task_add(l, &c->task);
}

void conn_reset(struct conn *c)
{
	end(c, true);
}

void conn_close(struct conn *c)
{
	if (c->dead)
		return;
	c->closing = true;
	c->client.finish = c->server.finish = true;
	conn_hold(c, LINGER_MS, NULL);
	conn_step_soon(c);
}

/* Ends a connection that was refused, after what is left for the client, if anything. */
static void end_refused(struct conn *c)
{
	close_stream(c, &c->server, true);
	if (c->client.out.len)
		conn_close(c);
	else
		conn_reset(c);
}

void conn_deny(struct conn *c, const char *why, const char *remedy)
{
	char address[NET_ADDRESS_TEXT] = "";
	struct denial d = {.name = c->name,
			   .address = address,
			   .rule = c->answer.rule,
			   .why = why,
			   .remedy = remedy,
			   .port = c->port,
			   .phase = EGRESS_DENIED};

	if (c->dead)
		return;
	if (!c->peer[0] && (!c->name[0] || c->upstream == UPSTREAM_OPEN))
		net_address_text(c->address, false, address);
	record_denial(c->uplink, &d);
	end_refused(c);
}

void conn_fail(struct conn *c, const char *why)
{
	if (c->dead)
		return;
	record_conn(c, EGRESS_FAILED, why);
	end_refused(c);
}

void conn_note(struct conn *c, const char *what)
{
	record_conn(c, EGRESS_OPENED, what);
}

void conn_step_soon(struct conn *c)
{
	if (!c->dead)
		loop_task_add(c->uplink->role->loop, &c->task);
}

void conn_hand_over(struct conn *c, const struct handler *h)
{
	if (c->dead)
		return;
	if (c->handler->done)
		c->handler->done(c);
	c->state = NULL;
	c->handler = h;
	conn_hold(c, 0, NULL);
	h->step(c);
}

static void on_hold(void *arg)
{
	struct conn *c = arg;

	if (c->closing || !c->hold_why)
		end(c, false);
	else
		conn_deny(c, c->hold_why, NULL);
}

void conn_hold(struct conn *c, uint64_t ms, const char *why)
{
	struct loop *l = c->uplink->role->loop;

	c->hold_why = why;
	if (ms)
		loop_timer_set(l, &c->hold, ms);
	else
		loop_timer_stop(l, &c->hold);
}

/* ---- bytes ---- */

static struct stream *other_of(struct stream *s)
{
	return s == &s->conn->client ? &s->conn->server : &s->conn->client;
}

static void flush(struct conn *c, struct stream *s)
{
	bool gone;
	size_t n;

	if (s->watch.fd < 0 || (s == &c->server && c->upstream != UPSTREAM_OPEN && !c->tunnelled))
		return;
	n = buf_write(&s->out, s->watch.fd, &gone);
	if (gone) {
		conn_reset(c);
		return;
	}
	if (s->out.len == 0 && n)
		buf_done(&s->out);
	if (s->finish && !s->finished && s->out.len == 0) {
		ports_note_end(s);
		shutdown(s->watch.fd, SHUT_WR);
		s->finished = true;
	}
}

/* Both directions are over, or as much as can be. */
static bool is_over(const struct conn *c)
{
	if (c->client.out.len && c->client.watch.fd >= 0)
		return false;
	if (c->closing)
		return c->client.ended && (!c->server.out.len || c->server.watch.fd < 0);
	return c->client.ended && c->server.ended && c->client.finished && c->server.finished;
}

/* How many bytes may be read from this side now. */
static size_t read_room(struct conn *c, struct stream *s)
{
	struct bucket *b = s == &c->client ? &c->uplink->up : &c->uplink->down;
	bool is_tight = c->uplink->buffered > BUFFERED_MAX;
	size_t room = is_tight ? READ_TIGHT : s->at_once;

	if (s->watch.fd < 0 || s->ended)
		return 0;
	/* Bytes that nobody reads would turn the close into a reset, and lose the last answer. */
	if (c->closing)
		return s == &c->client ? READ_LEAST : 0;
	if (s->in.len >= CONN_BUFFER ||
	    other_of(s)->out.len >= (is_tight ? READ_TIGHT : CONN_BUFFER))
		return 0;
	if (s == &c->server && c->upstream != UPSTREAM_OPEN && !c->tunnelled)
		return 0;
	if (b->rate && b->left <= 0) {
		uplink_refill_later(c->uplink);
		return 0;
	}
	return b->rate && (uint64_t)b->left < room ? (size_t)b->left : room;
}

static void watch_stream(struct conn *c, struct stream *s)
{
	struct loop *l = c->uplink->role->loop;
	uint32_t events = 0;

	if (s->watch.fd < 0)
		return;
	if (read_room(c, s))
		events |= EPOLLIN;
	if (s->out.len)
		events |= EPOLLOUT;
	/* An fd that nothing is wanted of would report its hang-up in every round. */
	if (!events)
		loop_unwatch(l, &s->watch);
	else if (loop_change(l, &s->watch, events) < 0)
		conn_reset(c);
}

/* Asks the operator's proxy for a tunnel. False: not yet there. */
static bool tunnel_is_open(struct conn *c)
{
	struct err e = {0};
	int rc;

	if (!c->tunnelled)
		return true;
	rc = upstream_step(c, &e);
	if (rc < 0)
		conn_fail(c, e.msg);
	if (rc <= 0)
		return false;
	c->tunnelled = false;
	c->upstream = UPSTREAM_OPEN;
	record_conn(c, EGRESS_OPENED, NULL);
	return true;
}

/* Handlers change the buffers as they like, so that bytes are counted afterwards. */
static void count_buffered(struct conn *c)
{
	size_t now = c->client.in.len + c->client.out.len + c->server.in.len + c->server.out.len +
		     (c->handler->held ? c->handler->held(c) : 0);

	c->uplink->buffered += now - c->counted;
	c->counted = now;
}

static void pump(struct conn *c)
{
	bool was_full;

	do {
		if (!c->closing && tunnel_is_open(c) && !c->dead && !c->closing)
			c->handler->step(c);
		was_full = c->client.out.len >= CONN_BUFFER || c->server.out.len >= CONN_BUFFER;
		if (!c->dead)
			flush(c, &c->client);
		if (!c->dead)
			flush(c, &c->server);
		if (c->dead)
			return;
		/* A handler that stopped at a full buffer goes on once it was sent. */
	} while (was_full && c->client.out.len < CONN_BUFFER && c->server.out.len < CONN_BUFFER &&
		 !loop_turn_is_over(c->uplink->role->loop));
	if (is_over(c)) {
		end(c, false);
		return;
	}
	count_buffered(c);
	if (c->uplink->buffered > BUFFERED_END && c->counted > READ_LEAST) {
		buf_done(&c->client.out);
		conn_deny(c, "too many bytes wait in the sandbox's connections", NULL);
		return;
	}
	watch_stream(c, &c->client);
	if (!c->dead)
		watch_stream(c, &c->server);
}

/* Bytes of the pipe go to the other socket; what it does not take is kept. */
static void empty_pipe(struct conn *c, struct stream *from, size_t len)
{
	struct stream *to = other_of(from);
	struct role *r = c->uplink->role;
	size_t left = len;
	ssize_t n = 0;

	while (left && !c->dead && !c->closing && n >= 0) {
		n = splice(r->pipe[0], NULL, to->watch.fd, NULL, left, SPLICE_F_NONBLOCK);
		if (n > 0)
			left -= (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			conn_reset(c);
	}
	if (left)
		from->at_once = READ_LEAST;
	else if (len == from->at_once && from->at_once < sizeof(r->scratch))
		from->at_once *= 2;
	while (left && (n = read(r->pipe[0], r->scratch, sizeof(r->scratch))) > 0) {
		left -= (size_t)n;
		if (!c->dead && !c->closing)
			buf_add(&to->out, r->scratch, (size_t)n);
	}
}

/* Nothing looks at these bytes and none waits before them: they need not come into this process. */
static bool is_straight(const struct conn *c, struct stream *from)
{
	const struct stream *to = other_of(from);

	return (c->handler == &conn_relay || (from == &c->server && c->handler->passes_server)) &&
	       c->upstream == UPSTREAM_OPEN && !c->closing && !from->in.len && !to->out.len &&
	       to->watch.fd >= 0;
}

static void count(struct conn *c, bool up, size_t len)
{
	struct bucket *b = up ? &c->uplink->up : &c->uplink->down;
	const char *used_up = uplink_count_bytes(c->uplink, up, len);

	if (up)
		c->tx_bytes += len;
	else
		c->rx_bytes += len;
	if (b->rate)
		b->left -= (int64_t)len;
	if (used_up)
		conn_deny(c, used_up, NULL);
}

static void receive(struct conn *c, struct stream *s)
{
	struct role *r = c->uplink->role;
	bool straight;
	size_t room;
	ssize_t n;

	for (int i = 0; i < READS_AT_ONCE && !c->dead && (room = read_room(c, s)); i++) {
		straight = is_straight(c, s);
		n = straight ? splice(s->watch.fd, NULL, r->pipe[1], NULL, room, SPLICE_F_NONBLOCK)
			     : recv(s->watch.fd, r->scratch, room, MSG_DONTWAIT);
		if (n > 0) {
			c->active_ns = now_ns();
			if (c->closing)
				continue;
			count(c, s == &c->client, (size_t)n);
			if (straight)
				empty_pipe(c, s, (size_t)n);
			if (c->dead || c->closing)
				return;
			if (!straight)
				buf_add(&s->in, r->scratch, (size_t)n);
			if (!straight && (size_t)n == s->at_once && s->at_once < CONN_BUFFER)
				s->at_once *= 2;
		} else if (n == 0) {
			s->ended = true;
		} else if (errno != EAGAIN && errno != EINTR) {
			/* A reset on one side is a reset on the other. */
			conn_reset(c);
		}
		if (n < (ssize_t)room || loop_turn_is_over(r->loop))
			return;
	}
}

static void on_stream(void *arg, uint32_t events)
{
	struct stream *s = arg;
	struct conn *c = s->conn;

	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		receive(c, s);
	if (!c->dead)
		pump(c);
}

/* ---- the handler that judges nothing ---- */

void conn_pass(struct stream *from, struct stream *to)
{
	if (from->in.len && to->out.len == 0) {
		buf_done(&to->out);
		to->out = from->in;
		from->in = (struct buf){0};
	} else if (from->in.len) {
		buf_add(&to->out, buf_head(&from->in), from->in.len);
		buf_done(&from->in);
	}
	if (from->ended)
		to->finish = true;
}

static void relay_step(struct conn *c)
{
	if (c->upstream == UPSTREAM_REFUSED || c->upstream == UPSTREAM_FAILED) {
		conn_reset(c);
		return;
	}
	conn_pass(&c->client, &c->server);
	conn_pass(&c->server, &c->client);
}

const struct handler conn_relay = {.name = "relay", .step = relay_step};

/* ---- the destination ---- */

static void refuse_upstream(struct conn *c)
{
	char address[NET_ADDRESS_TEXT] = "";
	struct denial d = {.name = c->name,
			   .address = address,
			   .rule = c->answer.rule,
			   .why = c->answer.why,
			   .remedy = c->answer.remedy,
			   .port = c->port,
			   .phase = EGRESS_DENIED};

	if (!c->name[0])
		net_address_text(c->address, false, address);
	record_denial(c->uplink, &d);
	c->upstream = UPSTREAM_REFUSED;
	conn_step_soon(c);
}

void conn_decide(const struct conn *c, unsigned method, const char *path, struct net_answer *ret)
{
	/* The operator's proxy does not tell which address it has dialled. */
	bool has_address = c->upstream == UPSTREAM_OPEN && !dial_is_by_proxy(c);
	bool by_name = c->peer[0] || (c->name[0] && !has_address);
	struct net_question q = {.name = c->name[0] ? c->name : NULL,
				 .address = by_name ? NULL : c->address,
				 .port = c->port,
				 .own = c->is_own,
				 .peer = c->peer[0] != '\0',
				 .method = method,
				 .path = path};

	uplink_decide(c->uplink, &q, ret);
}

bool conn_may_call_it(const struct conn *c, const char *host, size_t len)
{
	char name[NET_NAME];
	struct network address;
	struct net_question q = {.name = name, .port = c->port};
	struct net_answer answer;
	struct err e = {0};
	int kind = net_host(host, len, name, &address, &e);

	if (kind < 0)
		return false;
	if (str_equal(c->name, "localhost"))
		return true;
	if (c->name[0])
		return kind == NET_IS_NAME && str_equal(name, c->name);
	if (kind == NET_IS_ADDRESS)
		return memcmp(address.address, c->address, 16) == 0;
	uplink_decide(c->uplink, &q, &answer);
	return answer.allowed || !answer.rule[0];
}

static bool is_being_asked(const struct conn *c, const struct conn *other)
{
	return other != c && other->is_asked && other->upstream == UPSTREAM_WAITING &&
	       !other->dial && other->port == c->port && str_equal(other->name, c->name) &&
	       memcmp(other->address, c->address, 16) == 0;
}

/* One question for all connections that wait for the same answer. */
static void ask(struct conn *c)
{
	c->is_asked = true;
	loop_timer_set(c->uplink->role->loop, &c->timer, ASK_MS);
	for (struct conn *other = c->uplink->conns; other; other = other->next)
		if (is_being_asked(c, other))
			return;
	record_ask(c);
}

static void dial_or_refuse(struct conn *c, bool allowed)
{
	uint64_t ms = c->uplink->role->settings.connect_ms;

	if (!allowed) {
		refuse_upstream(c);
		return;
	}
	loop_timer_set(c->uplink->role->loop, &c->timer, ms ? ms : CONNECT_MS);
	if (c->peer[0])
		segment_dial(c);
	else
		dial_start(c);
}

/* Decides by name. In an isolated network a name is a sandbox, or nothing. */
static void decide_destination(struct conn *c)
{
	struct uplink *peer = NULL;
	struct err e = {0};

	c->peer[0] = '\0';
	if (segment_is_isolated(c->uplink) && c->name[0] && !str_equal(c->name, "localhost"))
		peer = segment_find(c->uplink, c->name, &e);
	if (peer)
		memcpy(c->peer, peer->id, sizeof(c->peer));
	conn_decide(c, 0, NULL, &c->answer);
	if (!e.kind && !c->uplink->role->is_held)
		return;
	c->answer.allowed = false;
	snprintf(c->answer.why, sizeof(c->answer.why), "%s", e.kind ? e.msg : "audit");
	c->answer.remedy[0] = '\0';
}

void conn_verdict(struct uplink *s, uint64_t serial, bool allow)
{
	struct conn *asked = s->conns;

	while (asked && asked->serial != serial)
		asked = asked->next;
	allow = allow && !s->role->is_held;
	if (!asked || !asked->is_asked || asked->upstream != UPSTREAM_WAITING || asked->dial)
		return;
	for (struct conn *c = s->conns; c; c = c->next)
		if (!c->dead && c != asked && is_being_asked(asked, c))
			dial_or_refuse(c, allow);
	dial_or_refuse(asked, allow);
}

void conn_dial(struct conn *c, const char *name, const unsigned char address[16], uint16_t port)
{
	char *copy = str_copy(name);

	conn_close_server(c);
	free(c->name);
	c->name = copy;
	if (address)
		memcpy(c->address, address, 16);
	else
		memset(c->address, 0, 16);
	c->port = port;
	c->is_own = address && dial_is_by_proxy(c) && address_is_own(c->uplink->role, address);
	c->upstream = UPSTREAM_WAITING;
	decide_destination(c);
	/* What a rule denies, no answer opens. */
	if (!c->answer.allowed && c->uplink->asks && c->answer.wanted[0] &&
	    !c->uplink->role->is_held)
		ask(c);
	else
		dial_or_refuse(c, c->answer.allowed);
}

void conn_close_server(struct conn *c)
{
	dial_stop(c);
	close_stream(c, &c->server, false);
	c->server = (struct stream){
		.conn = c,
		.watch = {.fd = -1, .call = on_stream, .arg = &c->server, .user = &c->uplink->user},
		.at_once = READ_LEAST};
	c->upstream = UPSTREAM_NONE;
	c->peer_step = PEER_NONE;
	c->tunnelled = c->tunnel_asked = false;
}

void conn_dialled(struct conn *c, int fd)
{
	const struct egress_settings *s = &c->uplink->role->settings;

	c->server.watch.fd = fd;
	c->active_ns = now_ns();
	loop_timer_set(c->uplink->role->loop, &c->timer, s->idle_ms ? s->idle_ms : IDLE_MS);
	if (dial_is_by_proxy(c)) {
		c->tunnelled = true;
	} else {
		c->upstream = UPSTREAM_OPEN;
		record_conn(c, EGRESS_OPENED, NULL);
	}
	pump(c);
}

void conn_not_dialled(struct conn *c, const char *why)
{
	record_conn(c, EGRESS_FAILED, why);
	c->upstream = UPSTREAM_FAILED;
	conn_step_soon(c);
}

void conn_dial_refused(struct conn *c, const struct net_answer *a)
{
	c->answer = *a;
	refuse_upstream(c);
}

static bool is_same_peer(const struct conn *c)
{
	const struct uplink *peer = segment_find(c->uplink, c->name, NULL);

	return peer && str_equal(peer->id, c->peer);
}

void conn_check_again(struct conn *c)
{
	if (c->dead || c->upstream == UPSTREAM_NONE)
		return;
	if (c->peer[0] && !is_same_peer(c)) {
		conn_deny(c, "the sandbox has left the segment", NULL);
		return;
	}
	conn_decide(c, 0, NULL, &c->answer);
	/* What no rule says is a person's to say, or was. */
	if (c->is_asked && c->answer.wanted[0])
		return;
	if (!c->answer.allowed)
		conn_deny(c, c->answer.why, c->answer.remedy);
}

/* Too long without an answer, or without a byte. */
static void on_timer(void *arg)
{
	struct conn *c = arg;
	struct loop *l = c->uplink->role->loop;
	uint64_t idle_ms = c->uplink->role->settings.idle_ms;
	int64_t quiet_ms;

	idle_ms = idle_ms ? idle_ms : IDLE_MS;
	if (c->upstream == UPSTREAM_WAITING && c->is_asked && !c->dial) {
		refuse_upstream(c);
		return;
	}
	if (c->upstream == UPSTREAM_WAITING) {
		dial_stop(c);
		conn_not_dialled(c, "no answer in time");
		return;
	}
	quiet_ms = (now_ns() - c->active_ns) / 1000000;
	if (quiet_ms < (int64_t)idle_ms)
		loop_timer_set(l, &c->timer, idle_ms - (uint64_t)quiet_ms);
	else
		conn_fail(c, "idle for too long");
}

/* ---- accepting ---- */

static struct conn *conn_new(struct uplink *s, int fd)
{
	struct conn *c = must_alloc(calloc(1, sizeof(*c)));

	c->uplink = s;
	c->serial = ++s->role->serial;
	c->started_ms = unix_ms();
	c->started_ns = c->active_ns = now_ns();
	c->client = (struct stream){
		.conn = c,
		.watch = {.fd = fd, .call = on_stream, .arg = &c->client, .user = &s->user},
		.at_once = READ_LEAST};
	c->server.watch.fd = -1;
	conn_close_server(c);
	c->name = str_copy("");
	c->answer.rule = "";
	c->timer = (struct loop_timer){.call = on_timer, .arg = c};
	c->hold = (struct loop_timer){.call = on_hold, .arg = c};
	c->task = (struct loop_task){.call = on_task, .arg = c, .user = &s->user};
	c->handler = &conn_first_bytes;
	c->next = s->conns;
	c->back = &s->conns;
	if (c->next)
		c->next->back = &c->next;
	s->conns = c;
	budget_count(&s->open, 1);
	s->meter.open++;
	loop_timer_set(s->role->loop, &c->timer, IDLE_MS);
	return c;
}

static void begin(struct uplink *s, int fd, const unsigned char to[16], uint16_t port)
{
	char address[NET_ADDRESS_TEXT];
	struct denial d = {.address = address, .port = port, .phase = EGRESS_DENIED};
	uint32_t index;
	const char *name = uplink_name_of(s, to, &index);
	struct conn *c;

	net_address_text(to, false, address);
	d.name = name;
	if (!name)
		d.why = "no name has this address";
	else if (port == 0)
		d.why = "port 0"; /* to the rules it would be a look-up */
	/* DNS is not counted among connections, but its sockets are bounded as well. */
	else if (port != 53)
		d.why = uplink_used_up(s);
	else if (!budget_has(&s->open, 1))
		d.why = "open";
	if (d.why) {
		record_denial(s, &d);
		reset_socket(fd);
		return;
	}
	c = conn_new(s, fd);
	if (port == 53) {
		c->handler = &conn_dns;
	} else if (index == NET_GATEWAY_INDEX) {
		c->handler = &conn_proxy;
	} else {
		s->meter.connections++;
		conn_dial(c, name, name[0] ? NULL : to, port);
	}
	if (!c->dead)
		pump(c);
}

void conn_accept(struct listener *l)
{
	struct uplink *s = l->uplink;
	struct sockaddr_storage to;
	unsigned char address[16];
	uint16_t port;

	for (int i = 0; i < ACCEPTS_AT_ONCE && !loop_turn_is_over(s->role->loop); i++) {
		socklen_t len = sizeof(to);
		int fd;

		if (records_full(s->role)) {
			uplink_pause(s);
			return;
		}
		fd = accept4(l->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			/* Without fds or memory; a listener that stays readable would spin. */
			if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
				uplink_pause(s);
			return;
		}
		if (getsockname(fd, (struct sockaddr *)&to, &len) < 0) {
			reset_socket(fd);
			continue;
		}
		address_of(&to, address, &port);
		/* The listener itself was dialled: 127.0.0.1:1. */
		if (net_address_kind(address) == NET_LOOPBACK_ADDRESS && port == 1)
			reset_socket(fd);
		else
			begin(s, fd, address, port);
	}
}
