/* Builds netlink messages in place and sends several of them by one call. */
#include "net/netlink.h"

#include <arpa/inet.h>
#include <sys/socket.h>

int netlink_init(struct netlink *n, int protocol)
{
	n->full = false;
	n->len = n->last = 0;
	n->serial = 0;
	n->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	return n->fd < 0 ? -1 : 0;
}

void netlink_done(struct netlink *n)
{
	close_fd(&n->fd);
}

static struct nlmsghdr *last_message(struct netlink *n)
{
	return (struct nlmsghdr *)(void *)(n->bytes + n->last);
}

/* NULL: no room. The rest of the last word is zero. */
static void *add_bytes(struct netlink *n, const void *data, size_t len)
{
	size_t padded = NLMSG_ALIGN(len);
	unsigned char *at = n->bytes + n->len;

	if (n->full || padded > sizeof(n->bytes) - n->len) {
		n->full = true;
		return NULL;
	}
	memset(at, 0, padded);
	if (data)
		memcpy(at, data, len);
	n->len += padded;
	return at;
}

static void set_message_length(struct netlink *n)
{
	if (!n->full)
		last_message(n)->nlmsg_len = (uint32_t)(n->len - n->last);
}

void netlink_begin(struct netlink *n, int type, int flags, const void *head, size_t len)
{
	struct nlmsghdr h = {.nlmsg_type = (uint16_t)type,
			     .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
			     .nlmsg_seq = ++n->serial};

	n->last = n->len;
	add_bytes(n, &h, sizeof(h));
	add_bytes(n, head, len);
	set_message_length(n);
}

void netlink_attr(struct netlink *n, int type, const void *data, size_t len)
{
	struct nlattr a = {.nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = (uint16_t)type};

	add_bytes(n, &a, sizeof(a));
	add_bytes(n, data, len);
	set_message_length(n);
}

void netlink_attr_u32(struct netlink *n, int type, uint32_t value)
{
	netlink_attr(n, type, &value, sizeof(value));
}

void netlink_attr_be32(struct netlink *n, int type, uint32_t value)
{
	netlink_attr_u32(n, type, htonl(value));
}

void netlink_attr_text(struct netlink *n, int type, const char *text)
{
	netlink_attr(n, type, text, strlen(text) + 1);
}

size_t netlink_nest(struct netlink *n, int type)
{
	size_t at = n->len;

	netlink_attr(n, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void netlink_nest_end(struct netlink *n, size_t nest)
{
	if (!n->full)
		((struct nlattr *)(void *)(n->bytes + nest))->nla_len = (uint16_t)(n->len - nest);
}

void netlink_confirm(struct netlink *n)
{
	if (!n->full)
		last_message(n)->nlmsg_flags |= NLM_F_ACK;
}

/* The kernel answers in the order of the messages, so an error comes before the confirmation. */
static int await_confirmation(int fd)
{
	unsigned char answer[1024] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *h = (const void *)answer;
	const struct nlmsgerr *result = (const void *)NLMSG_DATA(h);
	ssize_t len;

	do
		len = recv(fd, answer, sizeof(answer), 0);
	while (len < 0 && errno == EINTR);
	if (len < 0)
		return -1;
	if ((size_t)len < NLMSG_LENGTH(sizeof(*result)) || h->nlmsg_type != NLMSG_ERROR) {
		errno = EPROTO;
		return -1;
	}
	errno = -result->error;
	return result->error ? -1 : 0;
}

int netlink_send(struct netlink *n)
{
	ssize_t sent;

	if (n->full) {
		errno = ENOBUFS;
		return -1;
	}
	do
		sent = send(n->fd, n->bytes, n->len, 0);
	while (sent < 0 && errno == EINTR);
	n->len = n->last = 0;
	return sent < 0 ? -1 : await_confirmation(n->fd);
}
