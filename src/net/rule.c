/* Reads the text of one rule into a row, and compares paths of requests with those of rules. */
#include "net/rule.h"

static const struct method {
	const char *name;
	unsigned bit;
} methods[] = {
	{"GET", NET_GET},	  {"HEAD", NET_HEAD},	{"POST", NET_POST},
	{"PUT", NET_PUT},	  {"PATCH", NET_PATCH}, {"DELETE", NET_DELETE},
	{"OPTIONS", NET_OPTIONS}, {"TRACE", NET_TRACE}, {"CONNECT", NET_CONNECT},
};

static const struct {
	const char *word;
	uint8_t flag;
} flags[] = {{"inspect", NET_RULE_INSPECT}, {"no-sni", NET_RULE_NO_SNI}, {"txt", NET_RULE_TXT}};

unsigned net_method_find(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (strlen(methods[i].name) == len && memcmp(methods[i].name, name, len) == 0)
			return methods[i].bit;
	return NET_OTHER_METHOD;
}

const char *net_method_name(unsigned method)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (methods[i].bit == method)
			return methods[i].name;
	return "";
}

/* ---- paths of requests -------------------------------------------------------------------------- */

static bool is_dot_segment(const char *at)
{
	size_t len = strcspn(at, "/");

	/* Some servers cut a segment at ';' and look at what is in front. */
	for (size_t i = 0; i < len; i++)
		if (at[i] == ';')
			len = i;
	return (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.');
}

bool net_path_clean(const char *path, char *ret, size_t size)
{
	size_t out = 0;

	if (path[0] != '/')
		return false;
	for (size_t i = 0; path[i] && path[i] != '?' && path[i] != '#'; i++) {
		unsigned char c = (unsigned char)path[i];

		if (c == '%') {
			int high = str_hex_digit(path[i + 1]);
			int low = high < 0 ? -1 : str_hex_digit(path[i + 2]);

			if (low < 0)
				return false;
			c = (unsigned char)(high << 4 | low);
			/* A slash that is encoded is one to some servers; a percent sign decodes twice. */
			if (c == '/' || c == '\\' || c == '%' || c == '?' || c == '#')
				return false;
			i += 2;
		}
		if (c <= ' ' || c == 0x7f || c == '\\' || out + 1 >= size)
			return false;
		ret[out++] = (char)c;
	}
	ret[out] = '\0';
	for (const char *at = strchr(ret, '/'); at; at = strchr(at + 1, '/'))
		if (at[1] == '/' || is_dot_segment(at + 1))
			return false;
	return true;
}

bool net_path_has_prefix(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	if (strncmp(path, prefix, len) != 0)
		return false;
	return prefix[len - 1] == '/' || path[len] == '/' || path[len] == '\0';
}

/* ---- text --------------------------------------------------------------------------------------- */

static int read_ports(const char *text, struct net_rule *row, struct err *e)
{
	const char *dash = strchr(text, '-');
	char first[8] = "";
	uint64_t from, to;

	if ((dash ? (size_t)(dash - text) : strlen(text)) >= sizeof(first))
		return err_set(e, ERR_INVALID, "'%s' is not a port", text);
	memcpy(first, text, dash ? (size_t)(dash - text) : strlen(text));
	if (parse_count(first, &from, e) < 0 || parse_count(dash ? dash + 1 : first, &to, e) < 0 ||
	    from < 1 || to > 65535)
		return err_set(e, ERR_INVALID,
			       "'%s' is not a port from 1 to 65535; try :443 or :8000-8099", text);
	if (from > to)
		return err_set(e, ERR_INVALID, "ports '%s': the first is larger than the last",
			       text);
	row->first_port = (uint16_t)from;
	row->last_port = (uint16_t)to;
	return 0;
}

static bool is_whole_number_of_bits(const struct network *n)
{
	for (unsigned bit = n->bits; bit < 128; bit++)
		if (n->address[bit / 8] & (0x80 >> bit % 8))
			return false;
	return true;
}

static int read_network(const char *text, struct net_rule_text *r, struct err *e)
{
	struct network n;

	if (!network_parse(text, &n))
		return err_set(e, ERR_INVALID, "'%s' is not a network; try 10.0.0.0/8", text);
	if (!is_whole_number_of_bits(&n))
		return err_set(e, ERR_INVALID,
			       "'%s': the address has bits behind the network's /%s; write the "
			       "network's first address",
			       text, strchr(text, '/') + 1);
	r->row.kind = NET_RULE_NETWORK;
	r->row.bits = (uint8_t)n.bits;
	memcpy(r->row.address, n.address, sizeof(n.address));
	return 0;
}

static int read_host(const char *text, struct net_rule_text *r, struct err *e)
{
	bool below = str_starts(text, "*.");
	struct network n;
	int is;

	if (str_equal(text, "*")) {
		r->row.kind = NET_RULE_ANY;
		return 0;
	}
	if (strchr(text, '/'))
		return read_network(text, r, e);
	if (strchr(text + (below ? 2 : 0), '*'))
		return err_set(e, ERR_INVALID,
			       "'%s': '*' stands alone or for the first part of a name: "
			       "*.example.com",
			       text);
	is = net_host(text + (below ? 2 : 0), strlen(text) - (below ? 2 : 0), r->name, &n, e);
	if (is < 0)
		return -1;
	if (is == NET_IS_ADDRESS) {
		if (below)
			return err_set(e, ERR_INVALID, "'%s': '*' is for names", text);
		r->row.kind = NET_RULE_NETWORK;
		r->row.bits = 128;
		memcpy(r->row.address, n.address, sizeof(n.address));
	} else if (str_equal(r->name, "localhost") && !below) {
		r->row.kind = NET_RULE_LOCALHOST;
		r->name[0] = '\0';
	} else {
		r->row.kind = below ? NET_RULE_BELOW : NET_RULE_NAME;
	}
	return 0;
}

/* Cuts ":PORT" off; "[ADDRESS]" and "[NETWORK]" lose their brackets. */
static int split_ports(char *text, char **ret_host, char **ret_ports, struct err *e)
{
	char *colon = strrchr(text, ':');

	*ret_host = text;
	*ret_ports = NULL;
	if (text[0] == '[') {
		char *end = strchr(text, ']');

		if (!end || (end[1] && end[1] != ':'))
			return err_set(e, ERR_INVALID,
				       "'%s': write [ADDRESS]:PORT or [NETWORK/BITS]:PORT", text);
		*ret_ports = end[1] ? end + 2 : NULL;
		*ret_host = text + 1;
		*end = '\0';
		if (!strchr(text + 1, ':'))
			return err_set(e, ERR_INVALID, "'%s': brackets are for IPv6 addresses",
				       text + 1);
	} else if (colon && strchr(text, ':') == colon) {
		*colon = '\0';
		*ret_ports = colon + 1;
	}
	return 0;
}

static int read_destination(char *text, struct net_rule_text *r, struct err *e)
{
	char *host = text, *ports;

	if (str_starts(host, "udp://")) {
		r->row.flags |= NET_RULE_UDP;
		host += strlen("udp://");
	} else if (strstr(host, "://")) {
		return err_set(e, ERR_INVALID,
			       "'%s' is an address of a page; a rule is HOST[:PORT] [METHODS] "
			       "[/PATH], such as 'example.com:443 GET /v1'",
			       text);
	}
	if (split_ports(host, &host, &ports, e) < 0 || read_host(host, r, e) < 0)
		return -1;
	r->row.last_port = 65535;
	return ports ? read_ports(ports, &r->row, e) : 0;
}

static int read_path(const char *word, struct net_rule_text *r, struct err *e)
{
	if (strpbrk(word, "?#*") || !net_path_clean(word, r->path, sizeof(r->path)))
		return err_set(e, ERR_INVALID,
			       "'%.80s' is not a path; write it plainly, as in /v1/models", word);
	return 0;
}

static int read_methods(const char *word, struct net_rule_text *r, struct err *e)
{
	for (const char *at = word; *at;) {
		size_t len = strcspn(at, ",");
		unsigned bit = net_method_find(at, len);

		if (bit == NET_OTHER_METHOD)
			return err_set(e, ERR_INVALID,
				       "'%.80s' is neither methods (GET,POST), nor a /path, nor "
				       "inspect, no-sni or txt",
				       word);
		r->row.methods |= (uint16_t)bit;
		if (at[len] == ',' && !at[len + 1])
			return err_set(e, ERR_INVALID, "'%.80s' ends with a comma", word);
		at += len + (at[len] == ',');
	}
	return 0;
}

static int read_word(const char *word, struct net_rule_text *r, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (str_equal(word, flags[i].word)) {
			r->row.flags |= flags[i].flag;
			return 0;
		}
	if (word[0] == '/')
		return r->path[0] ? err_set(e, ERR_INVALID, "two paths; write two rules")
				  : read_path(word, r, e);
	return read_methods(word, r, e);
}

static bool is_loopback(const struct net_rule *row)
{
	unsigned bits;

	return row->kind == NET_RULE_NETWORK &&
	       net_address_range(row->address, &bits) == NET_LOOPBACK_ADDRESS && row->bits >= bits;
}

/* What makes no sense together. */
static int check_row(const struct net_rule_text *r, enum net_verdict verdict, struct err *e)
{
	const struct net_rule *row = &r->row;
	bool single = row->first_port == row->last_port;
	bool named = row->kind == NET_RULE_NAME || row->kind == NET_RULE_BELOW;

	if ((row->flags & NET_RULE_UDP) && verdict == NET_RULE_ALLOW && !single)
		return err_set(e, ERR_INVALID,
			       "UDP needs one port, such as udp://example.com:123; ranges are "
			       "refused");
	if ((row->flags & NET_RULE_UDP) &&
	    (row->methods || r->path[0] || row->flags != NET_RULE_UDP))
		return err_set(e, ERR_INVALID, "methods, paths and other words are for TCP");
	if ((row->flags & NET_RULE_UDP) && verdict == NET_RULE_ALLOW && row->first_port == 53)
		return err_set(e, ERR_INVALID, "UDP port 53 is the resolver of the sandbox");
	if (row->kind == NET_RULE_LOCALHOST && !single)
		return err_set(e, ERR_INVALID, "localhost needs one port: localhost:5432");
	if (is_loopback(row) && verdict == NET_RULE_ALLOW)
		return err_set(e, ERR_INVALID,
			       "loopback addresses inside are the sandbox's own; for one port of "
			       "the host's write localhost:5432");
	if (verdict == NET_RULE_DENY && (row->flags & ~NET_RULE_UDP))
		return err_set(e, ERR_INVALID, "inspect, no-sni and txt are for rules that allow");
	if ((row->flags & NET_RULE_TXT) && !named)
		return err_set(e, ERR_INVALID, "txt is for names");
	return 0;
}

int net_rule_parse(const char *text, enum net_verdict verdict, struct net_rule_text *ret,
		   struct err *e)
{
	struct net_rule_text r = {0};
	char copy[1024], *save = NULL, *word;

	if (strlen(text) >= sizeof(copy))
		return err_set(e, ERR_INVALID, "a rule is longer than %zu bytes", sizeof(copy) - 1);
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return err_set(e, ERR_INVALID, "a rule has a control character");
	snprintf(copy, sizeof(copy), "%s", text);
	word = strtok_r(copy, " ", &save);
	if (!word)
		return err_set(e, ERR_INVALID, "a rule is empty");
	if (read_destination(word, &r, e) < 0)
		return -1;
	while ((word = strtok_r(NULL, " ", &save)))
		if (read_word(word, &r, e) < 0)
			return -1;
	if (check_row(&r, verdict, e) < 0)
		return -1;
	r.row.verdict = (uint8_t)verdict;
	*ret = r;
	return 0;
}
