/*
 * Theory of operation
 *
 * One table has a row for each key: its section, its kind and bounds, its place in the struct, its default. The
 * events of libyaml are read one by one; each is what the table wants next, or an error. A section is a mapping
 * of keys; images and volumes are mappings of names, and each volume is a section of its own.
 */
#include "policy/config_yaml.h"

#include "image/reference.h"
#include "policy/events.h"
#include "policy/secret_yaml.h"

enum kind {
	SECTION,
	SIZE,
	TIME,
	COUNT,
	MILLI,
	BOOL,
	NAME,
	TEXT,
	PATH,
	LIST,
	IMAGES,
	VOLUMES,
	SECRETS,
	SOURCE
};

struct config_key {
	const char *section; /* "" is the top */
	const char *name;
	enum kind kind;
	size_t offset;
	size_t room;	   /* of the member, or of one item of a list */
	uint64_t min, max; /* numbers; of a list: where its count is, and how many there may be */
	const char *usual; /* the default; items of a list have blanks between them */
};

#define IN(s, m) offsetof(struct s, m), sizeof(((struct s *)NULL)->m)
#define AT(m) IN(config, m)
#define ITEMS_IN(s, m, n, usual)                                                                   \
	LIST, offsetof(struct s, m), sizeof(((struct s *)NULL)->m[0]), offsetof(struct s, n),      \
		ARRAY_LEN(((struct s *)NULL)->m), usual
#define ITEMS(m, n, usual) ITEMS_IN(config, m, n, usual)

#define MB (1ULL << 20)
#define DAY_MS (24 * 3600 * 1000ULL)
#define MANY UINT32_MAX

