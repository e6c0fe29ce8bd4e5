/* `cloche image`: the caller's store of root file systems. No daemon is needed. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/operator/image_cmd.h"

#include <signal.h>

/* ---- the maker ---- */

static void print_note(const char *text)
{
	fprintf(stderr, "cloche: %s\n", text);
}

int image_cmd_open(struct image_maker *m, struct image_programs *p, struct err *e)
{
	*m = (struct image_maker){.note = print_note, .work = -1, .tmp = -1, .guest = -1};
	m->store.dir = -1;
	/* A helper that ends early is noticed by its status. */
	signal(SIGPIPE, SIG_IGN);
	if (cli_find_helper("cloche-image", p->worker, sizeof(p->worker)) < 0 ||
	    cli_find_helper("cloche-guest", p->guest, sizeof(p->guest)) < 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "cloche-image and cloche-guest are not installed beside cloche");
	return image_maker_open(m, p->worker, p->guest, e);
}

static void print_made(const char *hex, const char *name)
{
	printf("sha256:%s%s%s\n", hex, name ? " " : "", name ? name : "");
}

static int run_import(struct verb_call *v, struct err *e)
{
	struct image_import i = {.from = v->args[0], .name = v->args[1], .made = print_made};
	struct image_programs programs;
	struct image_maker m;
	int rc = image_cmd_open(&m, &programs, e);

	if (rc == 0)
		rc = image_import(&m, &i, e);
	image_maker_close(&m);
	return rc < 0 ? -1 : finish_stdout(0);
}

/* Shown ten times a second on a terminal; nothing in the first half second. */
static void print_progress(uint64_t done, uint64_t total)
{
	static int64_t started, shown;
	int64_t now = now_ns();
	char a[16], b[16];

	started = started ? started : now;
	if (!isatty(STDERR_FILENO) || now - started < 500000000 ||
	    (now - shown < 100000000 && done < total))
		return;
	shown = now;
	fprintf(stderr, "\r%3d%% %s of %s\033[K%s", total ? (int)(done * 100 / total) : 0,
		format_bytes(done, a, sizeof(a)), format_bytes(total, b, sizeof(b)),
		done < total ? "" : "\r\033[K");
}

static int run_pull(struct verb_call *v, struct err *e)
{
	struct image_pull p = {.name = v->args[0],
			       .mirrors = verb_texts(v, "mirror"),
			       .is_plain = verb_text(v, "plain-http"),
			       .made = print_made};
	struct image_programs programs;
	struct image_maker m;
	int rc = image_cmd_open(&m, &programs, e);

	m.progress = print_progress;
	if (rc == 0)
		rc = image_pull(&m, &p, e);
	image_maker_close(&m);
	return rc < 0 ? -1 : finish_stdout(0);
}

/* To a directory that is made, to a file that is replaced as a whole, or to stdout. */
static int export_to(struct image_maker *m, const struct image *i, const struct verb_call *v,
		     const char *name, struct err *e)
{
	const char *to = v->args[1];
	auto_free char *part = str_format("%s.part-%d", to, (int)getpid());
	auto_close int fd = -1;

	if (str_equal(to, "-")) {
		if (isatty(STDOUT_FILENO))
			return err_set(e, ERR_INVALID, "stdout is a terminal; name a file");
		return image_export_tar(m, i, name, STDOUT_FILENO, e);
	}
	if (verb_text(v, "dir")) {
		if (mkdir(to, 0755) == 0)
			fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? err_sys(e, "cannot make directory %s", to)
			      : image_export(m, i, name, fd, e);
	}
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, "cannot write %s", part);
	if (image_export_tar(m, i, name, fd, e) == 0) {
		if (fsync(fd) == 0 && rename(part, to) == 0)
			return 0;
		err_sys(e, "cannot write %s", to);
	}
	unlink(part);
	return -1;
}

