/*
 * Files in and out. One file is streamed as it is; a directory goes as a tar stream through tar(1),
 * which runs here, as the caller, with owners and set-id bits left behind: what comes out of a
 * sandbox is foreign.
 */
#include "cli/files_cmd.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- ID:PATH ---- */

struct place {
	char id[64];
	char path[PATH_MAX];
	char encoded[3 * PATH_MAX + 8]; /* the same as part of a URL */
};

/* "ID:PATH" is inside; "./a:b", "/a:b" and what has no colon is not. */
static bool is_inside(const char *arg)
{
	const char *colon = strchr(arg, ':');

	return colon && colon != arg && !memchr(arg, '/', (size_t)(colon - arg)) && arg[0] != '.';
}

static int set_path(struct place *p, const char *path, struct err *e)
{
	if (strlen(path) >= sizeof(p->path))
		return err_set(e, ERR_INVALID, "the path is too long");
	strcpy(p->path, path);
	http_encode(p->encoded, sizeof(p->encoded), path, true);
	return 0;
}

static int find_place(struct client *c, const char *arg, struct place *ret, struct err *e)
{
	auto_free char *box = str_format("%.*s", (int)strcspn(arg, ":"), arg);
	const char *colon = strchr(arg, ':');

	if (set_path(ret, colon && colon[1] ? colon + 1 : "/workspace", e) < 0)
		return -1;
	return client_find(c, box, ret->id, sizeof(ret->id), e);
}

/* ---- directories, by tar(1) ---- */

/* fd becomes its stdin (write false) or stdout. */
static pid_t start_tar(char *const *argv, int fd, bool is_output)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(fd, is_output ? STDOUT_FILENO : STDIN_FILENO);
		signal(SIGPIPE, SIG_DFL);
		execvp("tar", argv);
		fprintf(stderr, "cloche: cannot execute tar: %s\n", strerror(errno));
		_exit(127);
	}
	return pid;
}

static int wait_tar(pid_t pid, struct err *e)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0 ? 0 : err_set(e, ERR_SYSTEM, "tar could not do its part");
}

static int upload_tree(struct transfer *t, const struct place *to, const char *dir, struct err *e)
{
	char *argv[] = {"tar", "-C", (char *)(uintptr_t)dir, "-cf", "-", ".", NULL};
	auto_free char *path = client_path(to->id, "/files/tar?path=%s", to->encoded);
	auto_close int in = -1, out = -1;
	int pair[2], rc;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	in = pair[0];
	out = pair[1];
	pid = start_tar(argv, out, true);
	close_fd(&out);
	if (pid < 0)
		return err_sys(e, "cannot start tar");
	t->path = path;
	rc = transfer_put(t, in, e);
	close_fd(&in);
	return wait_tar(pid, rc < 0 ? &(struct err){0} : e) < 0 || rc < 0 ? -1 : 0;
}

static int download_tree(struct transfer *t, const struct place *from, const char *dir,
			 struct err *e)
{
	char *argv[] = {"tar",
			"-C",
			(char *)(uintptr_t)dir,
			"-xf",
			"-",
			"--no-same-owner",
			"--no-same-permissions",
			NULL};
	auto_free char *path = client_path(from->id, "/files/tar?path=%s", from->encoded);
	auto_close int in = -1, out = -1;
	int pair[2], rc;
	pid_t pid;

	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return err_sys(e, "cannot make %s", dir);
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	in = pair[0];
	out = pair[1];
	pid = start_tar(argv, in, false);
	close_fd(&in);
	if (pid < 0)
		return err_sys(e, "cannot start tar");
	t->path = path;
	rc = transfer_get(t, out, dir, e);
	close_fd(&out);
	return wait_tar(pid, rc < 0 ? &(struct err){0} : e) < 0 || rc < 0 ? -1 : 0;
}

/* ---- cp ---- */

/* What is at this path inside: "file", "directory", ..., or "" if nothing is. */
static int type_inside(struct client *c, const struct place *p, char *ret, size_t size,
		       struct err *e)
{
	auto_free char *path = client_path(p->id, "/files?path=%s&stat=1", p->encoded);
	json_t *answer = NULL;

	*ret = '\0';
	if (client_call(c, "GET", path, NULL, &answer, e) < 0)
		return e->kind == ERR_NOT_FOUND ? 0 : -1;
	snprintf(ret, size, "%s", text_at(answer, "type") ? text_at(answer, "type") : "file");
	json_decref(answer);
	return 0;
}

