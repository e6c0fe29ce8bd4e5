/* Sandboxes of the daemon: create, list, watch, freeze and destroy them. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "model/spec.h"

#include <poll.h>

/* ---- create ---- */

/* Options of the sandbox itself: names of fields of model/spec.c. */
static const char *const spec_names[] = {
	"memory",    "cpus",	     "pids",	 "disk",     "cpu_time", "image",
	"root",	     "user",	     "level",	 "timeout",  "hostname", "open_files",
	"file_size", "output_limit", "guard",	 "provider", "tmpfs",	 "net",
	"allow",     "deny",	     "net_rate", "net_tx",   "net_rx",	 "net_connections",
	"net_names", "net_requests", "disk_type"};

/* The others. */
static const struct verb_option create_options[] = {
	{"name", 0, "NAME", "a name to call it by", NULL},
	{"ttl", 0, "TIME", "it ends after so long (300s)", NULL},
	{"idle-timeout", 0, "TIME", "it ends after so long without use", NULL},
	{"on-timeout", 0, "kill|pause", "what happens then (kill)", NULL},
	{"auto-resume", 0, NULL, "a paused one goes on when it is used", NULL},
	{"agent", 0, "NAME", "the registered agent that runs in it", NULL},
	{"snapshot", 0, "ID", "start from a snapshot, by id or name", NULL},
	{"env", 'e', "K=V", "environment of every command; often", NULL},
	{"metadata", 0, "K=V", "to find it by; often", NULL},
	{"publish", 'p', "[ADDR:]PORT:PORT", "a port of the host that leads into it; often", NULL},
	{"service", 0, "LINE", "a command that is started with it, and again when it ends; often",
	 NULL},
	{"secret", 0, "NAME", "a stored secret that its programs use and never see; often", NULL},
	{"volume", 'v', "NAME:PATH[:rw]", "a volume, one's own or the operator's; often", NULL},
	{"require", 0, "LAYER", "refuse without this layer; often", NULL},
	{"optional", 0, "LAYER", "go on without it; often", NULL},
	{"json", 0, NULL, "print the whole object, not just the id", NULL},
};

