/* Reads, completes and checks the definitions of secrets; makes placeholders. No value passes through here. */
#include "model/secret.h"

#include <ctype.h>
#include <sys/random.h>

#define GITHUB_HEADERS "Authorization: Bearer {} | Authorization: token {} | basic"

/* Names whose hosts and header everybody knows, so that `--secret OPENAI_API_KEY` is enough. */
static const struct known {
	const char *name, *hosts, *header, *prefix;
} known[] = {
	/* Clients of old send x-api-key, newer ones do as everybody. */
	{"ANTHROPIC_API_KEY", "api.anthropic.com", "x-api-key: {} | Authorization: Bearer {}",
	 "sk-ant-api03-"},
	{"ANTHROPIC_AUTH_TOKEN", "api.anthropic.com", "Authorization: Bearer {}", ""},
	{"GEMINI_API_KEY", "generativelanguage.googleapis.com", "x-goog-api-key: {} | query:key",
	 "AIza"},
	{"GH_TOKEN", "api.github.com github.com", GITHUB_HEADERS, "ghp_"},
	{"GITHUB_TOKEN", "api.github.com github.com", GITHUB_HEADERS, "ghp_"},
	{"HF_TOKEN", "huggingface.co", "Authorization: Bearer {}", "hf_"},
	{"NPM_TOKEN", "registry.npmjs.org", "Authorization: Bearer {}", "npm_"},
	{"OPENAI_API_KEY", "api.openai.com", "Authorization: Bearer {}", "sk-"},
};

#define USUAL_HEADER "Authorization: Bearer {}"
#define RANDOM_LETTERS 40

bool secret_name_is_variable(const char *name)
{
	return !isdigit((unsigned char)name[0]) &&
	       str_only(name, STR_ALNUM "_", 1, SECRET_NAME - 1);
}

/* ---- keys ---- */

static int put(char *to, size_t room, const char *key, const char *value, struct err *e)
{
	if (!*value || strlen(value) >= room || !str_is_printable(value))
		return err_field(e, ERR_INVALID, "secret",
				 "secret: %s wants 1 to %zu printable characters", key, room - 1);
	snprintf(to, room, "%s", value);
	return 0;
}

/* A whole name, with a port or without; no wildcard, no address of the host. */
static bool is_host(const char *value)
{
	const char *colon = strchr(value, ':');
	size_t len = colon ? (size_t)(colon - value) : strlen(value);
	struct err ignored;
	uint64_t port = 443;

	return len && strlen(value) < SECRET_HOST && value[0] != '.' && value[0] != '-' &&
	       strspn(value, STR_ALNUM "-._") == len &&
	       (!colon ||
		(parse_count(colon + 1, &port, &ignored) == 0 && port >= 1 && port <= 65535));
}

static int refuse_host(const char *value, struct err *e)
{
	return err_field(
		e, ERR_INVALID, "hosts",
		"hosts: '%.100s' is no host; a secret needs whole names, as api.example.com "
		"or api.example.com:8443",
		value);
}

static int add_host(struct secret_rule *r, const char *value, struct err *e)
{
	char *to = r->hosts[r->host_count];

	if (r->host_count == SECRET_HOSTS)
		return err_field(e, ERR_INVALID, "hosts", "hosts: more than %d", SECRET_HOSTS);
	if (!is_host(value))
		return refuse_host(value, e);
	snprintf(to, SECRET_HOST, "%s", value);
	for (; *to; to++)
		*to = (char)tolower((unsigned char)*to);
	r->host_count++;
	return 0;
}

static int add_argument(struct secret_source *s, const char *value, struct err *e)
{
	if (s->argc == SECRET_ARGS)
		return err_field(e, ERR_INVALID, "secret", "secret: command: more than %d words",
				 SECRET_ARGS);
	if (put(s->argv[s->argc], sizeof(s->argv[0]), "command", value, e) < 0)
		return -1;
	s->argc++;
	return 0;
}

int secret_set(struct secret_def *d, const char *key, const char *value, struct err *e)
{
	struct secret_rule *r = &d->rule;

	if (str_equal(key, "env"))
		return put(d->from.env, sizeof(d->from.env), key, value, e);
	if (str_equal(key, "file"))
		return put(d->from.file, sizeof(d->from.file), key, value, e);
	if (str_equal(key, "command"))
		return add_argument(&d->from, value, e);
	if (str_equal(key, "host"))
		return add_host(r, value, e);
	if (str_equal(key, "header"))
		return put(r->header, sizeof(r->header), key, value, e);
	if (str_equal(key, "prefix"))
		return put(r->prefix, sizeof(r->prefix), key, value, e);
	if (str_equal(key, "uses"))
		return parse_count(value, &r->uses_max, e);
	return err_field(e, ERR_INVALID, "secret",
			 "secret: unknown key '%.40s'; known are env, file, command, host, header, "
			 "prefix, uses",
			 key);
}

