/*
 * The audit log: every decision is written before its effect (rule 27). The audit role, a process of
 * its own, holds the file; other processes send it entries and get a receipt once the line is written.
 * Lines are hash-chained JSON.
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "wire/ipc.h"

struct audit; /* a client's end of the socket to the role */

struct audit *audit_open(struct loop *l, int fd);
void audit_close(struct audit *a);
/* done is called once, later; with an error the effect must not take place. done may be NULL. */
void audit_write(struct audit *a, const struct audit_entry *entry,
		 void (*done)(void *arg, const struct err *e), void *arg);
/* done is called once the role has answered, behind all entries that were sent before, or has gone. */
void audit_ping(struct audit *a, void (*done)(void *arg, const struct err *e), void *arg);
/* The error for work that is refused because its entry could not be written: busy, 503 over HTTP. */
void audit_refuse(const struct err *why, struct err *ret);
/* The role was restarted: entries that wait for a receipt fail first. fd -1: the role is gone. */
void audit_reopen(struct audit *a, int fd);

/*
 * fd: the callback's to close, the lines as they stand in the file; -1: e says why. next_seq: not 0 if
 * more may follow, with this as after_seq, even if no line came; one query reads a bounded part of the log.
 */
typedef void (*audit_found)(void *arg, int fd, uint64_t next_seq, const struct err *e);
void audit_query(struct audit *a, const struct audit_query *q, audit_found done, void *arg);

/*
 * The role, in two halves, between which the caller gives up its rights. The first reads the key file
 * (if any) by its path; dir is the directory of the audit file, and all that the second needs. Each of
 * socks is one end of a SOCK_SEQPACKET pair whose other end an audit_open has. Ends when all socks are
 * closed or at SIGTERM; returns the exit status.
 */
struct config;
struct audit_role;
struct audit_role *audit_role_new(int dir_fd, const struct config *c, struct err *e);
int audit_role_run(struct audit_role *r, const int *socks, int nsocks);
/* Without running it. */
void audit_role_free(struct audit_role *r);

/* ---- without a role ---- */

/* Appends one entry to a file of the caller's own, behind others who do the same at this time. */
int audit_note(const char *file, const struct audit_entry *entry, struct err *e);

/* ---- for people: `cloche audit` ---- */

struct audit_verdict {
	uint64_t records, first_seq, last_seq, repairs, unkeyed;
	char head[128]; /* hash of the last record */
	char first_prev[128];
	bool head_found; /* the wanted head was met on the way */
};

/* Checks files in the order of their records. key_file and head may be NULL. -1: e says where. */
int audit_verify(char *const *files, size_t count, const char *key_file, const char *head,
		 struct audit_verdict *ret, struct err *e);
