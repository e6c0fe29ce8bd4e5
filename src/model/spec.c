/* The table of all fields, and everything that works by it: setting, checking and printing a spec. */
#include "model/spec.h"

#include "model/guard.h"

#include <assert.h>

static const char *const level_values[] = {"container", "process", "vm", NULL};
static const char *const provider_values[] = {"ns", "docker", "oci", "vm", "e2b", NULL};
static const char *const net_values[] = {"none", "allow", "public", "isolated", "ask", NULL};
static const char *const root_values[] = {"ro", "overlay", NULL};
static const char *const guard_values[] = {"off", "imports", "strict", NULL};
static const char *const apply_values[] = {"false", "true", "always", NULL};
static const char *const disk_values[] = {"memory", "disk", NULL};
static const char *const encoding_values[] = {"utf-8", "base64", NULL};

#define AT(member) offsetof(struct sandbox_spec, member)
#define MB ((uint64_t)1 << 20)
/* Synthetic addresses that there are: net/redirect.h. */
#define NET_NAMES_MAX 131070
/* Longer than any real limit; in nanoseconds it still fits into 64 bits. */
#define YEAR_MS (366ULL * 24 * 3600 * 1000)

const struct field spec_fields[] = {
	{"level", 0, FIELD_ENUM, AT(level), FIELD_WIDENS, 0, 0, level_values, "LEVEL",
	 "process, container (default) or vm"},
	{"policy", 0, FIELD_STRING, AT(policy), FIELD_WIDENS | FIELD_CLI_ONLY, 0, 0, NULL, "FILE",
	 "take the options from a policy file; later options win"},
	{"memory", 'm', FIELD_SIZE, AT(limits.memory_bytes), FIELD_WIDENS, 4 * MB, 0, NULL, "SIZE",
	 "memory of the whole sandbox, swap off (1G)"},
	{"cpus", 0, FIELD_MILLI, AT(limits.cpus_milli), FIELD_WIDENS, 10, 1024000, NULL, "N",
	 "processors, a fraction is fine (1.0)"},
	{"pids", 0, FIELD_COUNT_, AT(limits.pids), FIELD_WIDENS, 1, 4194304, NULL, "N",
	 "processes and threads at one time (256)"},
	{"disk", 0, FIELD_SIZE, AT(limits.disk_bytes), FIELD_WIDENS, 64 << 10, 0, NULL, "SIZE",
	 "all that it writes: workspace, HOME, /tmp (half of memory)"},
	{"disk_type", 0, FIELD_ENUM, AT(disk_type), FIELD_WIDENS, 0, 0, disk_values, "TYPE",
	 "where that is kept: memory (default), or disk, for sandboxes of the daemon"},
	{"timeout", 't', FIELD_TIME, AT(limits.timeout_ms), FIELD_WIDENS, 1, YEAR_MS, NULL, "TIME",
	 "wall time, then everything in it is killed (60s; none with --tty)"},
	{"cpu_time", 0, FIELD_TIME, AT(limits.cpu_time_ms), FIELD_WIDENS, 10, YEAR_MS, NULL, "TIME",
	 "processor time of all processes together (none)"},
	{"open_files", 0, FIELD_COUNT_, AT(limits.open_files), FIELD_WIDENS, 8, 1048576, NULL, "N",
	 "open files of each process (1024, hard limit 4096)"},
	{"file_size", 0, FIELD_SIZE, AT(limits.file_size_bytes), FIELD_WIDENS, 1, 0, NULL, "SIZE",
	 "largest file it may write (as disk)"},
	{"output_limit", 0, FIELD_SIZE, AT(limits.output_bytes), FIELD_WIDENS, 0, 1ULL << 30, NULL,
	 "SIZE", "captured bytes of stdout and of stderr, head and tail kept (1M)"},
	{"net", 0, FIELD_ENUM, AT(net), FIELD_WIDENS, 0, 0, net_values, "MODE",
	 "none (default), allow, ask (allow, and a person decides), public (no private addresses)"},
	{"allow", 0, FIELD_LIST, AT(allow), FIELD_WIDENS, 0, 0, NULL, "RULE",
	 "a destination: example.com:443, *.example.com, 10.0.0.0/8, or a set such as pypi"},
	{"deny", 0, FIELD_LIST, AT(deny), 0, 0, 0, NULL, "RULE",
	 "a destination that it may not reach; wins over --allow"},
	{"net_group", 0, FIELD_STRING, AT(net_group), FIELD_WIDENS, 0, 0, NULL, "GROUP",
	 "with net isolated: its sandboxes reach those of the same group and owner"},
	{"net_rate", 0, FIELD_RATE, AT(net_limits.rate), FIELD_WIDENS, 125, 1ULL << 40, NULL,
	 "RATE", "bandwidth each way: 100Mbit, 10MB (no bound)"},
	{"net_tx", 0, FIELD_SIZE, AT(net_limits.tx_bytes), FIELD_WIDENS, 1, 0, NULL, "SIZE",
	 "bytes that it may send in all (no bound)"},
	{"net_rx", 0, FIELD_SIZE, AT(net_limits.rx_bytes), FIELD_WIDENS, 1, 0, NULL, "SIZE",
	 "bytes that it may receive in all (no bound)"},
	{"net_connections", 0, FIELD_COUNT_, AT(net_limits.connections), FIELD_WIDENS, 1,
	 UINT32_MAX, NULL, "N", "connections that it may make in all (no bound)"},
	{"net_names", 0, FIELD_COUNT_, AT(net_limits.names), FIELD_WIDENS, 1, NET_NAMES_MAX, NULL,
	 "N", "distinct names that it may look up (4096)"},
	{"net_requests", 0, FIELD_COUNT_, AT(net_limits.requests), FIELD_WIDENS, 1, UINT32_MAX,
	 NULL, "N", "requests and connections in a minute (no bound)"},
	{"net_log", 0, FIELD_STRING, AT(net_log), FIELD_WIDENS | FIELD_CLI_ONLY, 0, 0, NULL,
	 "FILE|-", "append every connection to FILE, or to standard error, as a line of JSON"},
	{"publish", 0, FIELD_LIST, AT(publish), FIELD_WIDENS | FIELD_CLI_ONLY, 0, 0, NULL,
	 "[ADDR:]PORT:PORT", "a port of the host (127.0.0.1) that leads to a port inside"},
	{"secret", 0, FIELD_LIST, AT(secrets), FIELD_WIDENS, 0, 0, NULL, "NAME[,KEY=VALUE]...",
	 "a value that it uses and never sees: env=VAR, file=PATH, host=HOST, header=TEXT"},
	{"mount", 'v', FIELD_LIST, AT(mounts), FIELD_WIDENS, 0, 0, NULL, "SRC:DST[:ro|rw]",
	 "show a host directory or file at DST, read-only unless rw"},
	{"tmpfs", 0, FIELD_LIST, AT(tmpfs), FIELD_WIDENS, 0, 0, NULL, "PATH[:size=SIZE]",
	 "an empty file system in memory at PATH, such as /tmp (size: a quarter of memory)"},
	{"mount_read", 0, FIELD_LIST, AT(mount_read), FIELD_WIDENS, 0, 0, NULL, "DIR",
	 "mount sources must lie below one of these"},
	{"mount_write", 0, FIELD_LIST, AT(mount_write), FIELD_WIDENS, 0, 0, NULL, "DIR",
	 "writable mount sources must lie below one of these"},
	{"forbid", 0, FIELD_LIST, AT(forbid), 0, 0, 0, NULL, "PATH",
	 "a host path never shown, besides the built-in list"},
	{"workspace", 'w', FIELD_STRING, AT(workspace), FIELD_WIDENS, 0, 0, NULL, "DIR",
	 "show DIR instead of the current directory; writes go to it"},
	{"apply", 0, FIELD_ENUM, AT(apply), FIELD_WIDENS, 0, 0, apply_values, NULL,
	 "write the changes back if the command succeeds; --apply=always: also if it fails"},
	{"apply_also", 0, FIELD_LIST, AT(apply_also), FIELD_WIDENS, 0, 0, NULL, "PATH",
	 "with --apply: a control file or directory of the workspace that is written back too"},
	{"keep_control", 0, FIELD_BOOL, AT(keep_control), 0, 0, 0, NULL, NULL,
	 "with --workspace: control files that it changed are put back at the end"},
	{"diff", 0, FIELD_BOOL, AT(diff), 0, 0, 0, NULL, NULL, "list what the command changed"},
	{"empty", 0, FIELD_BOOL, AT(empty), 0, 0, 0, NULL, NULL, "start with an empty workspace"},
	{"no_git", 0, FIELD_BOOL, AT(no_git), 0, 0, 0, NULL, NULL,
	 "show only the directory itself, not the git repository that it lies in"},
	{"tools", 0, FIELD_BOOL, AT(tools), FIELD_WIDENS, 0, 0, NULL, NULL,
	 "also show the tool chains that PATH names (pyenv, nvm, cargo, ...)"},
	{"env", 0, FIELD_LIST, AT(env), 0, 0, 0, NULL, "K[=V]",
	 "set a variable, or copy the caller's"},
	{"workdir", 0, FIELD_STRING, AT(workdir), 0, 0, 0, NULL, "DIR",
	 "start there instead of in the workspace"},
	{"cwd_file", 0, FIELD_STRING, AT(cwd_file), FIELD_WIDENS | FIELD_CLI_ONLY, 0, 0, NULL,
	 "FILE", "keep the directory in which the command ended there (`cloche hook` does)"},
	{"hostname", 0, FIELD_STRING, AT(hostname), 0, 0, 0, NULL, "NAME",
	 "host name inside (cloche)"},
	{"file", 0, FIELD_LIST, AT(files), FIELD_WIDENS, 0, 0, NULL, "NAME=PATH",
	 "copy a file of the caller into the workspace"},
	{"capture", 0, FIELD_LIST, AT(capture), 0, 0, 0, NULL, "GLOB",
	 "with --json: put matching files of the workspace into the record"},
	{"root", 0, FIELD_ENUM, AT(root), FIELD_WIDENS, 0, 0, root_values, "MODE",
	 "ro (default), or overlay: the root can be written, changes are discarded"},
	{"image", 0, FIELD_STRING, AT(image), FIELD_WIDENS, 0, 0, NULL, "host|DIR|NAME",
	 "root file system: the host's own (default), a directory, an image"},
	{"user", 0, FIELD_STRING, AT(user), FIELD_WIDENS, 0, 0, NULL, "NAME",
	 "user inside: user (default), or root, over the sandbox's own namespace only"},
	{"tty", 0, FIELD_BOOL, AT(tty), 0, 0, 0, NULL, NULL, "give the command a terminal"},
	{"json", 0, FIELD_BOOL, AT(json), FIELD_CLI_ONLY, 0, 0, NULL, NULL,
	 "capture the output and print the result record"},
	{"encoding", 0, FIELD_ENUM, AT(encoding), FIELD_CLI_ONLY, 0, 0, encoding_values, "NAME",
	 "with --json: output as utf-8 (default, other bytes are replaced) or base64"},
	{"require", 0, FIELD_LIST, AT(require), 0, 0, 0, NULL, "LAYER",
	 "fail before running anything if this layer cannot be had"},
	{"optional", 0, FIELD_LIST, AT(optional), FIELD_WIDENS, 0, 0, NULL, "LAYER",
	 "run even if this layer cannot be had; the record says so"},
	{"guard", 0, FIELD_ENUM, AT(guard), FIELD_WIDENS, 0, 0, guard_values, "MODE",
	 "`cloche code` with Python: off (default), imports, or strict (calculations only)"},
	{"guard_allow", 0, FIELD_LIST, AT(guard_allow), FIELD_WIDENS, 0, 0, NULL, "MODULE",
	 "guard: a module it may import; with imports, only those"},
	{"guard_deny", 0, FIELD_LIST, AT(guard_deny), 0, 0, 0, NULL, "MODULE",
	 "guard: a module it may not import"},
	{"guard_nodes", 0, FIELD_LIST, AT(guard_nodes), 0, 0, 0, NULL, "KIND",
	 "guard strict: a kind of code to refuse, as Python's ast names it (While)"},
	{"tool_rule", 0, FIELD_LIST, AT(tool_rules), 0, 0, 0, NULL, "RULE",
	 "`cloche hook` and `cloche mcp`: what an agent's tool call may be (docs/agents.md)"},
	{"interceptor", 0, FIELD_LIST, AT(interceptors), 0, 0, 0, NULL, "FILE",
	 "`cloche hook`: a program that judges each tool call, in a sandbox of its own"},
	{"seccomp", 0, FIELD_STRING, AT(seccomp), 0, 0, 0, NULL, "FILE",
	 "refuse more system calls: a profile on top of the built-in one"},
	{"audit", 0, FIELD_STRING, AT(not_built), FIELD_CLI_ONLY | FIELD_NOT_BUILT, 0, 0, NULL,
	 "FILE", "append decisions to FILE"},
	{"provider", 0, FIELD_ENUM, AT(provider), FIELD_WIDENS, 0, 0, provider_values, "NAME",
	 "ns (default), or e2b for the daemon's; docker, oci and vm are not built yet"},
	{"use_case", 0, FIELD_STRING, AT(not_built), FIELD_WIDENS | FIELD_NOT_BUILT, 0, 0, NULL,
	 "NAME", "choose the level by use case"},
};
const size_t spec_field_count = ARRAY_LEN(spec_fields);
static_assert(ARRAY_LEN(spec_fields) <= 64, "set_mask has 64 bits");

