/*
 * `cloche bench`: times Python's print(42) and /bin/true in each way that this machine offers: without a
 * sandbox, in a new sandbox, in a sandbox that a daemon has ready, under bubblewrap and under Docker if
 * those are installed. The contestants take turns, so that other load on the machine hits all of them
 * alike. The daemon is an ephemeral one.
 */
#include "cli/operator/cloched.h"

#include "base/exec_path.h"
#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "cli/operator/mcp_daemon_cmd.h"

#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>

extern char **environ;

#define ROUNDS_MAX 10000
#define WARMUP 3
#define DEADLINE_NS 20000000000LL

enum group { PYTHON, COMMAND, GROUPS };

static const char *const titles[] = {"python3 -c 'print(42)'", "/bin/true"};

struct contestant {
	enum group group;
	const char *name;
	const char *body; /* POST /v1/run; or: */
	struct list argv;
	int every; /* takes part in each every-th round */
	const char *failed;
	double *samples; /* milliseconds */
	size_t count;
};

struct bench {
	uint64_t rounds;
	struct contestant all[16];
	size_t count;
	struct ephemeral_daemon daemon;
	struct http_client *http;
	char why_cold[200]; /* why the daemon has nothing ready, or "" */
	char launcher[PATH_MAX];
	const char *python;
};

/* ---- one run ---- */

static int spawn_once(char **argv)
{
	posix_spawn_file_actions_t quiet;
	int status = -1, rc;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (rc == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	return rc == 0 ? status : -1;
}

/* Writes the record to ret. -1: there is none. */
static int ask_daemon(struct bench *b, const char *body, char *ret, size_t size)
{
	const struct http_request r = {.method = "POST",
				       .path = "/v1/run",
				       .content_type = "application/json",
				       .body = body,
				       .body_len = strlen(body)};
	struct http_response answer;
	struct err e;
	size_t len = 0;
	ssize_t n;

	if (http_send(b->http, &r, &e) < 0 || http_receive(b->http, &answer, &e) < 0)
		return -1;
	while ((n = http_read(b->http, ret + len, size - 1 - len, &e)) > 0)
		len += (size_t)n;
	ret[len] = '\0';
	return n < 0 || answer.status != 200 ? -1 : 0;
}

static const char *run_once(struct bench *b, struct contestant *c)
{
	char record[16384];

	if (!c->body)
		return spawn_once(c->argv.items) == 0 ? NULL : "it fails here";
	if (ask_daemon(b, c->body, record, sizeof(record)) < 0 ||
	    !strstr(record, "\"exit_code\":0"))
		return "the daemon's answer is not right";
	return NULL;
}

static void take_turns(struct bench *b)
{
	for (int64_t round = -WARMUP; round < (int64_t)b->rounds; round++) {
		for (size_t i = 0; i < b->count; i++) {
			struct contestant *c = &b->all[i];
			int64_t begun;

			if (c->failed || round % c->every)
				continue;
			begun = now_ns();
			c->failed = run_once(b, c);
			if (round >= 0 && !c->failed)
				c->samples[c->count++] = (double)(now_ns() - begun) / 1e6;
		}
		if (isatty(2) && round % 5 == 0)
			fprintf(stderr, "\r%3d %%",
				(int)((uint64_t)(round + WARMUP) * 100 / (b->rounds + WARMUP)));
	}
	if (isatty(2))
		fputs("\r     \r", stderr);
}

/* ---- who takes part ---- */

static struct contestant *add_contestant(struct bench *b, enum group group, const char *name)
{
	struct contestant *c = &b->all[b->count++];

	*c = (struct contestant){.group = group, .name = name, .every = 1};
	c->samples = must_alloc(calloc(b->rounds + 1, sizeof(*c->samples)));
	return c;
}

/* prefix: what runs the command, or NULL. */
static struct contestant *add_command(struct bench *b, enum group group, const char *name,
				      const char *const *prefix, const char *const *command)
{
	struct contestant *c = add_contestant(b, group, name);

	if (prefix)
		list_add_all(&c->argv, prefix);
	list_add_all(&c->argv, command);
	return c;
}

static bool is_installed(const char *program)
{
	const char *dirs = exec_path_of(environ), *path;
	char room[PATH_MAX];

	while ((path = exec_path_next(program, &dirs, room)))
		if (access(path, X_OK) == 0)
			return true;
	return false;
}

/* Uses an image that is there already; nothing is downloaded. */
static void add_docker(struct bench *b)
{
	static const char *const images[] = {"python:3-slim", "python:3", "python", "debian:12",
					     "debian",	      "ubuntu",	  "alpine", "busybox"};
	static const char *const commands[GROUPS][4] = {{"python3", "-c", "print(42)"}, {"true"}};

	for (size_t i = 0; is_installed("docker") && i < ARRAY_LEN(images); i++) {
		char *look[] = {"docker", "image", "inspect", (char *)images[i], NULL};
		const char *const prefix[] = {"docker", "run",	   "--rm", "--network",
					      "none",	images[i], NULL};
		enum group group = str_starts(images[i], "python") ? PYTHON : COMMAND;

		if (spawn_once(look) != 0)
			continue;
		add_command(b, group, "docker run", prefix, commands[group])->every = 10;
		return;
	}
}

static void add_all(struct bench *b)
{
	/* The same namespaces and a comparable root; no cgroup, seccomp filter or Landlock. */
	static const char *const bwrap[] = {"bwrap",	 "--unshare-all", "--die-with-parent",
					    "--ro-bind", "/usr",	  "/usr",
					    "--symlink", "usr/bin",	  "/bin",
					    "--symlink", "usr/lib",	  "/lib",
					    "--symlink", "usr/lib64",	  "/lib64",
					    "--proc",	 "/proc",	  "--dev",
					    "/dev",	 "--tmpfs",	  "/tmp",
					    NULL};
	const char *const commands[GROUPS][4] = {{b->python, "-c", "print(42)"}, {"/bin/true"}};
	const char *const own[GROUPS][7] = {
		{b->launcher, "code", "--no-daemon", "--empty", "-e", "print(42)"},
		{b->launcher, "run", "--no-daemon", "--empty", "--", "/bin/true"}};
	static const char *const bodies[] = {"{\"code\":\"print(42)\"}",
					     "{\"cmd\":[\"/bin/true\"]}"};

	for (int group = 0; group < GROUPS; group++) {
		add_command(b, group, "no sandbox", NULL, commands[group]);
		if (b->http)
			add_contestant(b, group,
				       b->why_cold[0] ? "cloche, daemon, cold"
						      : "cloche, daemon, warm")
				->body = bodies[group];
		add_command(b, group, group == PYTHON ? "cloche code" : "cloche run", NULL,
			    own[group]);
		if (is_installed("bwrap"))
			add_command(b, group, "bubblewrap", bwrap, commands[group]);
	}
	add_docker(b);
}

/* ---- the daemon ---- */

/* True: both kinds of run are warm. */
static bool is_warm(struct bench *b)
{
	static const char *const bodies[] = {"{\"code\":\"pass\"}", "{\"cmd\":[\"/bin/true\"]}"};
	char record[16384];
	const char *why;

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		if (ask_daemon(b, bodies[i], record, sizeof(record)) < 0) {
			snprintf(b->why_cold, sizeof(b->why_cold), "it does not answer");
			return false;
		}
		if (!strstr(record, "\"recycled\":[]"))
			continue;
		why = strstr(record, "Ran cold: ");
		snprintf(b->why_cold, sizeof(b->why_cold), "%.*s",
			 why ? (int)strcspn(why + 10, "\"") : 0, why ? why + 10 : "");
		return false;
	}
	b->why_cold[0] = '\0';
	return true;
}

