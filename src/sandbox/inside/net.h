/*
 * Network inside: loopback, and a name server on it that refuses every name and records the query.
 */
#pragma once

#include "base/base.h"

/*
 * Moves this process into a new network namespace, with loopback up. *ret_ns: the namespace; ret_ns may be
 * NULL. *ret_dns is -1 if port 53 cannot be had.
 */
int net_create(int *ret_ns, int *ret_dns, struct err *e);
/*
 * Counters of a network namespace: packets, errors, sockets, flow labels. The files are opened once
 * for each namespace, since opening them takes longer than reading them.
 */
#define NET_COUNTERS 5
struct net_counters {
	int fds[NET_COUNTERS]; /* -1: there is none */
};

#define NET_COUNTERS_NONE                                                                          \
	{                                                                                          \
		.fds = { -1, -1, -1, -1, -1 }                                                      \
	}

/* Of the current network namespace. */
int net_counters_open(struct net_counters *ret, struct err *e);
void net_counters_close(struct net_counters *c);
/* A hash of all counters. While it stays the same, the network was not used. 0: unknown. */
uint64_t net_fingerprint(const struct net_counters *c);

/*
 * The same in a child, while pid 1 goes on: no other step takes as long. The fds are shared, and h
 * lies in shared memory. -1: there is no child, and net_join makes the namespace.
 */
struct net_help {
	int ns;
	int dns;
	struct err err;
};

/* elsewhere: on another processor. */
pid_t net_help(struct net_help *h, bool elsewhere);
/* Waits for the child and enters its network namespace. */
int net_join(const struct net_help *h, pid_t helper, int *ret_dns, struct err *e);

/*
 * As root the keeper starts a process for it. The fds appear in the caller's table. The process is
 * in a new user namespace, if the host allows one; it stays until net_release, so that the user
 * namespace can be mapped and adopted.
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

/* owner: of the user namespace, see userns_clone. */
int net_start(struct netns_maker *n, uid_t owner, struct err *e);
/* Waits until the namespace is made; the caller then owns ns and dns. */
int net_finish(struct netns_maker *n, struct err *e);
void net_release(struct netns_maker *n);
