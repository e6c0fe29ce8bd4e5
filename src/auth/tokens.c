#include "auth/tokens.h"

#include "base/id.h"
#include "net/stages.h"

#include <sodium.h>

#define TOKEN_LETTERS 10
#define SECRET_BYTES 20
#define HASH_PREFIX "blake2b:"

struct tokens {
	struct token *items;
	size_t count;
};

struct word {
	const char *text;
	unsigned bit;
};

static const struct word scope_words[] = {
	{"run", SCOPE_RUN},
	{"files", SCOPE_FILES},
	{"read", SCOPE_READ},
	{"admin", SCOPE_ADMIN},
};

static bool is_id(const char *s)
{
	return str_only(s, STR_LOWER STR_DIGITS, TOKEN_LETTERS, TOKEN_LETTERS);
}

static bool is_name(const char *s)
{
	return str_only(s, STR_ALNUM "._-", 1, IPC_NAME - 1);
}

static void hash_key(const char *key, unsigned char ret[TOKEN_HASH])
{
	crypto_generichash(ret, TOKEN_HASH, (const unsigned char *)key, strlen(key), NULL, 0);
}

int token_create(const char *name, bool e2b, struct token *ret, char ret_key[TOKEN_KEY],
		 struct err *e)
{
	struct token t = {.scopes = SCOPE_RUN | SCOPE_FILES | SCOPE_READ, .trust = 1};
	unsigned char secret[SECRET_BYTES];
	char hex[2 * SECRET_BYTES + 1];

	if (!is_name(name))
		return err_field(e, ERR_INVALID, "name",
				 "name: wants up to %d letters, digits, dots, dashes and "
				 "underscores",
				 IPC_NAME - 1);
	if (sodium_init() < 0 || id_letters(t.id, TOKEN_LETTERS) < 0)
		return err_set(e, ERR_SYSTEM, "cannot get random numbers");
	snprintf(t.name, sizeof(t.name), "%s", name);
	randombytes_buf(secret, sizeof(secret));
	sodium_bin2hex(hex, sizeof(hex), secret, sizeof(secret));
	if (e2b)
		snprintf(ret_key, TOKEN_KEY, "e2b_%s", hex);
	else
		snprintf(ret_key, TOKEN_KEY, "cl_%s_%s", t.id, hex);
	hash_key(ret_key, t.hash);
	sodium_memzero(secret, sizeof(secret));
	sodium_memzero(hex, sizeof(hex));
	*ret = t;
	return 0;
}

static int parse_scopes(const char *value, unsigned *ret, struct err *e)
{
	unsigned bits = 0;

	while (*value) {
		size_t len = strcspn(value, ","), i;

		for (i = 0; i < ARRAY_LEN(scope_words); i++)
			if (strlen(scope_words[i].text) == len &&
			    !strncmp(value, scope_words[i].text, len))
				break;
		if (i == ARRAY_LEN(scope_words))
			return err_set(e, ERR_INVALID,
				       "'%.*s' is not one of run, files, read, admin",
				       len > 40 ? 40 : (int)len, value);
		bits |= scope_words[i].bit;
		value += len + (value[len] == ',');
	}
	if (!bits)
		return err_set(e, ERR_INVALID, "must not be empty");
	*ret = bits;
	return 0;
}

size_t scopes_format(unsigned scopes, char *text, size_t size)
{
	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(scope_words); i++)
		if (scopes & scope_words[i].bit)
			str_append(text, size, ",", "%s", scope_words[i].text);
	return strlen(text);
}

struct token_key {
	const char *name;
	parse_fn *parse;
	size_t offset, size;
	uint64_t max;
};

#define AT(member) offsetof(struct token, member), sizeof(((struct token *)0)->member)

static const struct token_key keys[] = {
	{"trust", parse_count, AT(trust), 5},
	{"memory", parse_size, AT(ceiling.memory_bytes), INT64_MAX},
	{"pids", parse_count, AT(ceiling.pids), 4194304},
	{"disk", parse_size, AT(ceiling.disk_bytes), INT64_MAX},
	{"timeout", parse_time, AT(ceiling.timeout_ms), INT64_MAX},
	{"sandboxes", parse_count, AT(max_sandboxes), 1000000},
	{"root", parse_count, AT(root), 1},
	{"memory_total", parse_size, AT(memory_total), INT64_MAX},
	{"disk_total", parse_size, AT(disk_total), INT64_MAX},
	{"rate", parse_count, AT(rate_per_minute), 1000000000},
	{"expires", parse_count, AT(expires), INT64_MAX},
	{"created", parse_count, AT(created), INT64_MAX},
	{"cpus", parse_milli, AT(ceiling.cpus_milli), 1024000},
};

static int set_tenant(struct token *t, const char *value, struct err *e)
{
	if (!str_only(value, STR_ALNUM "._-", 1, TOKEN_TENANT - 1))
		return err_field(e, ERR_INVALID, "tenant",
				 "tenant: wants up to %d letters, digits, dots, dashes and "
				 "underscores",
				 TOKEN_TENANT - 1);
	snprintf(t->tenant, sizeof(t->tenant), "%s", value);
	return 0;
}

