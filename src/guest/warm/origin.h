/*
 * What a warm interpreter was made of: its program, libraries, modules, and the directories they came
 * from. Whoever starts from it must not get code that a new interpreter would not load.
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
	bool is_doubtful; /* something changed after `since`: was it loaded before or after that? */
};

/*
 * Notes what these paths, each ended by NUL, are now. What cannot be looked at is noted as absent. The
 * list is foreign: it is only ever looked at.
 */
void origin_note(struct origin *o, const char *paths, size_t len, const struct timespec *since);
bool origin_has_changed(const struct origin *o);
void origin_done(struct origin *o);
