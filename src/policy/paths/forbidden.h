/*
 * Forbidden places: host paths that no sandbox is shown, whatever the policy says.
 *
 *   struct forbidden f;
 *   forbidden_init(&f, spec, false, &e);          what the names below lead to on this host
 *   if (forbidden_judge(&f, path, &refusal)) ...  as often as needed; path is real, not as typed
 *   forbidden_done(&f);
 *
 * A name is forbidden whether or not it exists now, so that files that appear later are covered.
 * A directory that contains a forbidden place is refused like the place itself. A home directory is forbidden
 * as a whole and with the entries where secrets are kept; its other entries are not.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"

/* Identifies an object, and the mount through which it is seen. */
struct place_id {
	uint64_t dev, ino;
	uint64_t mount; /* 0: not known */
	unsigned mode;
};

/* An object that exists now at a forbidden name. */
struct seen_place {
	struct place_id id;
	const char *dir; /* NULL, or the home that name is an entry of */
	const char *name;
};

#define FORBIDDEN_FIRST 48 /* enough for most hosts; more are allocated */

struct forbidden {
	struct list trees; /* besides the built-in table: spec->forbid, own state, link targets */
	struct list homes;
	struct list home_parents; /* each directory in one of these is a home */
	struct seen_place *seen;  /* NULL: few, in first */
	size_t seen_count, seen_room;
	struct seen_place first[FORBIDDEN_FIRST];
	bool copied; /* sockets in the source cannot be connected to from inside */
};

enum refusal_kind { REFUSE_IS, REFUSE_BELOW, REFUSE_CONTAINS, REFUSE_KIND_COUNT };

struct refusal {
	enum refusal_kind kind;
	char place[PATH_MAX];
};

int forbidden_init(struct forbidden *f, const struct sandbox_spec *s, bool copied, struct err *e);
void forbidden_done(struct forbidden *f);

/* Is this path a forbidden place, below one, or around one? */
bool forbidden_judge(const struct forbidden *f, const char *path, struct refusal *ret);
/* Is this very object (a hard link, a bind mount) one of the forbidden places? */
bool forbidden_judge_id(const struct forbidden *f, const struct place_id *id, struct refusal *ret);
/*
 * Could a forbidden place be part of the same file system as this object, but seen through another
 * mount? Then names alone do not decide.
 */
bool forbidden_shares_fs(const struct forbidden *f, const struct place_id *id);

/* Describes dirfd/path, following no last symlink; "" for dirfd itself. -1 with errno. */
int place_id_get(int dirfd, const char *path, struct place_id *ret);