const char *level_name(int level)
{
	return level_values[level];
}

static bool same_name(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return *a == *b;
}

const struct field *spec_field_find(const char *name)
{
	for (size_t i = 0; i < spec_field_count; i++)
		if (same_name(name, spec_fields[i].name))
			return &spec_fields[i];
	return NULL;
}

/* The name may be cut short or mistyped. */
const char *spec_field_near(const char *name)
{
	const char *best = NULL;
	unsigned best_distance = 3;
	size_t len = strlen(name);

	for (size_t i = 0; i < spec_field_count; i++) {
		unsigned d = str_distance(name, spec_fields[i].name);

		if (len > 2 && strncmp(name, spec_fields[i].name, len) == 0)
			d = 1;
		if (d < best_distance) {
			best_distance = d;
			best = spec_fields[i].name;
		}
	}
	return best;
}

void spec_init(struct sandbox_spec *s)
{
	*s = (struct sandbox_spec){
		.limits = {.memory_bytes = 1024 * MB,
			   .cpus_milli = 1000,
			   .pids = 256,
			   .timeout_ms = 60000,
			   .open_files = 1024,
			   .output_bytes = 1 * MB},
		.image = str_copy("host"),
		.hostname = str_copy("cloche"),
	};
}

void spec_done(struct sandbox_spec *s)
{
	for (size_t i = 0; i < spec_field_count; i++) {
		void *member = (char *)s + spec_fields[i].offset;

		if (spec_fields[i].type == FIELD_LIST)
			list_done(member);
		else if (spec_fields[i].type == FIELD_STRING)
			free(*(char **)member);
	}
	list_done(&s->argv);
	*s = (struct sandbox_spec){0};
}

