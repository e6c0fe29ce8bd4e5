#include "cli/sandbox_cmd.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "model/spec.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- create ---- */

/* Options of the sandbox itself, by the names of the field table. */
static const char *const spec_names[] = {"memory",    "cpus",	      "pids",	  "disk",
					 "cpu_time",  "image",	      "root",	  "net",
					 "level",     "timeout",      "hostname", "open_files",
					 "file_size", "output_limit", "guard",	  "provider"};

struct create_wishes {
	const char *spec[ARRAY_LEN(spec_names)];
	char names[ARRAY_LEN(spec_names)][32];
	const char *name, *ttl, *idle, *on_timeout, *auto_resume, *snapshot, *json;
	struct list env, metadata, volumes, require, optional;
};

/* The daemon differs from `cloche run`; the defaults are those of policy/config.c. */
static const char *daemon_help(const struct field *f)
{
	static const struct {
		const char *name, *help;
	} rows[] = {
		{"memory", "memory of the whole sandbox, swap off (2G)"},
		{"pids", "processes and threads at one time (1024)"},
		{"disk", "all that it writes, but to volumes (1G)"},
		{"image", "host (default), or the name of an image of the operator's"},
		{"root", "overlay (default): the root can be written; or ro"},
		{"level", "container; others are refused"},
		{"timeout", "wall time of a command (60s)"},
		{"guard", "of Python code that is sent to it: off (default), imports, strict"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(rows[i].name, f->name))
			return rows[i].help;
	return f->help;
}

/* Fills options and returns how many. */
static size_t create_options_of(struct create_wishes *w, struct verb_option *options)
{
	const struct verb_option own[] = {
		{"name", 0, "NAME", "a name to call it by", &w->name, NULL},
		{"ttl", 0, "TIME", "it ends after so long (300s)", &w->ttl, NULL},
		{"idle-timeout", 0, "TIME", "it ends after so long without use", &w->idle, NULL},
		{"on-timeout", 0, "kill|pause", "what happens then (kill)", &w->on_timeout, NULL},
		{"auto-resume", 0, NULL, "a paused one goes on when it is used", &w->auto_resume,
		 NULL},
		{"snapshot", 0, "ID", "start from a snapshot, by id or name", &w->snapshot, NULL},
		{"env", 'e', "K=V", "environment of every command; often", NULL, &w->env},
		{"metadata", 0, "K=V", "to find it by; often", NULL, &w->metadata},
		{"volume", 'v', "NAME:PATH[:rw]", "a volume of the operator's; often", NULL,
		 &w->volumes},
		{"require", 0, "LAYER", "refuse without this layer; often", NULL, &w->require},
		{"optional", 0, "LAYER", "go on without it; often", NULL, &w->optional},
		{"json", 0, NULL, "print the whole object, not just the id", &w->json, NULL},
	};
	size_t n = 0;

	for (; n < ARRAY_LEN(own); n++)
		options[n] = own[n];
	for (size_t i = 0; i < ARRAY_LEN(spec_names); i++) {
		const struct field *f = spec_field_find(spec_names[i]);

		if (!f)
			continue;
		snprintf(w->names[i], sizeof(w->names[i]), "%s", f->name);
		for (char *p = w->names[i]; *p; p++)
			*p = *p == '_' ? '-' : *p;
		options[n++] = (struct verb_option){w->names[i],    f->letter,	 f->metavar,
						    daemon_help(f), &w->spec[i], NULL};
	}
	return n;
}

static int put_pairs(json_t *body, const char *key, const struct list *pairs, struct err *e)
{
	json_t *object = json_object();

	if (pairs->count)
		json_object_set_new(body, key, object);
	else
		json_decref(object);
	for (size_t i = 0; i < pairs->count; i++) {
		const char *equals = strchr(pairs->items[i], '=');
		auto_free char *name = NULL;
		const char *value = equals ? equals + 1 : getenv(pairs->items[i]);

		/* As for run: K alone copies the caller's. */
		if (!equals && (!value || !str_equal(key, "env")))
			return err_field(e, ERR_INVALID, key, "%s: '%s' is not K=V", key,
					 pairs->items[i]);
		name = str_format("%.*s", (int)strcspn(pairs->items[i], "="), pairs->items[i]);
		if (json_object_set_new(object, name, json_string(value)) < 0)
			return err_field(e, ERR_INVALID, key, "%s: '%s' is not UTF-8", key, name);
	}
	return 0;
}

/* NAME[/SUB]:PATH[:rw|ro] */
static int put_volumes(json_t *body, const struct list *volumes, struct err *e)
{
	json_t *array = json_array();

	if (volumes->count)
		json_object_set_new(body, "volumes", array);
	else
		json_decref(array);
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
		if (slash && item)
			json_object_set_new(item, "sub", json_string(slash + 1));
		json_array_append_new(array, item);
	}
	return 0;
}

