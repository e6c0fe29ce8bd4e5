/*
 * The audit file: appended to, rotated, mended after a torn write. Used by the role alone.
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

/* Finds the end of the chain. A last record that does not fit is an error: somebody was there. */
struct audit_log *audit_log_open(const struct audit_log_settings *s, struct err *e);
void audit_log_close(struct audit_log *l);
/* All of them, or none. */
int audit_log_append(struct audit_log *l, const struct audit_entry *entries, size_t count,
		     struct err *e);
/* The lines that match into a sealed memfd. */
int audit_log_query(struct audit_log *l, const struct audit_query *q, struct err *e);
