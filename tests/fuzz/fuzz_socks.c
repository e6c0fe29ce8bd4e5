/* Any bytes as a SOCKS5 client: a request is read in one way, whatever pieces it comes in. */
#include "fuzz.h"

#include "egress/socks.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct socks_request q = {0}, again;
	enum socks_reply reply = SOCKS_DONE;
	ssize_t greeting = socks_greeting(data, size), len;

	PROMISE(greeting <= (ssize_t)size);
	for (size_t i = 0; greeting > 0 && i < (size_t)greeting; i++)
		PROMISE(socks_greeting(data, i) == 0);
	len = socks_request(data, size, &q, &reply);
	PROMISE(len <= (ssize_t)size);
	PROMISE(len >= 0 || reply != SOCKS_DONE);
	if (len <= 0)
		return 0;
	PROMISE(q.port && memchr(q.host, 0, sizeof(q.host)));
	PROMISE((size_t)len >= strlen(q.host) + 6);
	for (size_t i = 0; i < (size_t)len; i++)
		PROMISE(socks_request(data, i, &again, &reply) == 0);
	return 0;
}