static void put_text(json_t *body, const char *key, const char *value)
{
	if (value)
		json_object_set_new(body, key, json_string(value));
}

static void put_list(json_t *body, const char *key, const struct list *l)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l->count; i++)
		json_array_append_new(array, json_string(l->items[i]));
	if (l->count)
		json_object_set_new(body, key, array);
	else
		json_decref(array);
}

static int create_body(const struct create_wishes *w, json_t *body, struct err *e)
{
	put_text(body, "name", w->name);
	put_text(body, "ttl", w->ttl);
	put_text(body, "idle_timeout", w->idle);
	put_text(body, "on_timeout", w->on_timeout);
	put_text(body, "snapshot", w->snapshot);
	if (w->auto_resume)
		json_object_set_new(body, "auto_resume", json_true());
	for (size_t i = 0; i < ARRAY_LEN(spec_names); i++)
		put_text(body, spec_names[i], w->spec[i]);
	put_list(body, "require", &w->require);
	put_list(body, "optional", &w->optional);
	return put_pairs(body, "env", &w->env, e) < 0 ||
			       put_pairs(body, "metadata", &w->metadata, e) < 0 ||
			       put_volumes(body, &w->volumes, e) < 0
		       ? -1
		       : 0;
}

static void create_wishes_done(struct create_wishes *w)
{
	list_done(&w->env);
	list_done(&w->metadata);
	list_done(&w->volumes);
	list_done(&w->require);
	list_done(&w->optional);
}

int cmd_create(int argc, char **argv)
{
	struct create_wishes w = {0};
	struct verb_option options[12 + ARRAY_LEN(spec_names)];
	const struct verb_usage u = {"cloche create [OPTIONS]",
				     "Makes a sandbox that lives on, and prints its id.",
				     options,
				     create_options_of(&w, options),
				     0,
				     0};
	json_t *body = json_object(), *made = NULL;
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status;

	if (first < 0) {
		status = verb_stop(first, &e);
	} else if (create_body(&w, body, &e) < 0 || client_init(&c, &e) < 0 ||
		   client_call(&c, "POST", "/v1/sandboxes", json_incref(body), &made, &e) < 0) {
		status = cli_fail(&e);
	} else if (w.json) {
		status = print_json(made);
	} else {
		puts(text_at(made, "id") ? text_at(made, "id") : "");
		json_decref(made);
		status = finish_stdout(0);
	}
	json_decref(body);
	create_wishes_done(&w);
	client_done(&c);
	return status;
}

/* ---- ps ---- */

static void sandbox_row(struct table *table, const json_t *item)
{
	const json_t *limits = json_object_get(item, "limits");
	const json_t *memory = json_object_get(limits, "memory_bytes");
	char age[16], bytes[16];

	if (!memory)
		memory = json_object_get(limits, "memory");
	table_row(table,
		  (const char *const[]){text_at(item, "id"), text_at(item, "name"),
					text_at(item, "state"), text_at(item, "image"),
					json_is_integer(memory)
						? format_bytes((uint64_t)json_integer_value(memory),
							       bytes, sizeof(bytes))
						: json_string_value(memory),
					format_age(text_at(item, "created_at"), age, sizeof(age)),
					text_at(item, "expires_at")});
}

