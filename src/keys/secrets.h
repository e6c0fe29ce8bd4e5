/*
 * Stored secrets: one file, rows with the sealed value behind each. Only role signer uses it. Everything of a row
 * in front of the value is vouched for by the seal: a changed host or a row under another owner does not open.
 */
#pragma once

#include "keys/keyring.h"
#include "wire/ipc.h"

#define SECRETS_TOTAL 4096
#define SECRETS_PER_OWNER 256

struct secrets;

/* dir stays the caller's. */
struct secrets *secrets_open(int dir, struct keyring *keys, struct err *e);
void secrets_close(struct secrets *s);
/* Stores or replaces; value NULL: only the rest changes. Fills in what the store knows. */
int secrets_put(struct secrets *s, struct ipc_secret *secret, const char *value, size_t len,
		struct err *e);
int secrets_delete(struct secrets *s, const char *owner, const char *name, struct err *e);
/* By name or id; NULL: there is none. */
const struct ipc_secret *secrets_find(const struct secrets *s, const char *owner, const char *name);
/* The owner's secrets in order of their names: the first one behind this name, or NULL. */
const struct ipc_secret *secrets_next(const struct secrets *s, const char *owner, const char *name);
/* ret has SECRET_VALUE bytes. */
int secrets_value(struct secrets *s, const struct ipc_secret *secret, char *ret, size_t *ret_len,
		  struct err *e);