/* In this order as enum net. */
static const char *const net_words[] = {"none", "allow", "public"};

static int set_net(struct token *t, const char *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(net_words); i++)
		if (str_equal(value, net_words[i])) {
			t->net = (int)i;
			return 0;
		}
	return err_field(e, ERR_INVALID, "net", "net: '%.40s' is not one of none, allow, public",
			 value);
}

static int set_net_allow(struct token *t, const char *value, struct err *e)
{
	struct net_policy_maker *m;
	struct err why = {0};
	int rc;

	if (strlen(value) >= sizeof(t->net_allow))
		return err_field(e, ERR_INVALID, "net_allow", "net_allow: longer than %zu bytes",
				 sizeof(t->net_allow) - 1);
	for (const char *at = value; *at; at++)
		if (*at <= ' ' || *at > '~')
			return err_field(e, ERR_INVALID, "net_allow",
					 "net_allow: wants destinations with commas between");
	m = net_policy_new();
	net_policy_stage(m, NET_ALLOW, NET_BY_TOKEN);
	rc = net_policy_add_words(m, NET_RULE_ALLOW, value, &why);
	net_policy_free(m);
	if (rc < 0)
		return err_field(e, ERR_INVALID, "net_allow", "net_allow: %.400s", why.msg);
	snprintf(t->net_allow, sizeof(t->net_allow), "%s", value);
	return 0;
}

int token_net(const struct token *t)
{
	int most = trust_net(t->trust);

	return t->net < most ? t->net : most;
}

int token_set(struct token *t, const char *key, const char *value, struct err *e)
{
	struct err inner = {0};
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_LEN(keys) && !str_equal(key, keys[i].name); i++)
		;
	if (str_equal(key, "tenant"))
		return set_tenant(t, value, e);
	if (str_equal(key, "net"))
		return set_net(t, value, e);
	if (str_equal(key, "net_allow"))
		return set_net_allow(t, value, e);
	if (str_equal(key, "scopes"))
		rc = parse_scopes(value, &t->scopes, &inner);
	else if (i < ARRAY_LEN(keys))
		rc = parse_member(
			&(struct parse_member){keys[i].parse, 0, keys[i].max, keys[i].size}, value,
			(char *)t + keys[i].offset, &inner);
	else
		return err_field(e, ERR_INVALID, key, "'%.40s' is no property of a token", key);
	if (rc < 0)
		return err_field(e, inner.kind, key, "%s: %.400s", key, inner.msg);
	return 0;
}

static int parse_hash(const char *word, unsigned char ret[TOKEN_HASH], struct err *e)
{
	size_t len = 0;

	if (!str_starts(word, HASH_PREFIX) ||
	    strlen(word) != strlen(HASH_PREFIX) + 2 * TOKEN_HASH ||
	    sodium_hex2bin(ret, TOKEN_HASH, word + strlen(HASH_PREFIX), 2 * TOKEN_HASH, NULL, &len,
			   NULL) < 0 ||
	    len != TOKEN_HASH)
		return err_field(e, ERR_INVALID, "hash", "hash: wants %s and 64 hex digits",
				 HASH_PREFIX);
	return 0;
}

/* The four words in front of the properties. */
static int parse_words(char **at, struct token *t, struct err *e)
{
	char *id = strsep(at, " "), *name = strsep(at, " "), *hash = strsep(at, " "),
	     *scopes = strsep(at, " ");

	if (!scopes)
		return err_set(e, ERR_INVALID, "wants an id, a name, a hash and scopes");
	if (!is_id(id))
		return err_field(e, ERR_INVALID, "id", "id: wants %d small letters and digits",
				 TOKEN_LETTERS);
	if (!is_name(name))
		return err_field(e, ERR_INVALID, "name", "name: is too long or has odd letters");
	snprintf(t->id, sizeof(t->id), "%s", id);
	snprintf(t->name, sizeof(t->name), "%s", name);
	if (parse_hash(hash, t->hash, e) < 0)
		return -1;
	return token_set(t, "scopes", scopes, e);
}

int token_parse(const char *line, size_t len, struct token *ret, struct err *e)
{
	struct token t = {.trust = 1};
	char text[TOKEN_LINE], *at = text, *word;

	if (len >= sizeof(text) || memchr(line, '\0', len))
		return err_set(e, ERR_INVALID, "the line is too long or holds a NUL");
	memcpy(text, line, len);
	text[len] = '\0';
	if (parse_words(&at, &t, e) < 0)
		return -1;
	while ((word = strsep(&at, " "))) {
		char *value = strchr(word, '=');

		if (!value)
			return err_set(e, ERR_INVALID, "'%.40s' is not KEY=VALUE", word);
		*value++ = '\0';
		if (token_set(&t, word, value, e) < 0)
			return -1;
	}
	*ret = t;
	return 0;
}