static void add_page(json_t *all, const json_t *page, bool also_gone)
{
	json_t *item;
	size_t i;

	json_array_foreach (json_object_get(page, "sandboxes"), i, item)
		if (also_gone || !client_is_gone(item))
			json_array_append(all, item);
}

/* All pages as one array. */
static json_t *list_sandboxes(struct client *c, const char *filter, bool also_gone, struct err *e)
{
	auto_free char *path = str_format("/v1/sandboxes?limit=1000%s", filter);
	json_t *all = json_array(), *page;

	for (;;) {
		char encoded[512];

		if (client_call(c, "GET", path, NULL, &page, e) < 0) {
			json_decref(all);
			return NULL;
		}
		add_page(all, page, also_gone);
		if (!text_at(page, "cursor") || !*text_at(page, "cursor"))
			break;
		http_encode(encoded, sizeof(encoded), text_at(page, "cursor"), false);
		free(path);
		path = str_format("/v1/sandboxes?limit=1000%s&cursor=%s", filter, encoded);
		json_decref(page);
	}
	json_decref(page);
	return all;
}

static int show_sandboxes(json_t *all, bool json, bool quiet)
{
	static const char *const heads[] = {"ID",     "NAME", "STATE",	"IMAGE",
					    "MEMORY", "AGE",  "EXPIRES"};
	struct table *table;
	const json_t *item;
	size_t i;

	if (json)
		return print_json(all);
	if (quiet) {
		json_array_foreach (all, i, item)
			puts(text_at(item, "id"));
	} else {
		table = table_new(heads, ARRAY_LEN(heads));
		json_array_foreach (all, i, item)
			sandbox_row(table, item);
		table_print(table, stdout);
	}
	json_decref(all);
	return finish_stdout(0);
}

/* A command as one line. */
static char *join_command(const json_t *item)
{
	const json_t *cmd = json_object_get(item, "cmd"), *word;
	char *line = str_copy("");
	size_t i;

	json_array_foreach (cmd, i, word) {
		char *longer =
			str_format("%s%s%s", line, *line ? " " : "", json_string_value(word));

		free(line);
		line = longer;
	}
	return line;
}

static int show_execs(json_t *answer, bool json)
{
	static const char *const heads[] = {"EXEC", "PID", "STATE", "EXIT", "TAG", "COMMAND"};
	json_t *all = json_is_array(answer) ? answer : json_object_get(answer, "execs");
	struct table *table;
	const json_t *item;
	size_t i;

	if (json)
		return print_json(answer);
	table = table_new(heads, ARRAY_LEN(heads));
	json_array_foreach (all, i, item) {
		const json_t *id = json_object_get(item, "id"),
			     *code = json_object_get(item, "exit_code");
		auto_free char *line = join_command(item);
		char number[24], pid[24], status[24] = "";

		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(id));
		snprintf(pid, sizeof(pid), "%" JSON_INTEGER_FORMAT,
			 json_integer_value(json_object_get(item, "pid")));
		if (json_is_integer(code))
			snprintf(status, sizeof(status), "%" JSON_INTEGER_FORMAT,
				 json_integer_value(code));
		table_row(table, (const char *const[]){
					 json_is_string(id) ? json_string_value(id) : number, pid,
					 text_at(item, "state") ? text_at(item, "state")
								: text_at(item, "status"),
					 status, text_at(item, "tag"), line});
	}
	table_print(table, stdout);
	json_decref(answer);
	return finish_stdout(0);
}

