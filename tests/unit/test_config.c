/* The daemon's configuration: what is taken, what is refused, where the blame goes. */
#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct config config, other; /* large */

static void init(void)
{
	setenv("CLOCHE_STATE_DIR", "/srv/state", 1);
	setenv("CLOCHE_RUNTIME_DIR", "/srv/run", 1);
	config_init(&config);
}

static int parse(const char *text, struct err *e)
{
	return config_parse("c.yaml", text, strlen(text), &config, e);
}

static void test_defaults(void **state)
{
	struct err e = {0};

	(void)state;
	init();
	if (config_finish(&config, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(config.sandbox.limits.memory_bytes, 2ULL << 30);
	assert_int_equal(config.sandbox.limits.cpus_milli, 1000);
	assert_int_equal(config.sandbox.limits.pids, 1024);
	assert_int_equal(config.sandbox.limits.disk_bytes, 1ULL << 30);
	init();
	assert_int_equal(parse("sandbox: {memory_limit: 512M}\n", &e), 0);
	assert_int_equal(config_finish(&config, &e), 0);
	assert_int_equal(config.sandbox.limits.disk_bytes, 256ULL << 20);
	assert_int_equal(config.sandbox.ttl_ms, 300000);
	assert_int_equal(config.pool_size, 4);
	assert_int_equal(config.warm.lanes, 4);
	assert_string_equal(config.sandbox.image, "host");
	assert_string_equal(config.sandbox.work_dir, "/workspace");
	assert_int_equal(config.sandbox.network_enabled, CONFIG_UNSET);
	assert_int_equal(config.listen_count, 2);
	assert_string_equal(config.listen[0], "127.0.0.1:7070");
	assert_string_equal(config.listen[1], "unix:/srv/run/cloche.sock");
	assert_string_equal(config.audit.file, "/srv/state/audit/audit.log");
}

static const char whole[] =
	"# comment\n"
	"listen: [ '127.0.0.1:0', 'unix:/x/y.sock', '[::1]:80' ]\n"
	"state_dir: /a//b/\n"
	"runtime_dir: /r\n"
	"max_sandboxes: 7\n"
	"max_sandboxes_per_token: 3\n"
	"pool_size: 0\n"
	"boot_retries: 5\n"
	"output_budget: 9M\n"
	"log_bytes: 2M\n"
	"shutdown_timeout: 3s\n"
	"sandbox: {image: py, work_dir: /w, memory_limit: 512m, cpu_limit: 1.5, timeout: 300s,\n"
	"  network_enabled: false, pids_limit: 50, disk_limit: 64M, open_files: 64, file_size: "
	"1M,\n"
	"  output_limit: 64K, ttl: 10m, idle_timeout: 1m}\n"
	"ceilings: {memory: 1G, cpus: 2, pids: 60, disk: 1G, timeout: 1h, open_files: 128,\n"
	"  output_limit: 1M, ttl: 1h, idle_timeout: 30m}\n"
	"rate_limits: {token_per_minute: 60, token_burst: 5, address_per_minute: 0,\n"
	"  address_burst: 1}\n"
	"http: {max_connections: 9, max_body: 1M, max_upload: 1G, allowed_hosts: a.example,\n"
	"  allowed_origins: ['https://a.example', 'https://b.example']}\n"
	"images: {py: /srv/images/py}\n"
	"volumes:\n"
	"  data: {path: /srv/data, read_only: false, tokens: [bot, k3m5]}\n"
	"  docs: {path: /srv/docs, tokens: '*'}\n"
	"  mine: {path: /srv/mine}\n"
	"snapshots: {max_bytes: 1G, max_count: 4, max_total: 8G}\n"
	"audit: {file: /l/a.log, key_file: /l/k, max_size: 1M, keep: 3, sync: true}\n"
	"warm: {slots: 2, kernels: 1, preload: [json, re]}\n"
	"e2b: {api_url: 'https://api.example/', sandbox_url: 'https://{port}-{id}.example',\n"
	"  key_file: /l/e, template: team/py, timeout: 1m}\n";

static void check_whole(const struct config *c)
{
	assert_int_equal(c->listen_count, 3);
	assert_string_equal(c->listen[2], "[::1]:80");
	assert_string_equal(c->sandbox.image, "py");
	assert_int_equal(c->sandbox.limits.memory_bytes, 512ULL << 20);
	assert_int_equal(c->sandbox.limits.cpus_milli, 1500);
	assert_int_equal(c->sandbox.limits.timeout_ms, 300000);
	assert_int_equal(c->sandbox.idle_ms, 60000);
	assert_int_equal(c->ceiling.pids, 60);
	assert_int_equal(c->max_ttl_ms, 3600000);
	assert_int_equal(c->max_sandboxes, 7);
	assert_int_equal(c->max_sandboxes_per_token, 3);
	assert_int_equal(c->output_budget, 9ULL << 20);
	assert_int_equal(c->shutdown_ms, 3000);
	assert_int_equal(c->rate_token.burst, 5);
	assert_int_equal(c->rate_address.per_minute, 0);
	assert_int_equal(c->max_connections, 9);
	assert_int_equal(c->host_count, 1);
	assert_string_equal(c->origins[1], "https://b.example");
	assert_int_equal(c->snapshot_max_count, 4);
	assert_true(c->audit.sync);
	assert_int_equal(c->audit.keep, 3);
	assert_string_equal(c->warm.preload[1], "re");
	assert_string_equal(c->e2b.api_url, "https://api.example");
	assert_string_equal(c->e2b.sandbox_url, "https://{port}-{id}.example");
	assert_string_equal(c->e2b.template, "team/py");
	assert_int_equal(c->e2b.timeout_ms, 60000);
	assert_string_equal(config_image_find(c, "py")->path, "/srv/images/py");
	assert_null(config_image_find(c, "nope"));
}

static void test_every_key(void **state)
{
	struct err e = {0};

	(void)state;
	init();
	if (parse(whole, &e) < 0 || config_finish(&config, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(config.state_dir, "/srv/state"); /* the environment comes first */
	check_whole(&config);
	unsetenv("CLOCHE_STATE_DIR");
	config_init(&config);
	if (parse(whole, &e) < 0 || config_finish(&config, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(config.state_dir, "/a/b");
}

static void test_volumes_have_owners(void **state)
{
	struct err e = {0};
	const struct config_volume *data, *docs, *mine;

	(void)state;
	init();
	assert_int_equal(parse(whole, &e), 0);
	data = config_volume_find(&config, "data");
	docs = config_volume_find(&config, "docs");
	mine = config_volume_find(&config, "mine");
	assert_null(config_volume_find(&config, "other"));
	assert_false(data->read_only);
	assert_true(docs->read_only);
	assert_true(config_volume_allows(data, "k3m5", "x"));
	assert_true(config_volume_allows(data, "abc", "bot"));
	assert_false(config_volume_allows(data, "abc", "x"));
	assert_false(config_volume_allows(data, "abc", ""));
	assert_true(config_volume_allows(docs, "abc", "x"));
	assert_false(config_volume_allows(mine, "abc", "x"));
	assert_true(config_volume_allows(mine, "", ""));
}

static void test_hand_over(void **state)
{
	struct err e = {0};
	auto_close int fd = -1;

	(void)state;
	init();
	assert_int_equal(parse(whole, &e), 0);
	fd = config_write(&config, &e);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), -1); /* sealed */
	memset(&other, 0xff, sizeof(other));
	assert_int_equal(config_read(fd, &other, &e), 0);
	assert_memory_equal(&config, &other, sizeof(config));
}

static void test_hand_over_of_nonsense(void **state)
{
	struct err e = {0};
	auto_close int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)state;
	assert_int_equal(config_read(fd, &other, &e), -1);
	assert_non_null(strstr(e.msg, "version"));
}

struct bad_case {
	const char *text, *message;
};

static void test_refused_while_reading(void **state)
{
	static const struct bad_case cases[] = {
		{"a: 1\n", "c.yaml:1: unknown key 'a'; cloche.conf(5) lists the known ones"},
		{"listn: x\n", "c.yaml:1: unknown key 'listn'; did you mean 'listen'?"},
		{"\nsandbox:\n  memory: 1G\n",
		 "c.yaml:3: unknown key 'sandbox.memory'; did you mean 'ceilings.memory'?"},
		{"sandbox:\n  memry_limit: 1G\n", "c.yaml:2: unknown key 'sandbox.memry_limit'; "
						  "did you mean 'sandbox.memory_limit'?"},
		{"memory_limit: 1G\n",
		 "c.yaml:1: unknown key 'memory_limit'; did you mean 'sandbox.memory_limit'?"},
		{"sandbox: {memory_limit: 12Q}\n",
		 "c.yaml:1: sandbox.memory_limit: '12Q' is not a size; try 512M"},
		{"sandbox: {memory_limit: 1}\n",
		 "c.yaml:1: sandbox.memory_limit: '1' is too small"},
		{"pool_size: 5000\n", "c.yaml:1: pool_size: '5000' is too large"},
		{"pool_size: -1\n", "c.yaml:1: pool_size: '-1' is not a whole number"},
		{"pool_size: [1]\n", "c.yaml:1: pool_size: must be a single value, not a list"},
		{"pool_size:\n", "c.yaml:1: pool_size: must be a single value, not nothing"},
		{"pool_size: 1\npool_size: 2\n", "c.yaml:2: pool_size: is given twice"},
		{"sandbox: {ttl: 5}\nsandbox: {ttl: 6}\n", "c.yaml:2: sandbox: is given twice"},
		{"sandbox: 5\n", "c.yaml:1: sandbox: must be a mapping, not a single value"},
		{"audit: {sync: yes}\n", "c.yaml:1: audit.sync: 'yes' is neither true nor false"},
		{"state_dir: x\n",
		 "c.yaml:1: state_dir: 'x' must be an absolute path without '..'"},
		{"state_dir: /x/../y\n",
		 "c.yaml:1: state_dir: '/x/../y' must be an absolute path without '..'"},
		{"images: {host: /x}\n", "c.yaml:1: images: 'host' is the host's own programs; "
					 "take another name"},
		{"images: {a: /x, a: /y}\n", "c.yaml:1: images: 'a' is given twice"},
		{"images: {a/b: /x}\n",
		 "c.yaml:1: images: 'a/b' is not a name: letters, digits, dot, dash"},
		{"images: [a]\n", "c.yaml:1: images: must be a mapping of names, not a list"},
		{"volumes: {a: {}}\n", "c.yaml:1: volumes: 'a' needs a path"},
		{"volumes: {a: /x}\n", "c.yaml:1: volumes: must be a mapping with path, read_only, "
				       "tokens, not a single value"},
		{"volumes: {a: {path: x}}\n",
		 "c.yaml:1: volumes.path: 'x' must be an absolute path without '..'"},
		{"http: {allowed_hosts: {a: b}}\n",
		 "c.yaml:1: http.allowed_hosts: must be a list, not a mapping"},
		{"warm: {slots: 1, slots: 2}\n", "c.yaml:1: warm.slots: is given twice"},
		{"volumes: {a: {path: /x, mode: rw}}\n",
		 "c.yaml:1: volumes: wants each of path, read_only and tokens once"},
		{"volumes: {a: {path: /x, path: /y}}\n",
		 "c.yaml:1: volumes: wants each of path, read_only and tokens once"},
		{"[a]\n", "c.yaml:1: a configuration is a mapping of keys, not a list"},
		{"{}\n---\n{}\n", "c.yaml:2: a configuration is one document; remove the second"},
		{"pool_size: &b 1\n", "c.yaml:1: anchors, aliases and tags are not used here"},
		{"listen: [1,2,3,4,5,6,7,8,9]\n", "c.yaml:1: listen: more than 8"},
		{"listen: [[1]]\n",
		 "c.yaml:1: listen: must be a list of single values, not a list"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = {0};

		init();
		other = config;
		assert_int_equal(parse(cases[i].text, &e), -1);
		assert_string_equal(e.msg, cases[i].message);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_true(!e.field[0] || strstr(e.msg, e.field));
		assert_memory_equal(&config, &other, sizeof(config)); /* nothing half-taken */
	}
}

static void test_refused_as_a_whole(void **state)
{
	static const struct bad_case cases[] = {
		{"listen: 'example.com:80'\n",
		 "listen: 'example.com': not an IP address; names are not looked up"},
		{"listen: '127.0.0.1'\n",
		 "listen: '127.0.0.1' is no address; try 127.0.0.1:7070 or unix:/PATH"},
		{"listen: '127.0.0.1:65536'\n",
		 "listen: '127.0.0.1:65536': the port must be 0 to 65535"},
		{"listen: 'unix:x'\n", "listen: 'unix:x': a socket needs an absolute path of at "
				       "most 107 bytes"},
		{"sandbox: {memory_limit: 100G}\n",
		 "sandbox.memory_limit: is above ceilings.memory"},
		{"sandbox: {memory_limit: 512M, disk_limit: 1G}\n",
		 "sandbox.disk_limit: more than memory_limit, which holds what is written"},
		{"sandbox: {ttl: 48h}\n", "sandbox.ttl: is above ceilings.ttl"},
		{"sandbox: {image: py}\n", "sandbox.image: 'py' is not among images"},
		{"e2b: {key_file: /k}\n", "e2b: needs api_url"},
		{"e2b: {api_url: 'https://x'}\n", "e2b: needs key_file"},
		{"e2b: {api_url: 'ftp://x', key_file: /k}\n", "e2b.api_url: 'ftp://x' is no URL"},
		{"e2b: {api_url: 'https://u@x', key_file: /k}\n",
		 "e2b.api_url: 'https://u@x' is no URL"},
		{"e2b: {api_url: 'http://x', key_file: /k}\n",
		 "e2b.api_url: the key would travel in the clear; take https"},
		{"e2b: {api_url: 'http://localhost.x', key_file: /k}\n",
		 "e2b.api_url: the key would travel in the clear; take https"},
		{"e2b: {api_url: 'https://x', sandbox_url: 'http://y', key_file: /k}\n",
		 "e2b.sandbox_url: the key would travel in the clear; take https"},
		{"network: {mode: some}\n",
		 "network.mode: 'some' is not one of none, allow, public"},
		{"network: {allow: ['ex ample']}\n",
		 "network.allow: 'ample' is neither methods (GET,POST), nor a /path, nor inspect, "
		 "no-sni or txt"},
		{"network: {dns: [example.com]}\n",
		 "network.dns: 'example.com' is no address; try 1.1.1.1 or [::1]:5353"},
		{"network: {proxy: ftp://x}\n", "network.proxy: 'ftp://x' is not http://HOST:PORT"},
		{"network: {proxy_auth_file: /x}\n",
		 "network.proxy_auth_file: needs network.proxy"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = {0};

		init();
		assert_int_equal(parse(cases[i].text, &e), 0);
		assert_int_equal(config_finish(&config, &e), -1);
		assert_string_equal(e.msg, cases[i].message);
	}
}

static void test_empty_files_change_nothing(void **state)
{
	static const char *const texts[] = {"", "# only a comment\n", "{}\n"};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		init();
		other = config;
		assert_int_equal(parse(texts[i], &e), 0);
		assert_memory_equal(&config, &other, sizeof(config));
	}
}

static void test_missing_file(void **state)
{
	struct err e = {0};

	(void)state;
	init();
	assert_int_equal(config_load("/nonexistent/c.yaml", &config, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(config_load("/dev/null", &config, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
}

/* The shipped example, as it is and with every key uncommented, means the defaults. */
static void test_example_file(void **state)
{
	auto_free char *text = calloc(1, 1 << 16), *bare = calloc(1, 1 << 16);
	FILE *f = fopen("deploy/cloche.conf.yaml", "re");
	char line[512], *to = bare;
	struct err e = {0};

	(void)state;
	if (!f)
		skip();
	while (fgets(line, sizeof(line), f)) {
		bool is_key = line[0] == '#' && line[1] != ' ' && line[1] != '\n';
		bool is_nested = line[0] == '#' && line[1] == ' ' && line[2] == ' ';

		strcat(text, line);
		if (is_key || is_nested)
			to += sprintf(to, "%s", line + 1);
	}
	fclose(f);
	init();
	assert_int_equal(parse(text, &e), 0);
	if (parse(bare, &e) < 0)
		fail_msg("%s", e.msg);
	config_init(&other);
	other.sandbox.limits.disk_bytes = other.sandbox.limits.memory_bytes / 2;
	assert_memory_equal(&config.sandbox, &other.sandbox, sizeof(other.sandbox));
	assert_memory_equal(&config.ceiling, &other.ceiling, sizeof(other.ceiling));
	assert_int_equal(config.max_ttl_ms, other.max_ttl_ms);
	assert_int_equal(config.max_sandboxes, other.max_sandboxes);
	assert_int_equal(config.pool_size, other.pool_size);
	assert_int_equal(config.rate_token.burst, other.rate_token.burst);
	assert_int_equal(config.max_body_bytes, other.max_body_bytes);
	assert_int_equal(config.snapshot_max_bytes, other.snapshot_max_bytes);
	assert_int_equal(config.audit.max_bytes, other.audit.max_bytes);
	assert_int_equal(config.warm.kernels, other.warm.kernels);
	assert_int_equal(config.volume_count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_every_key),
		cmocka_unit_test(test_volumes_have_owners),
		cmocka_unit_test(test_hand_over),
		cmocka_unit_test(test_hand_over_of_nonsense),
		cmocka_unit_test(test_refused_while_reading),
		cmocka_unit_test(test_refused_as_a_whole),
		cmocka_unit_test(test_empty_files_change_nothing),
		cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_example_file),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
