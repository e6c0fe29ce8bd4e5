/* `cloche image build`: a Dockerfile and a directory become an image. */
#include "cli/operator/image_cmd.h"

#include "base/jsonw.h"
#include "cli/cli.h"
#include "image/build/build.h"
#include "image/build/packages.h"

#include <fcntl.h>

#define DOCKERFILE_MAX (1u << 20)

/* ---- what is printed while it goes on ---- */

struct printing {
	bool json, in_line; /* output of a command that has not ended its line */
};

static void print_json_event(const struct build_event *w)
{
	static const char *const kinds[] = {
		[BUILD_STEP] = "step", [BUILD_CACHED] = "cached", [BUILD_OUTPUT] = "output"};
	struct jsonw j;

	jsonw_begin(&j, stdout);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "event", kinds[w->kind]);
	if (w->kind == BUILD_OUTPUT) {
		jsonw_text_open(&j, "text");
		jsonw_text(&j, w->text, w->len);
		jsonw_text_close(&j);
	} else {
		jsonw_uint(&j, "number", w->number);
		jsonw_uint(&j, "of", w->of);
		jsonw_string(&j, "step", w->text);
	}
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	jsonw_finish(&j);
}

static void print_event(void *arg, const struct build_event *w)
{
	struct printing *p = arg;
	char text[200];

	if (p->json) {
		print_json_event(w);
		return;
	}
	if (w->kind == BUILD_OUTPUT) {
		io_write_all(STDERR_FILENO, w->text, w->len);
		p->in_line = w->len && w->text[w->len - 1] != '\n';
		return;
	}
	str_sanitise(text, sizeof(text), w->text, strcspn(w->text, "\n"));
	fprintf(stderr, "%s[%u/%u] %s%s\n", p->in_line ? "\n" : "", w->number, w->of,
		w->kind == BUILD_CACHED ? "as before: " : "", text);
	p->in_line = false;
}

/* ---- what is given ---- */

static int open_context(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, "cannot open the directory %s", path) : fd;
}

/* A file of the caller's; by default the context's own, and no link. */
static int read_dockerfile(const char *path, int context, char **ret, size_t *ret_len,
			   struct err *e)
{
	auto_close int fd = -1;

	if (path && str_equal(path, "-"))
		fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	else if (path)
		fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	else
		fd = openat(context, "Dockerfile", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cannot open %s", path ? path : "the context's Dockerfile");
	*ret = must_alloc(malloc(DOCKERFILE_MAX + 2));
	ssize_t n = io_read_all(fd, *ret, DOCKERFILE_MAX + 1);

	if (n < 0)
		return err_sys(e, "cannot read %s", path ? path : "the Dockerfile");
	*ret_len = (size_t)n;
	return 0;
}

/* "id=NAME,src=PATH", as Docker has it, or "NAME=PATH". */
static int add_secret(const char *text, struct list *to, struct err *e)
{
	char id[100], path[PATH_MAX];

	if (sscanf(text, "id=%99[^,],src=%4095s", id, path) == 2 ||
	    sscanf(text, "id=%99[^,],source=%4095s", id, path) == 2 ||
	    (!str_starts(text, "id=") && sscanf(text, "%99[^=]=%4095s", id, path) == 2)) {
		list_take(to, str_format("%s=%s", id, path));
		return 0;
	}
	return err_field(e, ERR_INVALID, "secret", "secret: '%.100s' is not id=NAME,src=PATH",
			 text);
}

static int take_secrets(struct verb_call *v, struct list *to, struct err *e)
{
	const struct list *given = verb_texts(v, "secret");

	for (size_t i = 0; i < given->count; i++)
		if (add_secret(given->items[i], to, e) < 0)
			return -1;
	return 0;
}

/* "NAME" alone is the caller's variable of that name. */
static void take_args(struct verb_call *v, struct list *to)
{
	const struct list *given = verb_texts(v, "build-arg");

	for (size_t i = 0; i < given->count; i++) {
		const char *text = given->items[i], *value = getenv(text);

		if (strchr(text, '='))
			list_add(to, text);
		else if (value)
			list_take(to, str_format("%s=%s", text, value));
	}
}

static bool take_run_options(struct verb_call *v, struct list *to)
{
	static const struct verb_option options[] = {IMAGE_RUN_OPTIONS};
	const char *net = verb_text(v, "net");

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		const struct list *given = verb_texts(v, options[i].name);

		for (size_t k = 0; k < given->count; k++) {
			list_take(to, str_format("--%s", options[i].name));
			list_add(to, given->items[k]);
		}
	}
	if (verb_texts(v, "memory")->count && !verb_texts(v, "disk")->count) {
		list_add(to, "--disk");
		list_add(to, verb_text(v, "memory"));
	}
	return (net && !str_equal(net, "none")) || verb_texts(v, "allow")->count;
}