/* In the largest unit up to 1024 to the power of `largest` that leaves no remainder. */
static void format_size(uint64_t n, unsigned largest, char *buf, size_t size)
{
	static const char units[] = " KMGT";

	for (unsigned i = largest; i > 0; i--)
		if (n && n % (1ULL << 10 * i) == 0) {
			snprintf(buf, size, "%" PRIu64 "%c", n >> 10 * i, units[i]);
			return;
		}
	snprintf(buf, size, "%" PRIu64, n);
}

/* Thousandths without trailing zeros: 1, 0.5, 1.25. */
static void format_milli(uint64_t n, char *buf, size_t size)
{
	size_t len = (size_t)snprintf(buf, size, "%" PRIu64 ".%03" PRIu64, n / 1000, n % 1000);

	if (len >= size)
		return;
	while (buf[len - 1] == '0')
		buf[--len] = '\0';
	if (buf[len - 1] == '.')
		buf[--len] = '\0';
}

/* A number as it would be typed. */
static void format_number(enum field_type type, uint64_t n, unsigned largest, char *buf,
			  size_t size)
{
	const uint64_t mbit = 125000;

	if (type == FIELD_RATE && n && n % mbit == 0) {
		snprintf(buf, size, "%" PRIu64 "Mbit", n / mbit);
		return;
	}
	if (type == FIELD_TIME)
		snprintf(buf, size, n % 1000 ? "%" PRIu64 "ms" : "%" PRIu64 "s",
			 n % 1000 ? n : n / 1000);
	else if (type == FIELD_MILLI)
		format_milli(n, buf, size);
	else
		format_size(n, type == FIELD_SIZE ? largest : 0, buf, size);
}

