/*
 * The keyring: every key but the master, wrapped, in one file (docs/decisions/0017). Only role signer uses it.
 *
 *   struct keyring *k = keyring_open(dir, master, &e);
 *   keyring_get(k, KEY_SECRETS, owner, true, key, &e);       makes the key and those above it if need be
 *   keyring_close(k);
 *
 * A change is on disk before the call returns, or the old file stands. A row that does not open is an error,
 * never a reason to make a new one.
 */
#pragma once

#include "base/base.h"

#define KEY_BYTES 32
#define KEY_ID 32

enum key_kind {
	KEY_MASTER,
	KEY_TENANT,
	KEY_SECRETS,
	KEY_EXCHANGE,
	KEY_SIGNER,
	KEY_DISK,
	KEY_KIND_COUNT
};

struct keyring;

/* dir stays the caller's. An error says which master the file was made with. */
struct keyring *keyring_open(int dir, const unsigned char master[KEY_BYTES], struct err *e);
void keyring_close(struct keyring *k);
int keyring_get(struct keyring *k, enum key_kind kind, const char *id, bool make,
		unsigned char ret[KEY_BYTES], struct err *e);
/* The same for a key with an id of its own, below this owner's. */
int keyring_get_of(struct keyring *k, enum key_kind kind, const char *id, const char *owner,
		   bool make, unsigned char ret[KEY_BYTES], struct err *e);
/* Erases keys of this kind: the one with this id, or (NULL) all whose ids is_kept does not know. */
int keyring_erase(struct keyring *k, enum key_kind kind, const char *id,
		  bool (*is_kept)(const void *arg, const char *id), const void *arg, struct err *e);
/* Erases all keys of this owner: what they sealed cannot be opened any more. */
int keyring_shred(struct keyring *k, const char *owner, struct err *e);
/* Wraps the rows below the master with another master. */
int keyring_rotate(struct keyring *k, const unsigned char master[KEY_BYTES], struct err *e);

/* 32 raw bytes, or 64 hexadecimal digits. */
int keyring_master_parse(const char *text, size_t len, unsigned char ret[KEY_BYTES], struct err *e);
/* Replaces a file whole: NAME.new, fsync, rename, fsync of the directory. */
int keyring_save(int dir, const char *name, const void *bytes, size_t len, struct err *e);
