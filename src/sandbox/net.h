/* Network inside: loopback, and a name server on it that knows no name but remembers the question. */
#pragma once

#include "base/err.h"

/* In the new network namespace. *ret_dns is -1 if port 53 cannot be had. */
int net_up(int *ret_dns, struct err *e);