/* Help for options that differ from `cloche run`. The defaults are those of policy/config.c. */
static const char *daemon_help(const struct field *f)
{
	static const struct {
		const char *name, *help;
	} rows[] = {
		{"memory", "memory of the whole sandbox, swap off (2G)"},
		{"pids", "processes and threads at one time (1024)"},
		{"disk", "all that it writes, but to volumes (1G)"},
		{"disk_type",
		 "where that is kept: memory (default), or disk: it outlives a reboot"},
		{"image", "host (default), or the name of an image of the operator's"},
		{"root", "overlay (default): the root can be written; or ro"},
		{"level", "container; others are refused"},
		{"timeout", "wall time of a command (60s)"},
		{"net_names", "distinct names that it may look up"},
		{"guard", "of Python code that is sent to it: off (default), imports, strict"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(rows[i].name, f->name))
			return rows[i].help;
	return f->help;
}

/* NAME[/SUB]:PATH[:rw|ro] */
static int put_volumes(json_t *body, const struct list *volumes, struct err *e)
{
	json_t *array = volumes->count ? json_array() : NULL;

	if (array)
		json_object_set_new(body, "volumes", array);
	for (size_t i = 0; i < volumes->count; i++) {
		auto_free char *copy = str_copy(volumes->items[i]);
		char *save = NULL, *name = strtok_r(copy, ":", &save),
		     *target = strtok_r(NULL, ":", &save), *mode = strtok_r(NULL, ":", &save);
		char *slash = name ? strchr(name, '/') : NULL;
		json_t *item;

		if (!target || (mode && !str_equal(mode, "rw") && !str_equal(mode, "ro")))
			return err_field(e, ERR_INVALID, "volume",
					 "volume: '%s' is not NAME:PATH[:rw]", volumes->items[i]);
		if (slash)
			*slash = '\0';
		item = json_pack("{s:s, s:s, s:b}", "name", name, "path", target, "writable",
				 mode && str_equal(mode, "rw"));
		if (!item ||
		    (slash && json_object_set_new(item, "sub", json_string(slash + 1)) < 0)) {
			json_decref(item);
			return err_field(e, ERR_INVALID, "volume", "volume: is not UTF-8");
		}
		json_array_append_new(array, item);
	}
	return 0;
}

static bool is_list(const char *key)
{
	const struct field *f = spec_field_find(key);

	return (f && f->type == FIELD_LIST) || str_equal(key, "publish");
}

/* Members of the body have the names of the options, with _ for -. */
static int create_body(const struct verb_call *v, json_t *body, struct err *e)
{
	static const char *const lists[] = {"env", "metadata", "volume", "secret", "service"};
	static const char *const plural[][2] = {{"secret", "secrets"}, {"service", "services"}};

	for (size_t i = 0; i < v->verb->option_count; i++) {
		const struct verb_option *o = &v->verb->options[i];
		const char *value = verb_text(v, o->name);
		auto_free char *key = str_copy(o->name);

		if (!value || str_equal(key, "json") || cli_is_one_of(key, lists, ARRAY_LEN(lists)))
			continue;
		for (char *p = key; *p; p++)
			*p = *p == '-' ? '_' : *p;
		/* Some may be given more than once. */
		if (client_put(body, key,
			       !o->metavar    ? json_true()
			       : is_list(key) ? client_list(&v->values[i])
					      : json_string(value),
			       e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_LEN(plural); i++)
		if (verb_texts(v, plural[i][0])->count &&
		    client_put(body, plural[i][1], client_list(verb_texts(v, plural[i][0])), e) < 0)
			return -1;
	return client_put_pairs(body, "env", verb_texts(v, "env"), e) < 0 ||
			       client_put_pairs(body, "metadata", verb_texts(v, "metadata"), e) <
				       0 ||
			       put_volumes(body, verb_texts(v, "volume"), e) < 0
		       ? -1
		       : 0;
}

static int create_verb(struct verb_call *v, struct err *e)
{
	json_t *body = json_object(), *made;

	if (create_body(v, body, e) < 0) {
		json_decref(body);
		return -1;
	}
	return client_call(&v->client, "POST", "/v1/sandboxes", body, &made, e) < 0
		       ? -1
		       : verb_show_id(v, made);
}

int cmd_create(int argc, char **argv)
{
	struct verb_option options[ARRAY_LEN(create_options) + ARRAY_LEN(spec_names)];
	char names[ARRAY_LEN(spec_names)][32];
	struct verb verb = {.line = "cloche create [OPTIONS]",
			    .about = "Makes a sandbox that lives on, and prints its id.",
			    .run = create_verb,
			    .options = options};

	for (size_t i = 0; i < ARRAY_LEN(create_options); i++)
		options[verb.option_count++] = create_options[i];
	for (size_t i = 0; i < ARRAY_LEN(spec_names); i++) {
		const struct field *f = spec_field_find(spec_names[i]);

		cli_option_name(f->name, names[i], sizeof(names[i]));
		options[verb.option_count++] =
			(struct verb_option){names[i], f->letter, f->metavar, daemon_help(f), NULL};
	}
	return verb_main(&verb, argc, argv);
}

/* ---- ps ---- */

static const struct verb_option ps_options[] = {
	{"state", 0, "STATE", "only those in this state", NULL},
	{"metadata", 0, "K=V", "only those with it; often", NULL},
	{"all", 'a', NULL, "also those that have ended", NULL},
	{"quiet", 'q', NULL, "ids only", NULL},
	{"json", 0, NULL, "an array of objects", NULL},
};

static const struct column sandbox_columns[] = {
	{"ID", "id", COLUMN_TEXT},
	{"NAME", "name", COLUMN_TEXT},
	{"STATE", "state", COLUMN_TEXT},
	{"IMAGE", "image", COLUMN_TEXT},
	{"MEMORY", "limits.memory", COLUMN_BYTES},
	{"AGE", "created_at", COLUMN_AGE},
	{"EXPIRES", "expires_at", COLUMN_TEXT},
};

static const struct column exec_columns[] = {
	{"EXEC", "id", COLUMN_TEXT},
	{"PID", "pid", COLUMN_TEXT},
	{"STATE", "state|status", COLUMN_TEXT},
	{"EXIT", "exit_code", COLUMN_TEXT},
	{"TAG", "tag", COLUMN_TEXT},
	{"COMMAND", "cmd", COLUMN_TEXT},
};

/* `ps` with an argument. */
static const struct verb ps_execs = {
	.run = verb_list, .request = "GET /execs", .member = "execs", COLUMNS(exec_columns)};

static char *ps_filter(const struct verb_call *v)
{
	const struct list *metadata = verb_texts(v, "metadata");
	char *filter = str_copy("");

	for (size_t i = 0; i <= metadata->count; i++) {
		bool is_last = i == metadata->count;
		const char *value = is_last ? verb_text(v, "state") : metadata->items[i];
		char text[512], *longer;

		if (!value)
			continue;
		http_encode(text, sizeof(text), value, false);
		longer = str_format("%s&%s=%s", filter, is_last ? "state" : "metadata", text);
		free(filter);
		filter = longer;
	}
	return filter;
}

static int ps(struct verb_call *v, struct err *e)
{
	auto_free char *filter = ps_filter(v);
	json_t *all, *item;
	size_t i;

	if (v->count) {
		v->verb = &ps_execs;
		return verb_list(v, e);
	}
	all = client_sandboxes(&v->client, filter, verb_text(v, "all") || verb_text(v, "state"), e);
	if (!all || v->json || !verb_text(v, "quiet"))
		return all ? verb_show(v, all) : -1;
	json_array_foreach (all, i, item)
		puts(text_at(item, "id"));
	json_decref(all);
	return finish_stdout(0);
}

const struct verb verb_ps = {
	.line = "cloche ps [OPTIONS] [ID]",
	.about = "Lists the sandboxes, or the commands in one of them.",
	.run = ps,
	OPTIONS(ps_options),
	ARGS(0, 1),
	COLUMNS(sandbox_columns),
};

/* ---- rm, kill ---- */

/* With --json prints what was done, even if a part failed. Frees done. */
static int done_status(const struct verb_call *v, json_t *done, int status)
{
	int printed = 0;

	if (v->json)
		printed = print_json(done);
	else
		json_decref(done);
	return status ? status : printed;
}

/* Removes the files at ID:PATH, or destroys sandbox ID. Adds the argument to the array done. */
static int remove_arg(struct client *c, const char *what, bool recursive, json_t *done,
		      struct err *e)
{
	const char *colon = strchr(what, ':');
	auto_free char *box = str_format("%.*s", (int)strcspn(what, ":"), what), *path = NULL,
		       *whole = NULL;
	char id[64], encoded[3 * PATH_MAX + 8];

	/* A path that is cut off would name another file. */
	if (colon && strlen(colon + 1) >= PATH_MAX)
		return err_set(e, ERR_INVALID, "the path is too long");
	if (client_find(c, box, id, sizeof(id), e) < 0)
		return -1;
	http_encode(encoded, sizeof(encoded), colon ? colon + 1 : "", true);
	path = client_path(id, "%s%s%s", colon ? "/files?path=" : "", encoded,
			   colon && recursive ? "&recursive=1" : "");
	if (client_call(c, "DELETE", path, NULL, NULL, e) < 0)
		return -1;
	whole = str_format("%s%s", id, colon ? colon : "");
	json_array_append_new(done, client_text(whole));
	return 0;
}

static int rm(struct verb_call *v, struct err *e)
{
	json_t *answer = NULL, *removed;
	int status = 0;

	if (!v->count && !verb_text(v, "all"))
		return verb_misused(v, e);
	if (verb_text(v, "all") &&
	    client_call(&v->client, "DELETE", "/v1/sandboxes", NULL, &answer, e) < 0)
		status = cli_fail(e);
	if (!answer)
		answer = json_object();
	removed = json_array();
	for (int i = 0; i < v->count; i++)
		if (remove_arg(&v->client, v->args[i], verb_text(v, "recursive") != NULL, removed,
			       e) < 0)
			status = cli_fail(e);
	json_object_set_new(answer, "removed", removed);
	return done_status(v, answer, status);
}

static const struct verb_option rm_options[] = {
	{"all", 'a', NULL, "all sandboxes that are yours", NULL},
	{"recursive", 'r', NULL, "directories and what is in them", NULL},
	{"json", 0, NULL, "an object: removed; with -a how many it destroyed", NULL},
};

const struct verb verb_rm = {
	.line = "cloche rm [-a] [-r] [--json] ID|ID:PATH...",
	.about = "Destroys sandboxes, or removes files in them.",
	.run = rm,
	OPTIONS(rm_options),
	ARGS(0, VERB_MANY),
};

/* answer: has the signal, and an array to which each signalled command is added. */
static int signal_execs(struct verb_call *v, json_t *answer, struct err *e)
{
	for (char **exec = v->args + 1; *exec; exec++) {
		json_t *body = json_pack("{s:O}", "signal", json_object_get(answer, "signal"));
		auto_free char *request = NULL;
		char encoded[64];

		http_encode(encoded, sizeof(encoded), *exec, false);
		request = str_format("POST /execs/%s/signal", encoded);
		if (client_ask(&v->client, request, v->args[0], body, NULL, e) < 0)
			return -1;
		json_array_append_new(json_object_get(answer, "signalled"), client_text(*exec));
	}
	return 0;
}

static int kill_verb(struct verb_call *v, struct err *e)
{
	json_t *answer;
	int rc;

	if (v->count == 1) {
		answer = json_pack("{s:[]}", "removed");
		rc = remove_arg(&v->client, v->args[0], false, json_object_get(answer, "removed"),
				e);
	} else {
		answer = json_pack("{s:o, s:[]}", "signal", client_text(verb_text(v, "signal")),
				   "signalled");
		rc = signal_execs(v, answer, e);
	}
	return done_status(v, answer, rc < 0 ? cli_fail(e) : 0);
}

static const struct verb_option kill_options[] = {
	{"signal", 's', "NAME", "for commands (KILL)", "KILL"},
	{"json", 0, NULL, "an object: signalled and signal, or removed", NULL},
};

const struct verb verb_kill = {
	.line = "cloche kill [-s SIGNAL] [--json] ID [EXEC...]",
	.about = "Sends a signal to commands in a sandbox; without any, destroys "
		 "the sandbox at once.",
	.run = kill_verb,
	OPTIONS(kill_options),
	ARGS(1, 1000),
};

/* ---- pause, resume ---- */

static const struct verb_option state_options[] = {
	{"json", 0, NULL, "print an array of the sandboxes", NULL},
};

const struct verb verb_pause = {
	.line = "cloche pause ID...",
	.about = "Freezes sandboxes.",
	.run = verb_each,
	.request = "POST /pause",
	OPTIONS(state_options),
	ARGS(1, VERB_MANY),
};

const struct verb verb_resume = {
	.line = "cloche resume ID...",
	.about = "Lets frozen sandboxes go on.",
	.run = verb_each,
	.request = "POST /resume",
	OPTIONS(state_options),
	ARGS(1, VERB_MANY),
};

/* ---- stats ---- */

static const struct column stats_columns[] = {
	{"ID", "id", COLUMN_TEXT},
	{"NAME", "name", COLUMN_TEXT},
	{"STATE", "state", COLUMN_TEXT},
	{"CPU", "cpu_percent", COLUMN_PERCENT},
	{"MEMORY", "memory_bytes", COLUMN_USAGE},
	{"PIDS", "pids", COLUMN_TEXT},
	{"DISK", "disk_bytes", COLUMN_BYTES},
	{"READ", "io_read_bytes", COLUMN_BYTES},
	{"WRITTEN", "io_write_bytes", COLUMN_BYTES},
};

/* The usage of all sandboxes, or of the named ones. NULL with an error if one is not there. */
static json_t *fetch_stats(struct verb_call *v, struct err *e)
{
	json_auto_t *all = json_array();

	if (v->count == 0) {
		json_auto_t *answer = NULL;

		if (client_call(&v->client, "GET", "/v1/stats", NULL, &answer, e) < 0)
			return NULL;
		json_array_extend(all, json_object_get(answer, "sandboxes"));
	}
	for (int i = 0; i < v->count; i++) {
		json_t *answer;
		char id[64];

		if (client_find(&v->client, v->args[i], id, sizeof(id), e) < 0 ||
		    client_ask(&v->client, "GET /stats", id, NULL, &answer, e) < 0)
			return NULL;
		json_object_del(answer, "history");
		if (!text_at(answer, "id"))
			json_object_set_new(answer, "id", json_string(id));
		json_array_append_new(all, answer);
	}
	return json_incref(all);
}

static int stats(struct verb_call *v, struct err *e)
{
	bool live = !verb_text(v, "no-stream") && !v->json && isatty(STDOUT_FILENO);
	json_t *all;

	do {
		all = fetch_stats(v, e);
		if (!all)
			return -1;
		if (!live)
			return verb_show(v, all);
		/* Moves home and clears below: flickers less than clearing the screen first. */
		fputs("\033[H\033[J", stdout);
		table_print(all, stats_columns, ARRAY_LEN(stats_columns));
		json_decref(all);
		fflush(stdout);
		poll(NULL, 0, 1000);
	} while (!ferror(stdout));
	return finish_stdout(0);
}

static const struct verb_option stats_options[] = {
	{"no-stream", 0, NULL, "once, also on a terminal", NULL},
	{"json", 0, NULL, "once, an array of objects", NULL},
};

const struct verb verb_stats = {
	.line = "cloche stats [OPTIONS] [ID...]",
	.about = "What sandboxes use; on a terminal again every second.",
	.run = stats,
	OPTIONS(stats_options),
	ARGS(0, VERB_MANY),
	COLUMNS(stats_columns),
};