/* ---- the whole ---- */

/* "Name: text {}", "basic" or "query:NAME". */
static bool is_place(const char *h)
{
	size_t name = strspn(h, STR_ALNUM "-_");

	if (str_equal(h, "basic"))
		return true;
	if (str_starts(h, "query:"))
		return str_only(h + 6, STR_ALNUM "-._", 1, SECRET_HEADER);
	return name && h[name] == ':' && h[name + 1] == ' ' && strstr(h + name, "{}") &&
	       !strstr(strstr(h + name, "{}") + 2, "{}");
}

const char *secret_next_place(const char *header, const char *before, char ret[SECRET_HEADER])
{
	const char *at = before ? before : header, *bar;
	size_t len;

	if (!*at)
		return NULL;
	bar = strstr(at, " | ");
	len = bar ? (size_t)(bar - at) : strlen(at);
	snprintf(ret, SECRET_HEADER, "%.*s", (int)(len < SECRET_HEADER ? len : 0), at);
	return bar ? bar + 3 : at + len;
}

static bool is_header(const char *h)
{
	char place[SECRET_HEADER];
	const char *at = NULL;
	bool any = false;

	while ((at = secret_next_place(h, at, place))) {
		if (!is_place(place))
			return false;
		any = true;
	}
	return any;
}

static void add_known_hosts(struct secret_rule *r, const char *hosts)
{
	while (*hosts) {
		size_t len = strcspn(hosts, " ");

		snprintf(r->hosts[r->host_count++], SECRET_HOST, "%.*s", (int)len, hosts);
		hosts += len + strspn(hosts + len, " ");
	}
}

static void fill_in_known(struct secret_rule *r)
{
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (!str_equal(r->name, known[i].name))
			continue;
		if (!r->host_count)
			add_known_hosts(r, known[i].hosts);
		if (!r->header[0])
			snprintf(r->header, sizeof(r->header), "%s", known[i].header);
		if (!r->prefix[0])
			snprintf(r->prefix, sizeof(r->prefix), "%s", known[i].prefix);
	}
	if (!r->header[0])
		snprintf(r->header, sizeof(r->header), "%s", USUAL_HEADER);
}

int secret_rule_finish(struct secret_rule *r, struct err *e)
{
	if (!str_only(r->name, STR_ALNUM "_-.", 1, SECRET_NAME - 1))
		return err_field(e, ERR_INVALID, "secret",
				 "secret: '%.60s' is no name; use letters, digits, '_', '-', '.'",
				 r->name);
	fill_in_known(r);
	if (!is_header(r->header))
		return err_field(e, ERR_INVALID, "secret",
				 "secret %s: header: '%.100s' is not of the form 'Name: text {}', "
				 "basic or query:NAME",
				 r->name, r->header);
	if (!str_only(r->prefix, STR_ALNUM "-_", 0, SECRET_PREFIX - 1))
		return err_field(e, ERR_INVALID, "secret",
				 "secret %s: prefix: only letters, digits, '-' and '_'", r->name);
	for (uint32_t i = 0; i < r->host_count; i++)
		if (!is_host(r->hosts[i]))
			return refuse_host(r->hosts[i], e);
	return 0;
}

int secret_finish(struct secret_def *d, struct err *e)
{
	struct secret_source *s = &d->from;
	int given = (s->env[0] != 0) + (s->file[0] != 0) + (s->argc != 0);

	if (secret_rule_finish(&d->rule, e) < 0)
		return -1;
	if (!secret_name_is_variable(d->rule.name))
		return err_field(e, ERR_INVALID, "secret", "secret: '%.60s' is not a variable name",
				 d->rule.name);
	if (given > 1)
		return err_field(e, ERR_INVALID, "secret",
				 "secret %s: only one of env, file and command", d->rule.name);
	if (!given)
		snprintf(s->env, sizeof(s->env), "%s", d->rule.name);
	if (!d->rule.host_count)
		return err_field(e, ERR_INVALID, "secret",
				 "secret %s: needs a host, as --secret %s,host=api.example.com",
				 d->rule.name, d->rule.name);
	return 0;
}

/* ---- text ---- */

/* Copies up to the next comma that has no backslash; returns what is behind it, NULL if too long. */
static const char *take_item(const char *at, char *to, size_t room)
{
	size_t n = 0;

	for (; *at && *at != ','; at++) {
		if (at[0] == '\\' && (at[1] == ',' || at[1] == '\\'))
			at++;
		if (n + 1 == room)
			return NULL;
		to[n++] = *at;
	}
	to[n] = '\0';
	return *at == ',' ? at + 1 : at;
}