static int set_number(const struct field *f, uint64_t *ret, const char *value, struct err *e)
{
	static parse_fn *const parsers[] = {[FIELD_SIZE] = parse_size,
					    [FIELD_TIME] = parse_time,
					    [FIELD_COUNT_] = parse_count,
					    [FIELD_RATE] = parse_rate,
					    [FIELD_MILLI] = parse_milli};
	uint64_t n = 0, max = f->max ? f->max : INT64_MAX;
	char bound[32];

	if (parsers[f->type](value, &n, e) < 0)
		return -1;
	format_number(f->type, n < f->min ? f->min : max, 2, bound, sizeof(bound));
	if (n < f->min)
		return err_set(e, ERR_INVALID, "'%s' is too small; at least %s", value, bound);
	if (n > max)
		return err_set(e, ERR_INVALID, "'%s' is too large; at most %s", value, bound);
	*ret = n;
	return 0;
}

static int set_enum(const struct field *f, int *ret, const char *value, struct err *e)
{
	char all[128] = "";

	if (f->values == net_values && str_equal(value, "bridge"))
		value = "public"; /* the name that other systems have for it */
	for (int i = 0; f->values[i]; i++) {
		if (str_equal(value, f->values[i])) {
			*ret = i;
			return 0;
		}
		str_append(all, sizeof(all), ", ", "%s", f->values[i]);
	}
	return err_set(e, ERR_INVALID, "'%s' is not one of %s", value, all);
}

