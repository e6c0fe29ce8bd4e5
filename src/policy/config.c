/* Directories, addresses and checks of the daemon's configuration. config_yaml.c reads the files. */
#include "policy/config.h"

#include "base/network.h"
#include "policy/config_yaml.h"
#include "policy/tools/rules.h"
#include "wire/pack.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/un.h>

#define FILE_MAX (1u << 20)

/* ---- files ---- */

int config_parse(const char *file, const char *text, size_t len, struct config *c, struct err *e)
{
	auto_free struct config *next = must_alloc(malloc(sizeof(*next)));

	*next = *c;
	if (config_yaml_read(file, text, len, next, e) < 0)
		return -1;
	*c = *next;
	return 0;
}

int config_load(const char *file, struct config *c, struct err *e)
{
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	auto_free char *text = NULL;
	size_t len;

	if (fd < 0) {
		err_sys(e, "%s: cannot open", file);
		e->kind = errno == ENOENT ? ERR_NOT_FOUND : ERR_SYSTEM;
		return -1;
	}
	if (io_read_whole(fd, FILE_MAX, &text, &len) == 0)
		return config_parse(file, text, len, c, e);
	if (errno == EINVAL || errno == EFBIG)
		return err_set(e, ERR_INVALID, "%s: not a regular file of at most 1 MB", file);
	return err_sys(e, "%s: cannot read", file);
}

/* A directory of the user's: $VARIABLE/cloche, or the usual place in the home directory. */
static char *user_dir(const char *variable, const char *usual)
{
	const char *dir = getenv(variable), *home = getenv("HOME");

	return dir && *dir == '/' ? str_format("%s/cloche", dir)
				  : str_format("%s/%s/cloche", home ? home : "", usual);
}

char *config_find(void)
{
	auto_free char *dir = NULL, *path = NULL;

	if (geteuid() != 0) {
		dir = user_dir("XDG_CONFIG_HOME", ".config");
		path = str_format("%s/cloche.conf.yaml", dir);
		if (access(path, F_OK) == 0)
			return take_ptr(path);
		free(path);
	}
	path = str_copy("/etc/cloche/cloche.conf.yaml");
	return access(path, F_OK) == 0 ? take_ptr(path) : NULL;
}

/* ---- defaults that depend on the host, and checks across keys ---- */

static int put_dir(const char *env, const char *fallback, char *dir, struct err *e)
{
	const char *wanted = getenv(env);
	char clean[CONFIG_PATH];

	if (!wanted || !*wanted)
		wanted = *dir ? dir : fallback;
	if (!path_clean(wanted, clean, sizeof(clean)))
		return err_set(e, ERR_INVALID, "%s: '%s' must be an absolute path without '..'",
			       env, wanted);
	/* Filled up with zeros: the whole struct is compared, and handed to other roles. */
	memset(dir, 0, CONFIG_PATH);
	snprintf(dir, CONFIG_PATH, "%s", clean);
	return 0;
}

static int put_dirs(struct config *c, struct err *e)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	bool is_root = geteuid() == 0;
	auto_free char *state =
		is_root ? str_copy("/var/lib/cloche") : user_dir("XDG_STATE_HOME", ".local/state");
	auto_free char *run = NULL;

	if (put_dir("CLOCHE_STATE_DIR", state, c->state_dir, e) < 0)
		return -1;
	run = is_root			   ? str_copy("/run/cloche")
	      : runtime && *runtime == '/' ? str_format("%s/cloche", runtime)
					   : str_format("%s/run", c->state_dir);
	return put_dir("CLOCHE_RUNTIME_DIR", run, c->runtime_dir, e);
}

/* Sets the error of a key. */
static int refuse_key(struct err *e, const char *key, const char *value, const char *text)
{
	return err_field(e, ERR_INVALID, key, "%s: '%s'%s", key, value, text);
}

static bool is_port(const char *port)
{
	char *end;
	unsigned long n = strtoul(port, &end, 10);

	return *port >= '0' && *port <= '9' && !*end && n <= 65535;
}

