/*
 * Snapshots that the front writes. It gets the end of a pipe, never the file: a process of ours takes from
 * the pipe as much as there is room for, so that no front can fill the disk, hold what was deleted, or
 * change what was checked. They count against their owner until they are kept or given up.
 */
#pragma once

#include "daemon/front_side.h"
#include "wire/ipc.h"

struct daemon;
struct upload;

/* What was written is all there; or e, and then nothing is. */
typedef void (*upload_kept)(struct daemon *d, struct asker who, const struct ipc_snapshot *s,
			    uint64_t room, const struct err *e);

/* Takes at most room bytes into file, which stays the caller's. Returns what to write to, or -1. */
int upload_begin(struct daemon *d, const struct ipc_snapshot *s, int file, uint64_t room,
		 struct err *e);
uint32_t uploads_count(const struct daemon *d, const char *owner);
/* What all of them may still need. */
uint64_t uploads_room(const struct daemon *d);
/*
 * False: nobody writes it, or somebody else does. Else done is called, at once or once all of it has been
 * taken; it is not in the books any more then.
 */
bool upload_keep(struct daemon *d, struct asker who, const struct ipc_snapshot *s,
		 upload_kept done);
/* False: as above. */
bool upload_give_up(struct daemon *d, const struct ipc_snapshot *s);
/* Whoever wrote them has gone: their files go as well. */
void uploads_drop(struct daemon *d);
