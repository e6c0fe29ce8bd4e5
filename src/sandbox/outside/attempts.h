/*
 * What a run tried to reach: refused attempts for its record, those of one kind together, at most ATTEMPT_KINDS; all of
 * them for --net-log, a line each, at most ATTEMPT_LINES.
 */
#pragma once

#include "base/base.h"
#include "model/result.h"
#include "wire/egress.h"

#define ATTEMPT_KINDS 64
#define ATTEMPT_LINES 100000

struct attempts {
	struct egress_record *rows; /* room for ATTEMPT_KINDS; NULL: nothing was refused */
	size_t count;
	uint64_t more; /* of other kinds, for which there was no room */
	int log;       /* 0: none */
	size_t lines;
	uint64_t missed; /* lines that could not be written */
};

/* log: a file, "-" for standard error, or NULL. */
int attempts_open(struct attempts *a, const char *log, struct err *e);
void attempts_add(struct attempts *a, const struct egress_record *r);
/* Adds them to r->denials. mode: enum net. */
void attempts_report(const struct attempts *a, int mode, struct result *r);
void attempts_done(struct attempts *a);
/* A connection to an address that nothing leads to: the filter saw it, egress did not. target: ADDRESS:PORT. */
void attempts_explain_address(int mode, const char *target, struct denial *ret);
