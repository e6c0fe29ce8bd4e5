/* Capabilities: kept or dropped, never gained. Async-signal-safe. */
#pragma once

#include "base/base.h"

/* True if this thread has CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID in effect, and all ids to give away. */
bool caps_can_administer(void);
/* The capabilities to start, limit and kill processes of another user and to remove its files. */
bool caps_can_run_others(void);
/* Does this user namespace have all ids of the machine? Most namespaces have few. */
bool caps_own_all_ids(void);
/* Puts all permitted capabilities into effect again, after a change of the effective user id. */
int caps_raise_permitted(void);
/* Empties the bounding set; needs CAP_SETPCAP, so it goes before caps_clear and changes of ids. */
int caps_drop_bounding(struct err *e);
/* The same, but for these capabilities, a bit each. */
int caps_bound(uint64_t kept, struct err *e);
/* These are in effect, and nothing is inheritable or ambient. */
int caps_set(uint64_t caps, struct err *e);
/* Empties the ambient, inheritable, permitted and effective set. */
int caps_clear(struct err *e);
/* True if those four are empty, and with_bounding the bounding set as well. */
bool caps_none(bool with_bounding);
bool caps_bounding_is_empty(void);
/* Are exactly these in effect and permitted, none inheritable; with_bounding: and exactly these bounding? */
bool caps_are(uint64_t caps, bool with_bounding);
/* Of all that this thread may have, keeps just these, also over an exec (ambient). */
int caps_keep(const int *caps, size_t count, struct err *e);
