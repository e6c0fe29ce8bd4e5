/* The last steps of pid 1 of a sandbox that lives on: fds, proof of the layers, exec. */
#pragma once

#include "sandbox/inside/inside.h"

/* notify: of the seccomp filter, or -1. Never returns; what went wrong is on the status page. */
void guest_exec(struct plan *p, struct inside_fds *fds, int notify) __attribute__((noreturn));
