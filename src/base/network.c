#include "base/network.h"

#include <arpa/inet.h>

bool network_parse(const char *text, struct network *ret)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	unsigned most = 128, before = 0;
	char host[64];
	struct err e;
	uint64_t bits;

	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	*ret = (struct network){.address = {[10] = 0xff, [11] = 0xff}};
	if (inet_pton(AF_INET, host, ret->address + 12) == 1) {
		most = 32;
		before = 96;
	} else if (inet_pton(AF_INET6, host, ret->address) != 1) {
		return false;
	}
	bits = most;
	if (slash && (parse_count(slash + 1, &bits, &e) < 0 || bits > most))
		return false;
	ret->bits = before + (unsigned)bits;
	return true;
}

bool network_has(const struct network *n, const struct network *address)
{
	for (unsigned bit = 0; bit < n->bits; bit++)
		if ((n->address[bit / 8] ^ address->address[bit / 8]) & (0x80 >> bit % 8))
			return false;
	return true;
}