static int set_field(struct sandbox_spec *s, const struct field *f, const char *value,
		     struct err *e)
{
	static const struct parse_member flag = {parse_bool, 0, 1, sizeof(bool)};
	void *member = (char *)s + f->offset;

	switch (f->type) {
	case FIELD_ENUM:
		return set_enum(f, member, value, e);
	case FIELD_BOOL:
		return parse_member(&flag, value, member, e);
	case FIELD_STRING:
	case FIELD_LIST:
		if (!*value)
			return err_set(e, ERR_INVALID, "must not be empty");
		if (f->type == FIELD_LIST) {
			list_add(member, value);
			return 0;
		}
		free(*(char **)member);
		*(char **)member = str_copy(value);
		return 0;
	default:
		return set_number(f, member, value, e);
	}
}

int spec_set(struct sandbox_spec *s, const char *name, const char *value, struct err *e)
{
	const struct field *f = spec_field_find(name);
	struct err inner = {0};

	if (!f) {
		const char *near = spec_field_near(name);

		return err_field(e, ERR_INVALID, name, "unknown option '%s'%s%s%s", name,
				 near ? "; did you mean '" : "", near ? near : "",
				 near ? "'?" : "");
	}
	if (f->flags & FIELD_NOT_BUILT)
		return err_field(e, ERR_UNSUPPORTED, f->name, "%s: not built yet", f->name);
	if (set_field(s, f, value, &inner) < 0)
		return err_field(e, inner.kind, f->name, "%s: %s", f->name, inner.msg);
	s->set_mask |= 1ULL << (f - spec_fields);
	return 0;
}

bool spec_wants_root(const struct sandbox_spec *s)
{
	return s->user && (str_equal(s->user, "root") || str_equal(s->user, "0"));
}

bool spec_is_set(const struct sandbox_spec *s, const char *name)
{
	const struct field *f = spec_field_find(name);

	return f && (s->set_mask & (1ULL << (f - spec_fields)));
}

static int collect_layers(const struct list *names, const char *field, layer_set *ret,
			  struct err *e)
{
	for (size_t i = 0; i < names->count; i++) {
		int l = layer_find(names->items[i]);

		if (l < 0)
			return err_field(e, ERR_INVALID, field,
					 "%s: '%s' is not a layer; known: %s", field,
					 names->items[i], layer_names());
		*ret |= LAYER_BIT(l);
	}
	return 0;
}

/* Layers that a level requires. Other layers are reported if they are missing. */
static const layer_set container_layers =
	LAYER_BIT(LAYER_USER_NS) | LAYER_BIT(LAYER_PID_NS) | LAYER_BIT(LAYER_MOUNT_NS) |
	LAYER_BIT(LAYER_NET_NS) | LAYER_BIT(LAYER_IPC_NS) | LAYER_BIT(LAYER_UTS_NS) |
	LAYER_BIT(LAYER_ROOT) | LAYER_BIT(LAYER_IDS) | LAYER_BIT(LAYER_CAPS) |
	LAYER_BIT(LAYER_NO_NEW_PRIVS) | LAYER_BIT(LAYER_SECCOMP) | LAYER_BIT(LAYER_FDS) |
	LAYER_BIT(LAYER_NETWORK);
