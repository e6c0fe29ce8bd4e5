#include "sandbox/environment.h"

#include "base/auto.h"
#include "base/str.h"
#include "sandbox/sandbox.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* A later value takes the place of an earlier one. */
void environment_set(struct list *env, char *pair)
{
	size_t len = (size_t)(strchr(pair, '=') - pair) + 1;

	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->items[i], pair, len) == 0) {
			free(env->items[i]);
			env->items[i] = pair;
			return;
		}
	}
	list_take(env, pair);
}

/* ---- tools ---- */

/* What is on every system is in the image already. */
static bool is_system(const char *dir)
{
	static const char *const below[] = {"/usr", "/bin", "/sbin", "/opt", "/lib"};

	for (size_t i = 0; i < ARRAY_LEN(below); i++)
		if (path_below(dir, below[i]))
			return true;
	return false;
}

/*
 * The prefix of a tool chain: what stands above bin or shims. Directories that hold more than a
 * tool chain (credentials of cargo, a whole ~/.local) are shown as the bin directory alone.
 */
static void tool_prefix(const char *dir, char *ret, size_t size)
{
	static const char *const mixed[] = {".cargo", ".local", "go"};
	const char *last = strrchr(dir, '/');
	const char *above;

	snprintf(ret, size, "%s", dir);
	if (!last || (!str_equal(last, "/bin") && !str_equal(last, "/shims")))
		return;
	ret[last - dir] = '\0';
	above = strrchr(ret, '/');
	for (size_t i = 0; above && i < ARRAY_LEN(mixed); i++)
		if (str_equal(above + 1, mixed[i]))
			snprintf(ret, size, "%s", dir);
}

static bool show_tool(struct plan *p, const char *path)
{
	struct err ignored;
	struct source s;
	struct bind *b;

	if (source_open(p->spec, "tools", path, SOURCE_READ, &s, &ignored) < 0)
		return false;
	if (!S_ISDIR(s.st.st_mode)) {
		close(s.fd);
		return false;
	}
	b = plan_add_bind(p);
	b->source = s;
	b->is_tool = true;
	snprintf(b->target, sizeof(b->target), "%s", path);
	return true;
}

/*
 * Toolchains that keep their real files apart from the directory in PATH, and the variable that says where to
 * those who would look in HOME.
 */
static void show_companions(struct plan *p, const char *dir)
{
	static const struct {
		const char *ending, *companion, *variable;
	} rows[] = {{"/.cargo/bin", "/.rustup", "RUSTUP_HOME"},
		    {"/.local/bin", "/.local/share/uv", NULL}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t len = strlen(dir), end = strlen(rows[i].ending);
		char path[PATH_MAX];

		if (len < end || !str_equal(dir + len - end, rows[i].ending))
			continue;
		snprintf(path, sizeof(path), "%.*s%s", (int)(len - end), dir, rows[i].companion);
		if (show_tool(p, path) && rows[i].variable)
			environment_set(&p->env, str_format("%s=%s", rows[i].variable, path));
	}
}

/* Returns the directories to put in front of PATH, each followed by ':'. */
static char *show_tools(struct plan *p)
{
	const char *path = getenv("PATH");
	char *shown = str_copy("");

	for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
		auto_free char *typed = must_alloc(strndup(path, strcspn(path, ":")));
		char dir[PATH_MAX], prefix[PATH_MAX], *longer;

		/* It is shown by its name, and of ".." nobody can tell what that is inside. */
		if (!path_clean(typed, dir, sizeof(dir)) || is_system(dir))
			continue;
		tool_prefix(dir, prefix, sizeof(prefix));
		if (!show_tool(p, prefix) && (str_equal(prefix, dir) || !show_tool(p, dir)))
			continue;
		show_companions(p, dir);
		longer = str_format("%s%s:", shown, dir);
		free(shown);
		shown = longer;
	}
	return shown;
}

/* ---- variables ---- */

static void set_threads(struct plan *p)
{
	/* Libraries that would otherwise start a thread for each of the host's processors. */
	static const char *const names[] = {"OMP_NUM_THREADS",	 "OPENBLAS_NUM_THREADS",
					    "MKL_NUM_THREADS",	 "NUMEXPR_NUM_THREADS",
					    "RAYON_NUM_THREADS", "GOMAXPROCS"};
	unsigned n = (unsigned)((p->spec->limits.cpus_milli + 999) / 1000);

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		environment_set(&p->env, str_format("%s=%u", names[i], n));
}

static void set_defaults(struct plan *p, const char *tools)
{
	bool process = p->spec->level == LEVEL_PROCESS;
	const char *term = getenv("TERM");
	struct stat st;

	environment_set(&p->env,
			str_format("PATH=%s%s/.local/bin:" SYSTEM_PATH, tools, SANDBOX_HOME));
	if (!process)
		environment_set(&p->env, str_copy("HOME=" SANDBOX_HOME));
	environment_set(&p->env, str_copy("USER=user"));
	environment_set(&p->env, str_copy("LOGNAME=user"));
	environment_set(&p->env, str_format("SHELL=%s",
					    stat("/bin/bash", &st) == 0 ? "/bin/bash" : "/bin/sh"));
	environment_set(&p->env, str_copy("LANG=C.UTF-8"));
	environment_set(&p->env, str_format("PWD=%s", p->workdir));
	if (p->spec->tty)
		environment_set(&p->env, str_format("TERM=%s", term ? term : "xterm"));
}

static bool is_name(const char *s, size_t len)
{
	if (len == 0 || isdigit((unsigned char)s[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return false;
	return true;
}

/* "K=V", or "K" for the caller's own value. */
static int set_given(struct plan *p, const char *text, struct err *e)
{
	size_t len = strcspn(text, "=");
	const char *value;

	if (!is_name(text, len))
		return err_field(e, ERR_INVALID, "env", "env: '%s' is not a variable name", text);
	if (text[len] == '=') {
		environment_set(&p->env, str_copy(text));
		return 0;
	}
	value = getenv(text);
	if (!value)
		return err_field(e, ERR_INVALID, "env", "env: %s is not set here; use %s=VALUE",
				 text, text);
	environment_set(&p->env, str_format("%s=%s", text, value));
	return 0;
}

int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e)
{
	auto_free char *tools = p->spec->tools ? show_tools(p) : str_copy("");

	set_defaults(p, tools);
	set_threads(p);
	for (size_t i = 0; i < request->extra_env.count; i++)
		environment_set(&p->env, str_copy(request->extra_env.items[i]));
	for (size_t i = 0; i < p->spec->env.count; i++)
		if (set_given(p, p->spec->env.items[i], e) < 0)
			return -1;
	return 0;
}
