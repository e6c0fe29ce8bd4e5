/*
 * Copies files into and out of sandboxes. A file is streamed as it is. A directory is a tar stream: on the way
 * in made by tar(1), on the way out unpacked by our own strict reader, because what comes from a sandbox is not
 * trusted.
 */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "cli/verbs/transfer.h"

#include <libgen.h>
#include <sys/wait.h>

/* ---- ID:PATH ---- */

struct inside_path {
	char id[64];
	char path[PATH_MAX];
	char encoded[3 * PATH_MAX + 8]; /* the path as part of a URL */
};

/* "ID:PATH" is inside a sandbox; "./a:b", "/a:b" and names without a colon are not. */
static bool is_inside(const char *arg)
{
	const char *colon = strchr(arg, ':');

	return colon && colon != arg && !memchr(arg, '/', (size_t)(colon - arg)) && arg[0] != '.';
}

static int set_path(struct inside_path *p, const char *path, struct err *e)
{
	if (strlen(path) >= sizeof(p->path))
		return err_set(e, ERR_INVALID, "the path is too long");
	strcpy(p->path, path);
	http_encode(p->encoded, sizeof(p->encoded), path, true);
	return 0;
}

static int find_place(struct client *c, const char *arg, struct inside_path *ret, struct err *e)
{
	auto_free char *box = str_format("%.*s", (int)strcspn(arg, ":"), arg);
	const char *colon = strchr(arg, ':');

	if (set_path(ret, colon && colon[1] ? colon + 1 : "/workspace", e) < 0)
		return -1;
	return client_find(c, box, ret->id, sizeof(ret->id), e);
}

/* ---- directories, by tar(1) ---- */

/* Starts tar with a pipe as its stdout. Returns our end. */
static int start_tar(char *const *argv, pid_t *ret_pid, struct err *e)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	*ret_pid = fork();
	if (*ret_pid == 0) {
		dup2(pair[1], STDOUT_FILENO);
		signal(SIGPIPE, SIG_DFL);
		execvp("tar", argv);
		fprintf(stderr, "cloche: cannot execute tar: %s\n", strerror(errno));
		_exit(127);
	}
	close(pair[1]);
	if (*ret_pid > 0)
		return pair[0];
	close(pair[0]);
	return err_sys(e, "cannot start tar");
}

static int send_tree(struct client_transfer *t, const struct inside_path *inside, const char *dir,
		     struct err *e)
{
	char *const up[] = {"tar", "-C", (char *)(uintptr_t)dir, "-cf", "-", ".", NULL};
	auto_free char *path = client_path(inside->id, "/files/tar?path=%s", inside->encoded);
	auto_close int fd = -1;
	int status = -1, rc;
	pid_t pid = -1;

