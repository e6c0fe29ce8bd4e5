/* WebSocket frames. A length is checked before its bytes are buffered, so that a reader stays small. */
#include "wire/websocket.h"

#include "base/base64.h"

/* ---- reading ---- */

struct frame {
	bool is_last;
	uint8_t opcode;
	size_t head, len; /* bytes of its head, of its payload */
};

static int refuse_frame(struct ws_message *ret, enum ws_code code)
{
	ret->code = code;
	return -1;
}

/* The length, in as few bytes as it takes. 0: not all of them are there. */
static int read_length(const uint8_t *p, size_t room, struct frame *f)
{
	static const uint64_t least[] = {126, 65536};
	uint8_t first = p[1] & 0x7f;
	size_t more = first == 127 ? 8 : first == 126 ? 2 : 0;
	uint64_t len = first;

	if (room < 2 + more)
		return 0;
	if (more) {
		len = 0;
		for (size_t i = 0; i < more; i++)
			len = len << 8 | p[2 + i];
		if (len < least[more == 8] || len > SIZE_MAX / 4)
			return -1;
	}
	f->head = 2 + more;
	f->len = (size_t)len;
	return 1;
}

/* 1: the frame at the beginning of the input has a whole and proper head. */
static int read_head(const struct ws_reader *r, struct frame *f, struct ws_message *ret)
{
	const uint8_t *p = (const uint8_t *)buf_head(&r->in);
	bool is_control, is_masked;
	int rc;

	if (r->in.len < 2)
		return 0;
	*f = (struct frame){.is_last = p[0] & 0x80, .opcode = p[0] & 0x0f};
	is_control = f->opcode >= WS_CLOSE;
	is_masked = p[1] & 0x80;
	if ((p[0] & 0x70) || is_masked != r->is_server || f->opcode > WS_PONG ||
	    (f->opcode > WS_BINARY && !is_control))
		return refuse_frame(ret, WS_PROTOCOL);
	if (is_control ? !f->is_last || (p[1] & 0x7f) > WS_CONTROL_MAX
		       : (f->opcode == WS_CONTINUATION) != (r->fragments != 0))
		return refuse_frame(ret, WS_PROTOCOL);
	rc = read_length(p, r->in.len, f);
	if (rc < 0)
		return refuse_frame(ret, WS_PROTOCOL);
	if (rc > 0 && !is_control && f->len > r->max - r->parts.len)
		return refuse_frame(ret, WS_TOO_BIG);
	f->head += is_masked ? WS_MASK : 0;
	return rc;
}

static void apply_mask(char *bytes, size_t len, const uint8_t *mask)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] ^= (char)mask[i % WS_MASK];
}

/* A fragment was added to its message. 1: that was the last one. */
static int take_fragment(struct ws_reader *r, const struct frame *f, const char *bytes,
			 struct ws_message *ret)
{
	buf_add(&r->parts, bytes, f->len);
	if (f->opcode != WS_CONTINUATION)
		r->fragments = f->opcode;
	if (!f->is_last)
		return 0;
	*ret = (struct ws_message){.opcode = r->fragments,
				   .bytes = r->parts.len ? buf_head(&r->parts) : "",
				   .len = r->parts.len};
	r->fragments = 0;
	r->parts_used = true;
	return 1;
}

void ws_feed(struct ws_reader *r, const void *bytes, size_t len)
{
	buf_add(&r->in, bytes, len);
}

int ws_next(struct ws_reader *r, struct ws_message *ret)
{
	struct frame f;
	char *bytes;
	int rc;

	if (r->parts_used)
		buf_drop(&r->parts, r->parts.len);
	r->parts_used = false;
	for (;;) {
		buf_drop(&r->in, r->used);
		r->used = 0;
		rc = read_head(r, &f, ret);
		if (rc <= 0 || r->in.len < f.head + f.len)
			return rc < 0 ? -1 : 0;
		bytes = buf_head(&r->in) + f.head;
		if (r->is_server)
			apply_mask(bytes, f.len, (const uint8_t *)bytes - WS_MASK);
		r->used = f.head + f.len;
		if (f.opcode >= WS_CLOSE || (f.is_last && f.opcode != WS_CONTINUATION)) {
			*ret = (struct ws_message){f.opcode, bytes, f.len, 0};
			return 1;
		}
		if (take_fragment(r, &f, bytes, ret))
			return 1;
	}
}