static void start_daemon(struct bench *b)
{
	int64_t until = now_ns() + DEADLINE_NS;
	struct sandbox_spec s;
	struct err e = {0};

	spec_init(&s);
	if (ephemeral_daemon_start(&b->daemon, &s, &e) == 0)
		while (!b->http && now_ns() < until && !ephemeral_daemon_has_ended(&b->daemon)) {
			b->http = http_open(&b->daemon.target, &e);
			usleep(10000);
		}
	spec_done(&s);
	if (!b->http) {
		fprintf(stderr, "cloche: no daemon could be started: %s\n", e.msg);
		return;
	}
	while (!is_warm(b) && now_ns() < until)
		usleep(50000);
}

/* ---- what came out ---- */

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double percentile(const struct contestant *c, double part)
{
	size_t at = (size_t)(part * (double)c->count);

	return c->samples[at < c->count ? at : c->count - 1];
}

static const struct contestant *base_of(const struct bench *b, enum group group)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->all[i].group == group && str_equal(b->all[i].name, "no sandbox"))
			return b->all[i].count ? &b->all[i] : NULL;
	return NULL;
}

static void read_line_of(const char *file, const char *key, char *ret, size_t size)
{
	char text[8192];
	const char *at;

	io_read_at(AT_FDCWD, file, text, sizeof(text));
	at = strstr(text, key);
	at = at ? strchr(at, ':') : NULL;
	at = at ? at + 1 + strspn(at + 1, " \t") : "";
	snprintf(ret, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static json_t *describe_machine(void)
{
	char model[128], memory[64];
	struct utsname u;

	uname(&u);
	read_line_of("/proc/cpuinfo", "model name", model, sizeof(model));
	read_line_of("/proc/meminfo", "MemTotal", memory, sizeof(memory));
	return json_pack("{s:s, s:i, s:s, s:s}", "processor", *model ? model : u.machine, "cores",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "memory", memory, "linux", u.release);
}

static json_t *row_json(const struct bench *b, const struct contestant *c)
{
	const struct contestant *base = base_of(b, c->group);
	json_t *row;

	if (c->failed || !c->count)
		return json_pack("{s:s, s:s, s:s}", "what", titles[c->group], "how", c->name,
				 "failed", c->failed ? c->failed : "it did not run");
	row = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "what", titles[c->group], "how", c->name,
			"runs", (json_int_t)c->count, "min_ms", c->samples[0], "p50_ms",
			percentile(c, 0.5), "p99_ms", percentile(c, 0.99));
	if (base)
		json_object_set_new(row, "ratio",
				    json_real(percentile(c, 0.5) / percentile(base, 0.5)));
	return row;
}

/* GROUPS: of all groups. */
static json_t *group_json(const struct bench *b, enum group group)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < b->count; i++)
		if (group == GROUPS || b->all[i].group == group)
			json_array_append_new(rows, row_json(b, &b->all[i]));
	return rows;
}