static int check_address(const char *address, struct err *e)
{
	char host[CONFIG_ADDRESS], scratch[16];
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;
	bool six = address[0] == '[';

	if (str_starts(address, "unix:")) {
		if (address[5] == '/' &&
		    strlen(address + 5) < sizeof(((struct sockaddr_un *)NULL)->sun_path))
			return 0;
		return refuse_key(e, "listen", address,
				  ": a socket needs an absolute path of at most 107 bytes");
	}
	if (len >= sizeof(host) || len < 3 || (six && address[len - 1] != ']'))
		return refuse_key(e, "listen", address,
				  " is no address; try 127.0.0.1:7070 or unix:/PATH");
	snprintf(host, sizeof(host), "%.*s", (int)len - 2 * six, address + six);
	if (inet_pton(six ? AF_INET6 : AF_INET, host, scratch) != 1)
		return refuse_key(e, "listen", host,
				  ": not an IP address; names are not looked up");
	return is_port(colon + 1)
		       ? 0
		       : refuse_key(e, "listen", address, ": the port must be 0 to 65535");
}

/* Unless the settings name a Unix socket, there is the usual one: `cloche` on this host needs it. */
static int put_own_socket(struct config *c, struct err *e)
{
	char path[CONFIG_PATH];

	for (uint32_t i = 0; i < c->listen_count; i++)
		if (str_starts(c->listen[i], "unix:"))
			return 0;
	if (c->listen_count == CONFIG_LISTEN)
		return err_field(e, ERR_INVALID, "listen",
				 "listen: at most %d addresses besides the Unix socket",
				 CONFIG_LISTEN - 1);
	config_socket_path(c, path, sizeof(path));
	if ((size_t)snprintf(c->listen[c->listen_count++], CONFIG_ADDRESS, "unix:%s", path) >=
	    CONFIG_ADDRESS)
		return err_set(e, ERR_INVALID, "%s: too long for a socket's path", path);
	return 0;
}

static int put_addresses(struct config *c, struct err *e)
{
	if (c->listen_count == 0)
		snprintf(c->listen[c->listen_count++], CONFIG_ADDRESS, "127.0.0.1:7070");
	if (put_own_socket(c, e) < 0)
		return -1;
	for (uint32_t i = 0; i < c->listen_count; i++)
		if (check_address(c->listen[i], e) < 0)
			return -1;
	return 0;
}

/* A default above its ceiling would refuse every plain request. */
static int check_ceilings(const struct config *c, struct err *e)
{
#define LIMIT(m) offsetof(struct config, sandbox.limits.m), offsetof(struct config, ceiling.m)
	static const struct {
		const char *name, *ceiling_name;
		size_t value, ceiling;
	} pairs[] = {
		{"sandbox.memory_limit", "ceilings.memory", LIMIT(memory_bytes)},
		{"sandbox.cpu_limit", "ceilings.cpus", LIMIT(cpus_milli)},
		{"sandbox.pids_limit", "ceilings.pids", LIMIT(pids)},
		{"sandbox.disk_limit", "ceilings.disk", LIMIT(disk_bytes)},
		{"sandbox.timeout", "ceilings.timeout", LIMIT(timeout_ms)},
		{"sandbox.open_files", "ceilings.open_files", LIMIT(open_files)},
		{"sandbox.output_limit", "ceilings.output_limit", LIMIT(output_bytes)},
		{"sandbox.ttl", "ceilings.ttl", offsetof(struct config, sandbox.ttl_ms),
		 offsetof(struct config, max_ttl_ms)},
		{"sandbox.idle_timeout", "ceilings.idle_timeout",
		 offsetof(struct config, sandbox.idle_ms), offsetof(struct config, max_idle_ms)},
	};
#undef LIMIT

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		uint64_t value, ceiling;

		memcpy(&value, (const char *)c + pairs[i].value, sizeof(value));
		memcpy(&ceiling, (const char *)c + pairs[i].ceiling, sizeof(ceiling));
		if (ceiling && value > ceiling)
			return err_field(e, ERR_INVALID, pairs[i].name, "%s: is above %s",
					 pairs[i].name, pairs[i].ceiling_name);
	}
	return 0;
}

static bool is_url(const char *s)
{
	return (str_starts(s, "http://") || str_starts(s, "https://")) && !strpbrk(s, " \"\\<>?#@");
}

/* Without TLS a key is sent only to this machine. */
static bool is_safe_url(const char *s)
{
	static const char *const own[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		size_t len = strlen(own[i]);

		if (str_starts(s, own[i]) && (!s[len] || s[len] == ':' || s[len] == '/'))
			return true;
	}
	return str_starts(s, "https://");
}

