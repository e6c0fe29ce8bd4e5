/*
 * What an overlay wrote, as a layer of an image. It runs as a confined helper of whoever builds one
 * (sandbox/outside/save_root.c).
 */
#include "guest/guest.h"
#include "guest/files/tar_tree.h"

static int write_out(void *file, const void *bytes, size_t len)
{
	return fwrite(bytes, 1, len, file) == len ? 0 : -1;
}

#define PATHS_MAX (1u << 20)

/* Lines "-PATH" and "+PATH". */
static bool is_named(const char *paths, char sign, const char *name)
{
	for (const char *line = paths; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t len = strcspn(line, "\n");

		if (len > 1 && line[0] == sign && strncmp(name, line + 1, len - 1) == 0 &&
		    (!name[len - 1] || name[len - 1] == '/'))
			return true;
	}
	return false;
}

/* Does a path that is taken lie below this directory? */
static bool leads_to_one(const char *paths, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = paths; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (line[0] == '+' && strncmp(line + 1, name, len) == 0 && line[1 + len] == '/')
			return true;
	return false;
}

static bool wants_some(const char *paths)
{
	return *paths == '+' || strstr(paths, "\n+");
}

static bool takes(void *paths, const char *name)
{
	if (is_named(paths, '-', name))
		return false;
	return !wants_some(paths) || is_named(paths, '+', name) || leads_to_one(paths, name);
}

int guest_pack_layer(void)
{
	static char paths[PATHS_MAX + 1], gathered[65536];
	struct tar_tree t = {.out = {.write = write_out, .arg = stdout, .layer = true},
			     .upper = true,
			     .takes = takes,
			     .arg = paths};
	struct err e = {0};
	auto_close int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	setvbuf(stdout, gathered, _IOFBF, sizeof(gathered));
	if (io_read_all(0, paths, PATHS_MAX) < 0)
		err_sys(&e, "cannot read the paths");
	else if (tar_tree_write(&t, cwd, ".", "", &e) == 0 && tar_out_end(&t.out, &e) == 0 &&
		 fflush(stdout) != 0)
		err_sys(&e, "cannot write the archive");
	if (e.kind != ERR_NONE)
		fprintf(stderr, "%s\n", e.msg);
	return e.kind != ERR_NONE;
}
