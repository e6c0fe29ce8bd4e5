/* The one netfilter rule that a redirected namespace needs, by raw nfnetlink. */
#pragma once

#include "net/redirect.h"

/* Where the transparent TCP listeners are, on 127.0.0.1 and ::1. */
#define TPROXY_PORT 1

/*
 * TCP to any address but loopback's and the sandbox's own goes to the listeners. 0 if the namespace has the rule
 * already. -1 with errno: this kernel has no tproxy.
 */
int tproxy_add(const struct net_setup *s);
