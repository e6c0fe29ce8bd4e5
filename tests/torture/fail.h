/* The real functions behind those of fail.c, and its own. */
#pragma once

#include <sys/types.h>

ssize_t __real_write(int fd, const void *bytes, size_t len);
int __real_rename(const char *from, const char *to);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_openat(int dir, const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
int __real_mkdirat(int dir, const char *path, mode_t mode);
int __real_mount(const char *from, const char *to, const char *type, unsigned long flags,
		 const void *data);
int __real_memfd_create(const char *name, unsigned flags);
int __real_socketpair(int family, int type, int protocol, int *fds);
long __real_syscall(long number, ...);

ssize_t __wrap_write(int fd, const void *bytes, size_t len);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdirat(int dir, const char *path, mode_t mode);
int __wrap_mount(const char *from, const char *to, const char *type, unsigned long flags,
		 const void *data);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_socketpair(int family, int type, int protocol, int *fds);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

#ifdef __GLIBC__
int ftruncate64(int fd, off_t size);
ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at);
#endif
