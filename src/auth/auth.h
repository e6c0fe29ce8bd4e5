/*
 * The caller of a request. Tokens are made by `cloche token`, shown once and stored as hashes in a file
 * that only the operator can write. The front gets the text of the file from the broker and cannot make
 * tokens.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"
#include "wire/ipc.h"

enum scope { SCOPE_RUN = 1, SCOPE_FILES = 2, SCOPE_READ = 4, SCOPE_ADMIN = 8 };

/* One request's origin; plain data, copied where it must last. */
struct caller {
	/* Whose sandboxes, shares and quotas: "@" and the tenant of the token, or else the token's id. "" is the
	 * operator over the Unix socket. */
	char token[IPC_ID];
	char id[IPC_ID]; /* of the token itself; "" where only the owner of a sandbox is known */
	char name[IPC_NAME];
	unsigned scopes;
	int trust; /* 0-5 */
	bool has_ceiling;
	struct limits ceiling;		   /* where a member is not 0 */
	uint32_t max_sandboxes;		   /* 0: the daemon's own limit */
	uint64_t memory_total, disk_total; /* of all its sandboxes; 0: its share only */
	uint32_t rate_per_minute;	   /* 0: the daemon's own */
	bool root;			   /* its sandboxes may have root inside */
	int net;			   /* enum net: the most that its sandboxes may have */
	bool net_has_rules;		   /* and only the destinations that its token names */
	char address[64];		   /* for rate limits and the audit */
};

/* The token itself, for what concerns the key and not its tenant: audit, rate limits, revocation. */
static inline const char *caller_id(const struct caller *who)
{
	return who->id[0] ? who->id : who->token;
}
