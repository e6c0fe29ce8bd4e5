#include "daemon/uploads.h"

#include "base/auto.h"
#include "base/str.h"
#include "daemon/snapshots.h"
#include "daemon/state.h"
#include "provider/copier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE 32 /* each is a process */
#define PIPE_BYTES (1 << 20)

struct upload {
	struct upload *next;
	struct daemon *d;
	char id[IPC_ID], owner[IPC_ID];
	uint64_t room;
	struct copier copier;
	bool has_ended;
	struct err err; /* how */
	/* to be kept once it has ended */
	struct asker who;
	struct ipc_snapshot info;
	upload_kept done;
};

/* Takes it out of the books; the files stay. */
static void forget(struct upload *u)
{
	struct upload **at = &u->d->uploads;

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	copier_stop(&u->copier);
	free(u);
}

static struct upload *find(const struct daemon *d, const struct ipc_snapshot *s)
{
	struct upload *u = d->uploads;

	while (u && (!str_equal(u->id, s->id) || !str_equal(u->owner, s->owner)))
		u = u->next;
	return u;
}

static void conclude(struct upload *u)
{
	struct daemon *d = u->d;
	struct ipc_snapshot info = u->info;
	struct asker who = u->who;
	struct err e = u->err;
	uint64_t room = u->room;
	upload_kept done = u->done;

	forget(u);
	done(d, who, &info, room, e.kind ? &e : NULL);
}

static void on_taken(void *arg, const struct copier_result *r, const struct err *e)
{
	struct upload *u = arg;

	(void)r;
	if (e)
		u->err = *e;
	u->has_ended = true;
	if (u->done)
		conclude(u);
}

static int start(struct upload *u, int file, struct err *e)
{
	int ends[2], rc;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	(void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
	u->copier = (struct copier){.work = {.verb = "take", .in = ends[0], .out = -1},
				    .file = file,
				    .unwanted = ends[1],
				    .max_bytes = u->room,
				    .done = on_taken,
				    .arg = u};
	/* Only the front's end: we read with patience, it may not wait. */
	rc = fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0 ? err_sys(e, "cannot set up a pipe")
						     : copier_start(&u->copier, u->d->loop, e);
	close(ends[0]);
	if (rc < 0) {
		close(ends[1]);
		return -1;
	}
	return ends[1];
}

static uint32_t count(const struct daemon *d)
{
	uint32_t n = 0;

	for (const struct upload *u = d->uploads; u; u = u->next)
		n++;
	return n;
}

int upload_begin(struct daemon *d, const struct ipc_snapshot *s, int file, uint64_t room,
		 struct err *e)
{
	struct upload *u;
	int fd;

	if (count(d) >= AT_ONCE) {
		err_set(e, ERR_SYSTEM, "too many snapshots are being written just now");
		e->errnum = EAGAIN;
		return -1;
	}
	u = must_alloc(calloc(1, sizeof(*u)));
	*u = (struct upload){.d = d, .room = room};
	memcpy(u->id, s->id, sizeof(u->id));
	memcpy(u->owner, s->owner, sizeof(u->owner));
	u->next = d->uploads;
	d->uploads = u;
	fd = start(u, file, e);
	if (fd < 0)
		forget(u);
	return fd;
}

uint32_t uploads_count(const struct daemon *d, const char *owner)
{
	uint32_t n = 0;

	for (const struct upload *u = d->uploads; u; u = u->next)
		n += str_equal(u->owner, owner);
	return n;
}

uint64_t uploads_room(const struct daemon *d)
{
	uint64_t n = 0;

	for (const struct upload *u = d->uploads; u; u = u->next)
		n += u->room;
	return n;
}

bool upload_keep(struct daemon *d, struct asker who, const struct ipc_snapshot *s, upload_kept done)
{
	struct upload *u = find(d, s);

	if (!u || u->done)
		return false;
	u->who = who;
	u->info = *s;
	u->done = done;
	if (u->has_ended)
		conclude(u);
	return true;
}

bool upload_give_up(struct daemon *d, const struct ipc_snapshot *s)
{
	struct upload *u = find(d, s);

	if (u)
		forget(u);
	return u != NULL;
}

void uploads_drop(struct daemon *d)
{
	while (d->uploads) {
		char id[IPC_ID];

		memcpy(id, d->uploads->id, sizeof(id));
		forget(d->uploads);
		snapshot_discard(d, id);
	}
}
