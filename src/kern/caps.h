/* Capabilities: only ever dropped, all of them, from every set. Async-signal-safe. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

/* True if this thread has CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID in effect. */
bool caps_can_administer(void);
/* Empties bounding, ambient, inheritable, permitted and effective set, in this order. */
int caps_drop_all(struct err *e);
/* True if all five sets are empty. */
bool caps_none(void);
