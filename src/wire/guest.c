/* Headers of frames, for both ends of the guest protocol. */
#include "wire/guest.h"

static void put_u32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get_u32(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void guest_header_put(unsigned char *ret, const struct guest_header *h)
{
	put_u32(ret, h->size);
	put_u32(ret + 4, h->stream);
	ret[8] = h->type;
	ret[9] = ret[10] = ret[11] = 0;
}

bool guest_header_get(const unsigned char *bytes, struct guest_header *ret)
{
	struct guest_header h = {get_u32(bytes), get_u32(bytes + 4), bytes[8]};

	if (h.size > GUEST_MAX_PAYLOAD || bytes[9] || bytes[10] || bytes[11])
		return false;
	*ret = h;
	return true;
}

bool guest_is_counted(uint8_t type)
{
	return type == G_DATA || type == G_OUT || type == G_ERR || type == G_ITEM;
}

void guest_frame_add(struct buf *b, uint32_t stream, uint8_t type, const void *payload, size_t len)
{
	struct guest_header h = {(uint32_t)len, stream, type};

	guest_header_put((unsigned char *)buf_reserve(b, GUEST_HEADER + len), &h);
	buf_added(b, GUEST_HEADER);
	buf_add(b, payload, len);
}