static int run_export(struct verb_call *v, struct err *e)
{
	struct image i = {.lock = -1};
	struct image_reference name;
	struct image_programs programs;
	struct image_maker m;
	struct err ignored;
	bool named = image_reference_parse(v->args[0], &name, &ignored) == 0 && name.tag[0];
	int rc = image_cmd_open(&m, &programs, e);

	if (rc == 0)
		rc = image_find(&m.store, v->args[0], &i, e);
	/* An id may look like a name. */
	if (rc == 0 && named && str_starts(i.hex, v->args[0]))
		named = false;
	if (rc == 0)
		rc = export_to(&m, &i, v, named ? name.name : NULL, e);
	image_done(&i);
	image_maker_close(&m);
	return rc;
}

/* ---- looking ---- */

static const struct column columns[] = {
	{"NAME", "name", COLUMN_TEXT},	      {"ID", "id", COLUMN_DIGEST},
	{"SIZE", "size_bytes", COLUMN_BYTES}, {"LAYERS", "layers", COLUMN_TEXT},
	{"ADDED", "added_at", COLUMN_AGE},
};

/* A name whose image is damaged is listed all the same. */
static json_t *row_of(const struct image_store *s, const struct image_ref *r)
{
	char added[UTC_TEXT];
	struct image i = {.lock = -1};
	struct err ignored;
	json_t *row;

	image_open(s, r->hex, &i, &ignored);
	row = json_pack("{s:s, s:o, s:s?, s:s, s:I, s:I}", "name", r->name, "id",
			json_sprintf("sha256:%s", r->hex), "digest",
			str_equal(r->digest, "-") ? NULL : r->digest, "added_at",
			utc_text(r->unix_ms / 1000, 0, 0, added), "size_bytes",
			(json_int_t)i.record.size, "layers", (json_int_t)i.record.layers.count);
	image_done(&i);
	return row;
}

static int run_ls(struct verb_call *v, struct err *e)
{
	json_t *answer = json_object(), *rows = json_array();
	struct image_store s = {.dir = -1};
	struct image_refs refs = {0};
	int rc = image_store_open(&s, false, e);

	if (rc == 0)
		rc = image_refs_read(&s, &refs, e);
	else if (e->kind == ERR_NOT_FOUND)
		rc = 0;
	for (size_t i = 0; i < refs.count; i++)
		if (str_equal(refs.items[i].owner, s.owner))
			json_array_append_new(rows, row_of(&s, &refs.items[i]));
	image_refs_done(&refs);
	image_store_close(&s);
	json_object_set_new(answer, "images", rows);
	if (rc == 0)
		return verb_show(v, answer);
	json_decref(answer);
	return -1;
}

/* Has cloche-image print an image's configuration; nothing but printable ASCII gets through. */
static int print_config(struct verb_call *v, const char *kind, struct err *e)
{
	auto_free char *path = NULL, *config = NULL;
	auto_buf struct buf text = {0};
	struct image_programs programs;
	struct image_maker m;
	struct image i = {.lock = -1};
	size_t len = 0;
	int rc = image_cmd_open(&m, &programs, e);

	if (rc == 0)
		rc = image_find(&m.store, v->args[0], &i, e);
	if (rc == 0) {
		path = str_format("configs/%s", i.hex);
		auto_close int fd = openat(m.store.dir, path, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || io_read_whole(fd, IMAGE_CONFIG_MAX, &config, &len) < 0)
			rc = err_sys(e, "cannot read %s", path);
	}
	if (rc == 0)
		rc = image_parse(&m, kind, &(struct image_json){config, len, NULL}, &text, e);
	for (size_t n = 0; rc == 0 && n < text.len; n++) {
		char c = buf_head(&text)[n];

		putchar((c >= ' ' && c <= '~') || c == '\n' ? c : '?');
	}
	image_done(&i);
	image_maker_close(&m);
	return rc < 0 ? -1 : finish_stdout(0);
}

static int run_inspect(struct verb_call *v, struct err *e)
{
	return print_config(v, "show", e);
}

static int run_history(struct verb_call *v, struct err *e)
{
	return print_config(v, "history", e);
}

/* ---- names ---- */

