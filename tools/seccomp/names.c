/* Names that a profile may use. Only this file knows libseccomp, and of it only the call tables. */
#include "compile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const struct arch_info archs[ARCH_COUNT] = {
	/* x32 shares x86_64's audit number and sets bit 30 of the call's. */
	[ARCH_X86_64] = {"x86_64", "__x86_64__", AUDIT_ARCH_X86_64, 0x40000000},
	[ARCH_AARCH64] = {"aarch64", "__aarch64__", AUDIT_ARCH_AARCH64, 0},
};

static const uint32_t scmp_archs[ARCH_COUNT] = {
	[ARCH_X86_64] = SCMP_ARCH_X86_64,
	[ARCH_AARCH64] = SCMP_ARCH_AARCH64,
};

struct entry {
	const char *name;
	uint64_t value;
};

/* Newer than libseccomp 2.5.4. Since Linux 5.1 new calls have one number everywhere. */
static const struct entry new_calls[] = {
	{"cachestat", 451},	    {"fchmodat2", 452},	       {"map_shadow_stack", 453},
	{"futex_wake", 454},	    {"futex_wait", 455},       {"futex_requeue", 456},
	{"statmount", 457},	    {"listmount", 458},	       {"lsm_get_self_attr", 459},
	{"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
	{"setxattrat", 463},	    {"getxattrat", 464},       {"listxattrat", 465},
	{"removexattrat", 466},	    {"open_tree_attr", 467},   {"file_getattr", 468},
	{"file_setattr", 469},
};
/* Called by the kernel's own trampolines for probes; x86_64 only. */
static const struct entry new_x86_calls[] = {{"uretprobe", 335}, {"uprobe", 336}};

#define N(name)                                                                                    \
	{                                                                                          \
#name, name                                                                        \
	}
static const struct entry errnos[] = {
	N(EPERM),    N(ENOENT),	       N(EACCES),      N(EBUSY),	N(EINVAL),
	N(ENOTTY),   N(ENOMEM),	       N(ENOSYS),      N(ENODEV),	N(EOPNOTSUPP),
	N(EISCONN),  N(ENOTSUP),       N(ENOPROTOOPT), N(EAFNOSUPPORT), N(EPROTONOSUPPORT),
	N(ENOTSOCK), N(EADDRNOTAVAIL), N(EXFULL),      {"0", 0},
};

/* Only values that are the same on every architecture, and bits the kernel tests by themselves. */
static const struct entry constants[] = {
	N(CLONE_NEWNS),
	N(CLONE_NEWCGROUP),
	N(CLONE_NEWUTS),
	N(CLONE_NEWIPC),
	N(CLONE_NEWUSER),
	N(CLONE_NEWPID),
	N(CLONE_NEWNET),
	N(CLONE_FS),
	N(CLONE_FILES),
	N(CLONE_SYSVSEM),
	{"CLONE_NEWTIME", 0x80},
	N(AF_UNSPEC),
	N(AF_UNIX),
	N(AF_INET),
	N(AF_INET6),
	N(AF_NETLINK),
	N(AF_VSOCK),
	N(AF_ALG),
	N(AF_PACKET),
	N(SOCK_STREAM),
	N(SOCK_DGRAM),
	N(SOCK_RAW),
	N(SOCK_SEQPACKET),
	N(SOCK_CLOEXEC),
	N(SOCK_NONBLOCK),
	{"SOCK_TYPE_MASK", 0xf},
	N(IPPROTO_IP),
	N(IPPROTO_ICMP),
	N(IPPROTO_ICMPV6),
	N(IPPROTO_TCP),
	N(IPPROTO_UDP),
	N(NETLINK_ROUTE),
	{"TCP_ULP", 31},
	N(O_CREAT),
	{"O_TMPFILE_BIT", 020000000},
	N(S_IFMT),
	N(S_IFREG),
	N(S_IFIFO),
	N(S_IFSOCK),
	N(S_ISUID),
	N(S_ISGID),
	N(MAP_HUGETLB),
	{"MFD_HUGETLB", 4},
	N(TIOCSTI),
	N(TIOCLINUX),
	N(TIOCSETD),
	N(TIOCCONS),
	N(TIOCSSERIAL),
	{"TIOCVHANGUP", 0x5437},
	{"FS_IOC_FSSETXATTR", 0x401c5820},
	{"FS_IOC_ADD_ENCRYPTION_KEY", 0xc0506617},
	{"SECCOMP_FILTER_FLAG_NEW_LISTENER", 8},
	N(RLIMIT_RTTIME),
	N(PER_LINUX),
	N(ADDR_NO_RANDOMIZE),
	{"SCHED_NORMAL", 0},
	{"SCHED_BATCH", 3},
	{"SCHED_IDLE", 5},
	{"SCHED_RESET_ON_FORK", 0x40000000},
	N(PR_SET_PDEATHSIG),
	N(PR_GET_PDEATHSIG),
	N(PR_GET_DUMPABLE),
	N(PR_SET_DUMPABLE),
	N(PR_GET_KEEPCAPS),
	N(PR_SET_KEEPCAPS),
	N(PR_SET_NAME),
	N(PR_GET_NAME),
	N(PR_GET_SECCOMP),
	N(PR_SET_SECCOMP),
	N(PR_CAPBSET_READ),
	N(PR_CAPBSET_DROP),
	N(PR_GET_TSC),
	N(PR_SET_TSC),
	N(PR_GET_SECUREBITS),
	N(PR_SET_SECUREBITS),
	N(PR_SET_TIMERSLACK),
	N(PR_GET_TIMERSLACK),
	N(PR_MCE_KILL),
	N(PR_MCE_KILL_GET),
	N(PR_SET_MM),
	N(PR_SET_CHILD_SUBREAPER),
	N(PR_GET_CHILD_SUBREAPER),
	N(PR_SET_NO_NEW_PRIVS),
	N(PR_GET_NO_NEW_PRIVS),
	N(PR_GET_TID_ADDRESS),
	N(PR_SET_THP_DISABLE),
	N(PR_GET_THP_DISABLE),
	N(PR_CAP_AMBIENT),
	N(PR_SVE_SET_VL),
	N(PR_SVE_GET_VL),
	N(PR_GET_SPECULATION_CTRL),
	N(PR_SET_SPECULATION_CTRL),
	N(PR_PAC_RESET_KEYS),
	N(PR_SET_TAGGED_ADDR_CTRL),
	N(PR_GET_TAGGED_ADDR_CTRL),
	N(PR_PAC_SET_ENABLED_KEYS),
	N(PR_PAC_GET_ENABLED_KEYS),
	{"PR_SME_SET_VL", 63},
	{"PR_SME_GET_VL", 64},
	{"PR_SET_MDWE", 65},
	{"PR_GET_MDWE", 66},
	N(PR_SET_VMA),
	{"PR_GET_AUXV", 0x41555856},
	N(PR_SET_PTRACER),
};

static bool look_up(const struct entry *table, size_t count, const char *name, uint64_t *ret)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(table[i].name, name) == 0) {
			*ret = table[i].value;
			return true;
		}
	}
	return false;
}

bool name_call(const char *name, int ret_nr[ARCH_COUNT])
{
	bool known = false;

	for (unsigned a = 0; a < ARCH_COUNT; a++) {
		int nr = seccomp_syscall_resolve_name_arch(scmp_archs[a], name);
		uint64_t value;

		if (nr < 0 && (look_up(new_calls, COUNT(new_calls), name, &value) ||
			       (a == ARCH_X86_64 &&
				look_up(new_x86_calls, COUNT(new_x86_calls), name, &value))))
			nr = (int)value;
		/* Other negative numbers mean: a call, but not of this architecture. */
		known = known || nr != __NR_SCMP_ERROR;
		ret_nr[a] = nr < 0 ? -1 : nr;
	}
	return known;
}

bool name_errno(const char *name, int *ret)
{
	uint64_t value;

	if (!look_up(errnos, COUNT(errnos), name, &value))
		return false;
	*ret = (int)value;
	return true;
}

bool name_constant(const char *name, uint64_t *ret)
{
	return look_up(constants, COUNT(constants), name, ret);
}
