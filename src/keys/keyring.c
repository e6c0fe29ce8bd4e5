/* Reads, writes and opens the keyring file. */
#include "keys/keyring.h"

#include <assert.h>
#include <sodium.h>

#define MAGIC "CLOCHEK1"
#define ROWS_MAX 65536
#define MASTER_ID 16
#define SEALED (64 + crypto_aead_xchacha20poly1305_ietf_ABYTES)

struct key_head {
	char magic[8];
	uint32_t rows, reserved;
	unsigned char master_id[MASTER_ID];
	unsigned char zero[32];
};

struct key_row {
	uint8_t kind, version;
	uint16_t length;
	char id[KEY_ID], parent[KEY_ID];
	unsigned char created_ms[8];
	unsigned char nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
	unsigned char sealed[SEALED];
	unsigned char zero[76];
};
static_assert(sizeof(struct key_head) == 64, "as in the design record");
static_assert(sizeof(struct key_row) == 256, "as in the design record");

struct keyring {
	int dir;
	unsigned char *master; /* locked */
	unsigned char master_id[MASTER_ID];
	struct key_row *rows;
	size_t count, room;
};

static const char *const kind_names[] = {
	[KEY_MASTER] = "master",     [KEY_TENANT] = "tenant", [KEY_SECRETS] = "secrets",
	[KEY_EXCHANGE] = "exchange", [KEY_SIGNER] = "signer", [KEY_DISK] = "disk",
};
static_assert(ARRAY_LEN(kind_names) == KEY_KIND_COUNT, "a name for each kind");

static const enum key_kind parents[] = {
	[KEY_MASTER] = KEY_MASTER,   [KEY_TENANT] = KEY_MASTER, [KEY_SECRETS] = KEY_TENANT,
	[KEY_EXCHANGE] = KEY_MASTER, [KEY_SIGNER] = KEY_MASTER, [KEY_DISK] = KEY_TENANT,
};

int keyring_master_parse(const char *text, size_t len, unsigned char ret[KEY_BYTES], struct err *e)
{
	size_t n = 0;

	if (len == KEY_BYTES) {
		memcpy(ret, text, KEY_BYTES);
		return 0;
	}
	if (len == 2 * KEY_BYTES &&
	    sodium_hex2bin(ret, KEY_BYTES, text, len, NULL, &n, NULL) == 0 && n == KEY_BYTES)
		return 0;
	return err_set(e, ERR_INVALID, "not a master key: 32 bytes or 64 hexadecimal digits");
}

static void name_master(const unsigned char *master, unsigned char ret[MASTER_ID])
{
	static const unsigned char label[] = "cloche master id";

	crypto_generichash(ret, MASTER_ID, master, KEY_BYTES, label, sizeof(label) - 1);
}

/* ---- the file ---- */

int keyring_save(int dir, const char *name, const void *bytes, size_t len, struct err *e)
{
	auto_free char *fresh = str_format("%s.new", name);
	auto_close int fd = -1;

	(void)!unlinkat(dir, fresh, 0);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || io_write_all(fd, bytes, len) < 0 || fsync(fd) < 0 ||
	    renameat(dir, fresh, dir, name) < 0) {
		err_sys(e, "cannot write %s", name);
		(void)!unlinkat(dir, fresh, 0);
		return -1;
	}
	if (fsync(dir) < 0)
		return err_sys(e, "cannot write %s", name);
	return 0;
}

static int save(struct keyring *k, struct err *e)
{
	struct key_head head = {.magic = MAGIC, .rows = (uint32_t)k->count};
	struct buf b = {0};
	int rc;

	memcpy(head.master_id, k->master_id, MASTER_ID);
	buf_add(&b, &head, sizeof(head));
	buf_add(&b, k->rows, k->count * sizeof(*k->rows));
	rc = keyring_save(k->dir, "keyring", buf_head(&b), b.len, e);
	buf_done(&b);
	return rc;
}

static int check_rows(const struct keyring *k, struct err *e)
{
	for (size_t i = 0; i < k->count; i++) {
		const struct key_row *r = &k->rows[i];

		if (r->kind == KEY_MASTER || r->kind >= KEY_KIND_COUNT || r->version != 1 ||
		    r->length != KEY_BYTES || !str_has_end(r->id, KEY_ID) ||
		    !str_has_end(r->parent, KEY_ID))
			return err_set(e, ERR_SYSTEM,
				       "the keyring is damaged, or of a later version: row %zu", i);
	}
	return 0;
}

