/* The environment of a command: the usual variables, then those of the sandbox. */
#include "guest/exec/command.h"

#include "model/variables.h"
#include "sandbox/plan/plan.h"
#include "sandbox/inside/trust.h"

#define HOME "/home/user"

bool env_knows_user(const char *user)
{
	return !*user || str_equal(user, "user") || str_equal(user, "root") ||
	       str_equal(user, "1000") || str_equal(user, "0");
}

uint32_t env_uid_of(const struct guest *g, const char *user)
{
	bool ordinary = str_equal(user, "user") || str_equal(user, "1000");

	return g->options.root_inside && ordinary ? SANDBOX_UID : 0;
}

/* In a warm host only once: its files do not change, and a run waits for the answer. */
static const char *find_shell(const struct guest *g)
{
	static const char *known;

	if (!g->warm_host || !known)
		known = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	return known;
}

void env_make(const struct guest *g, const char *user, const char *cwd, bool tty, struct list *ret)
{
	bool root = str_equal(user, "root") || str_equal(user, "0");
	bool is_root = root || (g->options.root_inside && !env_uid_of(g, user));
	/* Without root inside it is the same uid under another name; it gets /root only if that is writable. */
	const char *home = root && access("/root", W_OK) == 0 ? "/root" : HOME;

	variables_set_usual(ret, &(struct variables_usual){.tools = "",
							   .home = home,
							   .user = is_root ? "root" : "user",
							   .shell = find_shell(g),
							   .cwd = cwd,
							   .term = tty ? "xterm-256color" : NULL,
							   .cpus_milli = g->cpus_milli,
							   .offline = true});
	if (!g->warm_host)
		trust_variables_if_shown(ret);
	for (size_t i = 0; i < g->env.count; i++)
		variables_set(ret, g->env.items[i]);
}
