/* Reads [ADDRESS:]PORT:PORT and opens the listening socket that it asks for. */
#include "net/publish.h"

#include "base/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define BACKLOG 128

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool read_port(const char *from, const char *end, uint16_t *ret)
{
	uint32_t port = 0;

	if (from == end || end - from > 5 || *from == '0')
		return false;
	for (; from < end; from++) {
		if (*from < '0' || *from > '9')
			return false;
		port = port * 10 + (uint32_t)(*from - '0');
	}
	*ret = (uint16_t)port;
	return port <= UINT16_MAX;
}

static bool read_address(const char *from, const char *end, unsigned char ret[16])
{
	bool six = end - from > 2 && *from == '[' && end[-1] == ']';
	char host[INET6_ADDRSTRLEN];
	size_t len = (size_t)(end - from) - (six ? 2 : 0);

	if (len >= sizeof(host))
		return false;
	memcpy(host, from + six, len);
	host[len] = '\0';
	if (six)
		return inet_pton(AF_INET6, host, ret) == 1;
	memcpy(ret, mapped, sizeof(mapped));
	return inet_pton(AF_INET, host, ret + 12) == 1;
}

int net_publish_parse(const char *text, struct net_publish *ret, struct err *e)
{
	const char *inner = strrchr(text, ':'), *port = inner;
	struct net_publish p = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

	while (port && port > text && port[-1] != ':')
		port--;
	if (!inner || !read_port(inner + 1, inner + strlen(inner), &p.inner) ||
	    !read_port(port, inner, &p.port) ||
	    (port > text && !read_address(text, port - 1, p.address)))
		return err_field(
			e, ERR_INVALID, "publish",
			"publish: '%.60s' is not [ADDRESS:]PORT:PORT; try 127.0.0.1:8080:80", text);
	*ret = p;
	return 0;
}

void net_publish_text(const struct net_publish *p, char ret[NET_PUBLISH_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "";
	bool four = memcmp(p->address, mapped, sizeof(mapped)) == 0;

	inet_ntop(four ? AF_INET : AF_INET6, p->address + (four ? 12 : 0), host, sizeof(host));
	snprintf(ret, NET_PUBLISH_TEXT, four ? "%s:%u:%u" : "[%s]:%u:%u", host, p->port, p->inner);
}

int net_publish_listen(const struct net_publish *p)
{
	bool four = memcmp(p->address, mapped, sizeof(mapped)) == 0;
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(p->port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(p->port)};
	auto_close int fd =
		socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, rc;

	if (fd < 0)
		return -1;
	memcpy(&v4.sin_addr, p->address + 12, 4);
	memcpy(&v6.sin6_addr, p->address, 16);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!four)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	rc = four ? bind(fd, (void *)&v4, sizeof(v4)) : bind(fd, (void *)&v6, sizeof(v6));
	return rc < 0 || listen(fd, BACKLOG) < 0 ? -1 : take_fd(&fd);
}
