/* Reads and writes the file of stored secrets, and opens their values. */
#include "keys/secrets.h"

#include "base/id.h"

#include <assert.h>
#include <sodium.h>

#define MAGIC "CLOCHES1"
#define TAG crypto_aead_xchacha20poly1305_ietf_ABYTES
#define FILE_MOST ((size_t)SECRETS_TOTAL * (sizeof(struct secret_row) + SECRET_VALUE + TAG) + 64)

struct secrets_head {
	char magic[8];
	uint32_t rows, row_size;
	unsigned char zero[48];
};
static_assert(sizeof(struct secrets_head) == 64, "as in the design record");

struct secret_row {
	struct ipc_secret secret;
	uint32_t length; /* of the value; its sealed form has TAG bytes more and follows */
	uint32_t zero;
	unsigned char nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
};

struct stored {
	struct secret_row row;
	unsigned char *sealed;
};

struct secrets {
	int dir;
	struct keyring *keys;
	struct stored *items;
	size_t count, room;
};

/* ---- seals ---- */

static const char *key_id(const char *owner)
{
	return owner[0] ? owner : "operator";
}

static int seal(struct secrets *s, struct stored *t, const char *value, struct err *e)
{
	unsigned char key[KEY_BYTES];

	if (keyring_get(s->keys, KEY_SECRETS, key_id(t->row.secret.owner), true, key, e) < 0)
		return -1;
	t->sealed = must_alloc(malloc(t->row.length + TAG));
	randombytes_buf(t->row.nonce, sizeof(t->row.nonce));
	crypto_aead_xchacha20poly1305_ietf_encrypt(t->sealed, NULL, (const unsigned char *)value,
						   t->row.length, (const unsigned char *)&t->row,
						   offsetof(struct secret_row, nonce), NULL,
						   t->row.nonce, key);
	sodium_memzero(key, sizeof(key));
	return 0;
}

static int unseal(struct secrets *s, const struct stored *t, char *ret, struct err *e)
{
	unsigned char key[KEY_BYTES];
	int rc;

	if (keyring_get(s->keys, KEY_SECRETS, key_id(t->row.secret.owner), false, key, e) < 0)
		return -1;
	rc = crypto_aead_xchacha20poly1305_ietf_decrypt(
		(unsigned char *)ret, NULL, NULL, t->sealed, t->row.length + TAG,
		(const unsigned char *)&t->row, offsetof(struct secret_row, nonce), t->row.nonce,
		key);
	sodium_memzero(key, sizeof(key));
	if (rc < 0)
		return err_set(e, ERR_SYSTEM, "the secret %s does not open: its row was changed",
			       t->row.secret.rule.name);
	return 0;
}

/* ---- the file ---- */

static int save(struct secrets *s, struct err *e)
{
	struct secrets_head head = {
		.magic = MAGIC, .rows = (uint32_t)s->count, .row_size = sizeof(struct secret_row)};
	struct buf b = {0};
	int rc;

	buf_add(&b, &head, sizeof(head));
	for (size_t i = 0; i < s->count; i++) {
		buf_add(&b, &s->items[i].row, sizeof(s->items[i].row));
		buf_add(&b, s->items[i].sealed, s->items[i].row.length + TAG);
	}
	rc = keyring_save(s->dir, "secrets", buf_head(&b), b.len, e);
	buf_done(&b);
	return rc;
}

static bool has_ends(const struct ipc_secret *t)
{
	if (t->rule.host_count > SECRET_HOSTS)
		return false;
	for (uint32_t i = 0; i < t->rule.host_count; i++)
		if (!str_has_end(t->rule.hosts[i], SECRET_HOST))
			return false;
	return str_has_end(t->owner, IPC_ID) && str_has_end(t->id, IPC_ID) &&
	       str_has_end(t->rule.name, SECRET_NAME) &&
	       str_has_end(t->rule.header, SECRET_HEADER) &&
	       str_has_end(t->rule.prefix, SECRET_PREFIX) &&
	       str_has_end(t->metadata, sizeof(t->metadata));
}