static int check_e2b(struct config_e2b *s, struct err *e)
{
	const char *names[] = {"e2b.api_url", "e2b.sandbox_url"};
	char *urls[] = {s->api_url, s->sandbox_url};

	if (!*s->api_url) {
		if (*s->key_file || *s->sandbox_url)
			return err_field(e, ERR_INVALID, "e2b", "e2b: needs api_url");
		return 0;
	}
	if (!*s->key_file)
		return err_field(e, ERR_INVALID, "e2b", "e2b: needs key_file");
	if (!*s->sandbox_url)
		memcpy(s->sandbox_url, s->api_url, sizeof(s->sandbox_url));
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		size_t len = strlen(urls[i]);

		if (!is_url(urls[i]))
			return refuse_key(e, names[i], urls[i], " is no URL");
		if (!is_safe_url(urls[i]))
			return err_field(e, ERR_INVALID, names[i],
					 "%s: the key would travel in the clear; take https",
					 names[i]);
		while (len && urls[i][len - 1] == '/')
			urls[i][--len] = '\0';
	}
	return 0;
}

/* The default is half of memory, as for a run: written files are kept in memory. */
static int put_disk(struct config *c, struct err *e)
{
	struct limits *l = &c->sandbox.limits;

	if (l->disk_bytes > l->memory_bytes)
		return err_field(
			e, ERR_INVALID, "sandbox.disk_limit",
			"sandbox.disk_limit: more than memory_limit, which holds what is written");
	if (l->disk_bytes)
		return 0;
	l->disk_bytes = l->memory_bytes / 2;
	if (c->ceiling.disk_bytes && l->disk_bytes > c->ceiling.disk_bytes)
		l->disk_bytes = c->ceiling.disk_bytes;
	return 0;
}

/* Limits are seldom used up, so the limits of all sandboxes may be a multiple of what the host has. */
static void put_totals(struct config *c)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	if (!c->memory_total)
		c->memory_total = CONFIG_OVERCOMMIT * memory;
	if (!c->disk_total)
		c->disk_total = CONFIG_OVERCOMMIT * memory;
}

static int check_proxies(const struct config *c, struct err *e)
{
	struct network ignored;

	for (size_t i = 0; i < c->proxy_count; i++)
		if (!network_parse(c->proxies[i], &ignored))
			return err_field(
				e, ERR_INVALID, "trusted_proxies",
				"trusted_proxies: '%.60s' is no address and no network; try "
				"10.0.0.0/8",
				c->proxies[i]);
	return 0;
}

/* ---- TLS ---- */

bool config_has_tls(const struct config *c)
{
	return c->tls.own || *c->tls.cert;
}

int config_set_tls(struct config *c, const char *text, struct err *e)
{
	const char *comma = strrchr(text, ',');

	c->tls = (struct config_tls){.own = str_equal(text, "self")};
	if (c->tls.own)
		return 0;
	if (!comma || comma == text || !comma[1])
		return err_field(e, ERR_INVALID, "tls",
				 "tls: '%.60s' is neither 'self' nor CERT,KEY", text);
	if ((size_t)(comma - text) >= CONFIG_PATH || strlen(comma + 1) >= CONFIG_PATH)
		return err_field(e, ERR_INVALID, "tls", "tls: the path is too long");
	memcpy(c->tls.cert, text, (size_t)(comma - text));
	memcpy(c->tls.key, comma + 1, strlen(comma + 1));
	return 0;
}

/* A name of two labels or more, in letters that need no quoting anywhere. */
static bool is_domain(const char *name)
{
	size_t len = strlen(name);

	return len < 190 && strspn(name, STR_ALNUM "-.") == len && strchr(name, '.') &&
	       name[0] != '.' && name[0] != '-' && name[len - 1] != '.' && !strstr(name, "..") &&
	       strspn(name, "0123456789.") != len;
}

static int check_tls(struct config *c, struct err *e)
{
	if (c->tls.own && *c->tls.cert)
		return err_field(e, ERR_INVALID, "tls.self", "tls: takes self, or cert and key");
	if (!*c->tls.cert != !*c->tls.key)
		return err_field(e, ERR_INVALID, *c->tls.cert ? "tls.key" : "tls.cert",
				 "tls: needs cert and key");
	if (!*c->domain)
		return 0;
	if (!is_domain(c->domain))
		return refuse_key(e, "http.domain", c->domain,
				  " is no domain; try cloche.example.com");
	if (c->host_count + 2 > CONFIG_ITEMS)
		return err_field(e, ERR_LIMIT, "http.allowed_hosts",
				 "http.allowed_hosts: no room for the domain");
	snprintf(c->hosts[c->host_count++], CONFIG_ADDRESS, "%.190s", c->domain);
	snprintf(c->hosts[c->host_count++], CONFIG_ADDRESS, "*.%.190s", c->domain);
	return 0;
}