static int print_bench_json(const struct bench *b)
{
	return print_json(json_pack("{s:o, s:o}", "machine", describe_machine(), "rows",
				    group_json(b, GROUPS)));
}

static int print_tables(const struct bench *b)
{
	static const struct column columns[] = {
		{"how", "how", COLUMN_TEXT},	      {"runs", "runs", COLUMN_TEXT},
		{"min ms", "min_ms", COLUMN_DECIMAL}, {"p50 ms", "p50_ms", COLUMN_DECIMAL},
		{"p99 ms", "p99_ms", COLUMN_DECIMAL}, {"ratio", "ratio|failed", COLUMN_DECIMAL},
	};
	json_auto_t *m = describe_machine();

	printf("%s, %d cores, %s, Linux %s; everything took turns\n", text_at(m, "processor"),
	       (int)number_at(m, "cores"), text_at(m, "memory"), text_at(m, "linux"));
	for (int group = 0; group < GROUPS; group++) {
		json_auto_t *rows = group_json(b, group);

		printf("\n%s\n", titles[group]);
		table_print(rows, columns, ARRAY_LEN(columns));
	}
	if (b->http && b->why_cold[0])
		printf("\nThe daemon had nothing ready: %s\n", b->why_cold);
	puts("\nwarm: POST /v1/run over the Unix socket, until the whole record is there.\n"
	     "bubblewrap has the same namespaces, but no cgroup, seccomp filter or Landlock.");
	return finish_stdout(0);
}

static void bench_done(struct bench *b)
{
	for (size_t i = 0; i < b->count; i++) {
		list_done(&b->all[i].argv);
		free(b->all[i].samples);
	}
	http_close(b->http);
	ephemeral_daemon_stop(&b->daemon);
}

static int bench(struct verb_call *v, struct err *e)
{
	static struct bench b = {.daemon.life = -1};
	int status;

	if (parse_count(verb_text(v, "rounds"), &b.rounds, e) < 0)
		return -1;
	if (b.rounds < 1 || b.rounds > ROUNDS_MAX)
		return err_field(e, ERR_INVALID, "rounds", "rounds: 1 to %d", ROUNDS_MAX);
	if (cli_find_helper("cloche", b.launcher, sizeof(b.launcher)) < 0)
		snprintf(b.launcher, sizeof(b.launcher), "cloche");
	b.python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
	start_daemon(&b);
	add_all(&b);
	take_turns(&b);
	for (size_t i = 0; i < b.count; i++)
		qsort(b.all[i].samples, b.all[i].count, sizeof(double), compare_times);
	status = v->json ? print_bench_json(&b) : print_tables(&b);
	bench_done(&b);
	return status;
}

static const struct verb_option options[] = {
	{"rounds", 'n', "N", "how often each takes its turn; 40", "40"},
	{"json", 0, NULL, "print JSON", NULL},
};

const struct verb verb_bench = {
	.line = "cloche bench [OPTIONS]",
	.about = "Times cloche on this machine, beside bubblewrap and docker "
		 "if they are installed. Takes some seconds.",
	.run = bench,
	OPTIONS(options),
	.is_local = true,
};
