/* Ends an ephemeral daemon when the process that started it is gone, and removes its directory. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <ftw.h>

static void on_life(void *arg, uint32_t events)
{
	struct daemon *d = arg;
	char bytes[64];

	if (read(0, bytes, sizeof(bytes)) > 0)
		return;
	loop_unwatch(d->loop, &d->ephemeral_life);
	/* Twice: nobody is left who waits for running work, so it is not finished first. */
	daemon_stop(d);
	daemon_stop(d);
}

int ephemeral_watch(struct daemon *d, struct err *e)
{
	if (!d->ephemeral_dir)
		return 0;
	d->ephemeral_life =
		(struct loop_watch){.fd = 0, .events = EPOLLIN, .call = on_life, .arg = d};
	if (loop_watch(d->loop, &d->ephemeral_life) < 0)
		return err_sys(e, "private: stdin must be a pipe");
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	if (remove(path) < 0)
		log_warn("left behind", "path", path);
	return 0;
}

void ephemeral_remove(const struct daemon *d)
{
	if (d->ephemeral_dir)
		nftw(d->ephemeral_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
