/*
 * Calls that fail on demand, linked into the programs of `make torture` in the place of the real ones.
 *
 *   CLOCHE_FAIL=write:17:ENOSPC,fsync:%200:EIO
 *
 * The 17th write of each process fails, and on average one of 200 fsyncs. Our own objects get here by
 * -Wl,--wrap; the functions that libraries call as well (SQLite) are defined under their own names.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

#define RULES 16

static const struct {
	const char *name;
	int number;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},	      {"EMFILE", EMFILE}, {"EAGAIN", EAGAIN},
	      {"ENOMEM", ENOMEM}, {"EDQUOT", EDQUOT}, {"EPERM", EPERM},	  {"ENFILE", ENFILE}};

static struct rule {
	char kind[16];
	long at, every; /* every: at random */
	int error;
} rules[RULES];
static long counts[RULES];
static unsigned long seed;

static void read_rule(char *text, struct rule *r)
{
	char *number = strchr(text, ':'), *error = number ? strchr(number + 1, ':') : NULL;

	if (!error)
		return;
	*number++ = *error++ = '\0';
	snprintf(r->kind, sizeof(r->kind), "%s", text);
	*(number[0] == '%' ? &r->every : &r->at) = atol(number + (number[0] == '%'));
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strcmp(error, errors[i].name) == 0)
			r->error = errors[i].number;
}

__attribute__((constructor)) static void read_rules(void)
{
	const char *all = getenv("CLOCHE_FAIL");
	char *copy = all ? strdup(all) : NULL, *rest = NULL,
	     *one = copy ? strtok_r(copy, ",", &rest) : NULL;

	for (int i = 0; one && i < RULES; i++, one = strtok_r(NULL, ",", &rest))
		read_rule(one, &rules[i]);
	free(copy);
}

static unsigned long next_random(void)
{
	if (!seed)
		seed = (unsigned long)getpid() * 2654435761u ^ (unsigned long)time(NULL);
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* True, with errno: this call fails. */
static int fails(const char *kind)
{
	for (int i = 0; i < RULES && rules[i].kind[0]; i++) {
		if (strcmp(rules[i].kind, kind) != 0)
			continue;
		if (++counts[i] != rules[i].at &&
		    !(rules[i].every && next_random() % (unsigned long)rules[i].every == 0))
			continue;
		errno = rules[i].error;
		return 1;
	}
	return 0;
}

/* ---- wrapped ---- */

ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
	return fails("write") ? -1 : __real_write(fd, bytes, len);
}

int __wrap_rename(const char *from, const char *to)
{
	return fails("rename") ? -1 : __real_rename(from, to);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return fails("rename") ? -1 : __real_renameat(from_dir, from, to_dir, to);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	return fails("openat") ? -1 : __real_openat(dir, path, flags, mode);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	return fails("mkdir") ? -1 : __real_mkdir(path, mode);
}

int __wrap_mkdirat(int dir, const char *path, mode_t mode)
{
	return fails("mkdir") ? -1 : __real_mkdirat(dir, path, mode);
}

int __wrap_mount(const char *from, const char *to, const char *type, unsigned long flags,
		 const void *data)
{
	return fails("mount") ? -1 : __real_mount(from, to, type, flags, data);
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
	return fails("memfd") ? -1 : __real_memfd_create(name, flags);
}

int __wrap_socketpair(int family, int type, int protocol, int *fds)
{
	return fails("socketpair") ? -1 : __real_socketpair(family, type, protocol, fds);
}

static const char *kind_of(long number)
{
	switch (number) {
	case SYS_clone3:
		return "clone3";
	case 428: /* open_tree */
	case 429: /* move_mount */
	case 430: /* fsopen */
	case 442: /* mount_setattr */
		return "mount";
	case 437: /* openat2 */
		return "openat";
	default:
		return "";
	}
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	const char *kind = kind_of(number);

	return kind[0] && fails(kind) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

/* ---- in the place of the C library's ---- */

int fsync(int fd)
{
	return fails("fsync") ? -1 : (int)__real_syscall(SYS_fsync, fd, 0, 0, 0, 0, 0);
}

int fdatasync(int fd)
{
	return fails("fsync") ? -1 : (int)__real_syscall(SYS_fdatasync, fd, 0, 0, 0, 0, 0);
}

int ftruncate(int fd, off_t size)
{
	return fails("ftruncate") ? -1 : (int)__real_syscall(SYS_ftruncate, fd, size, 0, 0, 0, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
	if (fails("pwrite"))
		return -1;
	return __real_syscall(SYS_pwrite64, fd, (long)bytes, (long)len, at, 0, 0);
}

/* The names that glibc's headers give to the calls of libraries. */
#ifdef __GLIBC__
int ftruncate64(int fd, off_t size)
{
	return ftruncate(fd, size);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at)
{
	return pwrite(fd, bytes, len, at);
}
#endif
