/* Reads SOCKS5 requests. */
#include "egress/socks.h"

ssize_t socks_greeting(const unsigned char *bytes, size_t len)
{
	if (len && bytes[0] != 5)
		return -1;
	if (len < 2 || len < 2u + bytes[1])
		return 0;
	/* "No authentication" must be among the methods. */
	return bytes[1] && memchr(bytes + 2, 0, bytes[1]) ? 2 + bytes[1] : -1;
}

static ssize_t refuse(enum socks_reply *ret, enum socks_reply reply)
{
	*ret = reply;
	return -1;
}

ssize_t socks_request(const unsigned char *bytes, size_t len, struct socks_request *ret,
		      enum socks_reply *ret_reply)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	size_t host, whole;

	*ret = (struct socks_request){0};
	if ((len > 0 && bytes[0] != 5) || (len > 2 && bytes[2] != 0))
		return refuse(ret_reply, SOCKS_FAILURE);
	if (len > 1 && bytes[1] != 1)
		return refuse(ret_reply, SOCKS_NO_COMMAND); /* BIND and UDP ASSOCIATE */
	if (len > 3 && bytes[3] != 1 && bytes[3] != 3 && bytes[3] != 4)
		return refuse(ret_reply, SOCKS_NO_ADDRESS_TYPE);
	if (len < 5)
		return 0;
	host = bytes[3] == 1 ? 4 : bytes[3] == 4 ? 16 : 1u + bytes[4];
	whole = 4 + host + 2;
	if (len < whole)
		return 0;
	ret->port = (uint16_t)(bytes[whole - 2] << 8 | bytes[whole - 1]);
	if (!ret->port || (bytes[3] == 3 && (!bytes[4] || memchr(bytes + 5, '\0', bytes[4]))))
		return refuse(ret_reply, SOCKS_FAILURE);
	if (bytes[3] == 3) {
		memcpy(ret->host, bytes + 5, bytes[4]);
	} else {
		memcpy(ret->address, mapped, 12);
		memcpy(ret->address + (host == 4 ? 12 : 0), bytes + 4, host);
	}
	return (ssize_t)whole;
}

void socks_answer(struct buf *out, enum socks_reply reply)
{
	unsigned char bytes[10] = {5, (unsigned char)reply, 0, 1};

	buf_add(out, bytes, sizeof(bytes));
}
