/* Writes files, links and directories to a workspace of the host, with the rights of its owner. */
#include "sandbox/workspace/apply_file.h"

#include "sandbox/workspace/safe_walk.h"

#include <sys/random.h>
#include <sys/fsuid.h>

#define TEMP_NAME_SIZE 32

static int pick_temp_name(char ret[TEMP_NAME_SIZE])
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -1;
	snprintf(ret, TEMP_NAME_SIZE, ".cloche-%016" PRIx64, number);
	return 0;
}

/* Removes a name again, keeping errno. */
static int undo(int dir, const char *name, int flags)
{
	int errnum = errno;

	unlinkat(dir, name, flags);
	errno = errnum;
	return -1;
}

static int copy_range(int to, int from, off_t at, off_t end)
{
	char block[65536];

	if (lseek(to, at, SEEK_SET) < 0)
		return -1;
	while (at < end) {
		size_t want = end - at < (off_t)sizeof(block) ? (size_t)(end - at) : sizeof(block);
		ssize_t n = pread(from, block, want, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			return 0;
		if (io_write_all(to, block, (size_t)n) < 0)
			return -1;
		at += n;
	}
	return 0;
}

/* Holes stay holes, so that a sparse terabyte takes no space on the host either. */
static int copy_data(int to, int from, off_t size)
{
	off_t at = 0;

	while (at < size) {
		off_t start = lseek(from, at, SEEK_DATA), end;

		if (start < 0 && errno == ENXIO)
			break;
		if (start < 0)
			return -1;
		end = lseek(from, start, SEEK_HOLE);
		if (end < 0)
			return -1;
		if (end > size)
			end = size;
		if (copy_range(to, from, start, end) < 0)
			return -1;
		at = end > at ? end : size;
	}
	return ftruncate(to, size);
}

static int finish_file(int fd, const struct stat *st, const struct apply_owner *owner)
{
	/* Times are kept, or make would rebuild files by the order in which they were copied. */
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (owner->set && fchown(fd, owner->uid, owner->gid) < 0)
		return -1;
	if (fchmod(fd, st->st_mode & 0777) < 0)
		return -1;
	return futimens(fd, times);
}

/*
 * With a file system uid other than 0 the kernel drops the capabilities that override permissions.
 */
static const struct apply_owner *become_owner(const struct apply_owner *owner)
{
	if (owner->set && owner->uid != 0) {
		setfsgid(owner->gid);
		setfsuid(owner->uid);
	}
	return owner;
}

static void become_self(const struct apply_owner **acting)
{
	int errnum = errno;

	if ((*acting)->set && (*acting)->uid != 0) {
		setfsuid(0);
		setfsgid(0);
	}
	errno = errnum;
}

/* From here to the end of the function. */
#define act_as(owner)                                                                              \
	__attribute__((cleanup(become_self), unused)) const struct apply_owner *acting =           \
		become_owner(owner)

int apply_file(int dir, const char *name, int from, const struct stat *st,
	       const struct apply_owner *owner)
{
	act_as(owner);
	char temp[TEMP_NAME_SIZE];
	auto_close int fd = pick_temp_name(temp) < 0 ? -1 : safe_walk_create_file(dir, temp);

	if (fd < 0)
		return -1;
	if (copy_data(fd, from, st->st_size) < 0 || finish_file(fd, st, owner) < 0 ||
	    renameat(dir, temp, dir, name) < 0)
		return undo(dir, temp, 0);
	return 0;
}

int apply_link(int dir, const char *name, const char *target, const struct apply_owner *owner)
{
	act_as(owner);
	char temp[TEMP_NAME_SIZE];

	if (pick_temp_name(temp) < 0 || symlinkat(target, dir, temp) < 0)
		return -1;
	if ((owner->set && fchownat(dir, temp, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0) ||
	    renameat(dir, temp, dir, name) < 0)
		return undo(dir, temp, 0);
	return 0;
}

int apply_dir(int dir, const char *name, const struct apply_owner *owner)
{
	act_as(owner);
	auto_close int fd = -1;

	if (mkdirat(dir, name, 0700) < 0)
		return -1;
	fd = safe_walk_open_dir(dir, name);
	if (fd >= 0 && (!owner->set || fchown(fd, owner->uid, owner->gid) == 0))
		return take_fd(&fd);
	return undo(dir, name, AT_REMOVEDIR);
}

int apply_nothing(int dir, const char *name, const struct apply_owner *owner)
{
	act_as(owner);

	return safe_walk_remove(dir, name);
}

int apply_mode(int fd, mode_t mode, const struct apply_owner *owner)
{
	act_as(owner);

	return fchmod(fd, mode);
}
