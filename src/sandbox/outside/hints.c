/* Notes for the record of a run that failed for a reason which its caller can change. */
#include "sandbox/outside/keeper.h"

#include "base/exec_path.h"

/* Java sizes its heap by the machine's memory, and collects no garbage before the heap is full. */
static bool is_java(const struct list *argv)
{
	static const char *const words[] = {"java", "mvn", "gradle"};

	for (size_t i = 0; i < argv->count; i++)
		for (size_t k = 0; k < ARRAY_LEN(words); k++)
			if (strstr(argv->items[i], words[k]))
				return true;
	return false;
}

/* Then its content is the caller's choice. */
static bool is_path_given(const struct list *env)
{
	for (size_t i = 0; i < env->count; i++)
		if (str_equal(env->items[i], "PATH") || str_starts(env->items[i], "PATH="))
			return true;
	return false;
}

/* In the PATH outside. */
static bool is_in_path(const char *name)
{
	const char *dirs = getenv("PATH"), *path;
	char room[PATH_MAX];
	struct stat st;

	if (strchr(name, '/') || !*name)
		return false;
	while ((path = exec_path_next(name, &dirs, room)))
		if (access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode))
			return true;
	return false;
}

void hints_add(struct plan *p, const struct result *r)
{
	const struct list *argv = &p->spec->argv;

	if (r->end.status == STATUS_OOM && is_java(argv))
		plan_note(p, "Java does not see the memory limit. Tell it, as with "
			     "--env JDK_JAVA_OPTIONS=-XX:MaxRAM=1G.");
	if (r->end.exec_errno != ENOENT || p->page->exec_missing[0])
		return;
	/* "ls -l" as one word. */
	if (argv->count == 1 && strpbrk(argv->items[0], " \t\n;|&<>"))
		plan_note(p, "A line for a shell has to be given to one: sh -c 'LINE'.");
	else if (!p->spec->tools && p->image_is_host && !is_path_given(&p->spec->env) &&
		 is_in_path(argv->items[0]))
		plan_note(p, "It is in your PATH, but not in what a sandbox shows of the system: "
			     "--tools shows tool chains that PATH names.");
}
