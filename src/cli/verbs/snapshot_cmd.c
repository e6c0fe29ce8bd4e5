/* Snapshots of the daemon, and forks: sandboxes with the files of another. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "cli/verbs/transfer.h"

#include <libgen.h>

/* ---- snapshots ---- */

static const struct column snapshot_columns[] = {
	{"ID", "id", COLUMN_TEXT},
	{"NAME", "name", COLUMN_TEXT},
	{"SIZE", "size_bytes", COLUMN_BYTES},
	{"AGE", "created_at", COLUMN_AGE},
	{"DIGEST", "digest", COLUMN_DIGEST},
};

static int snapshot_make(struct verb_call *v, struct err *e)
{
	json_t *body = v->args[1] ? json_pack("{s:s}", "name", v->args[1]) : json_object(), *made;

	return client_ask(&v->client, "POST /snapshot", v->args[0], body, &made, e) < 0
		       ? -1
		       : verb_show_id(v, made);
}

static char *snapshot_path(const char *what, const char *rest)
{
	char encoded[1024];

	http_encode(encoded, sizeof(encoded), what, false);
	return str_format("/v1/snapshots/%s%s", encoded, rest);
}

static int snapshot_rm(struct verb_call *v, struct err *e)
{
	return verb_delete(v, "/v1/snapshots/", v->args + 1);
}

static int snapshot_export(struct verb_call *v, struct err *e)
{
	const char *what = v->args[1], *file = v->args[2] ? v->args[2] : "-";
	auto_free char *path = snapshot_path(what, "/tar");
	struct client_transfer t = {.client = &v->client, .path = path, .is_binary = true};

	if (str_equal(file, "-") && v->json)
		return err_set(e, ERR_INVALID, "with --json stdout is not for the tar");
	if ((str_equal(file, "-") ? transfer_get(&t, STDOUT_FILENO, "stdout", e)
				  : transfer_get_file(&t, file, e)) < 0)
		return -1;
	return v->json ? print_json(json_pack("{s:o, s:o, s:I}", "snapshot", client_text(what),
					      "file", client_text(file), "bytes",
					      (json_int_t)t.bytes))
		       : 0;
}

/* A file's name without ".tar", so that an exported snapshot is imported under its old name. */
static char *name_of_import(const char *file)
{
	auto_free char *copy = str_copy(file);
	const char *name = basename(copy);
	size_t len = strlen(name);

	if (str_equal(file, "-"))
		return str_copy("imported");
	return str_format(
		"%.*s", (int)(len > 4 && str_equal(name + len - 4, ".tar") ? len - 4 : len), name);
}

