/* Stages of several sources put together into one policy: the operator's and the token's in front of a request's. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "model/spec.h"
#include "net/rules.h"

/* The one stage of a request. Errors name the field. */
int net_policy_from_spec(const struct sandbox_spec *s, struct buf *ret, struct err *e);
/* Rules with commas between, to the last stage. */
int net_policy_add_words(struct net_policy_maker *m, enum net_verdict verdict, const char *words,
			 struct err *e);
/*
 * Begins the stage of a ceiling for a request of this mode. A ceiling of `allow` without rules of its own leaves
 * the choice of public destinations to the request, but does not let it be `public`.
 */
void net_policy_ceiling(struct net_policy_maker *m, enum net_source by, int ceiling, bool has_rules,
			int request);
/*
 * Puts the stages of `front` before those of `back`; both are checked bytes. The stages of `back` count as a
 * request's, whatever they say, and the tighter budget of the two holds.
 */
int net_policy_join(const void *front, const void *back, struct buf *ret, struct err *e);
