/*
 * The isolated segment. Egress relays between sandboxes of one group; the broker tells it who belongs to which group,
 * and opens sockets in the namespace of a peer. It judges owner, group and mode of both for itself each time.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <sys/socket.h>

int segment_take(struct box_net *n, const struct ipc_network *m, struct err *e)
{
	if ((m->group[0] && !str_only(m->group, STR_ALNUM "._-", 1, SPEC_GROUP_MAX)) ||
	    (m->name[0] && !str_only(m->name, "abcdefghijklmnopqrstuvwxyz0123456789-_", 1, 63)))
		return err_set(e, ERR_INVALID, "the name of a segment is malformed");
	memcpy(n->group, m->group, sizeof(n->group));
	memcpy(n->name, m->name, sizeof(n->name));
	return 0;
}

void segment_tell(const struct box *b)
{
	struct egress m = {.type = EGRESS_SEGMENT};

	memcpy(m.segment.id, b->i.info.id, sizeof(m.segment.id));
	memcpy(m.segment.group, b->net->group, sizeof(m.segment.group));
	memcpy(m.segment.name, b->net->name, sizeof(m.segment.name));
	egress_tell(b->d, &m, NULL, 0);
}

static bool is_in_segment(const struct box *b)
{
	const struct box_net *n = b ? b->net : NULL;

	return n && n->group[0] && n->rules.len &&
	       net_policy_mode(buf_head(&n->rules)) == NET_ISOLATED;
}

static void on_socket(void *arg, const struct provider_result *r, const struct err *e)
{
	int *ret = arg;

	if (e)
		log_warn("a peer of a segment cannot be reached", "error", e->msg);
	else
		*ret = r->fd >= 0 ? fcntl(r->fd, F_DUPFD_CLOEXEC, 3) : -1;
}

void segment_request(struct daemon *d, const struct egress_peer *asked)
{
	struct egress m = {.type = EGRESS_PEER_SOCKET, .peer = *asked};
	struct box *from = box_find_live(d, asked->id), *to = box_find_live(d, asked->peer);
	auto_close int fd = -1;

	if (is_in_segment(from) && is_in_segment(to) && to->i.row->net_enter &&
	    str_equal(from->i.info.owner, to->i.info.owner) &&
	    str_equal(from->net->group, to->net->group))
		to->i.row->net_enter(&to->i, AF_INET, SOCK_STREAM, on_socket, &fd);
	egress_tell(d, &m, &fd, fd >= 0);
}