static int snapshot_import(struct verb_call *v, struct err *e)
{
	const char *file = v->args[1] ? v->args[1] : "-", *name = verb_text(v, "name");
	auto_free char *own = name ? str_copy(name) : name_of_import(file), *path = NULL;
	auto_close int fd = str_equal(file, "-") ? dup(STDIN_FILENO)
						 : open(file, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	struct client_transfer t = {.client = &v->client};

	if (fd < 0)
		return err_sys(e, "%s: cannot open", file);
	if (isatty(fd))
		return err_set(e, ERR_INVALID,
			       "the tar does not come from a terminal; name a file");
	if (!*own)
		return err_set(e, ERR_INVALID, "the name is empty");
	t.path = path = snapshot_path(own, "/tar");
	return transfer_put(&t, fd, e) < 0 ? -1 : verb_show_id(v, t.answer);
}

/* Chosen by the first argument. Last row: the argument is a sandbox. */
static const struct snapshot_part {
	const char *name;
	int min_args, max_args; /* counting the name */
	int (*run)(struct verb_call *v, struct err *e);
} parts[] = {
	{"ls", 1, 1, verb_list},	   {"rm", 1, VERB_MANY, snapshot_rm},
	{"export", 2, 3, snapshot_export}, {"import", 1, 2, snapshot_import},
	{NULL, 1, 2, snapshot_make},
};

static int snapshot(struct verb_call *v, struct err *e)
{
	const struct snapshot_part *p = parts;

	while (p->name && !str_equal(p->name, v->args[0]))
		p++;
	if (v->count < p->min_args || v->count > p->max_args)
		return verb_misused(v, e);
	if (verb_text(v, "name") && p->run != snapshot_import)
		return err_set(e, ERR_INVALID, "--name is for import");
	return p->run(v, e);
}

static const struct verb_option snapshot_options[] = {
	{"name", 0, "NAME", "of what is imported (the file's, without .tar)", NULL},
	{"json", 0, NULL, "objects", NULL},
};

const struct verb verb_snapshot = {
	.line = "cloche snapshot ID [NAME] | ls | rm SNAPSHOT... | export SNAPSHOT [FILE|-] | "
		"import [FILE|-]",
	.about = "Keeps the files of a sandbox under a name and prints the snapshot's id; lists "
		 "them;\nremoves them; makes a tar of one; makes one of a tar and prints its id. "
		 "New sandboxes\nstart from it with `cloche create --snapshot`.",
	.run = snapshot,
	OPTIONS(snapshot_options),
	ARGS(1, VERB_MANY),
	.request = "GET /v1/snapshots",
	.member = "snapshots",
	COLUMNS(snapshot_columns),
};

/* ---- fork ---- */

/* Prints the id of each fork, or on stderr why there is none. */
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

static int fork_verb(struct verb_call *v, struct err *e)
{
	const char *count = verb_text(v, "count");
	json_t *answer;
	char *end;
	long n = strtol(count, &end, 10);

	if (*end || n < 1)
		return err_set(e, ERR_INVALID, "count: '%s' is not a number of sandboxes", count);
	if (client_ask(&v->client, "POST /fork", v->args[0],
		       json_pack("{s:I}", "count", (json_int_t)n), &answer, e) < 0)
		return -1;
	return v->json ? print_json(answer) : show_forks(answer);
}

static const struct verb_option fork_options[] = {
	{"count", 'n', "N", "so many of them (1)", "1"},
	{"json", 0, NULL, "an object", NULL},
};

const struct verb verb_fork = {
	.line = "cloche fork [-n N] ID",
	.about = "Makes new sandboxes with the files that this one has now, and "
		 "prints their ids.",
	.run = fork_verb,
	OPTIONS(fork_options),
	ARGS(1, 1),
};

/* ---- diff ---- */

/* The id of a sandbox, or a snapshot as it was named; encoded. */
static char *encode_side(struct verb_call *v, const char *what)
{
	char id[64], encoded[1024];
	struct err none_such;

	if (client_find(&v->client, what, id, sizeof(id), &none_such) == 0)
		what = id;
	http_encode(encoded, sizeof(encoded), what, false);
	return str_copy(encoded);
}

static int diff_verb(struct verb_call *v, struct err *e)
{
	auto_free char *from = encode_side(v, v->args[0]), *to = encode_side(v, v->args[1]);
	auto_free char *path = str_format("/v1/diff?from=%s&to=%s", from, to);
	json_t *answer = NULL;
	const json_t *one;
	size_t i;

	if (client_call(&v->client, "GET", path, NULL, &answer, e) < 0)
		return -1;
	if (v->json)
		return print_json(answer);
	json_array_foreach (json_object_get(answer, "changes"), i, one) {
		char shown[PATH_MAX + 16];

		str_sanitise(shown, sizeof(shown), text_at(one, "path"),
			     strlen(text_at(one, "path")));
		printf("%-8s %s\n", text_at(one, "kind"), shown);
	}
	if (json_is_true(json_object_get(answer, "truncated")))
		fputs("cloche: there are more\n", stderr);
	json_decref(answer);
	return finish_stdout(0);
}

static const struct verb_option diff_options[] = {{"json", 0, NULL, "an object", NULL}};

const struct verb verb_diff = {
	.line = "cloche diff [--json] FROM TO",
	.about = "Lists the paths that differ between the files of two sandboxes or snapshots: "
		 "added, modified\nor deleted in the second one. Times do not count.",
	.run = diff_verb,
	OPTIONS(diff_options),
	ARGS(2, 2),
};
