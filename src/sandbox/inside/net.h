/*
 * Network inside: loopback, and a name server on it that refuses every name and records the query; or
 * redirected to listeners, which egress serves.
 */
#pragma once

#include "base/base.h"
#include "net/redirect.h"

/*
 * Moves this process into a new network namespace, with loopback up. *ret_ns: the namespace; ret_ns may be
 * NULL. *ret_dns is -1 if port 53 cannot be had.
 */
int net_create(int *ret_ns, int *ret_dns, struct err *e);

struct net_made {
	int ns;
	int dns;    /* socket of the name server; redirected: -1 */
	int anchor; /* redirected: a socket of the namespace, for net_visit */
	struct net_listeners listeners;
};

#define NET_MADE_NONE                                                                              \
	{                                                                                          \
		.ns = -1, .dns = -1, .anchor = -1                                                  \
	}

/* Redirected by setup; NULL: the same as net_create. */
int net_make(const struct net_setup *setup, struct net_made *ret, struct err *e);
void net_made_close(struct net_made *m);
/*
 * Calls run(arg) in the network namespace of this socket and in the user namespace that owns it, in a child that
 * shares memory and files: straight-line system calls only. -1: the child could not enter.
 */
int net_visit(int anchor, void (*run)(void *arg), void *arg, struct err *e);

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
	const struct net_setup *setup;
	int sysctls; /* /proc/sys: every port may be bound; or -1 */
	struct net_made made;
	struct err err;
};

/* elsewhere: on another processor. sysctls: see struct net_help; the caller's. */
pid_t net_help(struct net_help *h, const struct net_setup *setup, int sysctls, bool elsewhere);
/* Waits for the child and enters its network namespace. The caller then owns the fds of h->made, without ns. */
int net_join(struct net_help *h, pid_t helper, struct err *e);

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
	const struct net_setup *setup;
	bool all_ports; /* may be bound without a capability */
	struct net_made made;
	struct err err;
};

#define NET_NETNS_MAKER_NONE                                                                       \
	{                                                                                          \
		.ready = -1, .made = NET_MADE_NONE                                                 \
	}

/* owner: of the user namespace, see userns_clone. setup must stay until net_finish. */
int net_start(struct netns_maker *n, const struct net_setup *setup, uid_t owner, bool all_ports,
	      struct err *e);
/* Waits until the namespace is made; the caller then owns the fds of n->made. */
int net_finish(struct netns_maker *n, struct err *e);
void net_release(struct netns_maker *n);
