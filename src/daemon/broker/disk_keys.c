/*
 * Keys of encrypted disks: asked for at the signer for one mount, and erased there when the last disk with the key is
 * gone. Snapshots and forks of a disk have its key, because they share its blocks.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <sys/mman.h>

struct disk_key {
	char id[IPC_ID];
	size_t users; /* disks of sandboxes, and snapshots */
};

/* ---- whose keys are in use ---- */

static struct disk_key *find(struct daemon *d, const char *id)
{
	for (size_t i = 0; i < d->disk_keys.count; i++)
		if (str_equal(d->disk_keys.items[i].id, id))
			return &d->disk_keys.items[i];
	return NULL;
}

void disk_key_use(struct daemon *d, const char *id)
{
	struct disk_key *k = find(d, id);

	if (!id[0])
		return;
	if (!k) {
		d->disk_keys.items = array_room(d->disk_keys.items, d->disk_keys.count,
						&d->disk_keys.room, sizeof(*d->disk_keys.items));
		k = &d->disk_keys.items[d->disk_keys.count++];
		*k = (struct disk_key){.users = 0};
		memcpy(k->id, id, sizeof(k->id));
	}
	k->users++;
}

static void on_erased(void *arg, const struct ipc *answer)
{
	/* The next start erases it: no disk names it any more. */
	if (answer->err.kind)
		log_warn("the key of a disk is not erased yet", "error", answer->err.msg);
}

static void erase(struct daemon *d, const char *id)
{
	struct ipc m = {.type = IPC_DISK_KEY_ERASE};

	memcpy(m.disk_key.id, id, sizeof(m.disk_key.id));
	signer_question(d, &m, -1, on_erased, d);
}

void disk_key_drop(struct daemon *d, const char *id)
{
	struct disk_key *k = find(d, id);

	if (!k || --k->users > 0)
		return;
	erase(d, id);
	*k = d->disk_keys.items[--d->disk_keys.count];
}

/*
 * Of what an earlier broker did not finish. While a description cannot be read, nothing is erased. Nothing may be asked
 * for earlier: a new key would be in no list.
 */
void disk_keys_tell(struct daemon *d)
{
	struct ipc m = {.type = IPC_DISK_KEY_USED};
	auto_close int fd = -1;

	if (d->disk_keys.were_told || d->disk_keys.unknown || !d->disk_keys.were_counted ||
	    d->signer.channel.watch.fd < 0)
		return;
	d->disk_keys.were_told = true;
	fd = memfd_create("keys", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	for (size_t i = 0; fd >= 0 && i < d->disk_keys.count; i++)
		if (io_write_all(fd, d->disk_keys.items[i].id, IPC_ID) < 0)
			return;
	if (fd >= 0 && lseek(fd, 0, SEEK_SET) == 0 && io_seal(fd) == 0)
		signer_question(d, &m, fd, on_erased, d);
}

/* ---- for a mount ---- */

struct key_wish {
	struct daemon *d;
	disk_key_done *done;
	void *arg;
};

static void on_key(void *arg, const struct ipc *answer)
{
	struct key_wish *w = arg;

	w->done(w->arg, answer->err.kind ? NULL : &answer->disk_key,
		answer->err.kind ? &answer->err : NULL);
	free(w);
}

void disk_key_get(struct daemon *d, const char *owner, const char *id, disk_key_done *done,
		  void *arg)
{
	struct key_wish *w = must_alloc(calloc(1, sizeof(*w)));
	struct ipc m = {.type = IPC_DISK_KEY_GET};

	*w = (struct key_wish){d, done, arg};
	d->disk_keys.were_told = true;
	snprintf(m.disk_key.owner, sizeof(m.disk_key.owner), "%s", owner);
	snprintf(m.disk_key.id, sizeof(m.disk_key.id), "%s", id);
	signer_question(d, &m, -1, on_key, w);
}

bool disk_keys_are_wanted(const struct daemon *d)
{
	const struct config_keys *k = &d->config->keys;

	return d->config->disk_encrypt == 1 ||
	       (d->config->disk_encrypt == CONFIG_UNSET && (k->master.file[0] || k->master.argc));
}
