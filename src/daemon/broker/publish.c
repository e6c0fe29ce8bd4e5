/*
 * Ports of the host that lead into sandboxes. The broker opens the listening socket, since only the broker is in the
 * host's network, and gives it to the front, which relays by the sandbox's link. It keeps nothing: a socket lives as
 * long as a front holds it, and a new front asks again.
 */
#include "daemon/broker/broker_internal.h"
#include "net/name.h"
#include "net/publish.h"

#define FIRST_PORT 1024

/* The operator's own sandboxes may have the host's loopback; all others what `publish` names. */
static int check_publish(const struct daemon *d, const struct box *b, const struct net_publish *p,
			 struct err *e)
{
	const struct config *c = d->config;
	struct network wanted = {.bits = 128}, n;
	bool is_loopback = net_address_kind(p->address) == NET_LOOPBACK_ADDRESS;
	bool is_named = false;

	memcpy(wanted.address, p->address, sizeof(wanted.address));
	if (!b->i.info.owner[0] && is_loopback && p->port >= FIRST_PORT)
		return 0;
	for (uint32_t i = 0; i < c->publish_address_count; i++)
		is_named |= network_parse(c->publish_addresses[i], &n) && network_has(&n, &wanted);
	if (!is_named && !(is_loopback && c->publish_address_count == 0))
		return err_field(e, ERR_DENIED, "publish",
				 "publish: the operator does not allow this address "
				 "(publish.addresses)");
	if (p->port < c->publish_first || p->port > c->publish_last)
		return err_field(e, ERR_DENIED, "publish",
				 "publish: the operator does not allow port %u (publish.ports)",
				 p->port);
	return 0;
}

void publish_request(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct ipc reply = {.type = IPC_DONE};
	struct box *b = box_find_live(d, m->publish.id);
	struct net_publish p = {.port = m->publish.port, .inner = m->publish.inner};
	auto_close int fd = -1;

	memcpy(p.address, m->publish.address, sizeof(p.address));
	memcpy(reply.id, m->publish.id, sizeof(reply.id));
	if (!b)
		err_set(&reply.err, ERR_NOT_FOUND, "no such sandbox");
	else if (!p.port || !p.inner)
		err_field(&reply.err, ERR_INVALID, "publish", "publish: port 0");
	else if (check_publish(d, b, &p, &reply.err) == 0)
		fd = net_publish_listen(&p);
	if (fd < 0 && !reply.err.kind) {
		char text[NET_PUBLISH_TEXT];

		net_publish_text(&p, text);
		err_field(&reply.err, errno == EADDRINUSE ? ERR_CONFLICT : ERR_SYSTEM, "publish",
			  "publish: cannot listen on %.*s: %s", (int)(strrchr(text, ':') - text),
			  text, strerror(errno));
	}
	front_answer(d, who, &reply, fd);
}