static uint64_t get_key(const struct token *t, const struct token_key *k)
{
	const char *at = (const char *)t + k->offset;

	return k->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

/* Values of 0 are left out, except for the first key, trust. */
size_t token_format(const struct token *t, char *line, size_t size)
{
	char hash[2 * TOKEN_HASH + 1], scopes[64];

	sodium_bin2hex(hash, sizeof(hash), t->hash, sizeof(t->hash));
	scopes_format(t->scopes, scopes, sizeof(scopes));
	snprintf(line, size, "%s %s %s%s %s", t->id, t->name, HASH_PREFIX, hash, scopes);
	for (const struct token_key *k = keys; k < keys + ARRAY_LEN(keys); k++) {
		uint64_t n = get_key(t, k);

		if (k->parse == parse_milli && n)
			str_append(line, size, " ", "%s=%" PRIu64 ".%03" PRIu64, k->name, n / 1000,
				   n % 1000);
		else if (n || k == keys)
			str_append(line, size, " ", "%s=%" PRIu64 "%s", k->name, n,
				   k->parse == parse_time ? "ms" : "");
	}
	if (t->tenant[0])
		str_append(line, size, " ", "tenant=%s", t->tenant);
	if (t->net)
		str_append(line, size, " ", "net=%s", net_words[t->net]);
	if (t->net_allow[0])
		str_append(line, size, " ", "net_allow=%s", t->net_allow);
	return strlen(line);
}

struct tokens *tokens_new(void)
{
	return must_alloc(calloc(1, sizeof(struct tokens)));
}

void tokens_free(struct tokens *t)
{
	if (!t)
		return;
	free(t->items);
	free(t);
}

static int load_line(struct tokens *t, const char *line, size_t len, struct err *e)
{
	if (len && line[len - 1] == '\r')
		len--;
	if (!len || line[0] == '#')
		return 0;
	if (t->count == TOKENS_MAX)
		return err_set(e, ERR_LIMIT, "more than %d tokens", TOKENS_MAX);
	if (t->count % 64 == 0)
		t->items = must_alloc(reallocarray(t->items, t->count + 64, sizeof(struct token)));
	if (token_parse(line, len, &t->items[t->count], e) < 0)
		return -1;
	for (size_t i = 0; i < t->count; i++)
		if (str_equal(t->items[i].id, t->items[t->count].id))
			return err_set(e, ERR_INVALID, "there is another token %s", t->items[i].id);
	t->count++;
	return 0;
}

int tokens_load(struct tokens *t, const char *text, size_t len, struct err *e)
{
	struct tokens fresh = {0};
	size_t number = 0;

	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;

		number++;
		if (load_line(&fresh, text, n, e) < 0) {
			free(fresh.items);
			return err_wrap(e, "tokens:%zu", number);
		}
		text += n + (end != NULL);
		len -= n + (end != NULL);
	}
	free(t->items);
	*t = fresh;
	return 0;
}

static void fill_caller(struct caller *ret, const struct token *t)
{
	static const struct limits none;

	snprintf(ret->token, sizeof(ret->token), "%s%s", t->tenant[0] ? "@" : "",
		 t->tenant[0] ? t->tenant : t->id);
	snprintf(ret->id, sizeof(ret->id), "%s", t->id);
	snprintf(ret->name, sizeof(ret->name), "%s", t->name);
	ret->scopes = t->scopes;
	ret->trust = t->trust;
	ret->ceiling = t->ceiling;
	ret->has_ceiling = memcmp(&t->ceiling, &none, sizeof(none)) != 0;
	ret->max_sandboxes = t->max_sandboxes;
	ret->memory_total = t->memory_total;
	ret->disk_total = t->disk_total;
	ret->rate_per_minute = t->rate_per_minute;
	ret->net = token_net(t);
	ret->net_has_rules = t->net_allow[0];
	ret->root = t->root != 0;
}

/*
 * Compares the hash of the key with every entry to its end, so that the time taken reveals neither how
 * much of a guess was right nor which token it was close to.
 */
bool tokens_check(const struct tokens *t, const char *key, uint64_t now, struct caller *ret)
{
	unsigned char hash[TOKEN_HASH];
	const struct token *found = NULL;

	if (strlen(key) >= TOKEN_KEY)
		return false;
	hash_key(key, hash);
	for (size_t i = 0; i < t->count; i++)
		if (sodium_memcmp(hash, t->items[i].hash, sizeof(hash)) == 0)
			found = &t->items[i];
	if (!found || (found->expires && now >= found->expires))
		return false;
	fill_caller(ret, found);
	return true;
}

bool tokens_has(const struct tokens *t, const char *id, uint64_t now)
{
	for (size_t i = 0; i < t->count; i++)
		if (token_is_of(&t->items[i], id) &&
		    (!t->items[i].expires || now < t->items[i].expires))
			return true;
	return false;
}

bool token_is_of(const struct token *t, const char *owner)
{
	return owner[0] == '@' ? t->tenant[0] && str_equal(t->tenant, owner + 1)
			       : str_equal(t->id, owner);
}

size_t tokens_count(const struct tokens *t)
{
	return t->count;
}

const struct token *tokens_at(const struct tokens *t, size_t i)
{
	return i < t->count ? &t->items[i] : NULL;
}