static const layer_set process_layers = LAYER_BIT(LAYER_IDS) | LAYER_BIT(LAYER_CAPS) |
					LAYER_BIT(LAYER_NO_NEW_PRIVS) | LAYER_BIT(LAYER_SECCOMP) |
					LAYER_BIT(LAYER_LANDLOCK) | LAYER_BIT(LAYER_FDS) |
					LAYER_BIT(LAYER_NETWORK);

static int refuse_unbuilt(const struct sandbox_spec *s, struct err *e)
{
	static const struct {
		const char *field;
		int last_built; /* values of the enum above it are not built yet */
	} rows[] = {{"level", LEVEL_PROCESS}, {"provider", PROVIDER_NS}};

	if (s->provider == PROVIDER_E2B && s->level <= LEVEL_PROCESS)
		return err_field(e, ERR_UNSUPPORTED, "provider",
				 "provider: e2b cannot be used here, only for sandboxes of the "
				 "daemon: `cloche create --provider e2b`");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct field *f = spec_field_find(rows[i].field);
		int value = *(const int *)((const char *)s + f->offset);

		if (value > rows[i].last_built)
			return err_field(e, ERR_UNSUPPORTED, f->name, "%s: '%s' is not built yet",
					 f->name, f->values[value]);
	}
	return 0;
}

bool spec_is_hostname(const char *s)
{
	return s[0] != '-' && s[0] != '.' && str_only(s, STR_ALNUM ".-", 1, 63);
}

static int check_file(const char *text, struct err *e)
{
	const char *equals = strchr(text, '=');
	auto_free char *name = NULL;

	if (!equals)
		return err_field(e, ERR_INVALID, "file", "file: '%s' is not NAME=PATH", text);
	name = must_alloc(strndup(text, (size_t)(equals - text)));
	if (!path_is_inside(name))
		return err_field(
			e, ERR_INVALID, "file",
			"file: '%s' must be a relative name in the workspace, as 'data/x.csv' is",
			name);
	return 0;
}

static int check_also(const char *path, struct err *e)
{
	if (path_is_inside(path))
		return 0;
	return err_field(e, ERR_INVALID, "apply_also",
			 "apply_also: '%s' must be a plain path in the workspace, such as "
			 "'AGENTS.md' or '.github'",
			 path);
}

/* The checks that need no files; capture.c does the rest. */
static int check_glob(const char *text, struct err *e)
{
	static const char workspace[] = "/workspace/";
	bool out = text[0] == '/' && !str_starts(text, workspace);

	for (const char *at = text; *at && !out; at += strcspn(at, "/")) {
		at += strspn(at, "/");
		out = strcspn(at, "/") == 2 && memcmp(at, "..", 2) == 0;
	}
	if (!out)
		return 0;
	return err_field(e, ERR_INVALID, "capture",
			 "capture: '%s' is not in the workspace; try 'out/*.csv'", text);
}

static int check_user(const struct sandbox_spec *s, struct err *e)
{
	if (!s->user || spec_wants_root(s) || str_equal(s->user, "user") ||
	    str_equal(s->user, "1000"))
		return 0;
	return err_field(e, ERR_UNSUPPORTED, "user", "user: '%.64s' is neither user nor root",
			 s->user);
}

static int check_values(const struct sandbox_spec *s, struct err *e)
{
	if (check_user(s, e) < 0)
		return -1;
	if (!spec_is_hostname(s->hostname))
		return err_field(e, ERR_INVALID, "hostname",
				 "hostname: wants up to 63 letters, digits, dots and dashes");
	for (size_t i = 0; i < s->env.count; i++)
		if (s->env.items[i][0] == '=')
			return err_field(e, ERR_INVALID, "env",
					 "env: no name in front of '='; try K=V");
	for (size_t i = 0; i < s->files.count; i++)
		if (check_file(s->files.items[i], e) < 0)
			return -1;
	for (size_t i = 0; i < s->apply_also.count; i++)
		if (check_also(s->apply_also.items[i], e) < 0)
			return -1;
	for (size_t i = 0; i < s->capture.count; i++)
		if (check_glob(s->capture.items[i], e) < 0)
			return -1;
	return 0;
}

