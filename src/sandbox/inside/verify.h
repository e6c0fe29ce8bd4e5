/*
 * Proof: each layer is tried, not assumed (an outer filter can make any call lie). A check adds its
 * bit only if the effect was seen.
 */
#pragma once

#include "sandbox/plan/plan.h"

/*
 * Inodes of our namespaces; 0 where the kernel has none. Without `each`, those that pid 1 of a
 * sandbox gets by its clone are left out.
 */
void verify_read_namespaces(struct namespace_ids *ret, bool each);
/*
 * Which of our namespaces differ from those outside? `each`: they were entered one by one, so each
 * is checked.
 */
layer_set verify_namespaces(const struct namespace_ids *outside, bool each);
/* Files of the scratch. Root inside is under two Landlock rulesets: pid 1's allows the second file. */
#define VERIFY_CANARY "canary"
#define VERIFY_CANARY_BELOW "canary-below"
/*
 * The other half of the Landlock canary: as the final user, but before the rules, it must open.
 * Otherwise a later refusal would prove nothing.
 */
void verify_canary_opens(struct status_page *b, int scratch, const char *name);
/* Is it refused? */
bool verify_canary_holds(int scratch, const char *name);
/* In the command's process, after the last layer: ids, capabilities, filter, Landlock canary. */
layer_set verify_privileges(const struct plan *p, int scratch);
/* After everything above this number was closed. */
layer_set verify_fds(int highest);
/* Required and not proven: nothing may be executed (rule 1). */
int verify_required(const struct plan *p, struct err *e);