/* Reads the rules as they will be read for a sandbox, so that a slip is told at the start. */
static int check_net_rules(const struct config_network *n, struct err *e)
{
	struct net_policy_maker *m = net_policy_new();
	struct err why = {0};
	int rc = 0;

	net_policy_stage(m, NET_ALLOW, NET_BY_OPERATOR);
	for (uint32_t i = 0; rc == 0 && i < n->allow_count; i++)
		if (net_policy_add(m, NET_RULE_ALLOW, n->allow[i], &why) < 0)
			rc = err_field(e, ERR_INVALID, "network.allow", "network.allow: %.400s",
				       why.msg);
	for (uint32_t i = 0; rc == 0 && i < n->deny_count; i++)
		if (net_policy_add(m, NET_RULE_DENY, n->deny[i], &why) < 0)
			rc = err_field(e, ERR_INVALID, "network.deny", "network.deny: %.400s",
				       why.msg);
	net_policy_free(m);
	return rc;
}

static int read_net_mode(const char *key, const char *text, int *ret, struct err *e)
{
	static const char *const modes[] = {"none", "allow", "public"};

	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (str_equal(text, modes[i])) {
			*ret = (int)i;
			return 0;
		}
	return refuse_key(e, key, text, " is not one of none, allow, public");
}

/* An address, with a port or not; IPv6 with a port is in brackets. */
static bool is_dns_server(const char *text)
{
	char host[64];
	const char *end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');
	struct network ignored;

	/* Without brackets two colons are an IPv6 address. */
	if (!end || (text[0] != '[' && strchr(end + 1, ':')))
		return network_parse(text, &ignored) && !strchr(text, '/');
	snprintf(host, sizeof(host), "%.*s", (int)(end - text) - (text[0] == '['),
		 text + (text[0] == '['));
	end += *end == ']';
	return network_parse(host, &ignored) && !strchr(host, '/') &&
	       (!*end || (*end == ':' && is_port(end + 1)));
}

static int finish_network(struct config *c, struct err *e)
{
	struct config_network *n = &c->network;

	if (read_net_mode("network.mode", n->mode, &n->ceiling, e) < 0 ||
	    read_net_mode("network.e2b_default", n->e2b_default, &n->e2b_mode, e) < 0)
		return -1;
	if (!c->sandbox.network_enabled)
		n->ceiling = NET_NONE;
	for (uint32_t i = 0; i < n->dns_count; i++)
		if (!is_dns_server(n->dns[i]))
			return refuse_key(e, "network.dns", n->dns[i],
					  " is no address; try 1.1.1.1 or [::1]:5353");
	if (n->proxy[0] && (!str_starts(n->proxy, "http://") || !is_url(n->proxy)))
		return refuse_key(e, "network.proxy", n->proxy, " is not http://HOST:PORT");
	if (n->proxy_auth_file[0] && !n->proxy[0])
		return err_field(e, ERR_INVALID, "network.proxy_auth_file",
				 "network.proxy_auth_file: needs network.proxy");
	return check_net_rules(n, e);
}

static int check_publish(struct config *c, struct err *e)
{
	unsigned first = 0, last = 0;
	struct network ignored;
	char more;

	for (uint32_t i = 0; i < c->publish_address_count; i++)
		if (!network_parse(c->publish_addresses[i], &ignored))
			return refuse_key(e, "publish.addresses", c->publish_addresses[i],
					  " is no address and no network");
	if (!*c->publish_ports)
		return 0;
	if (strspn(c->publish_ports, "0123456789-") != strlen(c->publish_ports) ||
	    sscanf(c->publish_ports, "%5u-%5u%c", &first, &last, &more) != 2 || first == 0 ||
	    first > last || last > UINT16_MAX)
		return refuse_key(e, "publish.ports", c->publish_ports,
				  " is no range of ports; try 20000-20999");
	c->publish_first = (uint16_t)first;
	c->publish_last = (uint16_t)last;
	return 0;
}

