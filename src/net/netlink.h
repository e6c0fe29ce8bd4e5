/*
 * Netlink messages, built in a buffer of the caller's. No allocation, no library: usable between clone and exec.
 *
 *   struct netlink n;
 *   netlink_init(&n, NETLINK_ROUTE, &e);
 *   netlink_begin(&n, RTM_NEWADDR, NLM_F_CREATE, &head, sizeof(head));
 *   netlink_attr(&n, IFA_LOCAL, address, 4);
 *   netlink_send(&n);                  0, or -1 with the errno of the first message that failed
 *   netlink_done(&n);
 */
#pragma once

#include "base/base.h"

#include <linux/netlink.h>

struct netlink {
	int fd;
	bool full; /* the buffer was too small */
	size_t len, last;
	uint32_t serial;
	unsigned char bytes[6144] __attribute__((aligned(NLMSG_ALIGNTO)));
};

int netlink_init(struct netlink *n, int protocol);
void netlink_done(struct netlink *n);
/* Starts a message with this head; NLM_F_REQUEST is added. */
void netlink_begin(struct netlink *n, int type, int flags, const void *head, size_t len);
/* Adds to the last message. */
void netlink_attr(struct netlink *n, int type, const void *data, size_t len);
void netlink_attr_u32(struct netlink *n, int type, uint32_t value);
/* In network byte order. */
void netlink_attr_be32(struct netlink *n, int type, uint32_t value);
void netlink_attr_text(struct netlink *n, int type, const char *text);
/* Attributes up to netlink_nest_end are inside of it. */
size_t netlink_nest(struct netlink *n, int type);
void netlink_nest_end(struct netlink *n, size_t nest);
/* Asks the kernel to confirm the last message; it always tells of one that failed. */
void netlink_confirm(struct netlink *n);
/* Sends everything built so far and waits for the confirmation of the message that asked for it. */
int netlink_send(struct netlink *n);
