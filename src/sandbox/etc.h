/* /etc inside: an allowlist of the host's, and our own passwd, group, hosts, resolv.conf. */
#pragma once

#include "sandbox/plan.h"

/* Fills root_fd/etc, which exists and can be written. */
int etc_build(const struct plan *p, int root_fd, struct err *e);