static const struct config_key keys[] = {
	{"", "listen", ITEMS(listen, listen_count, NULL)},
	{"", "state_dir", PATH, AT(state_dir), 0, 0, NULL},
	{"", "runtime_dir", PATH, AT(runtime_dir), 0, 0, NULL},
	{"", "max_sandboxes", COUNT, AT(max_sandboxes), 1, 1000000, "2000"},
	{"", "max_sandboxes_per_token", COUNT, AT(max_sandboxes_per_token), 0, 1000000, "1000"},
	{"", "memory_total", SIZE, AT(memory_total), MB, 0, NULL},
	{"", "disk_total", SIZE, AT(disk_total), MB, 0, NULL},
	{"", "memory_reserve", SIZE, AT(memory_reserve), 0, 0, "256M"},
	{"", "pool_size", COUNT, AT(pool_size), 0, 4096, "4"},
	{"", "boot_retries", COUNT, AT(boot_retries), 0, 100, "2"},
	{"", "output_budget", SIZE, AT(output_budget), MB, 0, "512M"},
	{"", "alert_denials", COUNT, AT(alert_denials), 0, 100000, "100"},
	{"", "log_bytes", SIZE, AT(log_bytes), 4096, 1024 * MB, "1M"},
	{"", "shutdown_timeout", TIME, AT(shutdown_ms), 0, DAY_MS, "10s"},
	{"", "role_timeout", TIME, AT(role_timeout_ms), 1000, DAY_MS, "10s"},

	{"", "sandbox", SECTION, 0, 0, 0, 0, NULL},
	{"sandbox", "image", NAME, AT(sandbox.image), 0, 0, "host"},
	{"sandbox", "work_dir", PATH, AT(sandbox.work_dir), 0, 0, "/workspace"},
	{"sandbox", "seccomp", PATH, AT(sandbox.seccomp), 0, 0, NULL},
	{"sandbox", "memory_limit", SIZE, AT(sandbox.limits.memory_bytes), 4 * MB, 0, "2G"},
	{"sandbox", "cpu_limit", MILLI, AT(sandbox.limits.cpus_milli), 10, 1024000, "1"},
	{"sandbox", "timeout", TIME, AT(sandbox.limits.timeout_ms), 0, 0, "60s"},
	{"sandbox", "network_enabled", BOOL, AT(sandbox.network_enabled), 0, 0, NULL},
	{"sandbox", "pids_limit", COUNT, AT(sandbox.limits.pids), 1, 4194304, "1024"},
	{"sandbox", "disk_limit", SIZE, AT(sandbox.limits.disk_bytes), 64 << 10, 0, NULL},
	{"sandbox", "open_files", COUNT, AT(sandbox.limits.open_files), 16, 1048576, "1024"},
	{"sandbox", "file_size", SIZE, AT(sandbox.limits.file_size_bytes), 0, 0, NULL},
	{"sandbox", "output_limit", SIZE, AT(sandbox.limits.output_bytes), 1, 1024 * MB, "1M"},
	{"sandbox", "ttl", TIME, AT(sandbox.ttl_ms), 1000, 0, "5m"},
	{"sandbox", "idle_timeout", TIME, AT(sandbox.idle_ms), 0, 0, NULL},

	{"", "ceilings", SECTION, 0, 0, 0, 0, NULL},
	{"ceilings", "memory", SIZE, AT(ceiling.memory_bytes), 4 * MB, 0, "16G"},
	{"ceilings", "cpus", MILLI, AT(ceiling.cpus_milli), 10, 1024000, "64"},
	{"ceilings", "pids", COUNT, AT(ceiling.pids), 1, 4194304, "32768"},
	{"ceilings", "disk", SIZE, AT(ceiling.disk_bytes), 64 << 10, 0, "16G"},
	{"ceilings", "timeout", TIME, AT(ceiling.timeout_ms), 0, 0, NULL},
	{"ceilings", "open_files", COUNT, AT(ceiling.open_files), 16, 1048576, "65536"},
	{"ceilings", "output_limit", SIZE, AT(ceiling.output_bytes), 1, 1024 * MB, "64M"},
	{"ceilings", "ttl", TIME, AT(max_ttl_ms), 1000, 0, "24h"},
	{"ceilings", "idle_timeout", TIME, AT(max_idle_ms), 0, 0, NULL},

	{"", "rate_limits", SECTION, 0, 0, 0, 0, NULL},
	/* Generous: they stop a runaway client, and do not ration an honest one. */
	{"rate_limits", "token_per_minute", COUNT, AT(rate_token.per_minute), 0, MANY, "300000"},
	{"rate_limits", "token_burst", COUNT, AT(rate_token.burst), 1, MANY, "10000"},
	{"rate_limits", "address_per_minute", COUNT, AT(rate_address.per_minute), 0, MANY,
	 "600000"},
	{"rate_limits", "address_burst", COUNT, AT(rate_address.burst), 1, MANY, "20000"},

	{"", "http", SECTION, 0, 0, 0, 0, NULL},
	{"http", "max_connections", COUNT, AT(max_connections), 1, 1000000, "16384"},
	{"http", "max_body", SIZE, AT(max_body_bytes), 1024, 1024 * MB, "16M"},
	{"http", "max_upload", SIZE, AT(max_upload_bytes), 0, 0, NULL},
	{"http", "domain", TEXT, AT(domain), 0, 0, NULL},
	{"http", "allowed_hosts", ITEMS(hosts, host_count, NULL)},
	{"http", "allowed_origins", ITEMS(origins, origin_count, NULL)},
	{"http", "trusted_proxies", ITEMS(proxies, proxy_count, NULL)},

	{"", "agents", SECTION, 0, 0, 0, 0, NULL},
	{"agents", "types", PATH, AT(agent_types), 0, 0, NULL},

	{"", "tools", SECTION, 0, 0, 0, 0, NULL},
	{"tools", "rules", ITEMS(tool_rules, tool_rule_count, NULL)},
	{"tools", "limits", ITEMS(tool_limits, tool_limit_count, NULL)},
	{"tools", "interceptors", ITEMS(interceptors, interceptor_count, NULL)},

	{"", "publish", SECTION, 0, 0, 0, 0, NULL},
	{"publish", "addresses", ITEMS(publish_addresses, publish_address_count, NULL)},
	{"publish", "ports", TEXT, AT(publish_ports), 0, 0, NULL},

	{"", "tls", SECTION, 0, 0, 0, 0, NULL},
	{"tls", "cert", PATH, AT(tls.cert), 0, 0, NULL},
	{"tls", "key", PATH, AT(tls.key), 0, 0, NULL},
	{"tls", "self", BOOL, AT(tls.own), 0, 0, NULL},

	{"", "images", IMAGES, 0, 0, 0, 0, NULL},
	{"", "image_store", SECTION, 0, 0, 0, 0, NULL},
	{"image_store", "registries",
	 ITEMS(image_store.registries, image_store.registry_count, NULL)},
	{"image_store", "mirrors", ITEMS(image_store.mirrors, image_store.mirror_count, NULL)},
	{"image_store", "auth_file", PATH, AT(image_store.auth_file), 0, 0, NULL},
	{"image_store", "plain_http", BOOL, AT(image_store.plain_http), 0, 0, NULL},
	{"image_store", "max_total", SIZE, AT(image_store.total_bytes), 0, 0, "64G"},
	{"image_store", "max_count", COUNT, AT(image_store.max_count), 1, 10000, "100"},

	{"", "volumes", VOLUMES, 0, 0, 0, 0, NULL},
	{"volumes", "path", PATH, IN(config_volume, path), 0, 0, NULL},
	{"volumes", "read_only", BOOL, IN(config_volume, read_only), 0, 0, "true"},
	{"volumes", "tokens", ITEMS_IN(config_volume, tokens, token_count, NULL)},

	{"", "secrets", SECRETS, 0, 0, 0, 0, NULL},
	/* Not a section of the file: read_tokens uses it for the lists in `secrets`. */
	{"secret tokens", "tokens", ITEMS_IN(config_secret, tokens, token_count, NULL)},

	{"", "keys", SECTION, 0, 0, 0, 0, NULL},
	{"keys", "master", SOURCE, AT(keys.master), 0, 0, NULL},
	{"keys", "previous", SOURCE, AT(keys.previous), 0, 0, NULL},

	{"", "disks", SECTION, 0, 0, 0, 0, NULL},
	{"disks", "encrypt", BOOL, AT(disk_encrypt), 0, 0, NULL},
	{"disks", "volume_max_bytes", SIZE, AT(volume_max_bytes), MB, 0, "64G"},
	{"disks", "volume_max_total", SIZE, AT(volume_total_bytes), 0, 0, "256G"},
	{"disks", "volume_max_count", COUNT, AT(volume_max_count), 0, 1000000, "100"},

	{"", "snapshots", SECTION, 0, 0, 0, 0, NULL},
	{"snapshots", "max_bytes", SIZE, AT(snapshot_max_bytes), 1024, 0, "4G"},
	{"snapshots", "max_total", SIZE, AT(snapshot_total_bytes), 0, 0, "64G"},
	{"snapshots", "max_count", COUNT, AT(snapshot_max_count), 0, 1000000, "100"},

	{"", "audit", SECTION, 0, 0, 0, 0, NULL},
	{"audit", "file", PATH, AT(audit.file), 0, 0, NULL},
	{"audit", "key_file", PATH, AT(audit.key_file), 0, 0, NULL},
	{"audit", "max_size", SIZE, AT(audit.max_bytes), 4096, 0, "64M"},
	{"audit", "keep", COUNT, AT(audit.keep), 0, 100000, NULL},
	{"audit", "sync", BOOL, AT(audit.sync), 0, 0, NULL},

	{"", "warm", SECTION, 0, 0, 0, 0, NULL},
	{"warm", "slots", COUNT, AT(warm.lanes), 0, 1024, "4"},
	{"warm", "node", COUNT, AT(warm.node), 0, 4, "2"},
	{"warm", "kernels", COUNT, AT(warm.kernels), 0, 1024, "16"},
	{"warm", "preload",
	 ITEMS(warm.preload, warm.preload_count, "collections datetime json math random re")},

	{"", "network", SECTION, 0, 0, 0, 0, NULL},
	{"network", "mode", NAME, AT(network.mode), 0, 0, "public"},
	{"network", "e2b_default", NAME, AT(network.e2b_default), 0, 0, "public"},
	{"network", "allow", ITEMS(network.allow, network.allow_count, NULL)},
	{"network", "deny", ITEMS(network.deny, network.deny_count, NULL)},
	{"network", "dns", ITEMS(network.dns, network.dns_count, NULL)},
	{"network", "proxy", TEXT, AT(network.proxy), 0, 0, NULL},
	{"network", "proxy_auth_file", PATH, AT(network.proxy_auth_file), 0, 0, NULL},
	{"network", "ca_file", PATH, AT(network.ca_file), 0, 0, NULL},
	{"network", "names_max", COUNT, AT(network.names_max), 1, 131068, "4096"},
	{"network", "tx_bytes", SIZE, AT(network.budget.tx_bytes), 0, 0, NULL},
	{"network", "rx_bytes", SIZE, AT(network.budget.rx_bytes), 0, 0, NULL},
	{"network", "tx_rate", SIZE, AT(network.budget.tx_rate), 0, 0, NULL},
	{"network", "rx_rate", SIZE, AT(network.budget.rx_rate), 0, 0, NULL},
	{"network", "connections", COUNT, AT(network.budget.connections), 0, MANY, NULL},
	{"network", "open", COUNT, AT(network.budget.open), 0, 65536, "1024"},
	{"network", "requests", COUNT, AT(network.budget.requests), 0, MANY, NULL},

	{"", "docker", BOOL, AT(docker), 0, 0, NULL},

	{"", "e2b", SECTION, 0, 0, 0, 0, NULL},
	{"e2b", "api_url", TEXT, AT(e2b.api_url), 0, 0, NULL},
	{"e2b", "sandbox_url", TEXT, AT(e2b.sandbox_url), 0, 0, NULL},
	{"e2b", "key_file", PATH, AT(e2b.key_file), 0, 0, NULL},
	{"e2b", "template", TEXT, AT(e2b.template), 0, 0, "base"},
	{"e2b", "timeout", TIME, AT(e2b.timeout_ms), 15000, DAY_MS, "5m"},
};

