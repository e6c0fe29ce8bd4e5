/*
 * The files that a warm interpreter was loaded from: program, libraries, modules, and their
 * directories. A task must not get code that a new interpreter would not load.
 *
 *   origin_note(&o, paths, len, &started);   when it has loaded everything
 *   if (origin_has_changed(&o)) ...          from time to time: one stat for each path
 */
#pragma once

#include "base/base.h"

#define ORIGIN_BYTES_MAX (64u << 10) /* of paths */

struct origin {
	char *paths; /* as they came */
	struct origin_file *files;
	size_t count;
	bool is_doubtful; /* a file changed after `since`: it may have been loaded before or after the change */
};

/*
 * Notes the state of these paths, each ended by NUL. A path that cannot be examined is noted as
 * absent. The list is untrusted: its paths are only passed to stat.
 */
void origin_note(struct origin *o, const char *paths, size_t len, const struct timespec *since);
bool origin_has_changed(const struct origin *o);
void origin_done(struct origin *o);
