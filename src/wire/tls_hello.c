/* The ClientHello of TLS (RFC 8446 4.1.2, RFC 6066 3): found in records, read strictly. */
#include "wire/tls_hello.h"

#define RECORD_HEAD 5
#define RECORD_MAX (16384 + 256)
#define RECORDS_MAX 1024 /* of one hello: each call joins them again */
#define HANDSHAKE 22
#define CLIENT_HELLO 1
#define SERVER_HELLO 2
#define EXTENSION_SERVER_NAME 0

/* Bytes that are left to be read. */
struct reader {
	const unsigned char *at;
	size_t left;
	bool failed;
};

static size_t take_number(struct reader *r, size_t width)
{
	size_t v = 0;

	if (r->failed || r->left < width) {
		r->failed = true;
		return 0;
	}
	for (size_t i = 0; i < width; i++)
		v = v << 8 | r->at[i];
	r->at += width;
	r->left -= width;
	return v;
}

static struct reader take_bytes(struct reader *r, size_t len)
{
	struct reader part = {r->at, len, r->failed};

	if (r->failed || r->left < len) {
		r->failed = true;
		return (struct reader){.failed = true};
	}
	r->at += len;
	r->left -= len;
	return part;
}

/* A vector with its length in front. */
static struct reader take_vector(struct reader *r, size_t width)
{
	return take_bytes(r, take_number(r, width));
}

static enum tls_hello read_server_name(struct reader x, char ret[TLS_NAME])
{
	struct reader list = take_vector(&x, 2), name;
	size_t type = take_number(&list, 1);

	name = take_vector(&list, 2);
	/* One name, of the only type that there is: servers may differ about others. */
	if (list.failed || name.failed || x.left || list.left || type != 0 || name.left == 0 ||
	    name.left >= TLS_NAME)
		return TLS_MALFORMED;
	for (size_t i = 0; i < name.left; i++) {
		if (name.at[i] <= ' ' || name.at[i] >= 127)
			return TLS_MALFORMED;
		ret[i] = (char)name.at[i];
	}
	ret[name.left] = '\0';
	return TLS_NAMED;
}

static enum tls_hello read_hello(struct reader hello, char ret[TLS_NAME])
{
	struct reader extensions;
	enum tls_hello found = TLS_NO_NAME;

	take_number(&hello, 2);
	take_bytes(&hello, 32);
	take_vector(&hello, 1); /* session */
	take_vector(&hello, 2); /* ciphers */
	take_vector(&hello, 1); /* compression */
	if (hello.failed)
		return TLS_MALFORMED;
	if (hello.left == 0)
		return TLS_NO_NAME;
	extensions = take_vector(&hello, 2);
	if (extensions.failed || hello.left)
		return TLS_MALFORMED;
	while (extensions.left) {
		size_t type = take_number(&extensions, 2);
		struct reader x = take_vector(&extensions, 2);

		if (extensions.failed)
			return TLS_MALFORMED;
		if (type != EXTENSION_SERVER_NAME)
			continue;
		/* Twice is forbidden: servers would choose. */
		if (found != TLS_NO_NAME)
			return TLS_MALFORMED;
		found = read_server_name(x, ret);
		if (found != TLS_NAMED)
			return found;
	}
	return found;
}

/* The hello of SSL 2 that some servers still take; it has no name. */
static bool is_old_hello(const unsigned char *bytes, size_t len)
{
	return len >= 5 && (bytes[0] & 0x80) && bytes[2] == CLIENT_HELLO &&
	       (bytes[3] == 3 || (bytes[3] == 0 && bytes[4] == 2));
}

/* Can these bytes still become TLS? Content types 20 to 24, version 3.x. */
static enum tls_hello judge_start(const unsigned char *bytes, size_t len)
{
	if (len == 0)
		return TLS_MORE;
	if (bytes[0] & 0x80)
		return len < 5 ? TLS_MORE : is_old_hello(bytes, len) ? TLS_NO_NAME : TLS_NOT;
	if (bytes[0] < 20 || bytes[0] > 24)
		return TLS_NOT;
	if (len < 2)
		return TLS_MORE;
	if (bytes[1] != 3)
		return TLS_NOT;
	return bytes[0] == HANDSHAKE ? TLS_NAMED : TLS_MALFORMED;
}

/*
 * Joins the handshake bytes of the records into ret (TLS_HELLO_MAX bytes), until the hello is complete.
 * *ret_len is the length of the message with its head.
 */
static enum tls_hello join_records(const unsigned char *bytes, size_t len, unsigned char *ret,
				   size_t *ret_len, size_t *ret_used)
{
	size_t at = 0, have = 0, want = 4;

	for (int i = 0;; i++) {
		size_t record;

		if (i == RECORDS_MAX)
			return TLS_MALFORMED;
		if (len - at < RECORD_HEAD)
			return at >= TLS_HELLO_MAX ? TLS_MALFORMED : TLS_MORE;
		record = (size_t)(bytes[at + 3] << 8 | bytes[at + 4]);
		if (bytes[at] != HANDSHAKE || bytes[at + 1] != 3 || record == 0 ||
		    record > RECORD_MAX || at + RECORD_HEAD + record > TLS_HELLO_MAX)
			return TLS_MALFORMED;
		if (len - at - RECORD_HEAD < record)
			return TLS_MORE;
		memcpy(ret + have, bytes + at + RECORD_HEAD, record);
		have += record;
		at += RECORD_HEAD + record;
		if (have >= 1 && ret[0] != CLIENT_HELLO)
			return TLS_MALFORMED;
		if (have >= 4)
			want = 4 + (size_t)(ret[1] << 16 | ret[2] << 8 | ret[3]);
		if (want > TLS_HELLO_MAX)
			return TLS_MALFORMED;
		if (have >= want)
			break;
	}
	*ret_len = want;
	*ret_used = at;
	/* Nothing may follow in the same record before the server has answered. */
	return have == want ? TLS_NAMED : TLS_MALFORMED;
}

enum tls_hello tls_hello_read(const unsigned char *bytes, size_t len, struct tls_hello_found *ret)
{
	enum tls_hello rc = judge_start(bytes, len);
	auto_free unsigned char *joined = NULL;
	char name[TLS_NAME] = "";
	size_t hello = 0, used = 0;

	if (rc != TLS_NAMED) {
		if (rc == TLS_NO_NAME)
			*ret = (struct tls_hello_found){.len = len};
		return rc;
	}
	joined = must_alloc(malloc(TLS_HELLO_MAX));
	rc = join_records(bytes, len, joined, &hello, &used);
	if (rc == TLS_NAMED)
		rc = read_hello((struct reader){joined + 4, hello - 4, false}, name);
	if (rc == TLS_NAMED || rc == TLS_NO_NAME) {
		memcpy(ret->name, name, sizeof(name));
		ret->len = used;
	}
	return rc;
}

int tls_server_retries(const unsigned char *bytes, size_t len)
{
	/* SHA-256 of "HelloRetryRequest" in place of the random bytes. */
	static const unsigned char retry[32] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11,
						0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
						0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e,
						0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

	if (len == 0)
		return -1;
	/* An alert, or not TLS at all. */
	if (bytes[0] != HANDSHAKE)
		return 0;
	if (len < RECORD_HEAD + 1)
		return -1;
	if (bytes[RECORD_HEAD] != SERVER_HELLO)
		return 0;
	if (len < RECORD_HEAD + 6 + sizeof(retry))
		return -1;
	return memcmp(bytes + RECORD_HEAD + 6, retry, sizeof(retry)) == 0;
}