static int check_guard(const struct sandbox_spec *s, struct err *e)
{
	static const char *const names[] = {"guard_allow", "guard_deny", "guard_nodes"};
	const struct list *lists[] = {&s->guard_allow, &s->guard_deny, &s->guard_nodes};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const struct list *l = lists[i];

		if (l->count && s->guard == GUARD_OFF)
			return err_field(e, ERR_INVALID, names[i],
					 "%s: needs guard imports or strict", names[i]);
		if (l->count > GUARD_NAMES)
			return err_field(e, ERR_LIMIT, names[i], "%s: more than %d names", names[i],
					 GUARD_NAMES);
		for (size_t j = 0; j < l->count; j++)
			if (!guard_is_name(l->items[j]))
				return err_field(e, ERR_INVALID, names[i],
						 "%s: not a name; try json or os.path", names[i]);
	}
	return 0;
}

#define NO_NAMESPACES "level process has no namespaces for it; level container has"

/* The first combination that makes no sense, and what level process lacks the namespaces for. */
static int check_combinations(const struct sandbox_spec *s, struct err *e)
{
	bool process = s->level == LEVEL_PROCESS;
	const struct {
		bool refused;
		const char *field, *text;
	} rows[] = {
		{s->empty && s->workspace, "empty", "cannot be combined with workspace"},
		{s->empty && s->apply, "apply", "there is nothing to apply to with empty"},
		{s->apply_also.count && !s->apply, "apply_also", "needs apply"},
		{s->keep_control && (!s->workspace || s->apply), "keep_control",
		 "needs a workspace that is written directly"},
		{s->diff && s->workspace && !s->apply, "diff",
		 "writes to a workspace are not recorded; add apply"},
		{s->tty && s->json, "tty", "cannot be combined with json"},
		{s->capture.count && !s->json, "capture", "needs json"},
		{spec_is_set(s, "encoding") && !s->json, "encoding", "needs json"},
		{process && s->net != NET_NONE, "net", NO_NAMESPACES},
		{process && s->publish.count, "publish", NO_NAMESPACES},
		{process && s->mounts.count, "mount", NO_NAMESPACES},
		{process && s->tmpfs.count, "tmpfs", NO_NAMESPACES},
		{process && s->apply, "apply", NO_NAMESPACES},
		{process && s->diff, "diff", NO_NAMESPACES},
		{process && s->cwd_file, "cwd_file", NO_NAMESPACES},
		{process && s->tty, "tty", NO_NAMESPACES},
		{process && s->root == ROOT_OVERLAY, "root", NO_NAMESPACES},
		{process && !str_equal(s->image, "host"), "image", NO_NAMESPACES},
		{process && spec_is_set(s, "hostname"), "hostname", NO_NAMESPACES},
		{process && spec_wants_root(s), "user", NO_NAMESPACES},
		/* Files that only root may read would be readable. */
		{spec_wants_root(s) && s->root == ROOT_OVERLAY && str_equal(s->image, "host"),
		 "user",
		 "root cannot have the host's own root file system writable; use an image, "
		 "or root ro"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].refused)
			return err_field(e,
					 str_equal(rows[i].text, NO_NAMESPACES) ? ERR_UNSUPPORTED
										: ERR_INVALID,
					 rows[i].field, "%s: %s", rows[i].field, rows[i].text);
	return 0;
}

/* A rule that allows something asks for mode allow; everything else of a network needs one that was asked for. */
static int finish_net(struct sandbox_spec *s, struct err *e)
{
	static const char *const fields[] = {"allow",	  "deny",	  "net_rate",
					     "net_tx",	  "net_rx",	  "net_connections",
					     "net_names", "net_requests", "net_log"};

	s->net_asks = s->net == NET_ASK || s->net_asks;
	if (s->net == NET_ASK || (!spec_is_set(s, "net") && s->allow.count))
		s->net = NET_ALLOW;
	if (s->net_asks && s->tty)
		return err_field(e, ERR_INVALID, "net",
				 "net: 'ask' cannot be combined with tty, which has the terminal");
	for (size_t i = 0; i < ARRAY_LEN(fields) && s->net == NET_NONE; i++)
		if (spec_is_set(s, fields[i]))
			return err_field(e, ERR_INVALID, fields[i],
					 "%s: net is none; needs net allow, public or isolated",
					 fields[i]);
	if (s->net_group && s->net != NET_ISOLATED)
		return err_field(e, ERR_INVALID, "net_group", "net_group: needs net isolated");
	if (s->net_group && !str_only(s->net_group, STR_ALNUM "._-", 1, SPEC_GROUP_MAX))
		return err_field(e, ERR_INVALID, "net_group",
				 "net_group: wants up to %d letters, digits, dots, dashes and "
				 "underscores",
				 SPEC_GROUP_MAX);
	return 0;
}