static int take_row(struct secrets *s, const char *bytes, size_t len, size_t *at)
{
	struct stored t = {0};

	if (len - *at < sizeof(t.row))
		return -1;
	memcpy(&t.row, bytes + *at, sizeof(t.row));
	*at += sizeof(t.row);
	if (t.row.length > SECRET_VALUE || len - *at < t.row.length + TAG ||
	    !has_ends(&t.row.secret))
		return -1;
	t.sealed = must_alloc(malloc(t.row.length + TAG));
	memcpy(t.sealed, bytes + *at, t.row.length + TAG);
	*at += t.row.length + TAG;
	s->items = array_room(s->items, s->count, &s->room, sizeof(*s->items));
	s->items[s->count++] = t;
	return 0;
}

static int load(struct secrets *s, struct err *e)
{
	auto_close int fd = openat(s->dir, "secrets", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *bytes = NULL;
	struct secrets_head head;
	size_t len = 0, at = sizeof(head);

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open the stored secrets");
	if (io_read_whole(fd, FILE_MOST, &bytes, &len) < 0)
		return err_sys(e, "cannot read the stored secrets");
	if (len < sizeof(head))
		return err_set(e, ERR_SYSTEM, "the file of stored secrets is cut short");
	memcpy(&head, bytes, sizeof(head));
	if (memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0 || head.rows > SECRETS_TOTAL ||
	    head.row_size != sizeof(struct secret_row))
		return err_set(e, ERR_SYSTEM,
			       "the file of stored secrets is damaged, or of another version");
	for (uint32_t i = 0; i < head.rows; i++)
		if (take_row(s, bytes, len, &at) < 0)
			return err_set(e, ERR_SYSTEM,
				       "the file of stored secrets is damaged or cut short");
	if (at != len)
		return err_set(e, ERR_SYSTEM,
			       "the file of stored secrets has bytes behind its end");
	return 0;
}

struct secrets *secrets_open(int dir, struct keyring *keys, struct err *e)
{
	struct secrets *s = must_alloc(calloc(1, sizeof(*s)));

	s->dir = dir;
	s->keys = keys;
	if (load(s, e) == 0)
		return s;
	secrets_close(s);
	return NULL;
}

void secrets_close(struct secrets *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->count; i++)
		free(s->items[i].sealed);
	free(s->items);
	free(s);
}

/* ---- rows ---- */

static struct stored *find(const struct secrets *s, const char *owner, const char *name)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct ipc_secret *t = &s->items[i].row.secret;

		if (str_equal(t->owner, owner) &&
		    (str_equal(t->rule.name, name) || str_equal(t->id, name)))
			return &s->items[i];
	}
	return NULL;
}

const struct ipc_secret *secrets_find(const struct secrets *s, const char *owner, const char *name)
{
	const struct stored *t = find(s, owner, name);

	return t ? &t->row.secret : NULL;
}

const struct ipc_secret *secrets_next(const struct secrets *s, const char *owner, const char *name)
{
	const struct ipc_secret *best = NULL;

	for (size_t i = 0; i < s->count; i++) {
		const struct ipc_secret *t = &s->items[i].row.secret;

		if (str_equal(t->owner, owner) && strcmp(t->rule.name, name) > 0 &&
		    (!best || strcmp(t->rule.name, best->rule.name) < 0))
			best = t;
	}
	return best;
}

int secrets_value(struct secrets *s, const struct ipc_secret *secret, char *ret, size_t *ret_len,
		  struct err *e)
{
	const struct stored *t = find(s, secret->owner, secret->rule.name);

	if (!t)
		return err_set(e, ERR_NOT_FOUND, "there is no such secret");
	if (unseal(s, t, ret, e) < 0)
		return -1;
	*ret_len = t->row.length;
	return 0;
}

