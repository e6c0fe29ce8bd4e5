#include "keys/disk_keys.h"

#include "base/id.h"

#include <sodium.h>

#define IDS_MAX 65536

/* The keyring has 32 bytes for every key; a disk takes 64, of which no part tells another. */
static void stretch(const unsigned char *key, unsigned char ret[IPC_DISK_KEY_BYTES])
{
	static const unsigned char what[] = "cloche disk key";

	crypto_generichash(ret, IPC_DISK_KEY_BYTES, what, sizeof(what), key, KEY_BYTES);
}

int keyring_disk_get(struct keyring *k, struct ipc_disk_key *key, struct err *e)
{
	bool is_new = !key->id[0];
	unsigned char raw[KEY_BYTES];
	int rc;

	if (is_new && id_letters(key->id, ID_LETTERS) < 0)
		return err_sys(e, "cannot get random bytes");
	rc = keyring_get_of(k, KEY_DISK, key->id, key->owner, is_new, raw, e);
	if (rc == 0)
		stretch(raw, key->key);
	sodium_memzero(raw, sizeof(raw));
	return rc;
}

int keyring_disk_erase(struct keyring *k, const struct ipc_disk_key *key, struct err *e)
{
	return key->id[0] ? keyring_erase(k, KEY_DISK, key->id, NULL, NULL, e) : 0;
}

struct ids {
	const char *text;
	size_t count;
};

static bool has_id(const void *arg, const char *id)
{
	const struct ids *ids = arg;

	for (size_t i = 0; i < ids->count; i++)
		if (strncmp(ids->text + i * IPC_ID, id, IPC_ID) == 0)
			return true;
	return false;
}

int keyring_disk_keep(struct keyring *k, int fd, struct err *e)
{
	auto_free char *text = NULL;
	struct ids ids = {0};
	size_t len = 0;

	if (io_read_whole(fd, IDS_MAX * IPC_ID, &text, &len) < 0 || len % IPC_ID != 0)
		return err_set(e, ERR_INVALID, "that is no list of keys");
	ids = (struct ids){text, len / IPC_ID};
	return keyring_erase(k, KEY_DISK, NULL, has_id, &ids, e);
}