/* ---- all ---- */

static int build(struct verb_call *v, struct image_build *b, char hex[IMAGE_HEX + 1], struct err *e)
{
	struct image_programs programs;
	struct build_steps steps = {0};
	auto_free char *text = NULL;
	struct image_maker m;
	size_t len = 0;
	int rc = read_dockerfile(verb_text(v, "file"), b->context, &text, &len, e);

	if (rc < 0 || dockerfile_parse(text, len, &steps, e) < 0)
		return -1;
	b->steps = &steps;
	rc = image_cmd_open(&m, &programs, e);
	if (rc == 0)
		rc = image_build(&m, b, hex, e);
	image_maker_close(&m);
	build_steps_done(&steps);
	return rc;
}

static void print_built(const struct printing *p, const char *hex, const char *name)
{
	struct jsonw j;

	if (!p->json) {
		printf("sha256:%s%s%s\n", hex, name ? " " : "", name ? name : "");
		return;
	}
	auto_free char *id = str_format("sha256:%s", hex);

	jsonw_begin(&j, stdout);
	jsonw_open(&j, NULL, '{');
	jsonw_string(&j, "event", "built");
	jsonw_string(&j, "id", id);
	jsonw_string(&j, "name", name);
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	jsonw_finish(&j);
}

int image_cmd_build(struct verb_call *v, struct err *e)
{
	auto_close int context = open_context(v->args[0], e);
	auto_list struct list args = {0}, secrets = {0}, options = {0};
	struct printing p = {.json = v->json};
	char launcher[PATH_MAX], hex[IMAGE_HEX + 1];
	struct image_build b = {.context = context,
				.name = verb_text(v, "tag"),
				.target = verb_text(v, "target"),
				.args = &args,
				.secrets = &secrets,
				.run_options = &options,
				.launcher = launcher,
				.no_cache = verb_text(v, "no-cache"),
				.mirrors = verb_texts(v, "mirror"),
				.is_plain = verb_text(v, "plain-http"),
				.event = print_event,
				.arg = &p};

	if (context < 0 || take_secrets(v, &secrets, e) < 0)
		return -1;
	take_args(v, &args);
	b.has_network = take_run_options(v, &options);
	if (cli_find_helper("cloche", launcher, sizeof(launcher)) < 0)
		return err_set(e, ERR_UNSUPPORTED, "cloche is not installed beside cloched");
	if (build(v, &b, hex, e) < 0)
		return -1;
	print_built(&p, hex, b.name);
	return finish_stdout(0);
}

/* ---- from packages ---- */

static void print_changed(char sign, const char *package)
{
	char text[300];

	str_sanitise(text, sizeof(text), package, strlen(package));
	printf("%c %s\n", sign, text);
}

static int make_from(struct verb_call *v, const char *name, const char *packages, struct err *e)
{
	auto_list struct list options = {0};
	struct printing p = {.json = v->json};
	struct image_programs programs;
	char launcher[PATH_MAX], hex[IMAGE_HEX + 1];
	struct image_packages i = {.name = name,
				   .packages = packages,
				   .build = {.launcher = launcher,
					     .run_options = &options,
					     .event = print_event,
					     .arg = &p}};
	auto_free char *found = NULL;
	struct image_maker m;
	int rc;

	take_run_options(v, &options);
	if (cli_find_helper("cloche", launcher, sizeof(launcher)) < 0)
		return err_set(e, ERR_UNSUPPORTED, "cloche is not installed beside cloched");
	rc = image_cmd_open(&m, &programs, e);
	if (rc == 0 && !packages) {
		i.packages = found = image_packages_of(&m, name, e);
		i.changed = print_changed;
		rc = found ? 0 : -1;
	}
	if (rc == 0)
		rc = image_from_packages(&m, &i, hex, e);
	image_maker_close(&m);
	if (rc < 0)
		return -1;
	print_built(&p, hex, name);
	return finish_stdout(0);
}

int image_cmd_make(struct verb_call *v, struct err *e)
{
	const char *packages = verb_text(v, "packages");

	if (!packages)
		packages = image_packages_known(v->args[0]);
	if (!packages)
		return err_field(e, ERR_INVALID, "packages",
				 "packages: say which, or take a name that is known: base, python, "
				 "node, code-interpreter");
	return make_from(v, v->args[0], packages, e);
}

int image_cmd_refresh(struct verb_call *v, struct err *e)
{
	return make_from(v, v->args[0], NULL, e);
}
