/* Frames of a client or a server, fed whole and byte by byte: both readers must see the same. */
#include "fuzz.h"

#include "wire/websocket.h"

#include <string.h>

#define MAX 300

/* All messages as one text; false: the frames were refused. */
static bool read_all(struct ws_reader *r, struct buf *seen, int *ret_code)
{
	struct ws_message m = {0};
	int rc;

	while ((rc = ws_next(r, &m)) > 0) {
		uint8_t opcode = (uint8_t)m.opcode;

		PROMISE(m.opcode != WS_CONTINUATION);
		PROMISE(m.len <= (m.opcode >= WS_CLOSE ? WS_CONTROL_MAX : MAX));
		buf_add(seen, &opcode, 1);
		buf_add(seen, m.bytes, m.len);
	}
	PROMISE(rc == 0 || m.code == WS_PROTOCOL || m.code == WS_TOO_BIG);
	*ret_code = rc < 0 ? (int)m.code : 0;
	return rc == 0;
}

/* What is written is read back. */
static void check_round_trip(const uint8_t *data, size_t size, bool is_server)
{
	static const uint8_t mask[WS_MASK] = {1, 200, 3, 77};
	struct ws_reader r = {.is_server = is_server, .max = 1 << 20};
	struct ws_message m;

	ws_write(&r.in, WS_BINARY, data, size, is_server ? mask : NULL);
	PROMISE(ws_next(&r, &m) == 1 && m.opcode == WS_BINARY && m.len == size);
	PROMISE(size == 0 || memcmp(m.bytes, data, size) == 0);
	PROMISE(ws_next(&r, &m) == 0);
	ws_reader_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool is_server = size && (data[0] & 1);
	struct ws_reader whole = {.is_server = is_server, .max = MAX}, slow = whole;
	struct buf a = {0}, b = {0};
	int code = 0, slow_code = 0;
	bool ok, slow_ok = true;

	if (!size)
		return 0;
	ws_feed(&whole, data + 1, size - 1);
	ok = read_all(&whole, &a, &code);
	for (size_t i = 1; i < size && slow_ok; i++) {
		ws_feed(&slow, data + i, 1);
		slow_ok = read_all(&slow, &b, &slow_code);
		PROMISE(slow.in.len <= MAX + 16);
	}
	PROMISE(ok == slow_ok && code == slow_code);
	PROMISE(a.len == b.len && (!a.len || !memcmp(buf_head(&a), buf_head(&b), a.len)));
	check_round_trip(data, size, is_server);
	ws_reader_done(&whole);
	ws_reader_done(&slow);
	buf_done(&a);
	buf_done(&b);
	return 0;
}
