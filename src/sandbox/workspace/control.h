/*
 * Control files: files in a workspace that make programs outside the sandbox run commands, or that
 * govern an agent, without anyone asking to run the project itself: hooks, shell start-up files,
 * editor and agent settings, instructions for agents, files of CI services. A sandboxed command's changes to
 * them are listed, but not applied, unless the caller has named them.
 *
 * Names are compared without case, because the host's file system may do so. Nested repositories
 * count, and so does any directory that git would take for a repository (a bare one has no .git).
 */
#pragma once

#include "base/base.h"

/* The facts about a directory that decide about the names in it. */
struct control_place {
	bool is_git;	 /* git takes this directory for a repository, or would afterwards */
	bool almost_git; /* it has parts of one; a HEAD would make it one */
};

/*
 * name: the directory's own name ("" for the root). upper_names: the names that a sandbox left in
 * it. lower_fd: the host's directory, or -1.
 */
struct control_place control_place_look(const char *name, const struct list *upper_names,
					int lower_fd);
/* The i-th name that must not be written in place, in any directory; NULL after the last. */
const char *control_name(size_t i);
/* Why this name is a control file, as a phrase; NULL if it is none. */
const char *control_reason(const struct control_place *p, const char *name, mode_t mode);
