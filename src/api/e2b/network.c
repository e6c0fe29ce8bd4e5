/*
 * E2B's network settings as those of a specification. With E2B allowing beats denying and everything is allowed at
 * first; here denying wins. So what is allowed is cut out of the denied networks before they become rules.
 */
#include "api/e2b/e2b_internal.h"

#include "model/secret.h"
#include "net/name.h"
#include "policy/config.h"

#include <ctype.h>
#include <strings.h>

#define ENTRIES_MAX 1024 /* of each list */
#define DENIED_MAX 4096	 /* networks that are left after cutting */
#define RULE_HOSTS_MAX 10
#define HEADER_NAME_MAX 64
#define HEADER_VALUE_MAX 2048

struct networks {
	struct network *items;
	size_t count, room;
};

static void networks_add(struct networks *all, const struct network *n)
{
	all->items = array_room(all->items, all->count, &all->room, sizeof(*all->items));
	all->items[all->count++] = *n;
}

static void networks_done(struct networks *all)
{
	free(all->items);
}
#define auto_networks __attribute__((cleanup(networks_done)))

static bool is_everything(const struct network *n)
{
	static const struct network ipv4 = {.address = {[10] = 0xff, [11] = 0xff}, .bits = 96};

	return n->bits == 0 || (n->bits == 96 && memcmp(n->address, ipv4.address, 12) == 0);
}

/* An address may have bits behind its network: they do not count for E2B. */
static bool read_network(const char *text, struct network *ret)
{
	if (!network_parse(text, ret))
		return false;
	for (unsigned bit = ret->bits; bit < 128; bit++)
		ret->address[bit / 8] &= (unsigned char)~(0x80 >> bit % 8);
	return true;
}

static char *format_network(const struct network *n)
{
	char digits[NET_ADDRESS_TEXT];
	bool mapped = !strchr((net_address_text(n->address, false, digits), digits), ':');

	return str_format("%s/%u", digits, mapped ? n->bits - 96 : n->bits);
}

/* ---- cutting ------------------------------------------------------------------------------------ */

/* What is left of n without `hole`, which lies in it: the other half at each bit on the way down to it. */
static void cut_out(struct network n, const struct network *hole, struct networks *ret)
{
	while (n.bits < hole->bits) {
		unsigned byte = n.bits / 8;
		unsigned char bit = (unsigned char)(0x80 >> n.bits % 8);
		struct network other = n;

		n.bits++;
		other.bits++;
		n.address[byte] |= hole->address[byte] & bit;
		other.address[byte] |= ~hole->address[byte] & bit;
		networks_add(ret, &other);
	}
}

static int cut_all(struct networks *denied, const struct networks *allowed, struct err *e)
{
	for (size_t i = 0; i < allowed->count; i++) {
		const struct network *hole = &allowed->items[i];
		struct networks left = {0};

		for (size_t j = 0; j < denied->count; j++) {
			const struct network *n = &denied->items[j];

			if (hole->bits <= n->bits && network_has(hole, n))
				continue;
			if (n->bits < hole->bits && network_has(n, hole))
				cut_out(*n, hole, &left);
			else
				networks_add(&left, n);
		}
		free(denied->items);
		*denied = left;
		if (denied->count > DENIED_MAX)
			return err_field(
				e, ERR_INVALID, "network",
				"network: allowOut and denyOut overlap in too many places");
	}
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int read_list(const json_t *network, const char *key, const char *other, const json_t **ret,
		     struct err *e)
{
	const json_t *list = json_object_get(network, key), *item;
	size_t i;

	if (!list)
		list = json_object_get(network, other);
	*ret = NULL;
	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > ENTRIES_MAX)
		return err_field(e, ERR_INVALID, "network",
				 "network.%s: not an array of at most %d strings", key,
				 ENTRIES_MAX);
	json_array_foreach ((json_t *)list, i, item)
		if (!json_is_string(item) ||
		    strlen(json_string_value(item)) != json_string_length(item))
			return err_field(e, ERR_INVALID, "network",
					 "network.%s: item %zu is not a string", key, i);
	*ret = list;
	return 0;
}

