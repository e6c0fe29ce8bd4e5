/*
 * Each tenant's share of what the daemon has for all: one table of kinds (shares.c), one pool per kind, one
 * budget per tenant and kind (base/budget.h has the rule).
 *
 *   struct budget *b = shares_of(shares, who->token, SHARE_BODIES);
 *   if (!budget_take(b, len))
 *           return shares_refuse(SHARE_BODIES, &e);
 *   ...
 *   budget_give(b, len);
 *
 * Budgets stay valid as long as the shares: there are as many tenants as tokens that were ever used.
 */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "base/loop.h"

enum share {
	SHARE_CONNECTIONS, /* of HTTP */
	SHARE_BODIES,	   /* bytes of requests held in memory */
	SHARE_OUTPUT,	   /* bytes of commands' output, kept or waiting to be sent */
	SHARE_UPLOADS,	   /* transfers into sandboxes at one time */
	SHARE_SNAPSHOTS,   /* bytes of snapshots that are being written */
	SHARE_JOBS,	   /* boots that wait for their turn */
	SHARE_SANDBOXES,   /* living sandboxes: counted only */
	SHARE_MEMORY,	   /* bytes of memory limits of living sandboxes */
	SHARE_DISK,	   /* bytes of disk limits of living sandboxes */
	SHARE_SESSIONS,	   /* of MCP clients */
	SHARE_COUNT,
};

/* The tenant of requests that are not authenticated (yet). "" is the operator. */
#define SHARES_STRANGER "?"

struct shares;

struct shares *shares_new(void);
void shares_free(struct shares *s);
/* For all tenants together; 0 (as in the beginning): no bound. */
void shares_set_max(struct shares *s, enum share kind, uint64_t max);
struct budget *shares_of(struct shares *s, const char *tenant, enum share kind);
/* The tenant as a user of the event loop's time. */
struct loop_user *shares_user(struct shares *s, const char *tenant);
/* Always -1: ERR_LIMIT, and which share is used up. */
int shares_refuse(enum share kind, struct err *e);
const char *share_name(enum share kind);
/* Every tenant that was ever seen, in no order; budgets by enum share. */
void shares_each(const struct shares *s,
		 void (*call)(void *arg, const char *tenant, const struct budget *budgets),
		 void *arg);
