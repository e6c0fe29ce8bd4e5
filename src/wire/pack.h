/*
 * Payloads of our own messages: little-endian numbers, and strings as a 32-bit length and bytes.
 * Reading is bounded: past the end everything reads as 0 or empty and `bad` is set, so that a
 * message is read to its end and judged once.
 */
#pragma once

#include "base/base.h"

static inline void pack_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}

static inline void pack_u32(struct buf *b, uint32_t v)
{
	unsigned char bytes[4] = {(unsigned char)v, (unsigned char)(v >> 8),
				  (unsigned char)(v >> 16), (unsigned char)(v >> 24)};

	buf_add(b, bytes, sizeof(bytes));
}

static inline void pack_u64(struct buf *b, uint64_t v)
{
	pack_u32(b, (uint32_t)v);
	pack_u32(b, (uint32_t)(v >> 32));
}

static inline void pack_bytes(struct buf *b, const void *bytes, size_t len)
{
	pack_u32(b, (uint32_t)len);
	buf_add(b, bytes, len);
}

/* NULL is the empty string. */
static inline void pack_str(struct buf *b, const char *s)
{
	pack_bytes(b, s ? s : "", s ? strlen(s) : 0);
}

struct unpack {
	const unsigned char *at, *end;
	bool bad;
};

static inline struct unpack unpack_from(const void *bytes, size_t len)
{
	return (struct unpack){bytes, (const unsigned char *)bytes + len, false};
}

static inline const unsigned char *unpack_take(struct unpack *u, size_t len)
{
	const unsigned char *p = u->at;

	if ((size_t)(u->end - u->at) < len) {
		u->bad = true;
		u->at = u->end;
		return NULL;
	}
	u->at += len;
	return p;
}

static inline uint8_t unpack_u8(struct unpack *u)
{
	const unsigned char *p = unpack_take(u, 1);

	return p ? *p : 0;
}

static inline uint32_t unpack_u32(struct unpack *u)
{
	const unsigned char *p = unpack_take(u, 4);

	return p ? p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24 : 0;
}

static inline uint64_t unpack_u64(struct unpack *u)
{
	uint64_t low = unpack_u32(u);

	return low | (uint64_t)unpack_u32(u) << 32;
}

static inline const char *unpack_bytes(struct unpack *u, size_t *ret_len)
{
	uint32_t len = unpack_u32(u);
	const unsigned char *p = unpack_take(u, len);

	*ret_len = p ? len : 0;
	return p ? (const char *)p : "";
}

/*
 * A string into room of the caller's; a NUL inside or one that does not fit is bad. dst is always
 * terminated.
 */
static inline void unpack_str(struct unpack *u, char *dst, size_t room)
{
	size_t len;
	const char *p = unpack_bytes(u, &len);

	if (len >= room || memchr(p, '\0', len)) {
		u->bad = true;
		len = 0;
	}
	memcpy(dst, p, len);
	dst[len] = '\0';
}

/* True if all was there and nothing is left over. */
static inline bool unpack_is_done(const struct unpack *u)
{
	return !u->bad && u->at == u->end;
}
