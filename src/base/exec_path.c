/* One search of PATH for everything that is executed by name; exec_path.h has its rules. */
#include "base/exec_path.h"

const char *exec_path_of(char *const *env)
{
	for (; env && *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return EXEC_PATH_DEFAULT;
}

const char *exec_path_next(const char *name, const char **dirs, char room[PATH_MAX])
{
	size_t name_len = strlen(name);

	if (*dirs && (!name_len || strchr(name, '/'))) {
		*dirs = NULL;
		return name;
	}
	while (*dirs && **dirs) {
		const char *dir = *dirs;
		size_t len = strcspn(dir, ":");

		*dirs = dir + len + (dir[len] == ':');
		if (len == 0 || len + name_len + 2 > PATH_MAX)
			continue;
		memcpy(room, dir, len);
		room[len] = '/';
		memcpy(room + len + 1, name, name_len + 1);
		return room;
	}
	return NULL;
}

int exec_path_run(char **argv, char **env, exec_path_trying *trying, void *arg)
{
	const char *dirs = exec_path_of(env), *path;
	int result = ENOENT;
	char room[PATH_MAX];

	while ((path = exec_path_next(argv[0], &dirs, room))) {
		if (trying)
			trying(arg, path);
		execve(path, argv, env);
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			return errno;
		if (errno == EACCES || !dirs)
			result = errno;
	}
	return result;
}