static int check_tools(const struct config *c, struct err *e)
{
	struct tool_limit limit;

	for (uint32_t i = 0; i < c->tool_rule_count; i++)
		if (tool_rule_check(c->tool_rules[i], e) < 0)
			return err_wrap(e, "tools.rules");
	for (uint32_t i = 0; i < c->tool_limit_count; i++)
		if (tool_limit_read(c->tool_limits[i], &limit, e) < 0)
			return err_wrap(e, "tools.limits");
	return 0;
}

int config_finish(struct config *c, struct err *e)
{
	put_totals(c);
	if (put_disk(c, e) < 0 || put_dirs(c, e) < 0 || put_addresses(c, e) < 0 ||
	    check_ceilings(c, e) < 0 || check_e2b(&c->e2b, e) < 0 || check_proxies(c, e) < 0 ||
	    check_tls(c, e) < 0 || check_publish(c, e) < 0 || finish_network(c, e) < 0)
		return -1;
	if (check_tools(c, e) < 0)
		return -1;
	if (!str_equal(c->sandbox.image, "host") && !config_image_find(c, c->sandbox.image))
		return refuse_key(e, "sandbox.image", c->sandbox.image, " is not among images");
	if (!*c->audit.file &&
	    (size_t)snprintf(c->audit.file, sizeof(c->audit.file), "%s/audit/audit.log",
			     c->state_dir) >= sizeof(c->audit.file))
		return err_set(e, ERR_INVALID, "%s: the path is too long", c->state_dir);
	return 0;
}

/* ---- from role to role ---- */

/* Both sides are the same program, so the struct is sent as its bytes. Its size tells versions apart. */
#define MAGIC 0x6663c10cU
#define VERSION 1

int config_write(const struct config *c, struct err *e)
{
	auto_close int fd = memfd_create("cloche-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct buf b = {0};
	bool written;

	pack_u32(&b, MAGIC);
	pack_u32(&b, VERSION);
	pack_bytes(&b, c, sizeof(*c));
	written = fd >= 0 && io_write_all(fd, buf_head(&b), b.len) == 0 && io_seal(fd) == 0;
	buf_done(&b);
	return written ? take_fd(&fd) : err_sys(e, "cannot hand over the configuration");
}

int config_read(int fd, struct config *ret, struct err *e)
{
	auto_free char *bytes = NULL;
	const char *body = NULL;
	size_t len = 0, size = 0;
	struct unpack u;

	if (io_read_whole(fd, 3 * sizeof(uint32_t) + sizeof(*ret), &bytes, &size) == 0) {
		u = unpack_from(bytes, size);
		if (unpack_u32(&u) == MAGIC && unpack_u32(&u) == VERSION)
			body = unpack_bytes(&u, &len);
	}
	if (!body || !unpack_is_done(&u) || len != sizeof(*ret))
		return err_set(e, ERR_SYSTEM, "the configuration is of another version");
	memcpy(ret, body, len);
	return 0;
}

/* ---- questions ---- */

bool config_image_is_stored(const struct config_image *i)
{
	return i->path[0] != '/';
}

const struct config_image *config_image_find(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->image_count; i++)
		if (str_equal(c->images[i].name, name))
			return &c->images[i];
	return NULL;
}

const struct config_volume *config_volume_find(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->volume_count; i++)
		if (str_equal(c->volumes[i].name, name))
			return &c->volumes[i];
	return NULL;
}

bool config_allows_token(const char tokens[][CONFIG_NAME], uint32_t count, const char *token,
			 const char *name)
{
	if (!*token)
		return true;
	for (uint32_t i = 0; i < count; i++)
		if (str_equal(tokens[i], "*") || str_equal(tokens[i], token) ||
		    (*name && str_equal(tokens[i], name)))
			return true;
	return false;
}

bool config_volume_allows(const struct config_volume *v, const char *token, const char *name)
{
	return config_allows_token(v->tokens, v->token_count, token, name);
}

void config_socket_path(const struct config *c, char *ret, size_t size)
{
	snprintf(ret, size, "%s/cloche.sock", c->runtime_dir);
}

void config_docker_path(const struct config *c, char *ret, size_t size)
{
	snprintf(ret, size, "%s/docker.sock", c->runtime_dir);
}

void config_token_path(const struct config *c, char *ret, size_t size)
{
	snprintf(ret, size, "%s/tokens", c->state_dir);
}
