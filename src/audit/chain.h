/*
 * Audit records and their hash chain. A record is one line:
 *
 *   {"seq":7,"time":"...","who":"...","what":"...","target":"...","verdict":"...","why":"...",
 *    "from":"...","prev":"sha256:HEX","hash":"sha256:HEX"}
 *
 * The hash covers the bytes of the line before `,"hash":`, including prev: to change one record is to
 * change all later ones. Without a key the hash is SHA-256, which anyone can recompute; with a key it is
 * keyed BLAKE2b, named "blake2b-KEYID", which only the holder of the key can compute.
 */
#pragma once

#include "base/base.h"
#include "audit/audit.h"

#define CHAIN_HASH 128 /* "blake2b-" 8 hex ":" 64 hex, with its end */
#define CHAIN_KEY 32
#define CHAIN_LINE 16384 /* no record is longer */

/* The prev of the first record. */
#define CHAIN_START "sha256:0000000000000000000000000000000000000000000000000000000000000000"

struct chain_key {
	bool is_set;
	char id[9];
	unsigned char bytes[CHAIN_KEY];
};

struct chain {
	struct chain_key key;
	uint64_t seq; /* of the last record; 0: none */
	char head[CHAIN_HASH];
};

/* Reads a key file: at least 16 bytes, readable by its owner only. */
int chain_key_load(const char *file, struct chain_key *ret, struct err *e);
void chain_init(struct chain *c, const struct chain_key *key);

/* Appends the next record to b and moves the chain on. torn: NULL, or the digest of a torn line. */
void chain_add(struct chain *c, struct buf *b, const struct audit_entry *entry, const char *torn);

/* One line without its end, taken apart; points into the line. */
struct chain_view {
	uint64_t seq;
	char prev[CHAIN_HASH], hash[CHAIN_HASH];
	size_t hashed_len; /* number of bytes that the hash covers */
};
/* False: not a record. */
bool chain_parse(const char *line, size_t len, struct chain_view *ret);

enum chain_check { CHAIN_GOOD, CHAIN_BAD, CHAIN_OTHER_KEY };
/* Does the hash match the bytes? */
enum chain_check chain_check(const struct chain_key *key, const char *line,
			     const struct chain_view *v);
/* "sha256:HEX" of any bytes. */
void chain_digest(const void *bytes, size_t len, char ret[CHAIN_HASH]);
