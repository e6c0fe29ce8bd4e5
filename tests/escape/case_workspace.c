/*
 * Files of the workspace that the host's own tools execute or obey later: with a workspace that is
 * written in place, what exists of them is protected; what does not exist yet is a gap that
 * SECURITY.md names (a copy-on-write workspace has neither).
 */
#include "probe.h"

#include "base/auto.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOOK "#!/bin/sh\necho cloche-hook\n"

static const char *repository(struct probe *p)
{
	const char *ws = need(p, "ws");
	struct stat st;

	if (ws && stat(fmt_path("%s/.git/hooks", ws), &st) < 0) {
		cannot_tell(p, "no repository in the workspace: %s", errno_name(errno));
		return NULL;
	}
	return ws;
}

static void git_hook(struct probe *p)
{
	const char *ws = repository(p);

	if (!ws)
		return;
	judge(p, "writing .git/hooks/pre-commit",
	      write_text(fmt_path("%s/.git/hooks/pre-commit", ws), HOOK), READ_ONLY);
	judge(p, "writing .git/config",
	      write_text(fmt_path("%s/.git/config", ws), "[core]\n\tfsmonitor = false\n"),
	      READ_ONLY);
}

/* The lock-and-rename way that git itself uses for its configuration. */
static void git_replace(struct probe *p)
{
	const char *ws = repository(p);
	char from[4096], to[4096];

	if (!ws)
		return;
	snprintf(from, sizeof(from), "%s/.git/config.new", ws);
	snprintf(to, sizeof(to), "%s/.git/config", ws);
	if (write_text(from, "[core]\n\thooksPath = x\n") < 0)
		judge(p, "writing beside .git/config", -1, READ_ONLY);
	else
		judge(p, "renaming over .git/config", rename(from, to),
		      ERRS(EROFS, EACCES, EPERM, EBUSY, EXDEV));
	unlink(from);
}

static void git_rename(struct probe *p)
{
	const char *ws = repository(p);
	char from[4096], to[4096];

	if (!ws)
		return;
	snprintf(from, sizeof(from), "%s/.git", ws);
	snprintf(to, sizeof(to), "%s/moved", ws);
	judge(p, "renaming .git", rename(from, to), ERRS(EROFS, EACCES, EPERM, EBUSY, EXDEV));
	if (access(to, F_OK) == 0 && access(from, F_OK) < 0)
		rename(to, from);
	snprintf(from, sizeof(from), "%s/.git/hooks", ws);
	snprintf(to, sizeof(to), "%s/.git/moved", ws);
	judge(p, "renaming .git/hooks", rename(from, to), ERRS(EROFS, EACCES, EPERM, EBUSY, EXDEV));
	if (access(to, F_OK) == 0 && access(from, F_OK) < 0)
		rename(to, from);
}

static void absent_files(struct probe *p)
{
	static const char *const files[] = {".mcp.json", ".bashrc", ".envrc", ".npmrc"};
	static const char *const dirs[] = {".claude", ".codex", ".vscode", ".cursor"};
	const char *ws = need(p, "ws");

	for (size_t i = 0; ws && i < ARRAY_LEN(files); i++) {
		judge(p, files[i], write_text(fmt_path("%s/%s", ws, files[i]), "{}"), READ_ONLY);
		unlink(fmt_path("%s/%s", ws, files[i]));
	}
	for (size_t i = 0; ws && i < ARRAY_LEN(dirs); i++) {
		judge(p, dirs[i], mkdir(fmt_path("%s/%s", ws, dirs[i]), 0755), READ_ONLY);
		rmdir(fmt_path("%s/%s", ws, dirs[i]));
	}
}

static void nested_repository(struct probe *p)
{
	const char *ws = need(p, "ws");
	char dir[4096];

	if (!ws)
		return;
	snprintf(dir, sizeof(dir), "%s/nested", ws);
	if (mkdir(dir, 0755) == 0 && mkdir(fmt_path("%s/.git", dir), 0755) == 0 &&
	    mkdir(fmt_path("%s/.git/hooks", dir), 0755) == 0)
		judge(p, "a hook in a nested repository",
		      write_text(fmt_path("%s/.git/hooks/pre-commit", dir), HOOK), READ_ONLY);
	else
		judge(p, "a nested repository", -1, READ_ONLY);
	remove_tree(dir);
}

static const struct probe_case cases[] = {
	{"control-hook", 6, "write a git hook or git's configuration", WEAK,
	 L(MOUNT_NS) | L(LANDLOCK), "workspace", git_hook, 0},
	{"control-replace", 8, "replace git's configuration by rename", WEAK,
	 L(MOUNT_NS) | L(LANDLOCK), "workspace", git_replace, 0},
	{"control-rename", 8, "move .git away to put another in its place", WEAK,
	 L(MOUNT_NS) | L(LANDLOCK), "workspace", git_rename, 0},
	{"control-absent", 6, "make control files that do not exist yet", GAP, L(LANDLOCK),
	 "workspace", absent_files, 0},
	{"control-nested", 6, "make a nested repository with a hook", GAP, L(LANDLOCK), "workspace",
	 nested_repository, 0},
};
const struct case_group group_workspace = {cases, ARRAY_LEN(cases)};