/* The hosts of a secret are allowed: without that it would be of no use. */
static int finish_secrets(struct sandbox_spec *s, struct err *e)
{
	bool any = false;

	for (size_t i = 0; i < s->secrets.count; i++)
		any |= !secret_is_header(s->secrets.items[i]);
	if (any && spec_is_set(s, "net") && s->net == NET_NONE)
		return err_field(e, ERR_INVALID, "secret", "secret: net is none; needs a network");
	return secret_check_list(&s->secrets, &s->allow, e);
}

struct limits limits_in_memory(const struct limits *l, int disk_type)
{
	struct limits in_memory = *l;

	if (disk_type != DISK_MEMORY)
		in_memory.disk_bytes = 0;
	return in_memory;
}

void spec_fit_disk(struct sandbox_spec *s)
{
	if (!spec_is_set(s, "disk") && s->disk_type == DISK_MEMORY &&
	    s->limits.disk_bytes > s->limits.memory_bytes)
		s->limits.disk_bytes = s->limits.memory_bytes / 2;
}

int spec_finish(struct sandbox_spec *s, struct err *e)
{
	struct limits in_memory;

	if (finish_secrets(s, e) < 0 || finish_net(s, e) < 0 || refuse_unbuilt(s, e) < 0 ||
	    check_values(s, e) < 0 || check_combinations(s, e) < 0 || check_guard(s, e) < 0)
		return -1;
	if (collect_layers(&s->require, "require", &s->required_layers, e) < 0 ||
	    collect_layers(&s->optional, "optional", &s->optional_layers, e) < 0)
		return -1;
	if (s->required_layers & s->optional_layers)
		return err_field(e, ERR_INVALID, "optional",
				 "optional: a layer cannot be both required and optional");
	s->required_layers |= s->level == LEVEL_PROCESS ? process_layers : container_layers;
	s->required_layers &= ~s->optional_layers;
	if (!s->limits.disk_bytes)
		s->limits.disk_bytes = s->limits.memory_bytes / 2;
	/* Written files are kept in memory: the disk must be full before memory is (rule 13). */
	if (s->level != LEVEL_PROCESS && s->disk_type == DISK_MEMORY &&
	    s->limits.disk_bytes > s->limits.memory_bytes)
		return err_field(
			e, ERR_INVALID, "disk",
			"disk: more than memory, which holds what is written; raise memory or "
			"lower disk");
	if (s->tty && !spec_is_set(s, "timeout"))
		s->limits.timeout_ms = 0;
	in_memory = limits_in_memory(&s->limits, s->disk_type);
	return tmpfs_parse(&s->tmpfs, &in_memory, &s->tmpfs_mounts, e);
}

static bool format_list(const struct list *l, char *buf, size_t size)
{
	buf[0] = '\0';
	for (size_t i = 0; i < l->count; i++)
		str_append(buf, size, " ", "%s", l->items[i]);
	return l->count > 0;
}

bool spec_format(const struct sandbox_spec *s, const struct field *f, char *buf, size_t size)
{
	const void *member = (const char *)s + f->offset;
	uint64_t n = f->type < FIELD_ENUM ? *(const uint64_t *)member : 0;

	switch (f->type) {
	case FIELD_SIZE:
	case FIELD_TIME:
	case FIELD_MILLI:
	case FIELD_COUNT_:
	case FIELD_RATE:
		format_number(f->type, n, 4, buf, size);
		return n != 0 || f->type == FIELD_MILLI;
	case FIELD_ENUM:
		snprintf(buf, size, "%s", f->values[*(const int *)member]);
		return true;
	case FIELD_BOOL:
		snprintf(buf, size, "%s", *(const bool *)member ? "true" : "false");
		return *(const bool *)member;
	case FIELD_STRING:
		if (*(char *const *)member)
			snprintf(buf, size, "%s", *(char *const *)member);
		return *(char *const *)member != NULL;
	case FIELD_LIST:
		return format_list(member, buf, size);
	}
	return false;
}