int cmd_ps(int argc, char **argv)
{
	const char *json = NULL, *quiet = NULL, *state = NULL, *ended = NULL;
	struct list metadata = {0};
	const struct verb_option options[] = {
		{"state", 0, "STATE", "only those in this state", &state, NULL},
		{"metadata", 0, "K=V", "only those with it; often", NULL, &metadata},
		{"all", 'a', NULL, "also those that have ended", &ended, NULL},
		{"quiet", 'q', NULL, "ids only", &quiet, NULL},
		{"json", 0, NULL, "an array of objects", &json, NULL},
	};
	const struct verb_usage u = {"cloche ps [OPTIONS] [ID]",
				     "Lists the sandboxes, or the commands in one of them.",
				     options,
				     ARRAY_LEN(options),
				     0,
				     1};
	auto_free char *filter = str_copy(""), *path = NULL;
	json_t *answer = NULL;
	struct client c = {0};
	char id[64], text[512];
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status;

	if (first < 0)
		return verb_stop(first, &e);
	for (size_t i = 0; i <= metadata.count; i++) {
		const char *value = i < metadata.count ? metadata.items[i] : state;
		char *longer;

		if (!value)
			continue;
		http_encode(text, sizeof(text), value, false);
		longer = str_format("%s&%s=%s", filter, i < metadata.count ? "metadata" : "state",
				    text);
		free(filter);
		filter = longer;
	}
	list_done(&metadata);
	if (client_init(&c, &e) < 0) {
		status = cli_fail(&e);
	} else if (first < argc) {
		if (client_find(&c, argv[first], id, sizeof(id), &e) == 0) {
			path = client_path(id, "/execs");
			client_call(&c, "GET", path, NULL, &answer, &e);
		}
		status = answer ? show_execs(answer, json != NULL) : cli_fail(&e);
	} else {
		answer = list_sandboxes(&c, filter, ended || state, &e);
		status =
			answer ? show_sandboxes(answer, json != NULL, quiet != NULL) : cli_fail(&e);
	}
	client_done(&c);
	return status;
}

/* ---- rm, kill ---- */

/* With --json what was done is printed, also if it was not all. Frees it. */
static int done_status(json_t *done, const char *json, int status)
{
	int printed = 0;

	if (json)
		printed = print_json(done);
	else
		json_decref(done);
	return status ? status : printed;
}

/* ID:PATH removes what is there, ID the whole sandbox. done: an array that learns of it. */
static int remove_one(struct client *c, const char *what, bool recursive, json_t *done,
		      struct err *e)
{
	const char *colon = strchr(what, ':');
	auto_free char *box = str_format("%.*s", (int)strcspn(what, ":"), what), *path = NULL,
		       *whole = NULL;
	char id[64], encoded[3 * PATH_MAX + 8];

	/* Cut off, it would be the name of something else. */
	if (colon && strlen(colon + 1) >= PATH_MAX)
		return err_set(e, ERR_INVALID, "the path is too long");
	if (client_find(c, box, id, sizeof(id), e) < 0)
		return -1;
	if (colon) {
		http_encode(encoded, sizeof(encoded), colon + 1, true);
		path = client_path(id, "/files?path=%s%s", encoded,
				   recursive ? "&recursive=1" : "");
	} else {
		path = client_path(id, "%s", "");
	}
	if (client_call(c, "DELETE", path, NULL, NULL, e) < 0)
		return -1;
	whole = str_format("%s%s", id, colon ? colon : "");
	json_array_append_new(done, client_text(whole));
	return 0;
}

int cmd_rm(int argc, char **argv)
{
	const char *all = NULL, *recursive = NULL, *json = NULL;
	const struct verb_option options[] = {
		{"all", 'a', NULL, "all sandboxes that are yours", &all, NULL},
		{"recursive", 'r', NULL, "directories and what is in them", &recursive, NULL},
		{"json", 0, NULL, "an object: removed; with -a how many it destroyed", &json, NULL},
	};
	const struct verb_usage u = {"cloche rm [-a] [-r] [--json] ID|ID:PATH...",
				     "Destroys sandboxes, or removes files in them.",
				     options,
				     ARRAY_LEN(options),
				     0,
				     100000};
	json_t *answer = NULL, *removed;
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status = 0;

	if (first >= 0 && first == argc && !all)
		first = err_set(&e, ERR_INVALID, "usage: %s", u.line);
	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	if (all && client_call(&c, "DELETE", "/v1/sandboxes", NULL, &answer, &e) < 0)
		status = cli_fail(&e);
	if (!answer)
		answer = json_object();
	removed = json_array();
	for (int i = first; i < argc; i++)
		if (remove_one(&c, argv[i], recursive != NULL, removed, &e) < 0)
			status = cli_fail(&e);
	client_done(&c);
	json_object_set_new(answer, "removed", removed);
	return done_status(answer, json, status);
}