static int run_tag(struct verb_call *v, struct err *e)
{
	struct image_store s = {.dir = -1};
	struct image i = {.lock = -1};
	struct image_reference name;
	int rc = image_reference_parse(v->args[1], &name, e);

	if (rc == 0)
		rc = image_find_mine(v->args[0], &s, &i, e);
	if (rc == 0)
		rc = image_tag(&s, name.name, i.hex, NULL, e);
	image_done(&i);
	image_store_close(&s);
	return rc;
}

static void print_pruned(const struct image_pruned *p)
{
	char bytes[16];

	if (p->images || p->layers)
		fprintf(stderr, "cloche: removed %llu image%s and %llu layer%s, %s\n",
			(unsigned long long)p->images, p->images == 1 ? "" : "s",
			(unsigned long long)p->layers, p->layers == 1 ? "" : "s",
			format_bytes(p->bytes, bytes, sizeof(bytes)));
}

static int run_rm(struct verb_call *v, struct err *e)
{
	struct image_pruned pruned;
	struct image_store s = {.dir = -1};
	int status = 0;

	if (image_store_open(&s, false, e) < 0)
		return -1;
	auto_close int work = image_work_lock(&s, true, e);

	if (work < 0) {
		image_store_close(&s);
		return -1;
	}
	for (char **what = v->args; *what; what++) {
		char hex[IMAGE_HEX + 1];

		if (image_untag(&s, *what, hex, e) < 0 || image_prune(&s, hex, &pruned, e) < 0)
			status = cli_fail(e);
		else
			print_pruned(&pruned);
	}
	image_store_close(&s);
	return status;
}

static int run_prune(struct verb_call *v, struct err *e)
{
	struct image_pruned pruned = {0};
	struct image_store s = {.dir = -1};
	int rc = image_store_open(&s, false, e);

	if (rc < 0)
		return e->kind == ERR_NOT_FOUND ? 0 : -1;
	auto_close int work = image_work_lock(&s, true, e);

	rc = work < 0 ? -1 : image_prune(&s, NULL, &pruned, e);
	image_store_close(&s);
	print_pruned(&pruned);
	return rc;
}

static const struct verb_option list_options[] = {
	{"json", 0, NULL, "print JSON", NULL},
};

static const struct verb_option pull_options[] = {
	{"mirror", 0, "HOST[:PORT]", "try this registry first; repeatable", NULL},
	{"plain-http", 0, NULL, "HTTP without TLS; needed only where the host is not this one",
	 NULL},
};

static const struct verb_option export_options[] = {
	{"dir", 0, NULL, "make a directory instead of a tar", NULL},
};

static const struct verb_option build_options[] = {
	{"file", 'f', "FILE", "the Dockerfile, by default DIR/Dockerfile; - is stdin", NULL},
	{"tag", 't', "NAME", "name of the image", NULL},
	{"build-arg", 0, "NAME[=VALUE]", "for ARG; repeatable", NULL},
	{"target", 0, "STAGE", "build this stage, by default the last, and what it needs", NULL},
	{"no-cache", 0, NULL, "make all layers again", NULL},
	{"secret", 0, "id=NAME,src=FILE", "for RUN --mount=type=secret; repeatable", NULL},
	IMAGE_RUN_OPTIONS,
	{"mirror", 0, "HOST[:PORT]", "for FROM: try this registry first; repeatable", NULL},
	{"plain-http", 0, NULL, "for FROM: HTTP without TLS", NULL},
	{"json", 0, NULL, "print events as lines of JSON", NULL},
};

static const struct verb_option refresh_options[] = {
	IMAGE_RUN_OPTIONS,
};

static const struct verb_option make_options[] = {
	{"packages", 0, "NAMES", "packages, with blanks between", NULL},
	IMAGE_RUN_OPTIONS,
};

