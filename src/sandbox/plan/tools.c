/*
 * --tools: the tool chains that the caller's PATH names, as read-only mounts.
 *
 * Theory of operation
 *
 * A directory in PATH is shown at the name that it has there, along with the prefix of its tool chain, and its
 * name may lead by way of links (~/.nix-profile, fnm). Not so by links that code inside may have made: in the
 * workspace and in the current directory, to which earlier runs may have written. Such a link would make
 * the caller show whatever directory it leads to.
 *
 * A tool chain in the workspace is shown with the workspace, and stays as writable as that is. The others are
 * mounted before the workspace, which may lie in one of them.
 */
#include "sandbox/plan/plan.h"

#include "model/variables.h"

/* ---- the directories of a tool chain ---- */

/* Directories of the system are in the image already. */
static bool is_system(const char *dir)
{
	static const char *const below[] = {"/usr", "/bin", "/sbin", "/opt", "/lib"};

	for (size_t i = 0; i < ARRAY_LEN(below); i++)
		if (path_below(dir, below[i]))
			return true;
	return false;
}

/*
 * The prefix of a tool chain: the directory above bin or shims. Of a directory that holds more than
 * a tool chain (credentials of cargo, a whole ~/.local) only bin is shown.
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

/* ---- links ---- */

#define MAX_LINKS 40 /* as in the kernel */

/* Directories that code inside may have written to. */
struct suspects {
	struct source dirs[2];
	size_t count;
};

/*
 * A directory that is never shown, such as a home, was not writable for an earlier sandbox either.
 */
static void find_suspects(const struct plan *p, struct suspects *ret)
{
	static const struct sandbox_spec no_options;
	const char *const dirs[] = {".", p->workspace.fd >= 0 ? p->workspace.path : NULL};
	struct err ignored;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (dirs[i] && source_open(&no_options, "tools", dirs[i], SOURCE_COPY,
					   &ret->dirs[ret->count], &ignored) == 0)
			close_fd(&ret->dirs[ret->count++].fd);
}

static bool is_suspect(const struct suspects *s, const char *path)
{
	for (size_t i = 0; i < s->count; i++)
		if (path_below(path, s->dirs[i].path))
			return true;
	return false;
}

/* A path that is being followed: the part done, without links, and the rest. */
struct link_walk {
	char real[PATH_MAX], rest[PATH_MAX];
	size_t len; /* of real */
	int links;
	bool is_suspect; /* it stopped at a link that code inside may have made */
};

/* Takes the next name of the rest. False: there is none. */
static bool next_name(struct link_walk *w, char ret[NAME_MAX + 1])
{
	const char *name = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(name, "/");

	if (len == 0 || len > NAME_MAX)
		return false;
	memcpy(ret, name, len);
	ret[len] = '\0';
	memmove(w->rest, name + len, strlen(name + len) + 1);
	return true;
}

static void walk_up(struct link_walk *w)
{
	while (w->len > 0 && w->real[w->len] != '/')
		w->len--;
	w->real[w->len] = '\0';
}

/* Goes on by one name, or follows it if it is a link. */
static bool walk_name(struct link_walk *w, const struct suspects *s, const char *name)
{
	char link[PATH_MAX], rest[PATH_MAX];
	size_t len = w->len + strlen(name) + 1;
	ssize_t n;

	if (len >= sizeof(w->real))
		return false;
	snprintf(w->real + w->len, sizeof(w->real) - w->len, "/%s", name);
	n = readlink(w->real, link, sizeof(link));
	if (n < 0) {
		w->len = len;
		return errno == EINVAL; /* it exists, and is no link */
	}
	w->is_suspect = is_suspect(s, w->real);
	if (n == sizeof(link) || w->links++ == MAX_LINKS || w->is_suspect)
		return false;
	if (link[0] == '/')
		w->len = 0;
	w->real[w->len] = '\0';
	if (snprintf(rest, sizeof(rest), "%.*s/%s", (int)n, link, w->rest) >= (int)sizeof(rest))
		return false;
	memcpy(w->rest, rest, sizeof(rest));
	return true;
}

