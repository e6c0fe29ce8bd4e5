#include "daemon/record.h"

#include "base/auto.h"
#include "base/str.h"
#include "daemon/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define MAGIC "cloche1"

/* As it is in the file, but for what is not used of the table; the size tells other makes apart. */
struct record {
	char magic[8];
	uint32_t size, id_base;
	int64_t pid;
	uint64_t scratch_dev;
	struct boot_identity identity;
	struct ipc_booted info;
	char remote[REMOTE_ID];
	char cgroup_table[4096];
};

/* The kernel writes within a page what it writes at all, even of a process that is being killed. */
#define WHOLE 4096

static int write_whole(int dir, const char *name, int flags, const struct record *r)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | flags, 0600);

	return fd >= 0 && write(fd, r, r->size) == (ssize_t)r->size ? 0 : -1;
}

static int replace(int dir, const char *name, const struct record *r)
{
	char draft[IPC_ID + 8];

	snprintf(draft, sizeof(draft), "%s.new", name);
	return write_whole(dir, draft, O_CREAT | O_TRUNC, r) < 0 ? -1
								 : renameat(dir, draft, dir, name);
}

int record_write(const struct box *b, struct err *e)
{
	struct record r = {.magic = MAGIC};
	const char *table = b->cgroup_table ? b->cgroup_table : b->d->cgroups.table;

	r.id_base = b->id_base;
	r.pid = b->pid;
	r.scratch_dev = b->scratch_dev;
	r.identity = b->identity;
	r.info = b->info;
	memcpy(r.remote, b->remote, sizeof(r.remote));
	snprintf(r.cgroup_table, sizeof(r.cgroup_table), "%s", table);
	/* One of an earlier daemon may be longer: what is behind its end says nothing. */
	r.size = (uint32_t)(offsetof(struct record, cgroup_table) + strlen(r.cgroup_table) + 1);
	if ((r.size <= WHOLE ? write_whole(b->d->boxes_dir, b->info.id, O_CREAT, &r)
			     : replace(b->d->boxes_dir, b->info.id, &r)) < 0)
		return err_sys(e, "cannot write the record of %s", b->info.id);
	return 0;
}

static bool has_end(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

int record_read(int dir, const char *id, struct box *ret, struct err *e)
{
	auto_close int fd = openat(dir, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct record r = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 ||
	    st.st_size <= (off_t)offsetof(struct record, cgroup_table) ||
	    st.st_size > (off_t)sizeof(r) || read(fd, &r, sizeof(r)) != (ssize_t)st.st_size)
		return err_set(e, ERR_INVALID, "record %s is not whole", id);
	if (memcmp(r.magic, MAGIC, sizeof(r.magic)) != 0 || r.size > st.st_size ||
	    !has_end(r.cgroup_table, sizeof(r.cgroup_table)) || !ipc_id_is_valid(r.info.id) ||
	    !str_equal(r.info.id, id) || !has_end(r.info.owner, sizeof(r.info.owner)) ||
	    (r.info.provider == PROVIDER_E2B ? !remote_name_is_valid(r.remote) : r.pid < 2))
		return err_set(e, ERR_INVALID, "record %s is none of ours", id);
	ret->info = r.info;
	memcpy(ret->remote, r.remote, sizeof(ret->remote));
	ret->pid = (pid_t)r.pid;
	ret->scratch_dev = r.scratch_dev;
	ret->identity = r.identity;
	ret->id_base = r.id_base;
	if (!str_equal(r.cgroup_table, ret->d->cgroups.table))
		ret->cgroup_table = str_copy(r.cgroup_table);
	return 0;
}

void record_remove(const struct box *b)
{
	char name[IPC_ID + 8];

	snprintf(name, sizeof(name), "%s.sock", b->info.id);
	unlinkat(b->d->boxes_dir, name, 0);
	snprintf(name, sizeof(name), "%s.new", b->info.id);
	unlinkat(b->d->boxes_dir, name, 0);
	/* Last: as long as it is there, a new broker looks for the rest. */
	unlinkat(b->d->boxes_dir, b->info.id, 0);
}

void record_socket_address(int dir, const char *id, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s.sock", dir, id);
}