static bool ends_in_slash(const char *path)
{
	size_t len = strlen(path);

	return len && path[len - 1] == '/';
}

/* Into a directory it keeps its name. */
static int add_name(struct place *p, const char *source, struct err *e)
{
	auto_free char *copy = str_copy(source), *path = NULL;

	path = str_format("%s%s%s", p->path, ends_in_slash(p->path) ? "" : "/", basename(copy));
	return set_path(p, path, e);
}

/* What cp does: to be said afterwards. */
struct copy {
	struct transfer transfer;
	struct place inside;
	char *here; /* a path, or "-" */
	bool is_tree;
};

static int copy_in(struct copy *y, struct err *e)
{
	struct client *c = y->transfer.client;
	bool from_stdin = str_equal(y->here, "-");
	auto_close int fd = from_stdin ? dup(STDIN_FILENO) : open(y->here, O_RDONLY | O_CLOEXEC);
	auto_free char *path = NULL;
	struct place *to = &y->inside;
	struct stat st;
	char type[24];
	bool is_dir;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%s: cannot open", y->here);
	if (type_inside(c, to, type, sizeof(type), e) < 0)
		return -1;
	y->is_tree = S_ISDIR(st.st_mode);
	is_dir = str_equal(type, "directory") || (ends_in_slash(to->path) && !y->is_tree);
	if (is_dir && !from_stdin && add_name(to, y->here, e) < 0)
		return -1;
	if (y->is_tree)
		return upload_tree(&y->transfer, to, y->here, e);
	path = client_path(to->id, "/files?path=%s", to->encoded);
	y->transfer.path = path;
	return transfer_put(&y->transfer, fd, e);
}

static int copy_out(struct copy *y, struct err *e)
{
	struct client *c = y->transfer.client;
	const struct place *from = &y->inside;
	auto_free char *copy = str_copy(from->path), *path = NULL;
	struct stat st;
	char type[24];

	if (type_inside(c, from, type, sizeof(type), e) < 0)
		return -1;
	path = client_path(from->id, "/files?path=%s", from->encoded);
	y->transfer.path = path;
	y->is_tree = str_equal(type, "directory");
	if (str_equal(y->here, "-"))
		return transfer_get(&y->transfer, STDOUT_FILENO, "stdout", e);
	if (stat(y->here, &st) == 0 && S_ISDIR(st.st_mode)) {
		char *longer = str_format("%s/%s", y->here, basename(copy));

		free(y->here);
		y->here = longer;
	}
	return y->is_tree ? download_tree(&y->transfer, from, y->here, e)
			  : transfer_get_file(&y->transfer, y->here, e);
}

/* Where it was, where it is now, and how much that took. */
static int show_copy(const struct copy *y, bool in)
{
	auto_free char *inside = str_format("%s:%s", y->inside.id, y->inside.path);

	return print_json(json_pack(
		"{s:o?, s:o?, s:s, s:I}", "source", client_text(in ? y->here : inside), "target",
		client_text(in ? inside : y->here), "type", y->is_tree ? "directory" : "file",
		"bytes", (json_int_t)y->transfer.bytes));
}

int cmd_cp(int argc, char **argv)
{
	const char *json = NULL;
	const struct verb_option options[] = {
		{"json", 0, NULL, "an object: source, target, type, bytes", &json, NULL},
	};
	const struct verb_usage u = {
		"cloche cp [--json] SOURCE TARGET",
		"Copies a file or a directory into a sandbox or out of it. One of the two is\n"
		"ID:PATH; the other is a path here, or - for a standard stream.",
		options,
		ARRAY_LEN(options),
		2,
		2};
	struct client c = {0};
	struct copy y = {.transfer.client = &c};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), rc;
	bool in = first >= 0 && !is_inside(argv[first]);

	if (first >= 0 && in != is_inside(argv[first + 1]))
		first = err_set(&e, ERR_INVALID,
				"one of the two must be ID:PATH, the other a path here");
	else if (first >= 0 && json && !in && str_equal(argv[first + 1], "-"))
		first = err_set(&e, ERR_INVALID, "with --json stdout is not for the file");
	if (first < 0)
		return verb_stop(first, &e);
	signal(SIGPIPE, SIG_IGN);
	y.here = str_copy(argv[in ? first : first + 1]);
	rc = client_init(&c, &e);
	if (rc == 0)
		rc = find_place(&c, argv[in ? first + 1 : first], &y.inside, &e);
	if (rc == 0)
		rc = in ? copy_in(&y, &e) : copy_out(&y, &e);
	client_done(&c);
	rc = rc < 0 ? cli_fail(&e) : json ? show_copy(&y, in) : 0;
	json_decref(y.transfer.answer);
	free(y.here);
	return rc;
}

