#include "guest/env.h"

#include "base/auto.h"
#include "base/exec_path.h"
#include "base/str.h"

#include <string.h>
#include <unistd.h>

#define HOME "/home/user"

static void set_taken(struct list *env, char *pair)
{
	const char *equals = strchr(pair, '=');
	size_t len;

	if (!equals || equals == pair) {
		free(pair);
		return;
	}
	len = (size_t)(equals - pair) + 1;
	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->items[i], pair, len) == 0) {
			free(env->items[i]);
			env->items[i] = pair;
			return;
		}
	}
	list_take(env, pair);
}

void env_set(struct list *env, const char *pair)
{
	set_taken(env, str_copy(pair));
}

bool env_knows_user(const char *user)
{
	return !*user || str_equal(user, "user") || str_equal(user, "root") ||
	       str_equal(user, "1000") || str_equal(user, "0");
}

/* Libraries that would otherwise start a thread for each of the host's processors. */
static void set_threads(struct list *env, uint32_t cpus_milli)
{
	static const char *const names[] = {"OMP_NUM_THREADS",	 "OPENBLAS_NUM_THREADS",
					    "MKL_NUM_THREADS",	 "NUMEXPR_NUM_THREADS",
					    "RAYON_NUM_THREADS", "GOMAXPROCS"};

	for (size_t i = 0; cpus_milli && i < ARRAY_LEN(names); i++)
		set_taken(env, str_format("%s=%u", names[i], (cpus_milli + 999) / 1000));
}

/* In a nest, whose files do not change, once: a run waits for it. */
static const char *find_shell(const struct guest *g)
{
	static const char *known;

	if (!g->nest || !known)
		known = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	return known;
}

void env_make(const struct guest *g, const char *user, const char *cwd, bool tty, struct list *ret)
{
	bool root = str_equal(user, "root") || str_equal(user, "0");
	/* The same id by another name; a home that it cannot write to would be of no use. */
	const char *home = root && access("/root", W_OK) == 0 ? "/root" : HOME;

	set_taken(ret, str_format("PATH=%s/.local/bin:" EXEC_PATH_DEFAULT, home));
	set_taken(ret, str_format("HOME=%s", home));
	set_taken(ret, str_format("USER=%s", root ? "root" : "user"));
	set_taken(ret, str_format("LOGNAME=%s", root ? "root" : "user"));
	set_taken(ret, str_format("SHELL=%s", find_shell(g)));
	env_set(ret, "LANG=C.UTF-8");
	set_taken(ret, str_format("PWD=%s", cwd));
	if (tty)
		env_set(ret, "TERM=xterm-256color");
	set_threads(ret, g->cpus_milli);
	/* As a run has it: without a network there is no use in trying again. */
	env_set(ret, "npm_config_fetch_retries=0");
	env_set(ret, "PIP_RETRIES=0");
	for (size_t i = 0; i < g->env.count; i++)
		env_set(ret, g->env.items[i]);
}
