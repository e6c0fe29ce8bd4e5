/*
 * lie RULE[,RULE...] -- CMD [ARG...]
 * lie RULE[,RULE...] --print
 *
 * The second writes the filter, for others to put on (guest/lying_guest.c).
 *
 * Runs a program on a kernel that lacks or fakes system calls: a seccomp filter answers those named
 * without doing anything. A RULE is
 *
 *   CALL=ERRNO            every such call; ERRNO is a name, a number, or 0 for a false success
 *   CALL:VALUE=ERRNO      only if its first argument is VALUE (prctl:38=0)
 *   CALL:INDEX.VALUE=ERRNO  the same for another argument, counted from 0 (setns:1.0x40000000=0)
 *
 * CALL is a name of the table below or a number. Without CAP_SYS_ADMIN no_new_privs is set first,
 * which the program then finds set.
 *
 * As root it works only in a pid namespace of its own. A program that believes it has become
 * another user, and has not, may signal "all its processes": those are everybody's then.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_RULES 32
/* The inode of the first pid namespace; fixed in the kernel (PROC_PID_INIT_INO). */
#define FIRST_PID_NS 0xEFFFFFFCu

static const struct {
	const char *name;
	int nr;
} calls[] = {
#define CALL(x)                                                                                    \
	{                                                                                          \
#x, SYS_##x                                                                        \
	}
	CALL(prctl),
	CALL(capset),
	CALL(setresuid),
	CALL(setresgid),
	CALL(setgroups),
	CALL(unshare),
	CALL(setns),
	CALL(clone),
	CALL(mount),
	CALL(umount2),
	CALL(pivot_root),
	CALL(chroot),
	CALL(chdir),
	CALL(fchdir),
	CALL(prlimit64),
	CALL(setrlimit),
	CALL(sethostname),
	CALL(setsid),
	CALL(seccomp),
	CALL(kill),
	CALL(mkdirat),
	CALL(openat),
	CALL(memfd_create),
	CALL(getdents64),
	CALL(ioctl),
	CALL(waitid),
	CALL(socket),
	CALL(listen),
#undef CALL
	{"pidfd_send_signal", 424},
	{"open_tree", 428},
	{"move_mount", 429},
	{"fsopen", 430},
	{"fsconfig", 431},
	{"fsmount", 432},
	{"pidfd_open", 434},
	{"clone3", 435},
	{"close_range", 436},
	{"openat2", 437},
	{"mount_setattr", 442},
	{"landlock_create_ruleset", 444},
	{"landlock_add_rule", 445},
	{"landlock_restrict_self", 446},
};

static const struct {
	const char *name;
	int value;
} errors[] = {
	{"ENOSYS", ENOSYS}, {"EPERM", EPERM},	{"EINVAL", EINVAL}, {"EACCES", EACCES},
	{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"ENOSPC", ENOSPC}, {"EMFILE", EMFILE},
	{"EBUSY", EBUSY},   {"EIO", EIO},
};

struct rule {
	int nr;
	int arg; /* -1: any */
	unsigned value;
	int error;
};

static bool parse_number(const char *text, unsigned *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	*ret = (unsigned)n;
	return *text && !*end;
}

static int find_call(const char *name)
{
	unsigned n;

	for (size_t i = 0; i < COUNT(calls); i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].nr;
	return parse_number(name, &n) ? (int)n : -1;
}

static int find_error(const char *name)
{
	unsigned n;

	for (size_t i = 0; i < COUNT(errors); i++)
		if (!strcmp(errors[i].name, name))
			return errors[i].value;
	return parse_number(name, &n) && n < 4096 ? (int)n : -1;
}

static bool parse_rule(char *text, struct rule *ret)
{
	char *eq = strchr(text, '='), *colon, *dot;
	unsigned index = 0;

	if (!eq)
		return false;
	*eq = '\0';
	ret->arg = -1;
	colon = strchr(text, ':');
	if (colon) {
		*colon++ = '\0';
		dot = strchr(colon, '.');
		if (dot) {
			*dot++ = '\0';
			if (!parse_number(colon, &index) || index > 5)
				return false;
			colon = dot;
		}
		if (!parse_number(colon, &ret->value))
			return false;
		ret->arg = (int)index;
	}
	ret->nr = find_call(text);
	ret->error = find_error(eq + 1);
	return ret->nr >= 0 && ret->error >= 0;
}

/* Per rule: load number, compare, perhaps load argument and compare, answer. */
static unsigned add_rule(struct sock_filter *f, const struct rule *r)
{
	unsigned n = 0;
	bool arg = r->arg >= 0;

	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					      offsetof(struct seccomp_data, nr));
	f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0,
					      arg ? 3 : 1);
	if (arg) {
		/* The low half: the kernel's types are ints here, and both machines little-endian. */
		f[n++] = (struct sock_filter)BPF_STMT(
			BPF_LD | BPF_W | BPF_ABS,
			(unsigned)(offsetof(struct seccomp_data, args) + 8 * (unsigned)r->arg));
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->value, 0, 1);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
					      SECCOMP_RET_ERRNO | (unsigned)r->error);
	return n;
}

static unsigned short compile(const struct rule *rules, unsigned count, struct sock_filter *f)
{
	unsigned short len = 0;

	for (unsigned i = 0; i < count; i++)
		len = (unsigned short)(len + add_rule(f + len, &rules[i]));
	f[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	return len;
}

static int print(const struct rule *rules, unsigned count)
{
	struct sock_filter f[MAX_RULES * 5 + 1];
	unsigned short len = compile(rules, count, f);

	return fwrite(f, sizeof(*f), len, stdout) == len && fflush(stdout) == 0 ? 0 : 2;
}

static int install(const struct rule *rules, unsigned count)
{
	struct sock_filter f[MAX_RULES * 5 + 1];
	struct sock_fprog prog = {compile(rules, count, f), f};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0)
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}

/* Not to be told is not to be sure. */
static bool endangers_others(void)
{
	struct stat st;

	if (geteuid() != 0)
		return false;
	return stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == FIRST_PID_NS;
}

int main(int argc, char **argv)
{
	struct rule rules[MAX_RULES];
	unsigned count = 0;
	char *rest = NULL;

	if (argc < 3 || (strcmp(argv[2], "--print") && (argc < 4 || strcmp(argv[2], "--")))) {
		fputs("usage: lie CALL[:[INDEX.]VALUE]=ERRNO[,...] -- CMD [ARG...] | --print\n",
		      stderr);
		return 2;
	}
	for (char *r = strtok_r(argv[1], ",", &rest); r; r = strtok_r(NULL, ",", &rest)) {
		if (count == MAX_RULES || !parse_rule(r, &rules[count++])) {
			fprintf(stderr, "lie: cannot read the rule for '%s'\n", r);
			return 2;
		}
	}
	if (!strcmp(argv[2], "--print"))
		return print(rules, count);
	if (endangers_others()) {
		fputs("lie: root, in the host's pid namespace: start it below `unshare --pid "
		      "--fork "
		      "--kill-child --mount-proc`\n",
		      stderr);
		return 2;
	}
	if (install(rules, count) < 0) {
		perror("lie: seccomp");
		return 2;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 2;
}
