#include "cli/sandbox_cmd.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/transfer.h"

#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- snapshots ---- */

static int show_snapshots(json_t *answer, bool json)
{
	static const char *const heads[] = {"ID", "NAME", "SIZE", "AGE", "DIGEST"};
	json_t *all = json_is_array(answer) ? answer : json_object_get(answer, "snapshots");
	struct table *table;
	const json_t *item;
	size_t i;

	if (json)
		return print_json(answer);
	table = table_new(heads, ARRAY_LEN(heads));
	json_array_foreach (all, i, item) {
		char size[16], age[16], digest[24];

		snprintf(digest, sizeof(digest), "%.19s",
			 text_at(item, "digest") ? text_at(item, "digest") : "");
		table_row(table, (const char *const[]){
					 text_at(item, "id"), text_at(item, "name"),
					 format_bytes((uint64_t)number_at(item, "size_bytes"), size,
						      sizeof(size)),
					 format_age(text_at(item, "created_at"), age, sizeof(age)),
					 digest});
	}
	table_print(table, stdout);
	json_decref(answer);
	return finish_stdout(0);
}

/* Frees it. */
static int show_made(json_t *made, bool json)
{
	if (json)
		return print_json(made);
	puts(text_at(made, "id") ? text_at(made, "id") : "");
	json_decref(made);
	return finish_stdout(0);
}

static int make_snapshot(struct client *c, const char *what, const char *name, bool json,
			 struct err *e)
{
	auto_free char *path = NULL;
	json_t *made;
	char id[64];

	if (client_find(c, what, id, sizeof(id), e) < 0)
		return cli_fail(e);
	path = client_path(id, "/snapshot");
	if (client_call(c, "POST", path, name ? json_pack("{s:s}", "name", name) : json_object(),
			&made, e) < 0)
		return cli_fail(e);
	return show_made(made, json);
}

static char *snapshot_path(const char *what, const char *rest)
{
	char encoded[1024];

	http_encode(encoded, sizeof(encoded), what, false);
	return str_format("/v1/snapshots/%s%s", encoded, rest);
}

static int remove_snapshots(struct client *c, char **which, struct err *e)
{
	int status = 0;

	for (; *which; which++) {
		auto_free char *path = snapshot_path(*which, "");

		if (client_call(c, "DELETE", path, NULL, NULL, e) < 0)
			status = cli_fail(e);
	}
	return status;
}

static int export_snapshot(struct client *c, const char *what, const char *file, bool json,
			   struct err *e)
{
	auto_free char *path = snapshot_path(what, "/tar");
	struct transfer t = {.client = c, .path = path, .is_binary = true};
	int rc;

	if (str_equal(file, "-"))
		rc = json ? err_set(e, ERR_INVALID, "with --json stdout is not for the tar")
			  : transfer_get(&t, STDOUT_FILENO, "stdout", e);
	else
		rc = transfer_get_file(&t, file, e);
	if (rc < 0)
		return cli_fail(e);
	return json ? print_json(json_pack("{s:o, s:o, s:I}", "snapshot", client_text(what), "file",
					   client_text(file), "bytes", (json_int_t)t.bytes))
		    : 0;
}

/* A file's name without ".tar", so that it comes back under the name that it was exported by. */
static char *name_of(const char *file)
{
	auto_free char *copy = str_copy(file);
	const char *name = basename(copy);
	size_t len = strlen(name);

	if (str_equal(file, "-"))
		return str_copy("imported");
	return str_format(
		"%.*s", (int)(len > 4 && str_equal(name + len - 4, ".tar") ? len - 4 : len), name);
}

