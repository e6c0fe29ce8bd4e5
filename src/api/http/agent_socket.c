/*
 * The agent's socket inside a sandbox, /run/cloche/agent.sock: the guest accepts, and each connection comes over its
 * link to the server, like one of a Unix socket. What arrives there is the agent's, whatever it says of itself, and
 * reaches the agent's door only (api/agent). It works without any network.
 */
#include "api/http/http_internal.h"

#include "calls/calls.h"
#include "manager/manager.h"

#include <sys/socket.h>

#define READY 2	  /* requests that wait for a connection */
#define AT_ONCE 8 /* connections */
#define AGAIN_MS 500

struct agent_socket {
	struct server *server;
	struct agent_socket *next;
	struct waiter *waiter;
	char id[IPC_ID], owner[IPC_ID];
	struct agent_conn *conns;
	unsigned ready, count;
	struct loop_timer again;
};

struct agent_conn {
	struct agent_socket *socket; /* NULL: the sandbox has gone */
	struct agent_conn *next, **back;
	struct call *call;
	struct tunnel *tunnel; /* NULL: nobody has connected yet */
	struct pump pump;
};

static void top_up(struct agent_socket *a);

static void conn_unlist(struct agent_conn *c)
{
	struct agent_socket *a = take_ptr(c->socket);

	if (!a)
		return;
	*c->back = c->next;
	if (c->next)
		c->next->back = c->back;
	a->count--;
}

/* ---- a connection ---- */

static void on_tunnel_done(void *arg)
{
	struct agent_conn *c = arg;
	struct agent_socket *a = c->socket;

	conn_unlist(c);
	free(c);
	if (a)
		top_up(a);
}

/* Both ends are this process's: one is a client of the server, the other one leads inside. */
static struct peer *add_ends(struct agent_socket *a)
{
	struct server *v = a->server;
	struct peer *inner;
	struct err e;
	int ends[2];

	if (v->draining ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return NULL;
	inner = must_alloc(calloc(1, sizeof(*inner)));
	inner->server = v;
	inner->watch.fd = ends[1];
	inner->state = PEER_UPGRADED;
	inner->upgraded = (struct upgraded){.peer = inner, .fd = ends[1]};
	snprintf(inner->address, sizeof(inner->address), "agent");
	if (server_count_peer(inner, a->owner, &e) < 0) {
		close(ends[0]);
		close(ends[1]);
		free(inner);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&v->peers, inner, all);
	v->peer_count++;
	server_add_agent(v, ends[0], a->id);
	return inner;
}

static void on_accepted(void *arg, const struct file_info *info)
{
	struct agent_conn *c = arg;
	struct agent_socket *a = c->socket;
	struct peer *inner = a ? add_ends(a) : NULL;

	if (a)
		a->ready--;
	if (!inner) {
		conn_unlist(c);
		call_drop(take_ptr(c->call));
		free(c);
	} else {
		c->tunnel = tunnel_new(a->server->api->loop, &inner->upgraded, c->call, &c->pump,
				       on_tunnel_done, c);
		pump_resume(&c->pump);
	}
	if (a)
		top_up(a);
}

static void on_bytes(void *arg, const void *bytes, size_t len)
{
	struct agent_conn *c = arg;

	if (c->tunnel)
		tunnel_to_client(c->tunnel, bytes, len);
}

static void on_closed(void *arg)
{
	struct agent_conn *c = arg;

	if (c->tunnel)
		tunnel_guest_closed(c->tunnel);
}

static void on_room(void *arg)
{
	struct agent_conn *c = arg;

	if (c->tunnel)
		tunnel_guest_room(c->tunnel);
}

static void on_end(void *arg, const struct answer *answer, const struct err *e)
{
	struct agent_conn *c = arg;
	struct agent_socket *a = c->socket;

	c->call = NULL;
	if (c->tunnel) {
		tunnel_guest_ended(c->tunnel);
		return;
	}
	conn_unlist(c);
	free(c);
	if (!a)
		return;
	a->ready--;
	loop_timer_set(a->server->api->loop, &a->again, AGAIN_MS);
}

static size_t room_for_client(void *arg)
{
	const struct agent_conn *c = arg;

	return c->tunnel ? tunnel_room(c->tunnel) : 0;
}

static void accept_one(struct agent_socket *a, struct sandbox *s)
{
	struct agent_conn *c = must_alloc(calloc(1, sizeof(*c)));
	const struct receiver r = {.begin = on_accepted,
				   .bytes = on_bytes,
				   .closed = on_closed,
				   .room = on_room,
				   .done = on_end,
				   .arg = c,
				   .pump = &c->pump};

	*c = (struct agent_conn){.socket = a, .next = a->conns, .back = &a->conns};
	if (c->next)
		c->next->back = &c->next;
	a->conns = c;
	a->count++;
	a->ready++;
	c->pump = (struct pump){.room = room_for_client, .to = c};
	c->call = call_accept(s, &r);
}

/* ---- a sandbox ---- */

static void top_up(struct agent_socket *a)
{
	struct sandbox *s = manager_find_any(a->server->api->manager, a->id);

	while (s && sandbox_state(s) == STATE_RUNNING && a->ready < READY && a->count < AT_ONCE)
		accept_one(a, s);
}

static void on_again(void *arg)
{
	top_up(arg);
}

static void socket_free(struct agent_socket *a)
{
	struct agent_socket **at = &a->server->agent_sockets;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	while (a->conns)
		conn_unlist(a->conns);
	sandbox_unwait(a->waiter);
	loop_timer_stop(a->server->api->loop, &a->again);
	free(a);
}

static void on_state(void *arg, struct sandbox *s)
{
	struct agent_socket *a = arg;

	if (sandbox_state(s) == STATE_DESTROYED || sandbox_state(s) == STATE_FAILED)
		socket_free(a);
	else
		loop_timer_set(a->server->api->loop, &a->again, 0);
}

void server_open_agent(struct server *v, struct sandbox *s)
{
	struct agent_socket *a;

	if (!sandbox_agent(s)[0])
		return;
	a = must_alloc(calloc(1, sizeof(*a)));
	*a = (struct agent_socket){.server = v, .next = v->agent_sockets};
	snprintf(a->id, sizeof(a->id), "%s", sandbox_id(s));
	snprintf(a->owner, sizeof(a->owner), "%s", sandbox_owner(s));
	a->again = (struct loop_timer){.call = on_again, .arg = a};
	v->agent_sockets = a;
	a->waiter = sandbox_wait(s, on_state, a);
	loop_timer_set(v->api->loop, &a->again, 0);
}

static bool open_again(void *server, struct sandbox *s)
{
	server_open_agent(server, s);
	return true;
}

void server_open_all_agents(struct server *v)
{
	manager_each(v->api->manager, NULL, open_again, v);
}

void agent_sockets_free(struct server *v)
{
	while (v->agent_sockets)
		socket_free(v->agent_sockets);
}