static int load(struct keyring *k, struct err *e)
{
	auto_close int fd = openat(k->dir, "keyring", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *bytes = NULL;
	struct key_head head;
	size_t len = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open the keyring");
	if (io_read_whole(fd, sizeof(head) + ROWS_MAX * sizeof(struct key_row), &bytes, &len) < 0)
		return err_sys(e, "cannot read the keyring");
	if (len < sizeof(head))
		return err_set(e, ERR_SYSTEM, "the keyring is cut short");
	memcpy(&head, bytes, sizeof(head));
	if (memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0 || head.rows > ROWS_MAX ||
	    len != sizeof(head) + head.rows * sizeof(struct key_row))
		return err_set(e, ERR_SYSTEM, "the keyring is damaged or cut short");
	if (sodium_memcmp(head.master_id, k->master_id, MASTER_ID) != 0) {
		char want[2 * MASTER_ID + 1], have[2 * MASTER_ID + 1];

		sodium_bin2hex(want, sizeof(want), head.master_id, MASTER_ID);
		sodium_bin2hex(have, sizeof(have), k->master_id, MASTER_ID);
		return err_set(e, ERR_DENIED,
			       "keys.master is another key than the keyring was made with: it is "
			       "%.8s, wanted is %.8s",
			       have, want);
	}
	k->rows = must_alloc(malloc(head.rows * sizeof(*k->rows) + 1));
	memcpy(k->rows, bytes + sizeof(head), head.rows * sizeof(*k->rows));
	k->count = k->room = head.rows;
	return check_rows(k, e);
}

struct keyring *keyring_open(int dir, const unsigned char master[KEY_BYTES], struct err *e)
{
	struct keyring *k = must_alloc(calloc(1, sizeof(*k)));

	k->dir = dir;
	k->master = must_alloc(sodium_malloc(KEY_BYTES));
	memcpy(k->master, master, KEY_BYTES);
	name_master(master, k->master_id);
	if (load(k, e) == 0)
		return k;
	keyring_close(k);
	return NULL;
}

void keyring_close(struct keyring *k)
{
	if (!k)
		return;
	sodium_free(k->master);
	free(k->rows);
	free(k);
}

/* ---- rows ---- */

/* What a row's seal vouches for besides the key: all in front of the nonce, and the master's id below it. */
struct key_context {
	unsigned char bytes[offsetof(struct key_row, nonce) + MASTER_ID];
	size_t len;
};

static struct key_context context_of(const struct keyring *k, const struct key_row *r)
{
	struct key_context c = {.len = offsetof(struct key_row, nonce)};

	memcpy(c.bytes, r, c.len);
	if (parents[r->kind] == KEY_MASTER) {
		memcpy(c.bytes + c.len, k->master_id, MASTER_ID);
		c.len += MASTER_ID;
	}
	return c;
}

static void seal_row(const struct keyring *k, struct key_row *r, const unsigned char *key,
		     const unsigned char *with)
{
	struct key_context c = context_of(k, r);

	randombytes_buf(r->nonce, sizeof(r->nonce));
	memset(r->sealed, 0, sizeof(r->sealed));
	crypto_aead_xchacha20poly1305_ietf_encrypt(r->sealed, NULL, key, KEY_BYTES, c.bytes, c.len,
						   NULL, r->nonce, with);
}

static int open_row(const struct keyring *k, const struct key_row *r, const unsigned char *with,
		    unsigned char ret[KEY_BYTES], struct err *e)
{
	struct key_context c = context_of(k, r);

	if (crypto_aead_xchacha20poly1305_ietf_decrypt(
		    ret, NULL, NULL, r->sealed,
		    KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES, c.bytes, c.len, r->nonce,
		    with) < 0)
		return err_set(e, ERR_SYSTEM,
			       "the %s key '%s' does not open: the keyring was changed",
			       kind_names[r->kind], r->id);
	return 0;
}

static struct key_row *find_row(const struct keyring *k, enum key_kind kind, const char *id)
{
	for (size_t i = 0; i < k->count; i++)
		if (k->rows[i].kind == kind && str_equal(k->rows[i].id, id))
			return &k->rows[i];
	return NULL;
}

static int make_row(struct keyring *k, enum key_kind kind, const char *id, const char *owner,
		    const unsigned char *with, unsigned char ret[KEY_BYTES], struct err *e)
{
	struct key_row *r;
	uint64_t now = unix_ms();

	if (k->count == ROWS_MAX)
		return err_set(e, ERR_LIMIT, "the keyring is full");
	k->rows = array_room(k->rows, k->count, &k->room, sizeof(*k->rows));
	r = &k->rows[k->count++];
	*r = (struct key_row){.kind = (uint8_t)kind, .version = 1, .length = KEY_BYTES};
	snprintf(r->id, sizeof(r->id), "%s", id);
	snprintf(r->parent, sizeof(r->parent), "%s", parents[kind] == KEY_MASTER ? "" : owner);
	memcpy(r->created_ms, &now, sizeof(now));
	randombytes_buf(ret, KEY_BYTES);
	seal_row(k, r, ret, with);
	if (save(k, e) == 0)
		return 0;
	k->count--;
	return -1;
}

int keyring_get(struct keyring *k, enum key_kind kind, const char *id, bool make,
		unsigned char ret[KEY_BYTES], struct err *e)
{
	return keyring_get_of(k, kind, id, id, make, ret, e);
}

int keyring_get_of(struct keyring *k, enum key_kind kind, const char *id, const char *owner,
		   bool make, unsigned char ret[KEY_BYTES], struct err *e)
{
	unsigned char above[KEY_BYTES];
	const struct key_row *r;
	int rc;

	if (kind == KEY_MASTER) {
		memcpy(ret, k->master, KEY_BYTES);
		return 0;
	}
	if (keyring_get(k, parents[kind], owner, make, above, e) < 0)
		return -1;
	r = find_row(k, kind, id);
	if (r)
		rc = open_row(k, r, above, ret, e);
	else if (make)
		rc = make_row(k, kind, id, owner, above, ret, e);
	else
		rc = err_set(e, ERR_NOT_FOUND, "there is no %s key '%s'", kind_names[kind], id);
	sodium_memzero(above, sizeof(above));
	return rc;
}

/* ---- changes ---- */

/* Saves the rows instead of the present ones; on failure those stay. */
static int replace_rows(struct keyring *k, struct key_row *rows, size_t count, struct err *e)
{
	struct keyring old = *k;

	k->rows = rows;
	k->count = k->room = count;
	if (save(k, e) == 0) {
		free(old.rows);
		return 0;
	}
	free(rows);
	*k = old;
	return -1;
}

int keyring_erase(struct keyring *k, enum key_kind kind, const char *id,
		  bool (*is_kept)(const void *arg, const char *id), const void *arg, struct err *e)
{
	struct key_row *rows = must_alloc(malloc(k->count * sizeof(*rows) + 1));
	size_t n = 0;

	for (size_t i = 0; i < k->count; i++)
		if (k->rows[i].kind != kind ||
		    (id ? !str_equal(k->rows[i].id, id) : is_kept(arg, k->rows[i].id)))
			rows[n++] = k->rows[i];
	if (n < k->count)
		return replace_rows(k, rows, n, e);
	free(rows);
	return 0;
}

int keyring_shred(struct keyring *k, const char *owner, struct err *e)
{
	struct key_row *rows = must_alloc(malloc(k->count * sizeof(*rows) + 1));
	size_t n = 0;

	for (size_t i = 0; i < k->count; i++)
		if (k->rows[i].kind == KEY_EXCHANGE || k->rows[i].kind == KEY_SIGNER ||
		    (!str_equal(k->rows[i].id, owner) && (parents[k->rows[i].kind] == KEY_MASTER ||
							  !str_equal(k->rows[i].parent, owner))))
			rows[n++] = k->rows[i];
	if (n < k->count)
		return replace_rows(k, rows, n, e);
	free(rows);
	return err_set(e, ERR_NOT_FOUND, "there is no key of '%s'", owner);
}

int keyring_rotate(struct keyring *k, const unsigned char master[KEY_BYTES], struct err *e)
{
	struct key_row *rows = must_alloc(malloc(k->count * sizeof(*rows) + 1));
	unsigned char old_id[MASTER_ID], new_id[MASTER_ID], key[KEY_BYTES];
	int rc = 0;

	memcpy(rows, k->rows, k->count * sizeof(*rows));
	memcpy(old_id, k->master_id, MASTER_ID);
	name_master(master, new_id);
	for (size_t i = 0; rc == 0 && i < k->count; i++) {
		if (parents[rows[i].kind] != KEY_MASTER)
			continue;
		rc = open_row(k, &rows[i], k->master, key, e);
		memcpy(k->master_id, new_id, MASTER_ID);
		if (rc == 0)
			seal_row(k, &rows[i], key, master);
		memcpy(k->master_id, old_id, MASTER_ID);
	}
	sodium_memzero(key, sizeof(key));
	if (rc < 0) {
		free(rows);
		return -1;
	}
	memcpy(k->master_id, new_id, MASTER_ID);
	if (replace_rows(k, rows, k->count, e) < 0) {
		memcpy(k->master_id, old_id, MASTER_ID);
		return -1;
	}
	memcpy(k->master, master, KEY_BYTES);
	return 0;
}