/* Follows a path; false if that fails, or if a link on the way cannot be trusted. */
static bool follow_links(struct link_walk *w, const struct suspects *s, const char *path)
{
	char name[NAME_MAX + 1];

	snprintf(w->rest, sizeof(w->rest), "%s", path);
	while (next_name(w, name)) {
		if (str_equal(name, ".."))
			walk_up(w);
		else if (!str_equal(name, ".") && !walk_name(w, s, name))
			return false;
	}
	return w->rest[strspn(w->rest, "/")] == '\0';
}

/* ---- mounts ---- */

static int refuse_link(const char *path, struct err *e)
{
	char shown[200];

	str_sanitise(shown, sizeof(shown), path, strlen(path));
	return err_field(e, ERR_DENIED, "tools",
			 "tools: '%s' in PATH leads through a link in the workspace or the current "
			 "directory, which code inside may have made; take it out of PATH, or name "
			 "the directory itself",
			 shown);
}

/* 1: shown; 0: not to be shown; -1: the way there cannot be trusted. */
static int show_tool(struct plan *p, const struct suspects *suspects, const char *path,
		     struct err *e)
{
	struct link_walk way = {.len = 0};
	struct err ignored;
	struct source s;
	struct bind *b;

	if (!follow_links(&way, suspects, path))
		return way.is_suspect ? refuse_link(path, e) : 0;
	if (source_open(p->spec, "tools", path, SOURCE_READ, &s, &ignored) < 0)
		return 0;
	/* A link was changed meanwhile. */
	if (!S_ISDIR(s.st.st_mode) || !str_equal(s.path, way.real)) {
		close(s.fd);
		return 0;
	}
	b = plan_add_bind(p);
	b->source = s;
	b->is_tool = true;
	snprintf(b->target, sizeof(b->target), "%s", path);
	return 1;
}

/*
 * Tool chains that keep their real files apart from the directory in PATH, and the variable that
 * names that place to programs which would look in HOME.
 */
static void show_companions(struct plan *p, const struct suspects *s, const char *dir)
{
	static const struct {
		const char *ending, *companion, *variable;
	} rows[] = {{"/.cargo/bin", "/.rustup", "RUSTUP_HOME"},
		    {"/.local/bin", "/.local/share/uv", NULL}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t len = strlen(dir), end = strlen(rows[i].ending);
		struct err ignored;
		char path[PATH_MAX];

		if (len < end || !str_equal(dir + len - end, rows[i].ending))
			continue;
		snprintf(path, sizeof(path), "%.*s%s", (int)(len - end), dir, rows[i].companion);
		if (show_tool(p, s, path, &ignored) > 0 && rows[i].variable)
			variables_take(&p->env, str_format("%s=%s", rows[i].variable, path));
	}
}

int tools_add(struct plan *p, char **ret, struct err *e)
{
	const char *path = getenv("PATH");
	auto_free char *shown = str_copy("");
	struct suspects s = {.count = 0};

	find_suspects(p, &s);
	for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
		auto_free char *typed = must_alloc(strndup(path, strcspn(path, ":")));
		char dir[PATH_MAX], prefix[PATH_MAX], *longer;
		int rc;

		/* It is shown at its name, and ".." may mean another directory inside. */
		if (!path_clean(typed, dir, sizeof(dir)) || is_system(dir))
			continue;
		tool_prefix(dir, prefix, sizeof(prefix));
		rc = show_tool(p, &s, prefix, e);
		if (rc == 0 && !str_equal(prefix, dir))
			rc = show_tool(p, &s, dir, e);
		if (rc < 0)
			return -1;
		if (rc == 0)
			continue;
		show_companions(p, &s, dir);
		longer = str_format("%s%s:", shown, dir);
		free(shown);
		shown = longer;
	}
	*ret = take_ptr(shown);
	return 0;
}

bool tools_is_in_workspace(const struct plan *p, const struct bind *b)
{
	/* Another file system mounted there is not shown with the workspace. */
	return b->is_tool && p->workspace_mode != WORKSPACE_EMPTY &&
	       path_below(b->target, p->workspace_path) &&
	       b->source.st.st_dev == p->workspace.st.st_dev;
}