static int read_denied(const json_t *list, struct networks *ret, bool *ret_everything,
		       struct err *e)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)list, i, item) {
		struct network n;

		if (!read_network(json_string_value(item), &n))
			return err_field(e, ERR_INVALID, "network",
					 "network.denyOut: invalid denied CIDR '%.80s'; only "
					 "addresses and networks can be denied",
					 json_string_value(item));
		if (is_everything(&n))
			*ret_everything = true;
		networks_add(ret, &n);
	}
	return 0;
}

/* A name, or *.name. */
static int read_domain(const char *text, struct list *ret, struct err *e)
{
	bool below = str_starts(text, "*.");
	char name[NET_NAME];
	struct network unused;
	struct err inner = {0};

	if (net_host(text + (below ? 2 : 0), strlen(text) - (below ? 2 : 0), name, &unused,
		     &inner) != NET_IS_NAME)
		return err_field(e, ERR_INVALID, "network", "network.allowOut: %s",
				 inner.kind ? inner.msg : "not a name");
	/* The sandbox's own loopback needs no rule; the host's is never meant. */
	if (!str_equal(name, "localhost"))
		list_take(ret, str_format("%s%s", below ? "*." : "", name));
	return 0;
}

static int read_allowed(const json_t *list, struct networks *ret, struct list *ret_names,
			struct err *e)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)list, i, item) {
		struct network n;

		if (read_network(json_string_value(item), &n))
			networks_add(ret, &n);
		else if (read_domain(json_string_value(item), ret_names, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- rules that change headers ------------------------------------------------------------------ */

#define SECRET_BEGIN "${e2b.secrets."

static int refuse_header(const char *name, const char *why, struct err *e)
{
	return err_field(e, ERR_UNSUPPORTED, "network", "network.rules: %.64s: %s", name, why);
}

/* Fields that are about the message or the connection are not for rules. */
static bool may_be_set(const char *name)
{
	static const char *const ours[] = {"host",    "connection", "content-length",
					   "te",      "trailer",    "transfer-encoding",
					   "upgrade", "expect",	    "accept-encoding",
					   "range",   "keep-alive", "proxy-authorization"};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (!strcasecmp(ours[i], name))
			return false;
	return str_only(name, STR_ALNUM "-_", 1, HEADER_NAME_MAX);
}

/*
 * "Name: value" as the manager has it, with at most one "${e2b.secrets.NAME}" in it, in whose place is "{}". ret_secret
 * is "-" without one.
 */
static int read_header(const char *name, const char *value, char ret[SECRET_HEADER],
		       char ret_secret[SECRET_NAME], struct err *e)
{
	const char *from = strstr(value, SECRET_BEGIN), *end = from ? strchr(from, '}') : NULL;
	int before = from ? (int)(from - value) : (int)strlen(value);
	size_t len = end ? (size_t)(end - from) - strlen(SECRET_BEGIN) : 0;

	if (!may_be_set(name))
		return refuse_header(name, "is not set by rules", e);
	if (!str_is_printable(value) || strstr(value, "{}") || strstr(value, " | "))
		return refuse_header(name, "has characters that are not sent", e);
	if ((from && (!end || !len || len >= SECRET_NAME)) ||
	    strstr(end ? end : value, SECRET_BEGIN) || strstr(value, "${e2b.identity."))
		return refuse_header(name, "only one ${e2b.secrets.NAME} is put in", e);
	if (snprintf(ret, SECRET_HEADER, "%s: %.*s%s%s", name, before, value, from ? "{}" : "",
		     end ? end + 1 : "") >= SECRET_HEADER)
		return refuse_header(name, "is longer than can be set here", e);
	snprintf(ret_secret, SECRET_NAME, "-");
	/* E2B's names have no capital letters. */
	for (size_t i = 0; i < len; i++)
		ret_secret[i] = (char)tolower((unsigned char)from[strlen(SECRET_BEGIN) + i]);
	if (len)
		ret_secret[len] = '\0';
	if (!str_only(ret_secret, STR_ALNUM "_-.", 1, SECRET_NAME))
		return refuse_header(name, "does not name a secret", e);
	return 0;
}

static int check_headers(const json_t *headers, struct err *e)
{
	char header[SECRET_HEADER], secret[SECRET_NAME];
	const json_t *value;
	const char *name;

	if (headers && !json_is_object(headers))
		return err_field(e, ERR_INVALID, "network",
				 "network.rules: headers: not an object");
	json_object_foreach ((json_t *)headers, name, value) {
		if (strlen(name) > HEADER_NAME_MAX)
			return err_field(e, ERR_INVALID, "network",
					 "network.rules: a header's name is longer than %d bytes",
					 HEADER_NAME_MAX);
		if (!json_is_string(value) || json_string_length(value) > HEADER_VALUE_MAX)
			return err_field(e, ERR_INVALID, "network",
					 "network.rules: %s: not a string of at most %d bytes",
					 name, HEADER_VALUE_MAX);
		if (read_header(name, json_string_value(value), header, secret, e) < 0)
			return -1;
	}
	return 0;
}

static const json_t *headers_of(const json_t *list)
{
	return json_object_get(json_object_get(json_array_get(list, 0), "transform"), "headers");
}

/* What the rules set, as texts of spec.secrets. */
static int read_headers(const json_t *network, struct list *ret, struct err *e)
{
	const json_t *list, *value;
	const char *host, *name;

	json_object_foreach (json_object_get(network, "rules"), host, list) {
		auto_list struct list names = {0};

		if (json_object_size(headers_of(list)) && str_starts(host, "*."))
			return refuse_header(host, "headers are set for whole names only", e);
		if (read_domain(host, &names, e) < 0)
			return -1;
		json_object_foreach ((json_t *)headers_of(list), name, value) {
			char header[SECRET_HEADER], secret[SECRET_NAME];

			if (read_header(name, json_string_value(value), header, secret, e) < 0)
				return -1;
			list_take(ret, str_format("@%s %s %s", names.count ? names.items[0] : "-",
						  secret, header));
		}
	}
	if (ret->count > SECRETS_PER_SANDBOX)
		return err_field(e, ERR_UNSUPPORTED, "network",
				 "network.rules: more than %d headers", SECRETS_PER_SANDBOX);
	return 0;
}

static int check_rules(const json_t *rules, struct err *e)
{
	const json_t *list;
	const char *host;

	if (!rules || json_is_null(rules))
		return 0;
	if (!json_is_object(rules) || json_object_size(rules) > RULE_HOSTS_MAX)
		return err_field(e, ERR_INVALID, "network",
				 "network.rules: not an object of at most %d hosts",
				 RULE_HOSTS_MAX);
	json_object_foreach ((json_t *)rules, host, list) {
		const json_t *rule = json_array_get(list, 0);
		auto_list struct list unused = {0};

		if (!json_is_array(list) || json_array_size(list) > 1 ||
		    (rule && !json_is_object(rule)))
			return err_field(e, ERR_INVALID, "network",
					 "network.rules: '%.80s': not an array of at most one rule",
					 host);
		if (read_domain(host, &unused, e) < 0 || check_headers(headers_of(list), e) < 0)
			return -1;
	}
	return 0;
}

/* ---- the specification -------------------------------------------------------------------------- */

static bool is_loopback(const struct network *n)
{
	unsigned bits;

	return net_address_range(n->address, &bits) == NET_LOOPBACK_ADDRESS && n->bits >= bits;
}

static void fill_spec(struct sandbox_spec *s, int mode, const struct networks *allowed,
		      const struct list *names, const struct networks *denied)
{
	list_done(&s->allow);
	list_done(&s->deny);
	s->net = mode;
	for (size_t i = 0; i < allowed->count; i++)
		if (!is_loopback(&allowed->items[i]))
			list_take(&s->allow, format_network(&allowed->items[i]));
	for (size_t i = 0; i < names->count; i++)
		list_add(&s->allow, names->items[i]);
	for (size_t i = 0; i < denied->count; i++)
		list_take(&s->deny, format_network(&denied->items[i]));
}

/*
 * What would take a wall away. Behind a proxy of the client's no address could be judged: it resolves names, and it may
 * stand where the sandbox must not reach. TLS to a server inside would have this process read what that server sends.
 */
static int refuse_dangerous(const json_t *network, struct err *e)
{
	const json_t *proxy = json_object_get(network, "egressProxy");
	const json_t *ports = json_object_get(network, "httpsPorts");

	if (proxy && !json_is_null(proxy))
		return err_field(e, ERR_UNSUPPORTED, "network",
				 "network.egressProxy: behind a proxy of the client's the "
				 "addresses of names cannot be checked; only the operator "
				 "chooses a proxy here");
	if (ports && !json_is_null(ports) && !(json_is_array(ports) && !json_array_size(ports)))
		return err_field(e, ERR_UNSUPPORTED, "network",
				 "network.httpsPorts: ports are reached by plain HTTP only; have "
				 "the server listen without TLS, the daemon's port has TLS");
	return 0;
}

int e2b_network_spec(const json_t *network, const json_t *internet, struct sandbox_spec *s,
		     struct err *e)
{
	auto_networks struct networks allowed = {0}, denied = {0};
	auto_list struct list names = {0}, headers = {0};
	const json_t *allow_list, *deny_list;
	bool closed = json_is_false(internet), open = false;

	if (network && !json_is_object(network) && !json_is_null(network))
		return err_field(e, ERR_INVALID, "network", "network: not an object");
	if (internet && !json_is_boolean(internet) && !json_is_null(internet))
		return err_field(e, ERR_INVALID, "allow_internet_access",
				 "allow_internet_access: not a boolean");
	if (refuse_dangerous(network, e) < 0 ||
	    read_list(network, "allowOut", "allow_out", &allow_list, e) < 0 ||
	    read_list(network, "denyOut", "deny_out", &deny_list, e) < 0 ||
	    read_denied(deny_list, &denied, &closed, e) < 0 ||
	    read_allowed(allow_list, &allowed, &names, e) < 0 ||
	    check_rules(json_object_get(network, "rules"), e) < 0 ||
	    read_headers(network, &headers, e) < 0)
		return -1;
	if (names.count && !closed)
		return err_field(e, ERR_INVALID, "network",
				 "network: When specifying allowed domains in allow out, you must "
				 "include 'ALL_TRAFFIC' in deny out to block all other traffic.");
	for (size_t i = 0; i < allowed.count; i++)
		open |= is_everything(&allowed.items[i]);
	if (open || closed)
		denied.count = 0; /* nothing is left of them, or everything else is closed anyway */
	else if (cut_all(&denied, &allowed, e) < 0)
		return -1;
	fill_spec(s, open || !closed ? NET_PUBLIC : NET_ALLOW, &allowed, &names, &denied);
	list_done(&s->secrets);
	for (size_t i = 0; i < headers.count; i++)
		list_add(&s->secrets, headers.items[i]);
	return 0;
}

/* What a ceiling names itself may be reached; without such rules only what the request names. */
static bool ceiling_has_rules(const struct exchange *x)
{
	const struct config_network *n = &x->api->config->network;

	return (n->ceiling == NET_ALLOW && n->allow_count) ||
	       (x->caller.token[0] && x->caller.net == NET_ALLOW && x->caller.net_has_rules);
}

static void narrow_to(struct sandbox_spec *s, int most, bool has_rules)
{
	s->net = most;
	if (most == NET_ALLOW && has_rules)
		list_add(&s->allow, "*");
	if (most == NET_NONE) {
		list_done(&s->allow);
		list_done(&s->deny);
	}
}

int e2b_network_wanted(const struct exchange *x, const json_t *network, struct sandbox_spec *s,
		       char ret_note[E2B_NOTE], struct err *e)
{
	const json_t *internet = json_object_get(x->json, "allow_internet_access");
	int most = network_most(x->api->manager, &x->caller), asked;

	ret_note[0] = '\0';
	if (e2b_network_spec(network, internet, s, e) < 0)
		return -1;
	asked = s->net;
	if (asked == NET_PUBLIC && x->api->config->network.e2b_mode < most)
		most = x->api->config->network.e2b_mode;
	if (asked > most) {
		narrow_to(s, most, ceiling_has_rules(x));
		snprintf(ret_note, E2B_NOTE,
			 "network: '%s' was asked for, and '%s' is the most that this token's "
			 "sandboxes "
			 "have here",
			 net_mode_name(asked), net_mode_name(most));
	}
	if (s->net == NET_ALLOW && !s->allow.count)
		narrow_to(s, NET_NONE, false);
	/* Rules do not choose the mode. */
	return spec_set(s, "net", net_mode_name(s->net), e);
}
