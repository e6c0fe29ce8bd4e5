/*
 * Control files: files in a workspace that make programs outside the sandbox run commands, or that
 * govern an agent, without anyone asking to run the project itself: hooks, shell start-up files,
 * editor and agent settings, instructions for agents, files of CI services. A sandboxed command's
 * changes to them are listed, but not applied, unless the caller has named them. The list is
 * policies/control-files.txt.
 *
 * Names are compared as file systems fold them: without case, without characters that are not seen.
 * Nested repositories count, and so does any directory that git would take for a repository (a bare
 * one has no .git).
 */
#pragma once

#include "base/base.h"

enum control_where {
	CONTROL_ANY,
	CONTROL_PUSHED, /* in any directory, but it acts only once it is pushed */
	CONTROL_GIT,	/* in a directory that git takes for a repository */
};

struct control_row {
	const char *folded; /* what names are compared with */
	const char *name;   /* as it is written: a name, the last parts of a path, or a pattern */
	enum control_where where;
	const char *reason; /* a phrase */
};

/* The list: first plain names, sorted by `folded`; then paths and patterns. */
extern const struct control_row control_rows[];
extern const size_t control_row_count, control_plain_count;

/* The facts about a directory that decide about the names in it. */
struct control_place {
	bool is_git;	 /* git takes this directory for a repository, or would afterwards */
	bool almost_git; /* it has parts of one; a HEAD would make it one */
	bool in_git;	 /* it is one, or lies in one */
	bool is_sha256;	 /* which hash the repository uses, as far as the host knows */
};

/*
 * above: the facts about the directory that holds it, or NULL. name: the directory's own name ("" for the root).
 * upper_names: the names that a sandbox left in it. lower_fd: the host's directory, or -1.
 */
struct control_place control_place_look(const struct control_place *above, const char *name,
					const struct list *upper_names, int lower_fd);
/* Is this name taken for .git? */
bool control_is_git_name(const char *name);
/*
 * The row that makes this a control file; NULL if it is none. path: relative to the workspace; p:
 * the directory that has it; mode: its type.
 */
const struct control_row *control_find(const struct control_place *p, const char *path,
				       mode_t mode);
/* Is this file, open for reading, an index that would make git write to its own directory? */
bool control_is_bad_index(const struct control_place *p, const char *name, int fd);
#define CONTROL_BAD_INDEX "control file: an index that git would not have made"
