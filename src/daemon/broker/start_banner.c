#include "daemon/broker/start_banner.h"

void hello_print(const char *const *addresses, size_t count, FILE *to)
{
	const char *tcp = NULL, *socket = NULL;

	fputs("cloche " CLOCHE_VERSION " serves at", to);
	for (size_t i = 0; i < count; i++) {
		bool is_unix = str_starts(addresses[i], "unix:");

		fprintf(to, " %s%s", is_unix ? "" : "http://", addresses[i]);
		if (is_unix && !socket)
			socket = addresses[i];
		if (!is_unix && !tcp)
			tcp = addresses[i];
	}
	fputs("\n\n", to);
	if (socket)
		fputs("From a shell here, without a key:\n", to);
	/* Clients look for a socket of this name by themselves. */
	if (socket && !str_equal(strrchr(socket, '/'), "/cloche.sock"))
		fprintf(to, "  export CLOCHE_URL=%s\n", socket);
	if (socket)
		fputs("  cloche exec $(cloche create) uname -a\n\n", to);
	if (!tcp)
		return;
	fprintf(to,
		"For programs, with a key:\n"
		"  export CLOCHE_URL=http://%s CLOCHE_TOKEN=$(cloche token create app | tail "
		"-1)\n\n"
		"For E2B clients:\n"
		"  export E2B_API_URL=http://%s E2B_SANDBOX_URL=http://%s\n"
		"  export E2B_API_KEY=$(cloche token create --e2b e2b-app | tail -1)\n\n"
		"For MCP clients:\n"
		"  claude mcp add cloche -- cloche mcp\n"
		"  claude mcp add --transport http cloche http://%s/mcp --header \"Authorization: "
		"Bearer $CLOCHE_TOKEN\"\n\n",
		tcp, tcp, tcp, tcp);
}
