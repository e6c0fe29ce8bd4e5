/*
 * Where a command of an agent runs: its project, and the directory in it. A shell that keeps its
 * directory from one command to the next exists only outside; so each command's last directory is
 * kept in a file of the caller's, by `cloche run --cwd-file`. The file's content comes from inside:
 * it is used only if it names a directory of the project.
 */
#include "cli/operator/hook/hook.h"

#include "cli/verbs/client.h"
#include "policy/paths/source.h"

bool hook_uses_project(const struct hook *h)
{
	return !spec_is_set(&h->spec, "workspace") && !spec_is_set(&h->spec, "empty");
}

/* The directories that the agent, not its model, calls its workspace. */
static const json_t *workspace_roots(const struct hook *h)
{
	const json_t *roots = json_object_get(h->event, "workspace_roots");

	return roots ? roots : json_object_get(h->event, "workspaceRoots");
}

/* The project directory that the agent names in its environment or in the event, or NULL. */
static const char *named_project(const struct hook *h)
{
	static const char *const variables[] = {"CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR",
						"GEMINI_PROJECT_DIR"};
	const char *root;

	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		if ((root = getenv(variables[i])) && *root)
			return root;
	return json_string_value(json_array_get(workspace_roots(h), 0));
}

/* Finds the agent's working directory, and the project that it belongs to. */
int hook_find_project(struct hook *h, struct err *e)
{
	const char *cwd = h->call.cwd, *root = named_project(h);
	char own[PATH_MAX];

	if (!cwd || !*cwd)
		cwd = getcwd(own, sizeof(own));
	if (!cwd || !realpath(cwd, h->cwd))
		return err_set(e, ERR_NOT_FOUND,
			       "the current directory '%.200s' cannot be used: %s", cwd ? cwd : "",
			       strerror(errno));
	if (!root || !realpath(root, h->project) || !path_below(h->cwd, h->project))
		memcpy(h->project, h->cwd, sizeof(h->project));
	return 0;
}

/*
 * Another root of the workspace may become the project: the agent lists the roots, not its model.
 */
static bool is_in_a_root(struct hook *h)
{
	const json_t *roots = workspace_roots(h);
	char place[PATH_MAX];

	for (size_t i = 0; i < json_array_size(roots); i++) {
		const char *root = json_string_value(json_array_get(roots, i));

		if (!root || !realpath(root, place) || !path_below(h->cwd, place))
			continue;
		memcpy(h->project, place, sizeof(h->project));
		return true;
	}
	return false;
}

bool hook_is_in_workspace(const struct hook *h, const char *path)
{
	const json_t *roots = workspace_roots(h);
	char place[PATH_MAX];

	for (size_t i = 0; i < json_array_size(roots); i++) {
		const char *root = json_string_value(json_array_get(roots, i));

		if (root && realpath(root, place) && path_below(path, place))
			return true;
	}
	return path_below(path, h->project);
}

/* The directory that the call asks for, or NULL. */
static const char *asked_directory(const struct hook *h)
{
	static const char *const names[] = {"working_directory", "workdir", "directory",
					    "dir_path"};
	const char *asked;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if ((asked = text_at(h->call.input, names[i])) && *asked)
			return asked;
	return NULL;
}

/*
 * The call may choose a directory in the project. What can be written is not the model's choice
 * (rule 5).
 */
static int take_asked(struct hook *h, const char *asked, struct err *e)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s%s%s", *asked == '/' ? "" : h->cwd,
		 *asked == '/' ? "" : "/", asked);
	if (!realpath(path, h->cwd))
		return err_set(e, ERR_NOT_FOUND, "working_directory '%.200s' cannot be used: %s",
			       asked, strerror(errno));
	if (path_below(h->cwd, h->project) || is_in_a_root(h) || !hook_uses_project(h))
		return 0;
	return err_set(e, ERR_DENIED, "working_directory '%.200s' is not in the project, '%.200s'",
		       h->cwd, h->project);
}

/* ---- the directory of the last command ---- */

/* Makes a directory of our own that nobody else can enter; false: it cannot be had. */
static bool own_directory(char *path, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	bool has_runtime = runtime && *runtime == '/' && access(runtime, W_OK) == 0;
	struct stat st;

	if (snprintf(path, size, "%s/cloche-hook-%u", has_runtime ? runtime : "/tmp",
		     (unsigned)geteuid()) >= (int)size)
		return false;
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return false;
	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 077) == 0;
}

/* FNV-1a. The names only have to differ: what they lead to is checked. */
static uint64_t add_to_hash(uint64_t hash, const char *text)
{
	do
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	while (*text++);
	return hash;
}

/* One file per session, project and directory that the agent believes to be in. */
static void name_cwd_file(struct hook *h)
{
	uint64_t hash = 0xcbf29ce484222325;
	char dir[PATH_MAX - 32];

	if (!h->call.session || !*h->call.session || !own_directory(dir, sizeof(dir)))
		return;
	hash = add_to_hash(hash, h->call.session);
	hash = add_to_hash(hash, h->project);
	hash = add_to_hash(hash, h->cwd);
	snprintf(h->cwd_file, sizeof(h->cwd_file), "%s/%016" PRIx64, dir, hash);
}

/* Goes on where the last command of the session ended, if that is a directory of the project. */
static void take_last(struct hook *h)
{
	auto_close int fd = open(h->cwd_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[PATH_MAX], place[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return;
	n = io_read_all(fd, text, sizeof(text) - 1);
	if (n <= 0 || text[0] != '/' || memchr(text, '\0', (size_t)n))
		return;
	text[n] = '\0';
	if (realpath(text, place) && path_below(place, h->project) && stat(place, &st) == 0 &&
	    S_ISDIR(st.st_mode))
		memcpy(h->cwd, place, sizeof(h->cwd));
}

/* ---- all ---- */

/*
 * `cloche run` checks the same, but only the shell would see its message; this one reaches the
 * agent.
 */
static int judge_project(const struct hook *h, struct err *e)
{
	struct source s;

	if (!hook_uses_project(h))
		return 0;
	if (source_open(&h->spec, "workspace", h->project, SOURCE_WRITE, &s, e) < 0)
		return err_wrap(e, "the project directory cannot be a workspace");
	close(s.fd);
	return 0;
}

int hook_find_places(struct hook *h, struct err *e)
{
	const char *asked = asked_directory(h);

	if (hook_find_project(h, e) < 0 || (asked && take_asked(h, asked, e) < 0))
		return -1;
	if (!asked && dialect_keeps_cwd(h->dialect) && hook_uses_project(h) &&
	    !spec_is_set(&h->spec, "workdir") && h->spec.level != LEVEL_PROCESS) {
		name_cwd_file(h);
		if (h->cwd_file[0])
			take_last(h);
	}
	return judge_project(h, e);
}
