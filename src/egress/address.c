/* Socket addresses as 16 bytes, IPv4 mapped, and the question whether one belongs to this host. */
#include "egress/egress_internal.h"

#include <linux/rtnetlink.h>
#include <netinet/in.h>

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

void address_of(const struct sockaddr_storage *a, unsigned char ret[16], uint16_t *ret_port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (a->ss_family == AF_INET) {
		memcpy(ret, mapped, 12);
		memcpy(ret + 12, &v4->sin_addr, 4);
		*ret_port = ntohs(v4->sin_port);
	} else {
		memcpy(ret, &v6->sin6_addr, 16);
		*ret_port = ntohs(v6->sin6_port);
	}
}

bool address_is_v4(const unsigned char address[16])
{
	return memcmp(address, mapped, 12) == 0;
}

socklen_t address_to(const unsigned char address[16], uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (address_is_v4(address)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, address + 12, 4);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(&v6->sin6_addr, address, 16);
	return sizeof(*v6);
}

/*
 * The kernel is asked for its route: a list of addresses would have to follow every change. Anything but a plain
 * route counts as own: local, broadcast, multicast. A host without any route to the address cannot reach it anyway.
 */
bool address_is_own(struct role *r, const unsigned char address[16])
{
	bool v4 = address_is_v4(address);
	size_t len = v4 ? 4 : 16;
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
		struct rtattr attr;
		unsigned char address[16];
	} ask = {.head = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
		 .route = {.rtm_family = v4 ? AF_INET : AF_INET6, .rtm_dst_len = v4 ? 32 : 128},
		 .attr = {.rta_type = RTA_DST, .rta_len = (unsigned short)RTA_LENGTH(len)}};
	union {
		struct nlmsghdr head;
		char bytes[1024];
	} answer;
	ssize_t n;

	memcpy(ask.address, address + (v4 ? 12 : 0), len);
	ask.head.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(ask.route)) + RTA_LENGTH(len));
	if (send(r->route, &ask, ask.head.nlmsg_len, 0) < 0)
		return true;
	n = recv(r->route, &answer, sizeof(answer), 0);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct rtmsg)))
		return true;
	if (answer.head.nlmsg_type != RTM_NEWROUTE)
		return false;
	return ((struct rtmsg *)NLMSG_DATA(&answer.head))->rtm_type != RTN_UNICAST;
}
