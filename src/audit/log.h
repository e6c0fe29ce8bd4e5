/*
 * The audit file: appends, rotates, and repairs after a torn write. Used only by the audit role.
 *
 * NAME is the current file; NAME.SEQ (20 digits, the first record in it) are older ones. The chain
 * runs through all of them.
 */
#pragma once

#include "audit/audit.h"
#include "audit/chain.h"

struct audit_log;

struct audit_log_settings {
	int dir;	  /* stays the caller's */
	const char *name; /* of the file in it */
	uint64_t max_bytes;
	uint32_t keep; /* older files; 0: all */
	bool sync;
	struct chain_key key;
};

/* Finds the end of the chain. A last record whose hash does not match is an error: it was changed. */
struct audit_log *audit_log_open(const struct audit_log_settings *s, struct err *e);
void audit_log_close(struct audit_log *l);
/* Writes all entries, or none. Those that all have uses_reserve are written on a full disk, too. */
int audit_log_append(struct audit_log *l, const struct audit_entry *entries, size_t count,
		     struct err *e);
/* Returns a sealed memfd with the lines that match; *ret_next: audit_page. */
int audit_log_query(struct audit_log *l, const struct audit_query *q, uint64_t *ret_next,
		    struct err *e);
