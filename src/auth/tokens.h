/*
 * The token file: text, one line for each token, blank lines and '#' comments between. Written by
 * `cloche token` only; the broker reads it and hands the text to the front.
 *
 *   ID NAME HASH SCOPES [KEY=VALUE...]
 *
 *   k3m5q2w1ab bot-1 blake2b:9f..64.. run,files,read trust=2 memory=2G sandboxes=10 rate=600 expires=1893456000
 *
 * ID: 10 letters and digits. HASH: BLAKE2b-256 of the whole key as shown, in hex; keys hold 160
 * random bits, so that a slow hash would gain nothing. Keys: cl_<id>_<40 hex>, or for E2B clients
 * e2b_<40 hex>. KEY: trust, memory, cpus, pids, disk, timeout (the ceiling), sandboxes, memory_total,
 * disk_total (of all its sandboxes together), rate (requests a minute), expires (unix seconds), created,
 * root (1: its sandboxes may have root inside), tenant, net (none, allow, public: the most that its sandboxes may have; none unless said) and net_allow (rules
 * with commas between: their destinations). Tokens of one tenant own their sandboxes together.
 *
 *   struct tokens *t = tokens_new();
 *   tokens_load(t, text, len, &e);        replaces all of them, or none on error
 *   tokens_check(t, key, now, &caller);   false: unknown or expired
 */
#pragma once

#include "base/base.h"
#include "auth/auth.h"
#include "auth/trust.h"

#define TOKEN_ID 16		  /* with its end */
#define TOKEN_TENANT (IPC_ID - 1) /* with its end; owners are "@" and this */
#define TOKEN_KEY 80		  /* longest key with its end */
#define TOKEN_HASH 32		  /* bytes */
#define TOKEN_LINE 1024
#define TOKEN_NET_ALLOW 512
#define TOKENS_MAX 4096

struct token {
	char id[TOKEN_ID];
	char name[IPC_NAME]; /* letters, digits, '.', '_', '-' */
	unsigned char hash[TOKEN_HASH];
	unsigned scopes;
	int trust;
	char tenant[TOKEN_TENANT]; /* or "": a tenant of its own */
	struct limits ceiling;	   /* where a member is not 0 */
	uint32_t max_sandboxes, rate_per_minute;
	uint32_t root;			   /* 1: root inside */
	uint64_t memory_total, disk_total; /* of all its sandboxes together; 0: no bound */
	uint64_t expires, created;	   /* unix seconds; 0: never, unknown */
	int net;			   /* enum net: ceiling, besides that of its trust level */
	char net_allow[TOKEN_NET_ALLOW];   /* "": every public destination */
};

struct tokens;

/* A new one with defaults: scopes run,files,read, trust 1; ret_key is the only copy of the key. */
int token_create(const char *name, bool e2b, struct token *ret, char ret_key[TOKEN_KEY],
		 struct err *e);
/* One line without its end. Errors name the field. */
int token_parse(const char *line, size_t len, struct token *ret, struct err *e);
/* Sets one KEY=VALUE, or "scopes". */
int token_set(struct token *t, const char *key, const char *value, struct err *e);
/* As token_parse reads it, without a line end. Returns the length; size TOKEN_LINE is enough. */
size_t token_format(const struct token *t, char *line, size_t size);
/* "run,files,read" */
size_t scopes_format(unsigned scopes, char *text, size_t size);

/* The ceiling of the token and of its trust level. */
int token_net(const struct token *t);

struct tokens *tokens_new(void);
void tokens_free(struct tokens *t);
/* Errors say the line. */
int tokens_load(struct tokens *t, const char *text, size_t len, struct err *e);
/* In constant time for what concerns the secret. caller's address is left alone. */
bool tokens_check(const struct tokens *t, const char *key, uint64_t now, struct caller *ret);
/* Is this the owner's token, or one of the tenant that is the owner? */
bool token_is_of(const struct token *t, const char *owner);
/* Is there a token of this id or tenant that has not expired? */
bool tokens_has(const struct tokens *t, const char *id, uint64_t now);
size_t tokens_count(const struct tokens *t);
const struct token *tokens_at(const struct tokens *t, size_t i);