	fd = start_tar(up, &pid, e);
	if (fd < 0)
		return -1;
	t->path = path;
	rc = transfer_put(t, fd, e);
	close_fd(&fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (rc == 0 && status != 0)
		rc = err_set(e, ERR_SYSTEM, "tar could not do its part");
	return rc;
}

/* The last part of dir may be a link that an earlier copy brought: it is not followed. */
static int receive_tree(struct client_transfer *t, const struct inside_path *inside,
			const char *dir, struct err *e)
{
	auto_free char *path = client_path(inside->id, "/files/tar?path=%s", inside->encoded);
	auto_close int fd = -1;

	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return err_sys(e, "cannot make %s", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cannot open %s as a directory", dir);
	t->path = path;
	return transfer_get_tree(t, fd, e);
}

/* ---- cp ---- */

/* The type of the file at this path inside: "file", "directory", ..., or "" if there is none. */
static int type_inside(struct client *c, const struct inside_path *p, char *ret, size_t size,
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

/* Copied into a directory, a file keeps its name. */
static int add_name(struct inside_path *p, const char *source, struct err *e)
{
	auto_free char *copy = str_copy(source), *path = NULL;

	path = str_format("%s%s%s", p->path, ends_in_slash(p->path) ? "" : "/", basename(copy));
	return set_path(p, path, e);
}

/* One copy, as --json shows it afterwards. */
struct file_copy {
	struct client_transfer transfer;
	struct inside_path inside;
	char *here; /* a path, or "-" */
	bool is_tree;
};

static int copy_in(struct file_copy *y, struct err *e)
{
	struct client *c = y->transfer.client;
	bool from_stdin = str_equal(y->here, "-");
	auto_close int fd = from_stdin ? dup(STDIN_FILENO) : open(y->here, O_RDONLY | O_CLOEXEC);
	auto_free char *path = NULL;
	struct inside_path *to = &y->inside;
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
		return send_tree(&y->transfer, to, y->here, e);
	path = client_path(to->id, "/files?path=%s", to->encoded);
	y->transfer.path = path;
	return transfer_put(&y->transfer, fd, e);
}

static int copy_out(struct file_copy *y, struct err *e)
{
	struct client *c = y->transfer.client;
	const struct inside_path *from = &y->inside;
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
		const char *name = basename(copy);
		char *longer;

		if (str_equal(name, ".."))
			return err_set(e, ERR_INVALID, "%s: name the directory itself", from->path);
		longer = str_format("%s/%s", y->here, str_equal(name, "/") ? "." : name);
		free(y->here);
		y->here = longer;
		/* Not named by the caller, so perhaps brought by an earlier copy. */
		if (lstat(y->here, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
			return err_set(
				e, ERR_CONFLICT,
				"%s is there, and is neither a file nor a directory; remove it, "
				"or name another target",
				y->here);
	}
	return y->is_tree ? receive_tree(&y->transfer, from, y->here, e)
			  : transfer_get_file(&y->transfer, y->here, e);
}

/* Prints source, target, type and size. */
static int show_copy(const struct file_copy *y, bool in)
{
	auto_free char *inside = str_format("%s:%s", y->inside.id, y->inside.path);

	return print_json(json_pack(
		"{s:o?, s:o?, s:s, s:I}", "source", client_text(in ? y->here : inside), "target",
		client_text(in ? inside : y->here), "type", y->is_tree ? "directory" : "file",
		"bytes", (json_int_t)y->transfer.bytes));
}

static int cp(struct verb_call *v, struct err *e)
{
	struct file_copy y = {.transfer.client = &v->client};
	bool in = !is_inside(v->args[0]);
	int rc;

	if (in != is_inside(v->args[1]))
		return err_set(e, ERR_INVALID,
			       "one of the two must be ID:PATH, the other a path here");
	if (v->json && !in && str_equal(v->args[1], "-"))
		return err_set(e, ERR_INVALID, "with --json stdout is not for the file");
	signal(SIGPIPE, SIG_IGN);
	y.here = str_copy(v->args[!in]);
	rc = find_place(&v->client, v->args[in], &y.inside, e);
	if (rc == 0)
		rc = in ? copy_in(&y, e) : copy_out(&y, e);
	if (rc == 0 && v->json)
		rc = show_copy(&y, in);
	json_decref(y.transfer.answer);
	free(y.here);
	return rc;
}

static const struct verb_option cp_options[] = {
	{"json", 0, NULL, "an object: source, target, type, bytes", NULL},
};

const struct verb verb_cp = {
	.line = "cloche cp [--json] SOURCE TARGET",
	.about = "Copies a file or a directory into a sandbox or out of it. One of the two is\n"
		 "ID:PATH; the other is a path here, or - for a standard stream.",
	.run = cp,
	OPTIONS(cp_options),
	ARGS(2, 2),
};

static int cat(struct verb_call *v, struct err *e)
{
	int status = 0;

	for (int i = 0; i < v->count; i++) {
		auto_free char *path = NULL;
		struct client_transfer t = {.client = &v->client};
		struct inside_path p = {0};

		if (find_place(&v->client, v->args[i], &p, e) == 0) {
			t.path = path = client_path(p.id, "/files?path=%s", p.encoded);
			if (transfer_get(&t, STDOUT_FILENO, "stdout", e) == 0)
				continue;
		}
		status = cli_fail(e);
	}
	return status;
}

const struct verb verb_cat = {
	.line = "cloche cat ID:PATH...",
	.about = "Prints files of sandboxes.",
	.run = cat,
	ARGS(1, VERB_MANY),
};

/* ---- ls ---- */

/* For one directory the names are enough; for several levels paths tell files apart. */
#define LONG_COLUMNS(name)                                                                         \
	{                                                                                          \
		{"TYPE", "type", COLUMN_TEXT}, {"MODE", "mode", COLUMN_TEXT},                      \
			{"OWNER", "owner", COLUMN_TEXT}, {"SIZE", "size", COLUMN_BYTES},           \
			{"MODIFIED", "mtime", COLUMN_TEXT}, {"NAME", name, COLUMN_TEXT},           \
	}

static void print_names(const json_t *entries, const char *key)
{
	const json_t *item;
	size_t i;

	json_array_foreach (entries, i, item) {
		const char *name = text_at(item, key), *type = text_at(item, "type");
		char clean[4096];

		str_sanitise(clean, sizeof(clean), name ? name : "", name ? strlen(name) : 0);
		printf("%s%s\n", clean, type && str_equal(type, "directory") ? "/" : "");
	}
}

static int ls(struct verb_call *v, struct err *e)
{
	static const struct column by_name[] = LONG_COLUMNS("name"),
				   by_path[] = LONG_COLUMNS("path");
	const char *depth = verb_text(v, "depth");
	bool paths = !str_equal(depth, "1");
	auto_free char *path = NULL;
	struct inside_path p = {0};
	json_t *answer, *entries;
	char encoded[32];

	if (find_place(&v->client, v->args[0], &p, e) < 0)
		return -1;
	http_encode(encoded, sizeof(encoded), depth, false);
	path = client_path(p.id, "/files?path=%s&list=1&depth=%s", p.encoded, encoded);
	if (client_call(&v->client, "GET", path, NULL, &answer, e) < 0)
		return -1;
	if (v->json)
		return print_json(answer);
	entries = json_is_array(answer) ? answer : json_object_get(answer, "entries");
	if (verb_text(v, "long"))
		table_print(entries, paths ? by_path : by_name, ARRAY_LEN(by_name));
	else
		print_names(entries, paths ? "path" : "name");
	json_decref(answer);
	return finish_stdout(0);
}

static const struct verb_option ls_options[] = {
	{"long", 'l', NULL, "with mode, size and time", NULL},
	{"depth", 0, "N", "so many levels down (1)", "1"},
	{"json", 0, NULL, "as the daemon answers", NULL},
};

const struct verb verb_ls = {
	.line = "cloche ls [OPTIONS] ID[:PATH]",
	.about = "Lists a directory in a sandbox.",
	.run = ls,
	OPTIONS(ls_options),
	ARGS(1, 1),
};