struct config_reader {
	struct events ev;
	struct config *c;
	const char *section;
	void *base;		       /* the struct that the section's offsets refer to */
	char at[64];		       /* section and name of the key that is read, for errors */
	const struct config_key *list; /* the list that is read */
	bool seen[ARRAY_LEN(keys)];
};

static const struct config_key *find_key(const char *section, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (str_equal(keys[i].section, section) && str_equal(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static void name_key(struct config_reader *r, const char *section, const char *name)
{
	snprintf(r->at, sizeof(r->at), "%s%s%s", section, *section ? "." : "", name);
}

static int unknown_key(struct config_reader *r, const char *section, const char *name)
{
	const struct config_key *best = NULL;
	unsigned best_distance = 3;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		unsigned d = str_distance(name, keys[i].name);

		/* The same word in another section is the likely slip. */
		if (!str_equal(keys[i].section, section))
			d = d == 0 ? 1 : 99;
		if (d < best_distance) {
			best_distance = d;
			best = &keys[i];
		}
	}
	name_key(r, section, name);
	if (!best)
		return events_fail(&r->ev, r->at,
				   "unknown key '%s'; cloche.conf(5) lists the known ones", r->at);
	return events_fail(&r->ev, r->at, "unknown key '%s'; did you mean '%s%s%s'?", r->at,
			   best->section, *best->section ? "." : "", best->name);
}

/* ---- single values ---- */

static int parse_number(const struct config_key *k, const char *text, void *base, struct err *e)
{
	static parse_fn *const parsers[] = {
		[SIZE] = parse_size,   [TIME] = parse_time, [COUNT] = parse_count,
		[MILLI] = parse_milli, [BOOL] = parse_bool,
	};
	const struct parse_member m = {parsers[k->kind], k->min, k->max ? k->max : UINT64_MAX,
				       k->room};

	return parse_member(&m, text, (char *)base + k->offset, e);
}

static int put_number(struct config_reader *r, const struct config_key *k, const char *text)
{
	struct err inner = {0};

	if (parse_number(k, text, r->base, &inner) < 0)
		return events_fail(&r->ev, r->at, "%s: %s", r->at, inner.msg);
	return 0;
}

static bool is_name(const char *s)
{
	return *s != '.' && *s != '-' && str_only(s, STR_ALNUM "._-", 1, SIZE_MAX);
}

/* Copies the text to `to` if it is valid for the kind. */
static int put_text(struct config_reader *r, enum kind kind, const char *name, char *to,
		    size_t room)
{
	const char *text = events_text(&r->ev);

	if (strlen(text) >= room)
		return events_fail(&r->ev, name, "%s: longer than %zu bytes", name, room - 1);
	if (!*text || strpbrk(text, "\n\t"))
		return events_fail(&r->ev, name, "%s: is empty or has blanks in it", name);
	if (kind == NAME && !is_name(text))
		return events_fail(&r->ev, name,
				   "%s: '%s' is not a name: letters, digits, dot, dash", name,
				   text);
	if (kind == PATH && !path_clean(text, to, room))
		return events_fail(&r->ev, name, "%s: '%s' must be an absolute path without '..'",
				   name, text);
	if (kind != PATH)
		memcpy(to, text, strlen(text) + 1);
	return 0;
}

static int put_scalar(struct config_reader *r, const struct config_key *k)
{
	if (events_want_scalar(&r->ev, r->at, "a single value") < 0)
		return -1;
	if (k->kind >= SIZE && k->kind <= BOOL)
		return put_number(r, k, events_text(&r->ev));
	return put_text(r, k->kind, r->at, (char *)r->base + k->offset, k->room);
}

/* ---- lists ---- */

static int put_item(void *arg)
{
	struct config_reader *r = arg;
	const struct config_key *k = r->list;
	uint32_t *count = (void *)((char *)r->base + k->min);

	if (events_want_scalar(&r->ev, r->at, "a list of single values") < 0)
		return -1;
	if (*count == k->max)
		return events_fail(&r->ev, r->at, "%s: more than %zu", r->at, (size_t)k->max);
	if (put_text(r, TEXT, r->at, (char *)r->base + k->offset + *count * k->room, k->room) < 0)
		return -1;
	++*count;
	return 0;
}

/* A list, or one item without brackets. It replaces the list that was there before. */
static int put_list(struct config_reader *r, const struct config_key *k)
{
	*(uint32_t *)(void *)((char *)r->base + k->min) = 0;
	r->list = k;
	if (events_at_scalar(&r->ev) && !events_at_null(&r->ev))
		return put_item(r);
	if (r->ev.event.type != YAML_SEQUENCE_START_EVENT)
		return events_wrong_type(&r->ev, r->at, "a list");
	return events_each(&r->ev, put_item, r);
}

/* ---- defaults ---- */

static void put_default(const struct config_key *k, void *base)
{
	uint32_t *count = (void *)((char *)base + k->min);
	char *to = (char *)base + k->offset;
	struct err e = {0};

	if (k->kind >= SIZE && k->kind <= BOOL) {
		if (parse_number(k, k->usual, base, &e) < 0)
			abort();
	} else if (k->kind == LIST) {
		for (const char *at = k->usual; *at; at += strspn(at, " ")) {
			size_t len = strcspn(at, " ");

			snprintf(to + (*count)++ * k->room, k->room, "%.*s", (int)len, at);
			at += len;
		}
	} else {
		snprintf(to, k->room, "%s", k->usual);
	}
}

/* The defaults of a volume, or of everything else. */
static void put_defaults(bool of_volume, void *base)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (keys[i].usual && str_equal(keys[i].section, "volumes") == of_volume)
			put_default(&keys[i], base);
}

/* Declared in config.h. Here because the table has the defaults. */
void config_init(struct config *c)
{
	memset(c, 0, sizeof(*c));
	put_defaults(false, c);
	c->sandbox.network_enabled = CONFIG_UNSET;
	c->disk_encrypt = CONFIG_UNSET;
}

/* ---- images and volumes ---- */

/* At a key of `images` or `volumes`: a new name. */
static int put_new_name(struct config_reader *r, const char *key, char *to, bool taken, bool full)
{
	if (full)
		return events_fail(&r->ev, key, "%s: more than %d", key, CONFIG_ITEMS);
	if (!events_at_scalar(&r->ev))
		return events_fail(&r->ev, key, "%s: a name must be a word, not %s", key,
				   events_type(&r->ev));
	if (taken)
		return events_fail(&r->ev, key, "%s: '%s' is given twice", key,
				   events_text(&r->ev));
	return put_text(r, NAME, key, to, CONFIG_NAME);
}

/* A directory, or a name of the store. */
static int put_image_place(struct config_reader *r, char *to, size_t size)
{
	const char *text = events_text(&r->ev);
	struct image_reference name;
	struct err why = {0};

	if (strchr("/.", *text) || strlen(text) >= size)
		return put_text(r, PATH, "images", to, size);
	if (image_reference_parse(text, &name, &why) < 0)
		return events_fail(&r->ev, "images", "images: %s", why.msg);
	snprintf(to, size, "%s", name.name);
	return 0;
}

static int put_image(void *arg)
{
	struct config_reader *r = arg;
	struct config_image image = {0};
	bool at = events_at_scalar(&r->ev);
	bool taken = at && config_image_find(r->c, events_text(&r->ev));

	if (at && str_equal(events_text(&r->ev), "host"))
		return events_fail(&r->ev, "images",
				   "images: 'host' is the host's own programs; take another name");
	if (put_new_name(r, "images", image.name, taken, r->c->image_count == CONFIG_ITEMS) < 0 ||
	    events_next(&r->ev) < 0 ||
	    events_want_scalar(&r->ev, "images", "a path or an image for each name") < 0 ||
	    put_image_place(r, image.path, sizeof(image.path)) < 0)
		return -1;
	r->c->images[r->c->image_count++] = image;
	return 0;
}

static int read_section(struct config_reader *r, const char *section, void *base);

static int put_volume(void *arg)
{
	struct config_reader *r = arg;
	struct config_volume *v = &r->c->volumes[r->c->volume_count];
	struct config_volume fresh = {0};
	bool taken = events_at_scalar(&r->ev) && config_volume_find(r->c, events_text(&r->ev));

	if (put_new_name(r, "volumes", fresh.name, taken, r->c->volume_count == CONFIG_ITEMS) < 0 ||
	    events_next(&r->ev) < 0)
		return -1;
	if (r->ev.event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(&r->ev, "volumes",
					 "a mapping with path, read_only, tokens");
	put_defaults(true, &fresh);
	*v = fresh;
	if (read_section(r, "volumes", v) < 0)
		return -1;
	if (!*v->path)
		return events_fail(&r->ev, "volumes", "volumes: '%s' needs a path", v->name);
	r->c->volume_count++;
	return 0;
}

/* The list `tokens` of a secret. */
static int read_tokens(void *arg, const char *key)
{
	struct config_reader *r = arg;
	void *base = r->base;
	int rc;

	r->base = &r->c->secrets[r->c->secret_count];
	rc = put_list(r, find_key("secret tokens", "tokens"));
	r->base = base;
	return rc;
}

static int put_secret(void *arg)
{
	struct config_reader *r = arg;
	const struct secret_yaml_in in = {.other_key = read_tokens, .arg = r};
	struct config_secret *fresh = &r->c->secrets[r->c->secret_count];
	char name[CONFIG_NAME] = "";
	bool taken = false;

	for (uint32_t i = 0; events_at_scalar(&r->ev) && i < r->c->secret_count; i++)
		taken |= str_equal(r->c->secrets[i].def.rule.name, events_text(&r->ev));
	if (put_new_name(r, "secrets", name, taken, r->c->secret_count == CONFIG_ITEMS) < 0 ||
	    events_next(&r->ev) < 0)
		return -1;
	memset(fresh, 0, sizeof(*fresh));
	if (secret_yaml_read(&r->ev, name, &in, &fresh->def) < 0)
		return -1;
	r->c->secret_count++;
	return 0;
}

static int put_named(struct config_reader *r, const struct config_key *k)
{
	if (r->ev.event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(&r->ev, k->name, "a mapping of names");
	if (k->kind == SECRETS) {
		r->c->secret_count = 0;
		return events_each(&r->ev, put_secret, r);
	}
	if (k->kind == IMAGES)
		r->c->image_count = 0;
	else
		r->c->volume_count = 0;
	return events_each(&r->ev, k->kind == IMAGES ? put_image : put_volume, r);
}

/* ---- the whole ---- */

static int read_value(struct config_reader *r, const struct config_key *k)
{
	if (k->kind == LIST)
		return put_list(r, k);
	if (k->kind == IMAGES || k->kind == VOLUMES || k->kind == SECRETS)
		return put_named(r, k);
	if (k->kind == SOURCE)
		return secret_yaml_source(&r->ev, r->at, (void *)((char *)r->base + k->offset));
	if (k->kind != SECTION)
		return put_scalar(r, k);
	if (r->ev.event.type != YAML_MAPPING_START_EVENT)
		return events_wrong_type(&r->ev, k->name, "a mapping");
	return read_section(r, k->name, r->c);
}

static int read_key(void *arg)
{
	struct config_reader *r = arg;
	bool in_volume = r->base != r->c;
	const struct config_key *k;

	if (!events_at_scalar(&r->ev))
		return events_fail(&r->ev, "", "a key must be a word, not %s", events_type(&r->ev));
	k = find_key(r->section, events_text(&r->ev));
	if (in_volume && (!k || r->seen[k - keys]))
		return events_fail(&r->ev, "volumes",
				   "volumes: wants each of path, read_only and tokens once");
	if (!k)
		return unknown_key(r, r->section, events_text(&r->ev));
	name_key(r, r->section, k->name);
	if (r->seen[k - keys])
		return events_fail(&r->ev, r->at, "%s: is given twice", r->at);
	r->seen[k - keys] = true;
	return events_next(&r->ev) < 0 ? -1 : read_value(r, k);
}

/* The event is a mapping's start, and at return its end. Sections lie one deep, by the table. */
static int read_section(struct config_reader *r, const char *section, void *base)
{
	int rc;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (str_equal(keys[i].section, section))
			r->seen[i] = false;
	r->section = section;
	r->base = base;
	rc = events_each(&r->ev, read_key, r);
	r->section = "";
	r->base = r->c;
	return rc;
}

int config_yaml_read(const char *file, const char *text, size_t len, struct config *c,
		     struct err *e)
{
	struct config_reader r = {.c = c, .section = "", .base = c};
	int rc;

	events_init(&r.ev, file, text, len, e);
	rc = events_document(&r.ev, "a configuration", true, read_key, &r);
	events_done(&r.ev);
	return rc;
}
