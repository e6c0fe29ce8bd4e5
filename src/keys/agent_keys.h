/*
 * Keys of agents. Only role signer uses this. Nothing is stored but the root: the key of an agent is derived for each
 * signature from the agent's registration and the epoch of its key, and forgotten at once.
 */
#pragma once

#include "keys/keyring.h"
#include "wire/agent_message.h"

/* The time of a message to be signed is at most so far from now. */
#define AGENT_SIGN_MS (60 * 1000)

/* Fills in the signature. ERR_INVALID: no message, or not of this time. */
int agent_sign(struct keyring *k, struct agent_message *m, uint64_t now_ms, struct err *e);
/* ERR_DENIED: the signature is not that of these fields. */
int agent_verify(struct keyring *k, const struct agent_message *m, struct err *e);
int agent_public_key(struct keyring *k, const char *uid, uint32_t epoch,
		     unsigned char ret[AGENT_PUBLIC_KEY], struct err *e);
