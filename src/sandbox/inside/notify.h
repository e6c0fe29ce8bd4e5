/* Records denials on the status page: grouped, bounded, with every foreign string sanitised. */
#pragma once

#include "kern/seccomp.h"
#include "model/result.h"
#include "model/root_inside.h"
#include "sandbox/inside/status_page.h"

void notify_denial(struct status_page *b, enum denial_kind kind, int report, const char *target,
		   size_t len);
/*
 * Answers one notification of the filter: refuses the call, or, for connect, records the address.
 */
void notify_answer(struct status_page *b, const struct seccomp_profile *profile, int listener,
		   const struct seccomp_notif *n);
/* Fetches one notification and answers it. */
void notify_serve(struct status_page *b, const struct seccomp_profile *profile, int listener);
/* Answers one DNS query on fd with "no such name", and records the name. */
void notify_refuse_name(struct status_page *b, int fd);
/* The filter of a command of level container. */
const struct seccomp_profile *notify_profile(enum root_inside kind);
/* Explains one denial of the status page in words. */
void notify_explain(const struct seccomp_profile *profile, const struct status_denial *b,
		    struct denial *ret);
