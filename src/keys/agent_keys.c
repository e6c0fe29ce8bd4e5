#include "keys/agent_keys.h"

#include "wire/pack.h"

#include <sodium.h>

#define LABEL "cloche agent key"

struct pair {
	unsigned char public_key[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
};

static int derive(struct keyring *k, const char *uid, uint32_t epoch, struct pair *ret,
		  struct err *e)
{
	unsigned char root[KEY_BYTES], seed[crypto_sign_SEEDBYTES];
	auto_buf struct buf from = {0};
	int rc = keyring_get(k, KEY_SIGNER, "signer", true, root, e);

	if (rc == 0) {
		buf_add(&from, LABEL, sizeof(LABEL));
		pack_str(&from, uid);
		pack_u64(&from, epoch);
		crypto_generichash(seed, sizeof(seed), (const unsigned char *)buf_head(&from),
				   from.len, root, sizeof(root));
		crypto_sign_seed_keypair(ret->public_key, ret->secret, seed);
	}
	sodium_memzero(root, sizeof(root));
	sodium_memzero(seed, sizeof(seed));
	return rc;
}

int agent_sign(struct keyring *k, struct agent_message *m, uint64_t now_ms, struct err *e)
{
	auto_buf struct buf bytes = {0};
	struct pair pair;

	if (!agent_message_is_sane(m) || !m->from_uid[0] || !m->to_uid[0])
		return err_set(e, ERR_INVALID, "that is no message");
	if (m->time_ms > now_ms + AGENT_SIGN_MS || now_ms > m->time_ms + AGENT_SIGN_MS)
		return err_set(e, ERR_INVALID, "the message is not of this time");
	if (derive(k, m->from_uid, m->epoch, &pair, e) < 0)
		return -1;
	agent_message_encode(m, &bytes);
	crypto_sign_detached(m->signature, NULL, (const unsigned char *)buf_head(&bytes), bytes.len,
			     pair.secret);
	sodium_memzero(&pair, sizeof(pair));
	return 0;
}

int agent_verify(struct keyring *k, const struct agent_message *m, struct err *e)
{
	auto_buf struct buf bytes = {0};
	struct agent_message again = *m;
	struct pair pair;
	int rc;

	if (!agent_message_is_sane(m))
		return err_set(e, ERR_DENIED, "that is no message");
	if (derive(k, m->from_uid, m->epoch, &pair, e) < 0)
		return -1;
	agent_message_encode(m, &bytes);
	/* The same fields have one signature, so it is made again and compared in constant time. */
	crypto_sign_detached(again.signature, NULL, (const unsigned char *)buf_head(&bytes),
			     bytes.len, pair.secret);
	sodium_memzero(&pair, sizeof(pair));
	rc = sodium_memcmp(again.signature, m->signature, sizeof(m->signature));
	sodium_memzero(&again, sizeof(again));
	return rc == 0 ? 0 : err_set(e, ERR_DENIED, "the signature is not good");
}

int agent_public_key(struct keyring *k, const char *uid, uint32_t epoch,
		     unsigned char ret[AGENT_PUBLIC_KEY], struct err *e)
{
	struct pair pair;

	if (derive(k, uid, epoch, &pair, e) < 0)
		return -1;
	memcpy(ret, pair.public_key, sizeof(pair.public_key));
	sodium_memzero(&pair, sizeof(pair));
	return 0;
}
