/* Snapshots that the front writes: parts that count against their owner until they are kept or given up. */
#pragma once

#include "wire/ipc.h"

struct daemon;

struct upload {
	struct upload *next;
	char id[IPC_ID], owner[IPC_ID];
};

void upload_add(struct daemon *d, const struct ipc_snapshot *s);
uint32_t uploads_count(const struct daemon *d, const char *owner);
/* False: nobody writes it, or somebody else does. It is not in the books any more after that. */
bool upload_take(struct daemon *d, const struct ipc_snapshot *s);
/* Whoever wrote them has gone: their files go as well. */
void uploads_drop(struct daemon *d);
