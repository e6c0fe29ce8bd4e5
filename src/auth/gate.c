#include "auth/gate.h"

#include "base/network.h"

#include <arpa/inet.h>
#include <strings.h>

/* The name without its port; false if it is not one. */
static bool host_name(const char *host, char *ret, size_t size)
{
	const char *end = host[0] == '[' ? strchr(host, ']') : strchr(host, ':');
	const char *from = host + (host[0] == '[');
	size_t len;

	if (host[0] == '[' && !end)
		return false;
	len = end ? (size_t)(end - from) : strlen(from);
	if (len == 0 || len >= size)
		return false;
	memcpy(ret, from, len);
	ret[len] = '\0';
	return true;
}

static bool is_loopback_digits(const char *name)
{
	return str_equal(name, "::1") ||
	       (str_starts(name, "127.") && strspn(name, "0123456789.") == strlen(name));
}

static bool is_digits(const char *name)
{
	unsigned char address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

/* pattern: a name, or "*." and what it ends in. */
static bool name_matches(const char *pattern, const char *name)
{
	size_t len = strlen(name), end;

	if (!str_starts(pattern, "*."))
		return !strcasecmp(pattern, name);
	end = strlen(pattern + 1);
	return len > end && !strcasecmp(name + len - end, pattern + 1);
}

bool gate_host_is_fine(const struct gate *g, const char *host)
{
	char name[256], known[256];

	if (!host || !host_name(host, name, sizeof(name)))
		return false;
	if (name_matches("localhost", name) || name_matches("*.localhost", name) || is_digits(name))
		return true;
	for (size_t i = 0; i < g->host_count; i++)
		if (name_matches(g->hosts[i], host) ||
		    (host_name(g->hosts[i], known, sizeof(known)) && name_matches(known, name)))
			return true;
	return false;
}

bool gate_origin_is_fine(const struct gate *g, const char *origin, const char *host)
{
	const char *rest = strstr(origin, "://");
	char name[256];

	for (size_t i = 0; i < g->origin_count; i++)
		if (!strcasecmp(g->origins[i], origin))
			return true;
	if (!rest)
		return false;
	rest += 3;
	if (host && !strcasecmp(rest, host))
		return true;
	/* Not *.localhost: such names are previews of what runs inside sandboxes. */
	return host_name(rest, name, sizeof(name)) &&
	       (!strcasecmp(name, "localhost") || is_loopback_digits(name));
}

static bool is_proxy(const char (*proxies)[256], size_t count, const char *address)
{
	struct network one, n;

	if (!network_parse(address, &one) || strchr(address, '/'))
		return false;
	for (size_t i = 0; i < count; i++)
		if (network_parse(proxies[i], &n) && network_has(&n, &one))
			return true;
	return false;
}

void gate_client(const char (*proxies)[256], size_t count, const char *peer, const char *forwarded,
		 char *ret, size_t size)
{
	size_t end = forwarded ? strlen(forwarded) : 0;
	struct network ignored;
	char one[64];

	snprintf(ret, size, "%s", peer);
	/* From the end: what a client itself wrote stands in front of what the proxies added. */
	while (end && is_proxy(proxies, count, ret)) {
		size_t from = end, len;

		while (from && forwarded[from - 1] != ',')
			from--;
		len = end - from;
		end = from ? from - 1 : 0;
		while (len && strchr(" \t", forwarded[from]))
			from++, len--;
		while (len && strchr(" \t", forwarded[from + len - 1]))
			len--;
		if (len >= sizeof(one))
			return;
		memcpy(one, forwarded + from, len);
		one[len] = '\0';
		if (!network_parse(one, &ignored) || strchr(one, '/'))
			return;
		snprintf(ret, size, "%s", one);
	}
}

void gate_neighbours(const char *address, char *ret, size_t size)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct network n;

	snprintf(ret, size, "%s", address);
	if (!network_parse(address, &n))
		return;
	if (memcmp(n.address, mapped, sizeof(mapped)) == 0) {
		inet_ntop(AF_INET, n.address + 12, ret, (socklen_t)size);
		return;
	}
	memset(n.address + 8, 0, 8);
	inet_ntop(AF_INET6, n.address, ret, (socklen_t)size);
}
