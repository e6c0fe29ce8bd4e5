/*
 * Network rules. The first byte picks: 't' text of rules, one in a line; 'h' a host; 'p' a path of a request;
 * anything else: compiled bytes, which the peer may have made up.
 */
#include "fuzz.h"

#include "net/rule.h"
#include "net/rules.h"

/* Whatever the rules are, questions get an answer, and a denial says why. */
static void ask_index(const struct net_index *x)
{
	static const unsigned char addresses[][16] = {
		{[10] = 0xff, [11] = 0xff, [12] = 8, [13] = 8, [14] = 8, [15] = 8},
		{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
		{[15] = 1},
	};
	static const char *const names[] = {NULL, "a.com", "x.y.a.com", "localhost"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		for (size_t j = 0; j <= ARRAY_LEN(addresses); j++) {
			struct net_question q = {
				.name = names[i],
				.address = j ? addresses[j - 1] : NULL,
				.port = i + j == 3 ? 0 : 443,
				.udp = j == 2,
				.method = i == 2 ? NET_POST : 0,
				.path = i == 2 ? "/v1/x?y" : NULL,
			};
			struct net_answer a;

			net_decide(x, &q, &a);
			PROMISE(a.allowed || a.why[0]);
			PROMISE(!a.allowed || q.name || q.address);
			/* Nothing but a rule for localhost leads to the host's loopback. */
			if (a.allowed && j == 3) {
				uint16_t port[1];

				PROMISE(net_policy_localhost_ports(net_index_policy(x), port, 1));
			}
		}
}

static void take_bytes(const void *bytes, size_t len)
{
	struct err e = {0};
	struct net_index *x = net_index_new(bytes, len, &e);
	struct network networks[4];
	uint16_t ports[NET_UDP_PORTS];

	if (!x) {
		PROMISE(e.msg[0]);
		return;
	}
	ask_index(x);
	net_policy_networks(net_index_policy(x), networks, ARRAY_LEN(networks));
	PROMISE(net_policy_udp_ports(net_index_policy(x), ports) <= NET_UDP_PORTS);
	PROMISE(net_policy_mode(net_index_policy(x)) <= NET_ISOLATED);
	net_index_free(x);
}

static void take_text(char *text)
{
	struct net_policy_maker *m = net_policy_new();
	auto_buf struct buf bytes = {0};
	struct err e = {0};
	char *save = NULL;

	net_policy_stage(m, NET_PUBLIC, NET_BY_OPERATOR);
	net_policy_stage(m, NET_ALLOW, NET_BY_REQUEST);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (net_policy_add(m, line[0] == '-' ? NET_RULE_DENY : NET_RULE_ALLOW,
				   line + (line[0] == '-'), &e) < 0)
			PROMISE(e.kind == ERR_INVALID || e.kind == ERR_LIMIT);
	/* What the maker makes, the reader takes. */
	if (net_policy_write(m, &bytes, &e) == 0) {
		PROMISE(net_policy_check(buf_head(&bytes), bytes.len, &e) == 0);
		take_bytes(buf_head(&bytes), bytes.len);
	} else {
		PROMISE(e.kind == ERR_LIMIT);
	}
	net_policy_free(m);
}

static void take_host(const char *text, size_t len)
{
	char name[NET_NAME], again[NET_NAME];
	struct network n, unused;
	struct err e = {0};
	int is = net_host(text, len, name, &n, &e);

	if (is < 0) {
		PROMISE(e.kind == ERR_INVALID && str_is_printable(e.msg));
	} else if (is == NET_IS_NAME) {
		PROMISE(str_only(name, STR_LOWER STR_DIGITS ".-_", 1, 253));
		PROMISE(net_host(name, strlen(name), again, &unused, &e) == NET_IS_NAME);
		PROMISE(str_equal(name, again));
	} else {
		char digits[NET_ADDRESS_TEXT];

		PROMISE(net_address_kind_name(net_address_kind(n.address))[0]);
		net_address_text(n.address, true, digits);
		PROMISE(net_host(digits, strlen(digits), again, &unused, &e) == NET_IS_ADDRESS);
		PROMISE(memcmp(n.address, unused.address, 16) == 0);
	}
}

static void take_path(const char *text)
{
	char clean[NET_PATH];

	if (!net_path_clean(text, clean, sizeof(clean)))
		return;
	PROMISE(clean[0] == '/' && !strstr(clean, "//") && !strstr(clean, "/../"));
	PROMISE(net_path_has_prefix(clean, "/") && net_path_has_prefix(clean, clean));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *copy = NULL;

	if (size < 1)
		return 0;
	/* Aligned, as bytes from a mapping are. */
	copy = must_alloc(malloc(size));
	memcpy(copy, data + 1, size - 1);
	copy[size - 1] = '\0';
	if (data[0] == 't')
		take_text(copy);
	else if (data[0] == 'h')
		take_host(copy, size - 1);
	else if (data[0] == 'p')
		take_path(copy);
	else
		take_bytes(copy, size - 1);
	return 0;
}
