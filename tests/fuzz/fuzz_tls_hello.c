/* The first bytes of a client: read whole and as they grow, the verdict is the same and never taken back. */
#include "fuzz.h"

#include "wire/tls_hello.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_hello_found whole = {0}, part = {0};
	enum tls_hello all, some = TLS_MORE;
	size_t step = size / 64 + 1, len = 0;

	if (size > TLS_HELLO_MAX + 1000)
		return 0;
	all = tls_hello_read(data, size, &whole);
	if (all == TLS_NAMED)
		PROMISE(strlen(whole.name) > 0 && strlen(whole.name) < TLS_NAME);
	if (all == TLS_NAMED || all == TLS_NO_NAME)
		PROMISE(whole.len <= size);
	for (; len < size && some == TLS_MORE; len += step)
		some = tls_hello_read(data, len, &part);
	if (some != TLS_MORE) {
		PROMISE(some == all);
		PROMISE(some != TLS_NAMED || strcmp(part.name, whole.name) == 0);
	}
	tls_server_retries(data, size);
	return 0;
}
