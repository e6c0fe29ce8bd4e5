/* The messages between the warm host's pid 1 and the zygote, over a SEQPACKET socket. */
#pragma once

#include "base/base.h"
#include "warm/warm.h"

/*
 * First the interpreter lists the files that it has loaded: paths, each ended by NUL, in one
 * message of at most ORIGIN_BYTES_MAX (guest/warm/origin.h). Then a struct zygote_answer says that
 * it takes orders.
 */
#define ZYGOTE_ENV "CLOCHE_ZYGOTE_FD"
/*
 * An order is struct warm_settings with at most so many fds: the warm sandbox's pidfd, its scratch,
 * the socket to report on, three streams, then the lane's cgroup files.
 */
#define ZYGOTE_FDS (6 + WARM_JOINS)

/* The first one, with pid 0, says that all modules are loaded. */
struct zygote_answer {
	int pid; /* of the task, as the warm host's pid 1 sees it; -1: err says why there is none */
	struct err err;
};