static int import_snapshot(struct client *c, const char *file, const char *name, bool json,
			   struct err *e)
{
	auto_free char *own = name ? str_copy(name) : name_of(file), *path = NULL;
	auto_close int fd = str_equal(file, "-") ? dup(STDIN_FILENO)
						 : open(file, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	struct transfer t = {.client = c};

	if (fd < 0) {
		err_sys(e, "%s: cannot open", file);
		return cli_fail(e);
	}
	if (isatty(fd)) {
		err_set(e, ERR_INVALID, "the tar does not come from a terminal; name a file");
		return cli_fail(e);
	}
	if (!*own) {
		err_set(e, ERR_INVALID, "the name is empty");
		return cli_fail(e);
	}
	t.path = path = snapshot_path(own, "/tar");
	if (transfer_put(&t, fd, e) < 0)
		return cli_fail(e);
	return show_made(t.answer, json);
}

struct snapshot_wishes {
	const char *name, *json;
};

struct snapshot_verb {
	const char *name;	/* NULL: the argument is a sandbox */
	int min_args, max_args; /* with the name */
	int (*call)(struct client *c, char **args, const struct snapshot_wishes *w, struct err *e);
};

static int verb_ls(struct client *c, char **args, const struct snapshot_wishes *w, struct err *e)
{
	json_t *answer;

	(void)args;
	return client_call(c, "GET", "/v1/snapshots", NULL, &answer, e) < 0
		       ? cli_fail(e)
		       : show_snapshots(answer, w->json != NULL);
}

static int verb_rm(struct client *c, char **args, const struct snapshot_wishes *w, struct err *e)
{
	(void)w;
	return remove_snapshots(c, args + 1, e);
}

static int verb_export(struct client *c, char **args, const struct snapshot_wishes *w,
		       struct err *e)
{
	return export_snapshot(c, args[1], args[2] ? args[2] : "-", w->json != NULL, e);
}

static int verb_import(struct client *c, char **args, const struct snapshot_wishes *w,
		       struct err *e)
{
	return import_snapshot(c, args[1] ? args[1] : "-", w->name, w->json != NULL, e);
}

static int verb_make(struct client *c, char **args, const struct snapshot_wishes *w, struct err *e)
{
	return make_snapshot(c, args[0], args[1], w->json != NULL, e);
}

static const struct snapshot_verb verbs[] = {
	{"ls", 1, 1, verb_ls},	       {"rm", 1, 100000, verb_rm}, {"export", 2, 3, verb_export},
	{"import", 1, 2, verb_import}, {NULL, 1, 2, verb_make},
};

static const struct snapshot_verb *find_verb(const char *name)
{
	const struct snapshot_verb *v = verbs;

	while (v->name && !str_equal(v->name, name))
		v++;
	return v;
}

int cmd_snapshot(int argc, char **argv)
{
	struct snapshot_wishes w = {0};
	const struct verb_option options[] = {
		{"name", 0, "NAME", "of what is imported (the file's, without .tar)", &w.name,
		 NULL},
		{"json", 0, NULL, "objects", &w.json, NULL},
	};
	const struct verb_usage u = {
		"cloche snapshot ID [NAME] | ls | rm SNAPSHOT... | export SNAPSHOT [FILE|-] | "
		"import [FILE|-]",
		"Keeps the files of a sandbox under a name and prints the snapshot's id; lists "
		"them;\nremoves them; makes a tar of one; makes one of a tar and prints its id. "
		"New sandboxes\nstart from it with `cloche create --snapshot`.",
		options,
		ARRAY_LEN(options),
		1,
		100000};
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status;
	const struct snapshot_verb *v = first < 0 ? NULL : find_verb(argv[first]);

	if (v && (argc - first < v->min_args || argc - first > v->max_args))
		first = err_set(&e, ERR_INVALID, "usage: %s", u.line);
	else if (v && w.name && v->call != verb_import)
		first = err_set(&e, ERR_INVALID, "--name is for import");
	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	status = v->call(&c, argv + first, &w, &e);
	client_done(&c);
	return status;
}

/* ---- fork ---- */

/* One line for each: its id, or on stderr why there is none. */
static int show_forks(json_t *answer)
{
	const json_t *item;
	int status = 0;
	size_t i;

	json_array_foreach (json_object_get(answer, "sandboxes"), i, item) {
		const json_t *box = json_object_get(item, "sandbox"),
			     *error = json_object_get(item, "error");
		struct err e;

		if (text_at(box, "id")) {
			puts(text_at(box, "id"));
		} else if (text_at(item, "id")) {
			puts(text_at(item, "id"));
		} else {
			err_set(&e, ERR_SYSTEM, "%s",
				text_at(error, "message") ? text_at(error, "message")
							  : "a fork failed");
			status = cli_fail(&e);
		}
	}
	json_decref(answer);
	return finish_stdout(status);
}

int cmd_fork(int argc, char **argv)
{
	const char *count = "1", *json = NULL;
	const struct verb_option options[] = {
		{"count", 'n', "N", "so many of them (1)", &count, NULL},
		{"json", 0, NULL, "an object", &json, NULL},
	};
	const struct verb_usage u = {
		"cloche fork [-n N] ID",
		"Makes new sandboxes with the files that this one has now, and "
		"prints their ids.",
		options,
		ARRAY_LEN(options),
		1,
		1};
	auto_free char *path = NULL;
	json_t *answer = NULL;
	struct client c = {0};
	struct err e = {0};
	char id[64], *end;
	int first = verb_parse(&u, argc, argv, &e), rc;
	long n = strtol(count, &end, 10);

	if (first >= 0 && (*end || n < 1))
		first = err_set(&e, ERR_INVALID, "count: '%s' is not a number of sandboxes", count);
	if (first < 0)
		return verb_stop(first, &e);
	rc = client_init(&c, &e);
	if (rc == 0)
		rc = client_find(&c, argv[first], id, sizeof(id), &e);
	if (rc == 0) {
		path = client_path(id, "/fork");
		rc = client_call(&c, "POST", path, json_pack("{s:I}", "count", (json_int_t)n),
				 &answer, &e);
	}
	client_done(&c);
	if (rc < 0)
		return cli_fail(&e);
	return json ? print_json(answer) : show_forks(answer);
}