static const struct verb parts[] = {
	{.name = "make",
	 .line = "cloche image make NAME [--packages 'PACKAGE...']",
	 .about = "Makes an image from packages of this host's distribution (apt), without a "
		  "registry. The names\n"
		  "base, python, node and code-interpreter have packages of their own. Prints the "
		  "image's id.",
	 .run = image_cmd_make,
	 ARGS(1, 1),
	 OPTIONS(make_options),
	 .is_local = true},
	{.name = "refresh",
	 .line = "cloche image refresh NAME",
	 .about = "Makes an image of `make` again with today's packages, if any of them changed, "
		  "and lists\n"
		  "what did: + and - with names and versions.",
	 .run = image_cmd_refresh,
	 ARGS(1, 1),
	 OPTIONS(refresh_options),
	 .is_local = true},
	{.name = "build",
	 .line = "cloche image build [-t NAME] [-f FILE] [OPTIONS] DIR",
	 .about = "Builds an image from a Dockerfile. Each RUN is a sandbox with root inside, and "
		  "without "
		  "a\nnetwork unless --net gives one. Prints the image's id.",
	 .run = image_cmd_build,
	 ARGS(1, 1),
	 OPTIONS(build_options),
	 .is_local = true},
	{.name = "export",
	 .line = "cloche image export [--dir] NAME|ID FILE|DIR|-",
	 .about = "Writes an OCI layout, with the manifest of `docker save` beside it, as a tar. "
		  "The "
		  "id\n"
		  "stays the same.",
	 .run = run_export,
	 ARGS(2, 2),
	 OPTIONS(export_options),
	 .is_local = true},
	{.name = "pull",
	 .line = "cloche image pull [--mirror HOST[:PORT]] [--plain-http] NAME",
	 .about = "Pulls an image from its registry, with the login that `docker login` stored. "
		  "Prints its id.",
	 .run = run_pull,
	 ARGS(1, 1),
	 OPTIONS(pull_options),
	 .is_local = true},
	{.name = "import",
	 .line = "cloche image import FILE|DIR|- [NAME]",
	 .about = "Imports an archive of `docker save`, an OCI layout (a directory or a tar), or a "
		  "tar\n"
		  "of a root file system. Prints the image's id.",
	 .run = run_import,
	 ARGS(1, 2),
	 .is_local = true},
	{.name = "ls",
	 .line = "cloche image ls [--json]",
	 .about = "Lists images.",
	 .run = run_ls,
	 .member = "images",
	 COLUMNS(columns),
	 OPTIONS(list_options),
	 .is_local = true},
	{.name = "inspect",
	 .line = "cloche image inspect NAME|ID",
	 .about = "Prints an image's configuration as JSON.",
	 .run = run_inspect,
	 ARGS(1, 1),
	 .is_local = true},
	{.name = "history",
	 .line = "cloche image history NAME|ID",
	 .about = "Lists the steps by which an image was built.",
	 .run = run_history,
	 ARGS(1, 1),
	 .is_local = true},
	{.name = "tag",
	 .line = "cloche image tag NAME|ID NAME",
	 .about = "Gives an image another name.",
	 .run = run_tag,
	 ARGS(2, 2),
	 .is_local = true},
	{.name = "rm",
	 .line = "cloche image rm NAME|ID...",
	 .about = "Removes names, and images without a name. What a sandbox uses stays until "
		  "`prune`.",
	 .run = run_rm,
	 ARGS(1, VERB_MANY),
	 .is_local = true},
	{.name = "prune",
	 .line = "cloche image prune",
	 .about = "Removes images without a name that no sandbox uses, and layers of no image.",
	 .run = run_prune,
	 .is_local = true},
};

const struct verb verb_image = {
	.about =
		"usage: cloche image pull NAME                  from its registry\n"
		"       cloche image build -t NAME DIR          from a Dockerfile\n"
		"       cloche image make NAME                  from packages of this host's "
		"distribution\n"
		"       cloche image refresh NAME               again, with today's packages\n"
		"       cloche image import FILE|DIR|- [NAME]   from docker save, an OCI layout, a "
		"tar\n"
		"       cloche image export NAME|ID FILE|-      as an OCI layout\n"
		"       cloche image ls                         list images\n"
		"       cloche image inspect NAME|ID            an image's configuration\n"
		"       cloche image history NAME|ID            the steps by which it was built\n"
		"       cloche image tag NAME|ID NAME           give it another name\n"
		"       cloche image rm NAME|ID...              remove names and images\n"
		"       cloche image prune                      remove what has no name\n"
		"\n"
		"cloche run --image NAME -- COMMAND runs in one.\n",
	PARTS(parts),
};
