/* From a snippet to its file, argv and variables, for the command line and all doors of the daemon. */
#include "model/snippet.h"

const struct language *snippet_language(const char *name, struct err *e)
{
	return language_find(name ? name : "python", "language", e);
}

bool snippet_is_python(const struct language *l)
{
	return str_equal(l->name, "python");
}

char *snippet_path(const struct language *l, const char *dir, const char *name)
{
	return str_format("%s/%s%s", dir, name ? name : "main", name ? "" : l->ending);
}

int snippet_argv(const struct language *l, const char *path, const struct sandbox_spec *spec,
		 const char *guard_dir, struct list *argv, struct err *e)
{
	auto_free char *program = guard_dir ? str_format("%s/guard.py", guard_dir) : NULL;
	struct guard_call call = {.program = program,
				  .report = guard_dir ? "/tmp/" GUARD_REPORT : NULL};

	if (!spec || spec->guard == GUARD_OFF) {
		language_command(l, path, argv);
		return 0;
	}
	if (!snippet_is_python(l))
		return err_field(e, ERR_UNSUPPORTED, "guard",
				 "guard: only Python can be guarded, and this is %s", l->name);
	call.profile = spec->guard;
	call.allow = &spec->guard_allow;
	call.deny = &spec->guard_deny;
	call.nodes = &spec->guard_nodes;
	call.snippet = path;
	guard_argv(&call, argv);
	return 0;
}

void snippet_env(const char *workspace, struct list *env)
{
	list_take(env, str_format("PYTHONPATH=%s", workspace));
	list_take(env, str_format("NODE_PATH=%s/node_modules", workspace));
}
