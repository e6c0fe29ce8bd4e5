/*
 * Trust in the sandbox's own CA, where egress opens TLS. No one place is enough (docs/secrets.md): some programs
 * read the system's bundle, others only what a variable names, Java only a store of its own.
 *
 *   /run/cloche/ca.crt             the CA alone
 *   /run/cloche/ca-certificates.crt    the system's bundle and the CA; also shown in the bundle's own place
 *   /run/cloche/java.jks           the same for Java, if there is one
 *
 * The files lie in the scratch (trust/), where the keeper and the broker can write a new CA.
 */
#pragma once

#include "sandbox/plan/plan.h"

#define TRUST_DIR "/run/cloche"

/* Into the root that is being built; the working directory is the scratch. */
int trust_show(const struct plan *p, int root, struct err *e);
/* The variables by which programs in this root find it: K=V. */
void trust_variables(int root, struct list *env);
