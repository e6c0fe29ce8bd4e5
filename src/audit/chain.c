#include "audit/chain.h"

#include "base/jsonw.h"

#include <sodium.h>

#define DIGEST 32

int chain_key_load(const char *file, struct chain_key *ret, struct err *e)
{
	static const unsigned char label[] = "cloche audit key id";
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	unsigned char text[4096], id[DIGEST];
	struct chain_key key = {.is_set = true};
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "audit key %s: cannot open", file);
	if (!S_ISREG(st.st_mode) || st.st_mode & 077)
		return err_set(
			e, ERR_DENIED,
			"audit key %s: must be a file that only its owner can read; chmod 600",
			file);
	n = read(fd, text, sizeof(text));
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n < 16 || n == (ssize_t)sizeof(text))
		return err_set(e, ERR_INVALID, "audit key %s: must have 16 to 4095 bytes", file);
	crypto_generichash(key.bytes, sizeof(key.bytes), text, (size_t)n, NULL, 0);
	sodium_memzero(text, sizeof(text));
	crypto_generichash(id, sizeof(id), label, sizeof(label) - 1, key.bytes, sizeof(key.bytes));
	sodium_bin2hex(key.id, sizeof(key.id), id, 4);
	*ret = key;
	return 0;
}

void chain_init(struct chain *c, const struct chain_key *key)
{
	*c = (struct chain){.key = *key};
	snprintf(c->head, sizeof(c->head), "%s", CHAIN_START);
}

static void hash_bytes(const struct chain_key *key, const void *bytes, size_t len, char *ret)
{
	unsigned char digest[DIGEST];
	char hex[2 * DIGEST + 1];

	if (key->is_set)
		crypto_generichash(digest, sizeof(digest), bytes, len, key->bytes,
				   sizeof(key->bytes));
	else
		crypto_hash_sha256(digest, bytes, len);
	sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
	if (key->is_set)
		snprintf(ret, CHAIN_HASH, "blake2b-%s:%s", key->id, hex);
	else
		snprintf(ret, CHAIN_HASH, "sha256:%s", hex);
}

void chain_digest(const void *bytes, size_t len, char ret[CHAIN_HASH])
{
	const struct chain_key none = {0};

	hash_bytes(&none, bytes, len, ret);
}

/* A sender is not trusted to have ended its strings. */
static void put_text(struct jsonw *j, const char *key, const char *text, size_t room)
{
	jsonw_text_open(j, key);
	jsonw_text(j, text, strnlen(text, room));
	jsonw_text_close(j);
}

#define PUT(j, e, member) put_text(j, #member, (e)->member, sizeof((e)->member))

/* Everything before `,"hash"`. */
static void put_fields(struct jsonw *j, const struct chain *c, const struct audit_entry *entry,
		       const char *torn)
{
	char when[UTC_TEXT];

	utc_now(6, when);
	jsonw_open(j, NULL, '{');
	jsonw_uint(j, "seq", c->seq + 1);
	jsonw_string(j, "time", when);
	PUT(j, entry, who);
	PUT(j, entry, what);
	PUT(j, entry, target);
	PUT(j, entry, verdict);
	PUT(j, entry, why);
	PUT(j, entry, from);
	if (torn)
		jsonw_string(j, "torn", torn);
	jsonw_string(j, "prev", c->head);
}

void chain_add(struct chain *c, struct buf *b, const struct audit_entry *entry, const char *torn)
{
	char text[CHAIN_LINE], tail[CHAIN_HASH + 16];
	FILE *to = must_alloc(fmemopen(text, sizeof(text), "w"));
	struct jsonw j;
	size_t len;

	jsonw_begin(&j, to);
	put_fields(&j, c, entry, torn);
	jsonw_finish(&j);
	len = (size_t)ftell(to);
	fclose(to);
	hash_bytes(&c->key, text, len, c->head);
	c->seq++;
	buf_add(b, text, len);
	len = (size_t)snprintf(tail, sizeof(tail), ",\"hash\":\"%s\"}\n", c->head);
	buf_add(b, tail, len);
}

/* ---- reading ---- */

/* "ALG:64 hex" at p, ended by a quote; returns what follows the quote, or NULL. */
static const char *take_hash(const char *p, const char *end, char *ret)
{
	const char *quote = memchr(p, '"', (size_t)(end - p));
	const char *colon = quote ? memchr(p, ':', (size_t)(quote - p)) : NULL;
	size_t len = quote ? (size_t)(quote - p) : 0;

	if (!colon || len >= CHAIN_HASH || quote - colon != 2 * DIGEST + 1)
		return NULL;
	memcpy(ret, p, len);
	ret[len] = '\0';
	if (strspn(ret, STR_LOWER STR_DIGITS "-:") != len)
		return NULL;
	return quote + 1;
}

/* The last occurrence of a key: no value can hold these bytes, since quotes in it are escaped. */
static const char *find_last(const char *line, size_t len, const char *key)
{
	size_t n = strlen(key);

	for (size_t at = len >= n ? len - n + 1 : 0; at > 0; at--)
		if (memcmp(line + at - 1, key, n) == 0)
			return line + at - 1;
	return NULL;
}

bool chain_parse(const char *line, size_t len, struct chain_view *ret)
{
	static const char start[] = "{\"seq\":", prev[] = ",\"prev\":\"", hash[] = ",\"hash\":\"";
	const char *p = line + sizeof(start) - 1, *end = line + len, *at_prev, *at_hash;
	struct chain_view v = {0};
	int digits = 0;

	if (len < sizeof(start) || len > CHAIN_LINE || memcmp(line, start, sizeof(start) - 1) != 0)
		return false;
	for (; p < end && *p >= '0' && *p <= '9' && digits < 19; p++, digits++)
		v.seq = v.seq * 10 + (uint64_t)(*p - '0');
	if (digits == 0 || p == end || *p != ',')
		return false;
	at_prev = find_last(line, len, prev);
	at_hash = find_last(line, len, hash);
	if (!at_prev || !at_hash || at_prev < p ||
	    take_hash(at_prev + sizeof(prev) - 1, end, v.prev) != at_hash)
		return false;
	p = take_hash(at_hash + sizeof(hash) - 1, end, v.hash);
	if (!p || p + 1 != end || *p != '}')
		return false;
	v.hashed_len = (size_t)(at_hash - line);
	*ret = v;
	return true;
}

enum chain_check chain_check(const struct chain_key *key, const char *line,
			     const struct chain_view *v)
{
	static const struct chain_key none = {0};
	char wanted[CHAIN_HASH];
	const char *colon = strchr(v->hash, ':');

	if (str_starts(v->hash, "sha256:"))
		key = &none;
	else if (!key->is_set || !str_starts(v->hash, "blake2b-") ||
		 strncmp(v->hash + 8, key->id, (size_t)(colon - v->hash) - 8) != 0 ||
		 colon - v->hash != 16)
		return CHAIN_OTHER_KEY;
	hash_bytes(key, line, v->hashed_len, wanted);
	return sodium_memcmp(wanted, v->hash, strlen(wanted) + 1) == 0 ? CHAIN_GOOD : CHAIN_BAD;
}
