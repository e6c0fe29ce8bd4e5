/* <runtime>/boxes/ID: one struct for each sandbox, written in one piece. */
#include "daemon/broker/record.h"

#include "daemon/broker/broker_internal.h"

#include <assert.h>

#define MAGIC "cloche2"
#define MAGIC_BEFORE "cloche1"

struct record {
	char magic[8];
	uint32_t size, unused;
	unsigned char blob[PROVIDER_BLOB];
	struct ipc_booted info; /* last: it may grow */
};

/* The kernel writes within a page what it writes at all, even of a process that is being killed. */
static_assert(sizeof(struct record) <= 4096, "a record is written in one piece");

int record_write(const struct box *b, struct err *e)
{
	struct record r = {.magic = MAGIC, .size = sizeof(r), .info = b->i.info};
	auto_close int fd =
		openat(b->d->host.boxes_dir, b->i.info.id, O_WRONLY | O_CLOEXEC | O_CREAT, 0600);

	memcpy(r.blob, b->i.blob, sizeof(r.blob));
	if (fd < 0 || write(fd, &r, sizeof(r)) != (ssize_t)sizeof(r))
		return err_sys(e, "cannot write the record of %s", b->i.info.id);
	return 0;
}

int record_read(struct box *b, struct err *e)
{
	const char *id = b->i.info.id;
	auto_close int fd = openat(b->d->host.boxes_dir, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct record r = {.size = 0};
	struct stat st;
	ssize_t n = fd < 0 || fstat(fd, &st) < 0 ? -1 : read(fd, &r, sizeof(r));

	if (n >= (ssize_t)sizeof(r.magic) && str_equal(r.magic, MAGIC_BEFORE))
		return err_set(e, ERR_INVALID,
			       "its record is of an older version of cloche, which cannot be "
			       "taken up by this one");
	/* One of a later version may be longer: what is behind the end says nothing here. */
	if (n != (ssize_t)sizeof(r) || r.size < sizeof(r) || r.size > st.st_size)
		return err_set(e, ERR_INVALID, "record %s is not whole", id);
	if (memcmp(r.magic, MAGIC, sizeof(r.magic)) != 0 || !ipc_id_is_valid(r.info.id) ||
	    !str_equal(r.info.id, id) || !memchr(r.info.owner, '\0', sizeof(r.info.owner)) ||
	    !provider_row(r.info.provider))
		return err_set(e, ERR_INVALID, "record %s is none of ours", id);
	b->i.info = r.info;
	b->i.row = provider_row(r.info.provider);
	memcpy(b->i.blob, r.blob, sizeof(r.blob));
	return 0;
}

void record_remove(const struct box *b)
{
	unlinkat(b->d->host.boxes_dir, b->i.info.id, 0);
}
