/* `cloche code`: puts a snippet into the sandbox as a file and runs its interpreter on it. */
#include "cli/cli.h"

#include "model/snippet.h"
#include "policy/paths/source.h"
#include "sandbox/sandbox.h"

#include <assert.h>

#define CODE_MAX (64u << 20)
#define MAX_INJECTED 4

/* By name, else by the file's ending, else Python. */
static const struct language *choose_language(const struct options *o, const char *file,
					      struct err *e)
{
	const char *ending = file ? strrchr(file, '.') : NULL;
	const struct language *l = ending ? language_of_ending(ending) : NULL;

	if (o->lang)
		return language_find(o->lang, "lang", e);
	return l ? l : &languages[0];
}

/*
 * A file is checked like any other source. A pipe (`cloche code <(make-it)`) has no path to check.
 */
static int check_file(const struct sandbox_spec *s, const char *file, int fd, struct err *e)
{
	struct source source;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, "cannot read %s", file);
	if (S_ISFIFO(st.st_mode))
		return 0;
	if (source_open(s, "file", file, SOURCE_READ, &source, e) < 0)
		return -1;
	close(source.fd);
	if (source.st.st_dev != st.st_dev || source.st.st_ino != st.st_ino)
		return err_set(e, ERR_CONFLICT, "%s was replaced while it was opened", file);
	return 0;
}

static void name_after(const char *file, struct injected_file *ret)
{
	const char *slash = strrchr(file, '/');

	free(ret->path);
	ret->path = str_format("/run/code/%s", slash ? slash + 1 : file);
}

static int read_code(const struct sandbox_spec *s, const char *file, struct injected_file *ret,
		     struct err *e)
{
	bool is_stdin = str_equal(file, "-");
	auto_close int fd = is_stdin ? dup(0) : open(file, O_RDONLY | O_CLOEXEC);
	size_t room = 64 << 10;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, "%s: %s", file, strerror(errno));
	if (!is_stdin && check_file(s, file, fd, e) < 0)
		return -1;
	if (!is_stdin && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		name_after(file, ret);
	ret->data = must_alloc(malloc(room));
	while ((n = read(fd, ret->data + ret->size, room - ret->size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "cannot read %s", file);
		ret->size += (size_t)n;
		if (ret->size > CODE_MAX)
			return err_set(e, ERR_LIMIT, "%s: more than 64M of code", file);
		if (ret->size == room) {
			room *= 2;
			ret->data = must_alloc(realloc(ret->data, room));
		}
	}
	return 0;
}

/* Adds the guard's files after the code. */
static size_t place_guard(const struct sandbox_spec *s, struct injected_file *files)
{
	static const struct guest_file *const from[] = GUARD_FILES;

	static_assert(ARRAY_LEN(from) < MAX_INJECTED, "room for the code and the guard");
	for (size_t i = 0; s->guard != GUARD_OFF && i < ARRAY_LEN(from); i++)
		files[i + 1] = (struct injected_file){
			.path = str_format("%s/%s", GUARD_DIR, from[i]->name),
			.data = (char *)from[i]->bytes,
			.size = from[i]->size,
			.mode = 0644};
	return s->guard != GUARD_OFF ? 1 + ARRAY_LEN(from) : 1;
}

/*
 * The code becomes a file, never a part of a command line or script. A traceback then shows the
 * base name that the caller used.
 */
static const struct language *place_code(struct sandbox_spec *s, const struct options *o,
					 const char *file, struct injected_file *ret, struct err *e)
{
	const struct language *l = choose_language(o, o->code ? NULL : file, e);

	if (!l)
		return NULL;
	ret->mode = 0644;
	ret->path = snippet_path(l, "/run/code", NULL);
	if (o->code) {
		ret->data = str_copy(o->code);
		ret->size = strlen(o->code);
	} else if (read_code(s, file, ret, e) < 0) {
		return NULL;
	}
	return snippet_argv(l, ret->path, s, NULL, &s->argv, e) < 0 ? NULL : l;
}

/* Lets the code import modules of the workspace, as if its file were there. */
static void search_workspace(struct sandbox_request *r)
{
	char cwd[PATH_MAX];

	if (r->spec->empty || (!r->spec->workspace && !getcwd(cwd, sizeof(cwd))))
		return;
	if (r->spec->workspace && !realpath(r->spec->workspace, cwd))
		return;
	snippet_env(cwd, &r->extra_env);
}

int cmd_code(int argc, char **argv)
{
	struct options o = {.verb = "code", .for_code = true};
	struct sandbox_request request = {0};
	struct injected_file files[MAX_INJECTED] = {0};
	struct sandbox_spec s;
	struct err e = {0};
	const char *file = "-";
	const struct language *language = NULL;
	int first, status;

	spec_init(&s);
	first = options_parse(&s, argc, argv, &o, &e);
	if (o.help)
		return cmd_help(2, (char *[]){"help", "code", NULL});
	if (first >= 0 && !o.code && first < argc)
		file = argv[first++];
	if (first >= 0 && run_take_image(&s, false, &e) == 0 && spec_finish(&s, &e) == 0)
		language = place_code(&s, &o, file, &files[0], &e);
	if (!language)
		return cli_fail_spec(&s, &e);
	for (int i = first; i < argc; i++)
		list_add(&s.argv, argv[i]);
	request.spec = &s;
	request.own_argv = argv - 1; /* begins with the program's name */
	request.files = files;
	request.file_count = place_guard(&s, files);
	search_workspace(&request);
	status = run_and_report(&request, language, o.no_daemon);
	list_done(&request.extra_env);
	free(files[0].data);
	for (size_t i = 0; i < request.file_count; i++)
		free(files[i].path);
	spec_done(&s);
	return status;
}
