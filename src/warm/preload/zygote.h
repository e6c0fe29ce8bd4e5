/* What the warm host's pid 1 and a warm interpreter say to each other, over a SEQPACKET socket. */
#pragma once

#include "base/base.h"
#include "warm/warm.h"

/*
 * First of all the interpreter says what it is made of: paths, each ended by NUL, in one message of
 * ORIGIN_BYTES_MAX at most (guest/warm/origin.h). Then struct zygote_answer says that it can have orders.
 */
#define ZYGOTE_ENV "CLOCHE_ZYGOTE_FD"
/*
 * An order is struct warm_settings with at most so many fds: the warm sandbox's pidfd, its scratch, the socket to
 * report on, three streams, then the lane's cgroup files.
 */
#define ZYGOTE_FDS (6 + WARM_JOINS)

/* The first, with pid 0, says that all modules are loaded. */
struct zygote_answer {
	int pid; /* of the task, as the warm host's pid 1 sees it; -1: err says why there is none */
	struct err err;
};
