/*
 * The secrets of a run: the keeper reads the values that its spec names, as the caller, and gives them to the run's
 * cloche-egress only. The memory that holds them is not inherited by pid 1 and not dumped.
 *
 *   run_secrets_read(&spec->secrets, &s, &e);     before anything is started
 *   ... s.env is added to the command's environment
 *   run_secrets_send(&s, sock, id);               to each egress that is started
 *   run_secrets_done(&s);
 */
#pragma once

#include "base/base.h"
#include "wire/egress.h"

struct run_secrets {
	struct egress_secret *rows; /* NULL: there are none */
	size_t count, room;
	struct list env; /* NAME=PLACEHOLDER */
};

int run_secrets_read(const struct list *texts, struct run_secrets *ret, struct err *e);
/* EGRESS_SECRETS; 0 if there are none. -1 with errno. */
int run_secrets_send(const struct run_secrets *s, int sock, const char *id);
void run_secrets_done(struct run_secrets *s);
