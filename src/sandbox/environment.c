#include "sandbox/environment.h"

#include "base/auto.h"
#include "base/exec_path.h"
#include "base/str.h"
#include "sandbox/sandbox.h"
#include "sandbox/tools.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

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

static bool is_set(const struct list *env, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < env->count; i++)
		if (strncmp(env->items[i], name, len) == 0 && env->items[i][len] == '=')
			return true;
	return false;
}

void environment_move(struct plan *p, const char *home, const char *tmp)
{
	static const char bin[] = SANDBOX_HOME "/.local/bin:";

	for (size_t i = 0; i < p->env.count; i++) {
		char *pair = p->env.items[i], *at;

		if (str_equal(pair, "HOME=" SANDBOX_HOME)) {
			p->env.items[i] = str_format("HOME=%s", home);
			free(pair);
		} else if (str_starts(pair, "PATH=") && (at = strstr(pair, bin))) {
			p->env.items[i] = str_format("%.*s%s/.local/bin:%s", (int)(at - pair), pair,
						     home, at + strlen(bin));
			free(pair);
		}
	}
	if (!is_set(&p->env, "TMPDIR"))
		list_take(&p->env, str_format("TMPDIR=%s", tmp));
	environment_set(&p->env, str_format("PWD=%s", p->workdir));
}

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

/* Without a network npm would try for 71 s, which looks like a time limit that is too low, and pip for 9. */
static void set_retries(struct plan *p)
{
	environment_set(&p->env, str_copy("npm_config_fetch_retries=0"));
	environment_set(&p->env, str_copy("PIP_RETRIES=0"));
}

static void set_defaults(struct plan *p, const char *tools)
{
	const char *term = getenv("TERM");
	struct stat st;

	environment_set(&p->env,
			str_format("PATH=%s%s/.local/bin:" EXEC_PATH_DEFAULT, tools, SANDBOX_HOME));
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
		return err_field(e, ERR_INVALID, "env", "env: '%.*s' is not a variable name",
				 (int)len, text);
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
	auto_free char *tools = p->spec->tools ? tools_add(p) : str_copy("");

	set_defaults(p, tools);
	set_threads(p);
	if (p->spec->net == NET_NONE)
		set_retries(p);
	for (size_t i = 0; i < request->extra_env.count; i++)
		environment_set(&p->env, str_copy(request->extra_env.items[i]));
	for (size_t i = 0; i < p->spec->env.count; i++)
		if (set_given(p, p->spec->env.items[i], e) < 0)
			return -1;
	return 0;
}
