/*
 * Reads and writes <runtime>/boxes/ID: one struct for each sandbox, written in one piece. Records of version
 * 0.1.0 are read, too, so that its sandboxes survive an upgrade.
 */
#include "daemon/broker/broker_internal.h"
#include "model/root_inside.h"
#include "provider/record_0_1.h"

#include <assert.h>

#define MAGIC "cloche2"
#define MAGIC_0_1 "cloche1"

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

/* The size of the file, or -1; ret holds as much of the file as fits. */
static off_t read_file(const struct box *b, void *ret, size_t size)
{
	auto_close int fd =
		openat(b->d->host.boxes_dir, b->i.info.id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st = {.st_size = 0};
	ssize_t n = fd < 0 || fstat(fd, &st) < 0 ? -1 : read(fd, ret, size);

	return n == (ssize_t)size || n == st.st_size ? st.st_size : -1;
}

static enum record_kind judge_info(const struct ipc_booted *info, const char *id, struct err *e)
{
	if (!ipc_id_is_valid(info->id) || !str_equal(info->id, id) ||
	    !str_has_end(info->owner, sizeof(info->owner))) {
		err_set(e, ERR_INVALID, "record %s is none of ours", id);
		return RECORD_FOREIGN;
	}
	if (!provider_row(info->provider)) {
		err_set(e, ERR_UNSUPPORTED, "its record names a provider that is not built");
		return RECORD_FOREIGN;
	}
	return RECORD_GOOD;
}

enum record_kind record_read(struct box *b, struct err *e)
{
	union {
		char magic[8];
		struct record now;
		struct record_0_1 old;
	} r = {.magic = ""};
	const char *id = b->i.info.id;
	off_t size = read_file(b, &r, sizeof(r));
	bool is_old = memcmp(r.magic, MAGIC_0_1, sizeof(r.magic)) == 0;
	bool is_now = memcmp(r.magic, MAGIC, sizeof(r.magic)) == 0;
	const struct ipc_booted *info = is_old ? &r.old.info : &r.now.info;
	enum record_kind kind;

	if (size >= (off_t)sizeof(r.magic) && !is_old && !is_now) {
		err_set(e, ERR_UNSUPPORTED,
			"its record is of a version of cloche that this one "
			"does not know");
		return RECORD_FOREIGN;
	}
	/* A record of a later version may be longer; the bytes behind the known end are ignored. */
	if (is_old ? size <= (off_t)offsetof(struct record_0_1, cgroup_table) ||
			     r.old.size > size || size > (off_t)sizeof(r.old) ||
			     !str_has_end(r.old.cgroup_table, sizeof(r.old.cgroup_table))
		   : size < (off_t)sizeof(r.now) || r.now.size < sizeof(r.now) ||
			     r.now.size > size) {
		err_set(e, ERR_INVALID, "record %s is not whole", id);
		/* The first write of a record did not happen: nobody was told of the sandbox. */
		return size == 0 ? RECORD_EMPTY : RECORD_FOREIGN;
	}
	kind = judge_info(info, id, e);
	if (kind != RECORD_GOOD)
		return kind;
	b->i.info = *info;
	if (is_old)
		b->i.info.root_inside = ROOT_INSIDE_NO;
	b->i.row = provider_row(info->provider);
	if (is_now)
		memcpy(b->i.blob, r.now.blob, sizeof(r.now.blob));
	else if (b->i.row->import_0_1(&b->i, &r.old, e) < 0)
		return RECORD_FOREIGN;
	return RECORD_GOOD;
}

void record_remove(const struct box *b)
{
	unlinkat(b->d->host.boxes_dir, b->i.info.id, 0);
}
