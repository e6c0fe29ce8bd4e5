/* The variables that every command starts with, and how one takes the place of another. */
#include "model/variables.h"

#include "base/exec_path.h"

void variables_take(struct list *env, char *pair)
{
	size_t len = strcspn(pair, "=");

	if (len == 0 || pair[len] != '=') {
		free(pair);
		return;
	}
	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->items[i], pair, len + 1) == 0) {
			free(env->items[i]);
			env->items[i] = pair;
			return;
		}
	}
	list_take(env, pair);
}

void variables_set(struct list *env, const char *pair)
{
	variables_take(env, str_copy(pair));
}

const char *variables_get(const struct list *env, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < env->count; i++)
		if (strncmp(env->items[i], name, len) == 0 && env->items[i][len] == '=')
			return env->items[i] + len + 1;
	return NULL;
}

static void set_usual(struct list *env, const char *name, const char *value)
{
	variables_take(env, str_format("%s=%s", name, value));
}

void variables_set_usual(struct list *env, const struct variables_usual *u)
{
	/* Libraries that would otherwise start a thread for each of the host's processors. */
	static const char *const threads[] = {"OMP_NUM_THREADS",   "OPENBLAS_NUM_THREADS",
					      "MKL_NUM_THREADS",   "NUMEXPR_NUM_THREADS",
					      "RAYON_NUM_THREADS", "GOMAXPROCS"};

	variables_take(env,
		       str_format("PATH=%s%s/.local/bin:" EXEC_PATH_DEFAULT, u->tools, u->home));
	set_usual(env, "HOME", u->home);
	set_usual(env, "USER", u->user);
	set_usual(env, "LOGNAME", u->user);
	set_usual(env, "SHELL", u->shell);
	set_usual(env, "LANG", "C.UTF-8");
	set_usual(env, "PWD", u->cwd);
	if (u->term)
		set_usual(env, "TERM", u->term);
	for (size_t i = 0; u->cpus_milli && i < ARRAY_LEN(threads); i++)
		variables_take(env, str_format("%s=%u", threads[i],
					       (unsigned)((u->cpus_milli + 999) / 1000)));
	/* npm would try for 71 s, which looks like a time limit that is too low, and pip for 9. */
	if (u->offline) {
		set_usual(env, "npm_config_fetch_retries", "0");
		set_usual(env, "PIP_RETRIES", "0");
	}
}
