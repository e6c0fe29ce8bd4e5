#include "cli/sandbox_cmd.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"

#include <stdio.h>
#include <stdlib.h>

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
	if (json)
		return print_json(made);
	puts(text_at(made, "id") ? text_at(made, "id") : "");
	json_decref(made);
	return finish_stdout(0);
}

static int remove_snapshots(struct client *c, int argc, char **argv, int first, struct err *e)
{
	int status = 0;

	for (int i = first; i < argc; i++) {
		auto_free char *path = NULL;
		char encoded[256];

		http_encode(encoded, sizeof(encoded), argv[i], false);
		path = str_format("/v1/snapshots/%s", encoded);
		if (client_call(c, "DELETE", path, NULL, NULL, e) < 0)
			status = cli_fail(e);
	}
	return status;
}

int cmd_snapshot(int argc, char **argv)
{
	const char *json = NULL;
	const struct verb_option options[] = {{"json", 0, NULL, "objects", &json, NULL}};
	const struct verb_usage u = {
		"cloche snapshot ID [NAME] | ls | rm SNAPSHOT...",
		"Keeps the files of a sandbox under a name and prints the snapshot's id; lists "
		"them;\nremoves them. New ones start from it with `cloche create --snapshot`.",
		options,
		ARRAY_LEN(options),
		1,
		100000};
	json_t *answer = NULL;
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status;

	if (first >= 0 && argc - first > 2 && !str_equal(argv[first], "rm"))
		first = err_set(&e, ERR_INVALID, "usage: %s", u.line);
	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	if (str_equal(argv[first], "ls"))
		status = client_call(&c, "GET", "/v1/snapshots", NULL, &answer, &e) < 0
				 ? cli_fail(&e)
				 : show_snapshots(answer, json != NULL);
	else if (str_equal(argv[first], "rm"))
		status = remove_snapshots(&c, argc, argv, first + 1, &e);
	else
		status = make_snapshot(&c, argv[first], first + 1 < argc ? argv[first + 1] : NULL,
				       json != NULL, &e);
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
