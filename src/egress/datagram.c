/* Datagrams of programs inside. A reply must leave from the address that was asked, or the program drops it. */
#include "egress/egress_internal.h"

#include <netinet/in.h>

/* Keeps what a reply needs. False: nobody says which address was asked. */
static bool keep_destination(struct datagram *d, struct cmsghdr *c)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (CMSG_ALIGN(c->cmsg_len) > sizeof(d->control))
		return false;
	if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
		struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(c);

		info->ipi_spec_dst = info->ipi_addr;
		info->ipi_ifindex = 0;
		memcpy(d->to, mapped, sizeof(mapped));
		memcpy(d->to + sizeof(mapped), &info->ipi_addr, 4);
	} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
		memcpy(d->to, &((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_addr, 16);
	} else {
		return false;
	}
	d->control_len = CMSG_ALIGN(c->cmsg_len);
	memcpy(d->control, c, d->control_len);
	return true;
}

ssize_t datagram_receive(int fd, void *room, size_t size, struct datagram *ret)
{
	char control[256] __attribute__((aligned(16)));
	struct iovec iov = {room, size};
	struct msghdr m = {.msg_name = &ret->from,
			   .msg_namelen = sizeof(ret->from),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n;

	memset(ret, 0, sizeof(*ret));
	n = recvmsg(fd, &m, MSG_DONTWAIT);
	if (n < 0)
		return -1;
	ret->from_len = m.msg_namelen;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (keep_destination(ret, c))
			break;
	return n;
}

void datagram_reply(int fd, const struct datagram *to, const void *bytes, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr m = {.msg_name = (void *)(uintptr_t)&to->from,
			   .msg_namelen = to->from_len,
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = to->control_len ? (void *)(uintptr_t)to->control : NULL,
			   .msg_controllen = to->control_len};

	/* A reply that cannot be sent is lost, as any datagram may be. */
	sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}
