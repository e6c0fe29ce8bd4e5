/*
 * Trust in the sandbox's own CA, where egress opens TLS. No one place is enough (docs/secrets.md): some programs
 * read the system's bundle, others only what a variable names, Java only a store of its own.
 *
 *   /run/cloche/ca.crt             the CA alone
 *   /run/cloche/ca-certificates.crt    the system's bundle and the CA; also shown in the bundle's own place
 *   /run/cloche/java.jks           the same for Java, if there is one
 *
 * With `cloche run` the files lie in the scratch (trust/). A sandbox of the daemon gets its network later, and
 * with it a file system of its own for these files, which only the broker can write (provider/ns/trust_enter.c).
 */
#pragma once

#include "sandbox/plan/plan.h"

#define TRUST_DIR "/run/cloche"
#define TRUST_PEM_MAX 65536

/* Into the root that is being built; the working directory is the scratch. */
int trust_show(const struct plan *p, int root, struct err *e);
/* The variables by which programs in this root find it: K=V. */
void trust_variables(int root, struct list *env);
/* The same if the files are there: in the sandbox. */
void trust_variables_if_shown(struct list *env);

/* ---- parts of trust_show ---- */

/* What there is without the CA. */
struct trust_base {
	char *bundle; /* "": this root has none */
	bool has_java;
};
void trust_read(int root, struct trust_base *ret);
void trust_base_done(struct trust_base *b);
/* The files, into an empty directory. */
int trust_write(int dir, const struct trust_base *base, const char *pem, size_t len, struct err *e);
/* Another CA in the place of the one in those files; who reads them meanwhile may get a part. */
int trust_replace(int dir, const char *pem, size_t len, struct err *e);
/* Shows the bundle of dir in all places where this root has one. */
int trust_cover(int dir, int root, struct err *e);
/* agent.sock, which the guest listens on if an agent runs here, where it can write. */
int trust_link_agent(int dir, struct err *e);
