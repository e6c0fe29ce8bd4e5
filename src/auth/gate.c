#include "auth/gate.h"

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
