#include "daemon/uploads.h"

#include "base/auto.h"
#include "base/str.h"
#include "daemon/snapshots.h"
#include "daemon/state.h"

#include <stdlib.h>
#include <string.h>

void upload_add(struct daemon *d, const struct ipc_snapshot *s)
{
	struct upload *u = must_alloc(calloc(1, sizeof(*u)));

	memcpy(u->id, s->id, sizeof(u->id));
	memcpy(u->owner, s->owner, sizeof(u->owner));
	u->next = d->uploads;
	d->uploads = u;
}

uint32_t uploads_count(const struct daemon *d, const char *owner)
{
	uint32_t n = 0;

	for (const struct upload *u = d->uploads; u; u = u->next)
		n += str_equal(u->owner, owner);
	return n;
}

bool upload_take(struct daemon *d, const struct ipc_snapshot *s)
{
	for (struct upload **at = &d->uploads; *at; at = &(*at)->next) {
		struct upload *u = *at;

		if (!str_equal(u->id, s->id) || !str_equal(u->owner, s->owner))
			continue;
		*at = u->next;
		free(u);
		return true;
	}
	return false;
}

void uploads_drop(struct daemon *d)
{
	while (d->uploads) {
		struct upload *u = d->uploads;

		d->uploads = u->next;
		snapshot_discard(d, u->id);
		free(u);
	}
}
