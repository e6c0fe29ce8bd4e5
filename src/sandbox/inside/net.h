/* Network inside: loopback, and a name server on it that knows no name but remembers the question.
 */
#pragma once

#include "base/base.h"

/*
 * Moves this process into a new network namespace, with loopback up. *ret_ns: the namespace; ret_ns may be
 * NULL. *ret_dns is -1 if port 53 cannot be had.
 */
int net_create(int *ret_ns, int *ret_dns, struct err *e);
/*
 * What our network namespace counts: packets, errors, sockets, flow labels. Opened once for each namespace, since
 * finding those files takes longer than reading them.
 */
#define NET_COUNTERS 5
struct net_counters {
	int fds[NET_COUNTERS]; /* -1: there is none */
};

#define NET_COUNTERS_NONE                                                                          \
	{                                                                                          \
		.fds = { -1, -1, -1, -1, -1 }                                                      \
	}

/* Of the namespace that we are in now. */
int net_counters_open(struct net_counters *ret, struct err *e);
void net_counters_close(struct net_counters *c);
/* A number made of all of them. As long as it is the same, nobody used the network. 0: it cannot be told. */
uint64_t net_fingerprint(const struct net_counters *c);

/*
 * The same by a child, so that pid 1 goes on meanwhile: it takes longer than anything else. The fds are
 * shared, h lies in shared memory. -1: there is no such child, and net_join does it by itself.
 */
struct net_help {
	int ns;
	int dns;
	struct err err;
};

/* elsewhere: on another processor. */
pid_t net_help(struct net_help *h, bool elsewhere);
/* Waits for the child and enters what it made. */
int net_join(const struct net_help *h, pid_t helper, int *ret_dns, struct err *e);

/*
 * As root by a process of the keeper's. The fds appear in the caller's table. The process is in a user namespace of its own
 * where there may be one; it stays until net_release, so that this can be mapped and taken over.
 */
struct netns_maker {
	pid_t caller;
	pid_t pid; /* 0: not started */
	bool in_userns;
	int ready; /* eventfd */
	int ns;
	int dns;
	struct err err;
};

#define NET_NETNS_MAKER_NONE                                                                       \
	{                                                                                          \
		.ready = -1, .ns = -1, .dns = -1                                                   \
	}

int net_start(struct netns_maker *n, struct err *e);
/* Waits until it is made; ns and dns are the caller's then. */
int net_finish(struct netns_maker *n, struct err *e);
void net_release(struct netns_maker *n);
