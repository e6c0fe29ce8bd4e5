/* Role signer: the only process that ever has the master key (docs/decisions/0018). */
#pragma once

#include "base/base.h"

struct config;
struct signer;

/*
 * Reads the master key and the values that the settings name, so before the process confines itself; commands
 * of the settings run with these ids (uid 0: its own). It always starts: what it cannot open, it refuses.
 */
struct signer *signer_new(int dir, const struct config *c, uid_t uid, gid_t gid);
/* Serves the broker on this socket until it is closed. */
int signer_run(struct signer *s, int sock);
