#include "kern/landlock.h"

#include "kern/sys.h"

#include <linux/landlock.h>

/* The ruleset attribute as of ABI 6. */
struct ruleset {
	uint64_t fs, net, scoped;
};

#define READS                                                                                      \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FILE_WRITES (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define FILE_RIGHTS                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | FILE_WRITES |                 \
	 LANDLOCK_ACCESS_FS_IOCTL_DEV)
/* No device nodes: nothing inside needs to make them. */
#define MAKES                                                                                      \
	(LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                          \
	 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |                               \
	 LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |                             \
	 LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER)

static const uint64_t grants[] = {
	[LANDLOCK_READ] = READS,
	[LANDLOCK_WRITE] = READS | FILE_WRITES | MAKES,
	[LANDLOCK_UNPACK] = READS | FILE_WRITES | MAKES | LANDLOCK_ACCESS_FS_MAKE_CHAR,
	[LANDLOCK_DEVICE] = READS | FILE_WRITES | LANDLOCK_ACCESS_FS_IOCTL_DEV,
};

static uint64_t handled_fs(int abi)
{
	/* ABI n handles the low bits up to these (landlock(7)). */
	static const unsigned char bits[] = {0, 13, 14, 15, 15, 16};
	unsigned n = bits[abi < 5 ? abi : 5];

	return (1ULL << n) - 1;
}

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

/* Older kernels are given as many bytes of the attribute as they know. */
static int create_ruleset(struct landlock *l, const struct ruleset *attr, struct err *e)
{
	size_t size = l->abi >= 6 ? sizeof(*attr) : l->abi >= 4 ? 16 : 8;

	l->fd = (int)syscall(SYS_landlock_create_ruleset, attr, size, 0);
	return l->fd < 0 ? err_sys(e, "cannot create a Landlock ruleset") : 0;
}

int landlock_open(struct landlock *l, bool refuse_tcp, struct err *e)
{
	struct ruleset attr = {0};

	l->fd = -1;
	l->abi = landlock_abi();
	if (l->abi < 1)
		return err_set(e, ERR_UNSUPPORTED, "the kernel has no Landlock");
	attr.fs = handled_fs(l->abi);
	if (l->abi >= 4 && refuse_tcp)
		attr.net = LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP;
	if (l->abi >= 6)
		attr.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
	return create_ruleset(l, &attr, e);
}

int landlock_scope_signals(struct err *e)
{
	const struct ruleset attr = {.scoped = LANDLOCK_SCOPE_SIGNAL};
	struct landlock l = {.abi = landlock_abi()};

	if (l.abi < 6)
		return err_set(e, ERR_UNSUPPORTED, "Landlock cannot scope signals before ABI 6");
	return create_ruleset(&l, &attr, e) < 0 ? -1 : landlock_apply(&l, e);
}

static int add_rule(const struct landlock *l, const struct landlock_path_beneath_attr *rule)
{
	return (int)syscall(SYS_landlock_add_rule, l->fd, LANDLOCK_RULE_PATH_BENEATH, rule, 0);
}

int landlock_allow(struct landlock *l, int dirfd, const char *path, enum landlock_grant grant,
		   struct err *e)
{
	struct landlock_path_beneath_attr rule = {0};
	auto_close int fd = *path ? openat(dirfd, path, O_PATH | O_CLOEXEC) : -1;

	if (*path && fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open %s", path);
	rule.parent_fd = *path ? fd : dirfd;
	rule.allowed_access = grants[grant] & handled_fs(l->abi);
	if (add_rule(l, &rule) == 0)
		return 0;
	/* Rights over directories are refused for anything else. */
	rule.allowed_access &= FILE_RIGHTS;
	if (errno != EINVAL || add_rule(l, &rule) < 0)
		return err_sys(e, "cannot add a Landlock rule for %s", path);
	return 0;
}

int landlock_apply(struct landlock *l, struct err *e)
{
	int rc = (int)syscall(SYS_landlock_restrict_self, l->fd, 0);

	if (rc < 0)
		err_sys(e, "cannot restrict by Landlock");
	close_fd(&l->fd);
	return rc;
}
