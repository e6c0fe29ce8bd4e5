/* System calls that libc has no wrapper for (musl 1.2.3, glibc 2.36). Errors by errno. */
#pragma once

#include "base/base.h"
#include "kern/compat.h"

#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

/* clone(2) as fork: its last two arguments change places between architectures. */
static inline pid_t sys_clone_fork(unsigned long flags, int *child_tid)
{
#if defined(__x86_64__)
	return (pid_t)syscall(SYS_clone, flags, NULL, NULL, child_tid, 0);
#else
	return (pid_t)syscall(SYS_clone, flags, NULL, NULL, 0, child_tid);
#endif
}

static inline pid_t sys_clone3(struct clone_args *args)
{
	return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}

/*
 * A child that runs fn(arg) on the stack of args and exits with its result: clone3 for children that share
 * our memory. -1 with ENOSYS on architectures without the code for it.
 */
static inline pid_t sys_clone3_run(struct clone_args *args, int (*fn)(void *), void *arg)
{
#if defined(__x86_64__)
	long ret = SYS_clone3;
	register int (*start)(void *) __asm__("r12") = fn;
	register void *with __asm__("r13") = arg;

	__asm__ volatile("syscall\n\t"
			 "test %%eax, %%eax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[end], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "+a"(ret)
			 : "D"(args), "S"(sizeof(*args)), "r"(start), "r"(with), [end] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	if (ret > -4096 && ret < 0) {
		errno = (int)-ret;
		return -1;
	}
	return (pid_t)ret;
#else
	(void)args, (void)fn, (void)arg;
	errno = ENOSYS;
	return -1;
#endif
}

static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

/*
 * A child on a stack of its own that shares our memory until it executes a program; this process sleeps
 * until then. Before Linux 6.3 memory cannot be shared into a new time namespace: there it is copied.
 */
static inline pid_t sys_clone_vfork_with(int flags, int (*run)(void *), void *stack_top, void *arg)
{
	pid_t pid = clone(run, stack_top, flags | CLONE_VM | CLONE_VFORK | SIGCHLD, arg);

	return pid < 0 && errno == EINVAL
		       ? clone(run, stack_top, flags | CLONE_VFORK | SIGCHLD, arg)
		       : pid;
}

static inline pid_t sys_clone_vfork(int (*run)(void *), void *stack_top, void *arg)
{
	return sys_clone_vfork_with(0, run, stack_top, arg);
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static inline int sys_openat2(int dirfd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags, .resolve = resolve};

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static inline int sys_fsopen(const char *type)
{
	return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static inline int sys_fsconfig(int fs, unsigned cmd, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, fs, cmd, key, value, 0);
}

static inline int sys_fsmount(int fs, unsigned attrs)
{
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attrs);
}

static inline int sys_mount_setattr(int fd, unsigned flags, struct mount_attr *attr)
{
	return (int)syscall(SYS_mount_setattr, fd, "", flags, attr, sizeof(*attr));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}