int secret_parse(const char *text, struct secret_def *ret, struct err *e)
{
	struct secret_def d = {0};
	char item[1200];
	const char *at = take_item(text, item, sizeof(item));

	if (!at || strlen(item) >= sizeof(d.rule.name))
		return err_field(e, ERR_INVALID, "secret", "secret: the name is too long");
	snprintf(d.rule.name, sizeof(d.rule.name), "%s", item);
	while (*at) {
		char *equals;

		at = take_item(at, item, sizeof(item));
		equals = at ? strchr(item, '=') : NULL;
		if (!equals)
			return err_field(e, ERR_INVALID, "secret",
					 "secret %s: '%.60s' is not of the form KEY=VALUE",
					 d.rule.name, at ? item : "...");
		*equals = '\0';
		if (secret_set(&d, item, equals + 1, e) < 0)
			return -1;
	}
	if (secret_finish(&d, e) < 0)
		return -1;
	*ret = d;
	return 0;
}

static void add_item(struct buf *b, const char *key, const char *value)
{
	buf_add(b, ",", 1);
	buf_add(b, key, strlen(key));
	buf_add(b, "=", 1);
	for (; *value; value++) {
		if (*value == ',' || *value == '\\')
			buf_add(b, "\\", 1);
		buf_add(b, value, 1);
	}
}

char *secret_format(const struct secret_def *d)
{
	const struct secret_rule *r = &d->rule;
	struct buf b = {0};
	char uses[24], *text;

	buf_add(&b, r->name, strlen(r->name));
	if (d->from.env[0])
		add_item(&b, "env", d->from.env);
	if (d->from.file[0])
		add_item(&b, "file", d->from.file);
	for (uint32_t i = 0; i < d->from.argc; i++)
		add_item(&b, "command", d->from.argv[i]);
	for (uint32_t i = 0; i < r->host_count; i++)
		add_item(&b, "host", r->hosts[i]);
	add_item(&b, "header", r->header);
	if (r->prefix[0])
		add_item(&b, "prefix", r->prefix);
	snprintf(uses, sizeof(uses), "%llu", (unsigned long long)r->uses_max);
	if (r->uses_max)
		add_item(&b, "uses", uses);
	text = str_format("%.*s", (int)b.len, (const char *)buf_head(&b));
	buf_done(&b);
	return text;
}

/* ---- lists ---- */

bool secret_is_header(const char *text)
{
	return text[0] == '@';
}

bool secret_is_reference(const struct list *texts, size_t i)
{
	size_t len = strlen(texts->items[i]);

	if (strchr(texts->items[i], ','))
		return false;
	for (size_t k = 0; k < texts->count; k++)
		if (k != i && str_starts(texts->items[k], texts->items[i]) &&
		    (texts->items[k][len] == ',' || (!texts->items[k][len] && k < i)))
			return true;
	return false;
}

int secret_check_list(const struct list *texts, struct list *allow, struct err *e)
{
	size_t count = 0;

	for (size_t i = 0; i < texts->count; i++) {
		size_t len = strcspn(texts->items[i], ",");
		struct secret_def d;

		if (secret_is_header(texts->items[i]) || secret_is_reference(texts, i))
			continue;
		if (secret_parse(texts->items[i], &d, e) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (strncmp(texts->items[i], texts->items[k], len + 1) == 0)
				return err_field(e, ERR_INVALID, "secret",
						 "secret: %s is given twice", d.rule.name);
		if (++count > SECRETS_PER_SANDBOX)
			return err_field(e, ERR_LIMIT, "secret", "secret: more than %d",
					 SECRETS_PER_SANDBOX);
		for (uint32_t h = 0; h < d.rule.host_count; h++)
			list_take(allow, str_format("%s%s", d.rule.hosts[h],
						    strchr(d.rule.hosts[h], ':') ? "" : ":443"));
	}
	return 0;
}

/* ---- placeholders ---- */

int secret_placeholder(const struct secret_rule *r, char ret[SECRET_PLACEHOLDER])
{
	static const char letters[] = STR_ALNUM "00"; /* 64 */
	unsigned char bytes[RANDOM_LETTERS];
	size_t at = (size_t)snprintf(ret, SECRET_PLACEHOLDER, "%s", r->prefix);

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -1;
	for (size_t i = 0; i < RANDOM_LETTERS; i++)
		ret[at++] = letters[bytes[i] % 64];
	ret[at] = '\0';
	return 0;
}

bool secret_is_placeholder(const struct secret_rule *r, const char *text)
{
	return str_starts(text, r->prefix) &&
	       str_only(text + strlen(r->prefix), STR_ALNUM, RANDOM_LETTERS, RANDOM_LETTERS);
}