static int check_room(const struct secrets *s, const char *owner, struct err *e)
{
	size_t own = 0;

	for (size_t i = 0; i < s->count; i++)
		own += str_equal(s->items[i].row.secret.owner, owner);
	if (own >= SECRETS_PER_OWNER || s->count >= SECRETS_TOTAL)
		return err_set(e, ERR_LIMIT, "there are as many stored secrets as there may be, %d",
			       own >= SECRETS_PER_OWNER ? SECRETS_PER_OWNER : SECRETS_TOTAL);
	return 0;
}

/* A new row for what is to be stored, by the row that is there now (or NULL). */
static int make_row(struct secrets *s, const struct stored *now, const struct ipc_secret *wanted,
		    struct stored *ret, struct err *e)
{
	struct ipc_secret *t = &ret->row.secret;

	*t = *wanted;
	t->is_new = t->is_configured = 0;
	t->updated_ms = unix_ms();
	if (now) {
		memcpy(t->id, now->row.secret.id, sizeof(t->id));
		memcpy(t->rule.name, now->row.secret.rule.name, sizeof(t->rule.name));
		t->version = now->row.secret.version + 1;
		t->created_ms = now->row.secret.created_ms;
		return 0;
	}
	t->version = 1;
	t->created_ms = t->updated_ms;
	memset(t->id, 0, sizeof(t->id));
	return id_letters(t->id, ID_LETTERS) < 0 ? err_sys(e, "cannot make an id") : 0;
}

/* Puts a row in the place of another, or behind all, and saves; on failure nothing has changed. */
static int keep_row(struct secrets *s, struct stored *now, struct stored *fresh, struct err *e)
{
	struct stored old = {0};

	if (now) {
		old = *now;
		*now = *fresh;
	} else {
		s->items = array_room(s->items, s->count, &s->room, sizeof(*s->items));
		s->items[s->count++] = *fresh;
	}
	if (save(s, e) == 0) {
		free(old.sealed);
		return 0;
	}
	if (now)
		*now = old;
	else
		s->count--;
	free(fresh->sealed);
	return -1;
}

int secrets_put(struct secrets *s, struct ipc_secret *secret, const char *value, size_t len,
		struct err *e)
{
	struct stored *now = find(s, secret->owner, secret->rule.name), fresh = {0};
	char *kept = NULL;
	int rc;

	if (len > SECRET_VALUE)
		return err_set(e, ERR_LIMIT, "the value is longer than %d bytes", SECRET_VALUE);
	if (now && secret->is_new)
		return err_set(e, ERR_CONFLICT, "there is a secret %s already", secret->rule.name);
	if (!now && !value)
		return err_set(e, ERR_NOT_FOUND, "there is no secret %s", secret->rule.name);
	if ((!now && check_room(s, secret->owner, e) < 0) ||
	    make_row(s, now, secret, &fresh, e) < 0)
		return -1;
	if (!value) {
		len = now->row.length;
		kept = must_alloc(sodium_malloc(SECRET_VALUE));
		if (unseal(s, now, kept, e) < 0) {
			sodium_free(kept);
			return -1;
		}
	}
	fresh.row.length = (uint32_t)len;
	rc = seal(s, &fresh, value ? value : kept, e);
	sodium_free(kept);
	if (rc < 0 || keep_row(s, now, &fresh, e) < 0)
		return -1;
	*secret = fresh.row.secret;
	return 0;
}

int secrets_delete(struct secrets *s, const char *owner, const char *name, struct err *e)
{
	struct stored *t = find(s, owner, name), gone;
	size_t at;

	if (!t)
		return err_set(e, ERR_NOT_FOUND, "there is no such secret");
	at = (size_t)(t - s->items);
	gone = *t;
	s->items[at] = s->items[--s->count];
	if (save(s, e) == 0) {
		free(gone.sealed);
		return 0;
	}
	s->items[s->count++] = s->items[at];
	s->items[at] = gone;
	return -1;
}
