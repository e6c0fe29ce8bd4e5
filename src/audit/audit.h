/*
 * The audit log: every decision before its effect (rule 27). A role of its own holds the file; the
 * others send it entries and get a receipt once the line is written. Lines are hash-chained JSON.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"

#include <stdint.h>

struct audit_entry {
	char who[64];	  /* token id and name, "operator", "daemon" */
	char what[48];	  /* "sandbox.create", "exec", "file.write", "auth" ... */
	char target[160]; /* sandbox id, path; any bytes, made harmless by the role */
	char verdict[16]; /* "allow" "deny" "done" "fail" */
	char why[256];
	char from[64]; /* address */
};

struct audit; /* a client's end of the socket to the role */

struct audit *audit_open(struct loop *l, int fd);
void audit_close(struct audit *a);
/* done: once, never from within; with an error the effect must not take place. done may be NULL. */
void audit_write(struct audit *a, const struct audit_entry *entry,
		 void (*done)(void *arg, const struct err *e), void *arg);
