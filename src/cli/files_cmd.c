/*
 * Files in and out. One file is streamed as it is; a directory goes as a tar stream through tar(1),
 * which runs here, as the caller, with owners and set-id bits left behind: what comes out of a
 * sandbox is foreign.
 */
#include "cli/files_cmd.h"

#include "base/auto.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PIECE (256u << 10)

/* ---- ID:PATH ---- */

struct place {
	bool inside;
	char id[64];
	const char *path;
	char encoded[8192];
};

/* "ID:PATH" is inside; "./a:b", "/a:b" and what has no colon is not. */
static bool is_inside(const char *arg)
{
	const char *colon = strchr(arg, ':');

	return colon && colon != arg && !memchr(arg, '/', (size_t)(colon - arg)) && arg[0] != '.';
}

static int find_place(struct client *c, const char *arg, struct place *ret, struct err *e)
{
	auto_free char *box = str_format("%.*s", (int)strcspn(arg, ":"), arg);
	const char *colon = strchr(arg, ':');

	ret->inside = true;
	ret->path = colon && colon[1] ? colon + 1 : "/workspace";
	if (strlen(ret->path) * 3 >= sizeof(ret->encoded))
		return err_set(e, ERR_INVALID, "the path is too long");
	http_encode(ret->encoded, sizeof(ret->encoded), ret->path, true);
	return client_find(c, box, ret->id, sizeof(ret->id), e);
}

/* ---- progress ---- */

struct progress {
	bool on;
	int64_t total, done; /* total -1: not known */
	int64_t started_ns, shown_ns;
};

static void progress_start(struct progress *p, int64_t total)
{
	*p = (struct progress){.on = isatty(STDERR_FILENO), .total = total, .started_ns = now_ns()};
}

/* Nothing for copies that are over at once; then ten times a second. */
static void progress_add(struct progress *p, size_t n)
{
	int64_t now = p->on ? now_ns() : 0;
	char done[16], total[16], rate[16], bar[31];
	double seconds = (double)(now - p->started_ns) / 1e9;
	int filled;

	p->done += (int64_t)n;
	if (!p->on || seconds < 0.5 || now - p->shown_ns < 100000000)
		return;
	p->shown_ns = now;
	format_bytes((uint64_t)p->done, done, sizeof(done));
	format_bytes((uint64_t)((double)p->done / seconds), rate, sizeof(rate));
	if (p->total <= 0) {
		fprintf(stderr, "\r%s, %s/s\033[K", done, rate);
		return;
	}
	filled = (int)(p->done >= p->total ? 30 : p->done * 30 / p->total);
	memset(bar, '.', 30);
	memset(bar, '#', (size_t)filled);
	bar[30] = '\0';
	fprintf(stderr, "\r[%s] %3d%% %s of %s, %s/s\033[K", bar, (int)(p->done * 100 / p->total),
		done, format_bytes((uint64_t)p->total, total, sizeof(total)), rate);
}

static void progress_stop(const struct progress *p)
{
	if (p->shown_ns)
		fprintf(stderr, "\r\033[K");
}

/* ---- streams ---- */

/* The answer's body into an fd. what: for messages. */
static int download(struct client *c, const char *path, int fd, const char *what, struct err *e)
{
	const struct http_request r = {.method = "GET", .path = path, .stream_len = HTTP_NO_BODY};
	auto_free char *bytes = must_alloc(malloc(PIECE));
	struct http *h = client_connect(c, e);
	struct http_response response;
	struct progress p;
	ssize_t n = -1;
	int rc = -1;

	if (!h || http_send(h, &r, e) < 0 || http_receive(h, &response, e) < 0) {
		http_close(h);
		return -1;
	}
	if (response.status < 200 || response.status > 299) {
		rc = client_error(h, &response, e);
		http_close(h);
		return rc;
	}
	progress_start(&p, response.length);
	while ((n = http_read(h, bytes, PIECE, e)) > 0) {
		if (io_write_all(fd, bytes, (size_t)n) < 0) {
			err_sys(e, "cannot write %s", what);
			break;
		}
		progress_add(&p, (size_t)n);
	}
	progress_stop(&p);
	http_close(h);
	return n == 0 ? 0 : -1;
}

static int send_from(struct http *h, int fd, struct progress *p, struct err *e)
{
	auto_free char *bytes = must_alloc(malloc(PIECE));
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read(fd, bytes, PIECE)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "cannot read");
		/* A file that grows meanwhile is cut to what was announced. */
		if (p->total >= 0 && n > p->total - p->done)
			n = (ssize_t)(p->total - p->done);
		if (n == 0)
			break;
		rc = http_write(h, bytes, (size_t)n, e);
		progress_add(p, (size_t)n);
	}
	if (rc == 0 && p->total >= 0 && p->done < p->total)
		return err_set(e, ERR_SYSTEM, "it became shorter while it was read");
	return rc < 0 ? -1 : 0;
}

