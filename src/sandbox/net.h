/* Network inside: loopback, and a name server on it that knows no name but remembers the question.
 */
#pragma once

#include "base/err.h"

#include <sys/types.h>

/* Moves this process into a new network namespace. *ret_dns is -1 if port 53 cannot be had. */
int net_create(int *ret_dns, struct err *e);

/*
 * The same by a process of its own, so that it can go on beside other work: it takes longer than
 * anything else. The fds appear in the caller's table.
 */
struct net_maker {
	pid_t maker;
	pid_t pid; /* 0: not started */
	int ns;
	int dns;
	struct err err;
};

int net_start(struct net_maker *n, struct err *e);
/* Waits for it. */
int net_finish(struct net_maker *n, struct err *e);