/* answer: has the signal, and an array that learns of those that got it. */
static int signal_execs(struct client *c, const char *id, char **execs, json_t *answer,
			struct err *e)
{
	for (; *execs; execs++) {
		char encoded[64];
		auto_free char *path = NULL;
		json_t *body = json_pack("{s:O}", "signal", json_object_get(answer, "signal"));

		http_encode(encoded, sizeof(encoded), *execs, false);
		path = client_path(id, "/execs/%s/signal", encoded);
		if (client_call(c, "POST", path, body, NULL, e) < 0)
			return -1;
		json_array_append_new(json_object_get(answer, "signalled"), client_text(*execs));
	}
	return 0;
}

int cmd_kill(int argc, char **argv)
{
	const char *name = "KILL", *json = NULL;
	const struct verb_option options[] = {
		{"signal", 's', "NAME", "for commands (KILL)", &name, NULL},
		{"json", 0, NULL, "an object: signalled and signal, or removed", &json, NULL},
	};
	const struct verb_usage u = {
		"cloche kill [-s SIGNAL] [--json] ID [EXEC...]",
		"Sends a signal to commands in a sandbox; without any, destroys "
		"the sandbox at once.",
		options,
		ARRAY_LEN(options),
		1,
		1000};
	struct client c = {0};
	struct err e = {0};
	json_t *answer;
	char id[64];
	int first = verb_parse(&u, argc, argv, &e), rc;

	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	if (first + 1 == argc) {
		answer = json_pack("{s:[]}", "removed");
		rc = remove_one(&c, argv[first], false, json_object_get(answer, "removed"), &e);
	} else {
		answer = json_pack("{s:o, s:[]}", "signal", client_text(name), "signalled");
		rc = client_find(&c, argv[first], id, sizeof(id), &e);
		if (rc == 0)
			rc = signal_execs(&c, id, argv + first + 1, answer, &e);
	}
	client_done(&c);
	return done_status(answer, json, rc < 0 ? cli_fail(&e) : 0);
}

/* ---- states ---- */

static int each_state(int argc, char **argv, const char *line, const char *does, const char *action)
{
	const char *json = NULL;
	const struct verb_option options[] = {
		{"json", 0, NULL, "print an array of the sandboxes", &json, NULL},
	};
	const struct verb_usage u = {line, does, options, ARRAY_LEN(options), 1, 100000};
	json_t *all, *one;
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status = 0;

	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	all = json_array();
	for (int i = first; i < argc; i++) {
		auto_free char *path = NULL;
		char id[64];

		if (client_find(&c, argv[i], id, sizeof(id), &e) == 0) {
			path = client_path(id, "/%s", action);
			if (client_call(&c, "POST", path, NULL, &one, &e) == 0) {
				json_array_append_new(all, one);
				continue;
			}
		}
		status = cli_fail(&e);
	}
	client_done(&c);
	if (json)
		print_json(all);
	else
		json_decref(all);
	return finish_stdout(status);
}

int cmd_pause(int argc, char **argv)
{
	return each_state(argc, argv, "cloche pause ID...", "Freezes sandboxes.", "pause");
}

int cmd_resume(int argc, char **argv)
{
	return each_state(argc, argv, "cloche resume ID...", "Lets frozen sandboxes go on.",
			  "resume");
}
