/* Notices denials: groups them on the status page, bounded, with every foreign string made harmless. */
#pragma once

#include "base/base.h"
#include "kern/seccomp.h"
#include "model/result.h"
#include "sandbox/inside/status_page.h"

void notify_denial(struct status_page *b, enum denial_kind kind, int report, const char *target,
		   size_t len);
/* Answers one notification of the filter: refuses it, or, for connect, notes where it leads. */
void notify_answer(struct status_page *b, const struct seccomp_profile *profile, int listener,
		   const struct seccomp_notif *n);
/* Fetches one and answers it. */
void notify_serve(struct status_page *b, const struct seccomp_profile *profile, int listener);
/* Answers one DNS query on fd with "no such name", and notes the name. */
void notify_refuse_name(struct status_page *b, int fd);
/* One denial of the status page in words. */
void notify_explain(const struct seccomp_profile *profile, const struct status_denial *b,
		    struct denial *ret);