/* length HTTP_CHUNKED: not known. */
static int upload(struct client *c, const char *path, int fd, int64_t length, struct err *e)
{
	const struct http_request r = {.method = "PUT",
				       .path = path,
				       .content_type = "application/octet-stream",
				       .stream_len = length};
	struct http *h = client_connect(c, e);
	struct http_response response;
	struct progress p;
	int rc = -1;

	if (!h)
		return -1;
	progress_start(&p, length < 0 ? -1 : length);
	if (http_send(h, &r, e) == 0 && send_from(h, fd, &p, e) == 0 && http_write_end(h, e) == 0 &&
	    http_receive(h, &response, e) == 0)
		rc = response.status >= 200 && response.status <= 299
			     ? 0
			     : client_error(h, &response, e);
	progress_stop(&p);
	http_close(h);
	return rc;
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

static int upload_tree(struct client *c, const struct place *to, const char *dir, struct err *e)
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
	rc = upload(c, path, in, HTTP_CHUNKED, e);
	close_fd(&in);
	return wait_tar(pid, rc < 0 ? &(struct err){0} : e) < 0 || rc < 0 ? -1 : 0;
}

static int download_tree(struct client *c, const struct place *from, const char *dir, struct err *e)
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
	rc = download(c, path, out, dir, e);
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

/* Into a directory it keeps its name. */
static void add_name(struct place *p, const char *source)
{
	auto_free char *copy = str_copy(source);
	size_t len = strlen(p->encoded);

	if (len && p->encoded[len - 1] != '/')
		strcpy(p->encoded + len++, "/");
	http_encode(p->encoded + len, sizeof(p->encoded) - len, basename(copy), false);
}

static bool ends_in_slash(const char *path)
{
	size_t len = strlen(path);

	return len && path[len - 1] == '/';
}

static int copy_in(struct client *c, const char *source, struct place *to, struct err *e)
{
	bool from_stdin = str_equal(source, "-");
	auto_close int fd = from_stdin ? dup(STDIN_FILENO) : open(source, O_RDONLY | O_CLOEXEC);
	auto_free char *path = NULL;
	struct stat st;
	char type[24];
	bool is_dir;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%s: cannot open", source);
	if (type_inside(c, to, type, sizeof(type), e) < 0)
		return -1;
	is_dir = str_equal(type, "directory") || (ends_in_slash(to->path) && !S_ISDIR(st.st_mode));
	if (is_dir && !from_stdin)
		add_name(to, source);
	if (S_ISDIR(st.st_mode))
		return upload_tree(c, to, source, e);
	path = client_path(to->id, "/files?path=%s", to->encoded);
	return upload(c, path, fd, S_ISREG(st.st_mode) ? st.st_size : HTTP_CHUNKED, e);
}

static int copy_out(struct client *c, const struct place *from, const char *target, struct err *e)
{
	auto_free char *copy = str_copy(from->path), *to = NULL, *part = NULL, *path = NULL;
	auto_close int fd = -1;
	struct stat st;
	char type[24];

	if (type_inside(c, from, type, sizeof(type), e) < 0)
		return -1;
	path = client_path(from->id, "/files?path=%s", from->encoded);
	if (str_equal(target, "-"))
		return download(c, path, STDOUT_FILENO, "stdout", e);
	to = stat(target, &st) == 0 && S_ISDIR(st.st_mode)
		     ? str_format("%s/%s", target, basename(copy))
		     : str_copy(target);
	if (str_equal(type, "directory"))
		return download_tree(c, from, to, e);
	/* What is no file is written to: a rename would put a file in the place of /dev/null. */
	if (stat(to, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open(to, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		return fd < 0 ? err_sys(e, "cannot write %s", to) : download(c, path, fd, to, e);
	}
	/* Whole or not at all. */
	part = str_format("%s.part-%d", to, (int)getpid());
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, "cannot write %s", part);
	if (download(c, path, fd, to, e) == 0 && rename(part, to) == 0)
		return 0;
	if (!e->msg[0])
		err_sys(e, "cannot write %s", to);
	unlink(part);
	return -1;
}

int cmd_cp(int argc, char **argv)
{
	const struct verb_usage u = {
		"cloche cp SOURCE TARGET",
		"Copies a file or a directory into a sandbox or out of it. One of the two is\n"
		"ID:PATH; the other is a path here, or - for a standard stream.",
		NULL,
		0,
		2,
		2};
	struct client c = {0};
	struct place p = {0};
	struct err e = {0};
	int first = verb_parse(&u, argc, argv, &e), rc;

	if (first >= 0 && is_inside(argv[first]) == is_inside(argv[first + 1]))
		first = err_set(&e, ERR_INVALID,
				"one of the two must be ID:PATH, the other a path here");
	if (first < 0)
		return verb_stop(first, &e);
	signal(SIGPIPE, SIG_IGN);
	rc = client_init(&c, &e);
	if (rc == 0 && is_inside(argv[first])) {
		rc = find_place(&c, argv[first], &p, &e);
		if (rc == 0)
			rc = copy_out(&c, &p, argv[first + 1], &e);
	} else if (rc == 0) {
		rc = find_place(&c, argv[first + 1], &p, &e);
		if (rc == 0)
			rc = copy_in(&c, argv[first], &p, &e);
	}
	client_done(&c);
	return rc < 0 ? cli_fail(&e) : 0;
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
		struct place p = {0};

		if (find_place(&c, argv[i], &p, &e) == 0) {
			path = client_path(p.id, "/files?path=%s", p.encoded);
			if (download(&c, path, STDOUT_FILENO, "stdout", &e) == 0)
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