int cmd_cat(int argc, char **argv)
{
	const struct verb_usage u = {
		"cloche cat ID:PATH...", "Prints files of sandboxes.", NULL, 0, 1, 100000};
	struct client c = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), status = 0;

	if (first < 0)
		return verb_stop(first, &e);
	if (client_init(&c, &e) < 0)
		return cli_fail(&e);
	for (int i = first; i < argc; i++) {
		auto_free char *path = NULL;
		struct transfer t = {.client = &c};
		struct place p = {0};

		if (find_place(&c, argv[i], &p, &e) == 0) {
			t.path = path = client_path(p.id, "/files?path=%s", p.encoded);
			if (transfer_get(&t, STDOUT_FILENO, "stdout", &e) == 0)
				continue;
		}
		status = cli_fail(&e);
	}
	client_done(&c);
	return status;
}

/* ---- ls ---- */

/* Of one directory the names do; of more the paths tell them apart. */
static const char *shown_name(const json_t *item, bool paths)
{
	const char *name = text_at(item, paths ? "path" : "name");

	return name ? name : "";
}

static bool is_directory(const json_t *item)
{
	const char *type = text_at(item, "type");

	return type && str_equal(type, "directory");
}

static void print_names(const json_t *entries, bool paths)
{
	const json_t *item;
	size_t i;

	json_array_foreach (entries, i, item) {
		const char *name = shown_name(item, paths);
		char clean[4096];

		str_sanitise(clean, sizeof(clean), name, strlen(name));
		printf("%s%s\n", clean, is_directory(item) ? "/" : "");
	}
}

static void print_long(const json_t *entries, bool paths)
{
	static const char *const heads[] = {"TYPE", "MODE", "OWNER", "SIZE", "MODIFIED", "NAME"};
	struct table *t = table_new(heads, ARRAY_LEN(heads));
	const json_t *item;
	size_t i;

	json_array_foreach (entries, i, item) {
		char size[16];

		table_row(t,
			  (const char *const[]){text_at(item, "type"), text_at(item, "mode"),
						text_at(item, "owner"),
						format_bytes((uint64_t)number_at(item, "size"),
							     size, sizeof(size)),
						text_at(item, "mtime"), shown_name(item, paths)});
	}
	table_print(t, stdout);
}

int cmd_ls(int argc, char **argv)
{
	const char *json = NULL, *more = NULL, *depth = "1";
	const struct verb_option options[] = {
		{"long", 'l', NULL, "with mode, size and time", &more, NULL},
		{"depth", 0, "N", "so many levels down (1)", &depth, NULL},
		{"json", 0, NULL, "as the daemon answers", &json, NULL},
	};
	const struct verb_usage u = {"cloche ls [OPTIONS] ID[:PATH]",
				     "Lists a directory in a sandbox.",
				     options,
				     ARRAY_LEN(options),
				     1,
				     1};
	auto_free char *path = NULL;
	json_t *answer = NULL, *entries;
	struct client c = {0};
	struct place p = {0};
	char encoded[32];
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), rc;

	if (first < 0)
		return verb_stop(first, &e);
	rc = client_init(&c, &e);
	if (rc == 0)
		rc = find_place(&c, argv[first], &p, &e);
	if (rc == 0) {
		http_encode(encoded, sizeof(encoded), depth, false);
		path = client_path(p.id, "/files?path=%s&list=1&depth=%s", p.encoded, encoded);
		rc = client_call(&c, "GET", path, NULL, &answer, &e);
	}
	client_done(&c);
	if (rc < 0)
		return cli_fail(&e);
	if (json)
		return print_json(answer);
	entries = json_is_array(answer) ? answer : json_object_get(answer, "entries");
	if (more)
		print_long(entries, !str_equal(depth, "1"));
	else
		print_names(entries, !str_equal(depth, "1"));
	json_decref(answer);
	return finish_stdout(0);
}