void ws_reader_done(struct ws_reader *r)
{
	buf_done(&r->in);
	buf_done(&r->parts);
}

/* ---- writing ---- */

void ws_write(struct buf *out, enum ws_opcode opcode, const void *bytes, size_t len,
	      const uint8_t *mask)
{
	size_t more = len > 65535 ? 8 : len > 125 ? 2 : 0;
	uint8_t head[10] = {0x80 | (uint8_t)opcode, more == 8	? 127
						    : more == 2 ? 126
								: (uint8_t)len};

	for (size_t i = 0; i < more; i++)
		head[2 + i] = (uint8_t)((uint64_t)len >> 8 * (more - 1 - i));
	head[1] |= mask ? 0x80 : 0;
	buf_add(out, head, 2 + more);
	if (mask)
		buf_add(out, mask, WS_MASK);
	buf_add(out, bytes, len);
	if (mask)
		apply_mask(buf_head(out) + out->len - len, len, mask);
}

void ws_write_close(struct buf *out, enum ws_code code, const uint8_t *mask)
{
	const uint8_t bytes[] = {(uint8_t)(code >> 8), (uint8_t)code};

	ws_write(out, WS_CLOSE, bytes, sizeof(bytes), mask);
}

/* ---- the handshake ---- */

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define BLOCK 64

static uint32_t rotate(uint32_t x, int bits)
{
	return x << bits | x >> (32 - bits);
}

static void sha1_block(uint32_t *h, const uint8_t *p)
{
	uint32_t w[80], s[5];

	for (int i = 0; i < 16; i++, p += 4)
		w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	for (int i = 16; i < 80; i++)
		w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	memcpy(s, h, sizeof(s));
	for (int i = 0; i < 80; i++) {
		static const uint32_t k[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
		uint32_t f = i < 20		 ? (s[1] & s[2]) | (~s[1] & s[3])
			     : i >= 40 && i < 60 ? (s[1] & s[2]) | (s[1] & s[3]) | (s[2] & s[3])
						 : s[1] ^ s[2] ^ s[3];
		uint32_t next = rotate(s[0], 5) + f + s[4] + k[i / 20] + w[i];

		s[4] = s[3];
		s[3] = s[2];
		s[2] = rotate(s[1], 30);
		s[1] = s[0];
		s[0] = next;
	}
	for (int i = 0; i < 5; i++)
		h[i] += s[i];
}

/*
 * SHA-1 of a key and the GUID: always the same 60 bytes, so two blocks. Nothing is kept secret by it;
 * it only shows that the server speaks the protocol.
 */
static void sha1_of_key(const char *key, uint8_t ret[20])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const size_t len = WS_KEY + sizeof(GUID) - 1;
	uint8_t text[2 * BLOCK] = {0};

	memcpy(text, key, WS_KEY);
	memcpy(text + WS_KEY, GUID, sizeof(GUID) - 1);
	text[len] = 0x80;
	text[2 * BLOCK - 2] = (uint8_t)(len * 8 >> 8);
	text[2 * BLOCK - 1] = (uint8_t)(len * 8);
	sha1_block(h, text);
	sha1_block(h, text + BLOCK);
	for (int i = 0; i < 20; i++)
		ret[i] = (uint8_t)(h[i / 4] >> 8 * (3 - i % 4));
}

bool ws_key_is_valid(const char *key)
{
	char bytes[WS_KEY];
	size_t len;

	return strlen(key) == WS_KEY && base64_decode(bytes, key, WS_KEY, &len) == 0 && len == 16;
}

void ws_accept(const char *key, char ret[WS_ACCEPT])
{
	uint8_t digest[20];

	sha1_of_key(key, digest);
	ret[base64_encode(ret, digest, sizeof(digest))] = '\0';
}
