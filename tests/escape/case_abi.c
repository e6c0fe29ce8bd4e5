/* The back doors of the system call entry: other ABIs, other number ranges. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
/* i386 system calls take 32-bit pointers only, so none is used here. */
static long int80(long nr, long a, long b)
{
	long rc;

	__asm__ volatile("int $0x80"
			 : "=a"(rc)
			 : "a"(nr), "b"(a), "c"(b), "d"(0l), "S"(0l), "D"(0l)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)rc;
}

/*
 * Runs one foreign call in a child of its own: killed is the best answer, an error the second
 * best, a result means that the filter reads numbers of another table.
 */
static void foreign(struct probe *p, const char *what, long (*call)(void))
{
	int status, fds[2];
	long rc = -1;
	pid_t pid;

	if (pipe(fds) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		rc = call();
		if (write(fds[1], &rc, sizeof(rc)) < 0)
			_exit(1);
		_exit(0);
	}
	close(fds[1]);
	if (read(fds[0], &rc, sizeof(rc)) != sizeof(rc))
		rc = -ENOSYS;
	close(fds[0]);
	if (waitpid(pid, &status, 0) < 0)
		return;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		refused(p, "%s: killed by SIGSYS", what);
	else if (WIFSIGNALED(status))
		not_here(p, "this kernel has no such entry");
	else if (rc >= 0)
		got_through(p, "%s: the call was made and answered %ld", what, rc);
	else if (rc == -EPERM)
		refused(p, "%s: EPERM", what);
	else if (rc == -ENOSYS)
		cannot_tell(p, "%s: ENOSYS, maybe the kernel's own", what);
	else
		got_through(p, "%s: the kernel answered %s", what, errno_name((int)-rc));
}

static long i386_getpid(void)
{
	return int80(20, 0, 0);
}

static long i386_unshare(void)
{
	return int80(310, 0x10000000 /* CLONE_NEWUSER */, 0);
}

static long i386_socket(void)
{
	/* socketcall is 102 and wants a pointer; 359 is socket itself: AF_ALG, SOCK_SEQPACKET */
	return int80(359, 38, 5);
}

static long x32_getpid(void)
{
	long rc = syscall(0x40000000 | 39);

	return rc < 0 ? -errno : rc;
}

static long x32_ptrace(void)
{
	long rc = syscall(0x40000000 | 521, 0, 0, 0, 0);

	return rc < 0 ? -errno : rc;
}

static void wrong_abi_i386(struct probe *p)
{
	foreign(p, "getpid by int 0x80", i386_getpid);
	foreign(p, "unshare by int 0x80", i386_unshare);
	foreign(p, "socket by int 0x80", i386_socket);
}

static void wrong_abi_x32(struct probe *p)
{
	foreign(p, "getpid as x32", x32_getpid);
	foreign(p, "ptrace as x32", x32_ptrace);
}
#endif

/* Numbers that only x32 uses, unknown ones, and ones that are negative as an int. */
static void strange_numbers(struct probe *p)
{
	static const long numbers[] = {512, 520,	521,	    545, 547, 600,
				       999, 0x3fffffff, 0x7fffffff, -1,	 -2,  1l << 32 | 39};

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		long rc = syscall(numbers[i], 0, 0, 0, 0, 0, 0);

		if (numbers[i] == (1l << 32 | 39) && rc == getpid())
			continue; /* the kernel takes the low half: an ordinary getpid */
		judge(p, fmt_path("number %ld", numbers[i]), rc, ERRS(ENOSYS, EPERM));
	}
}

static const struct probe_case cases[] = {
#ifdef __x86_64__
	{"abi-i386", 22, "make 32-bit system calls", SAFE, L(SECCOMP), 0, wrong_abi_i386, 0},
	{"abi-x32", 22, "make x32 system calls", SAFE, L(SECCOMP), 0, wrong_abi_x32, 0},
#endif
	{"strange-numbers", 22, "make system calls of unknown numbers", NO_CONTROL, L(SECCOMP), 0,
	 strange_numbers, 0},
};
const struct case_group group_abi = {cases, ARRAY_LEN(cases)};
