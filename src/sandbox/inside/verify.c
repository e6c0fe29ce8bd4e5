/* Tries an effect of each layer, so that the record says what holds, not what was asked for. */
#include "sandbox/inside/verify.h"

#include "disk/disk.h"
#include "kern/caps.h"
#include "kern/dirents.h"
#include "kern/sys.h"
#include "sandbox/inside/root.h"

#include <assert.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

static const struct {
	const char *file;
	unsigned ask;
	enum layer layer;
	bool by_clone; /* of a sandbox's pid 1: made together with the pid namespace */
} namespaces[] = {
	[NS_USER] = {"user", PIDFD_GET_USER_NAMESPACE, LAYER_USER_NS, false},
	[NS_PID] = {"pid", PIDFD_GET_PID_NAMESPACE, LAYER_PID_NS, false},
	[NS_MOUNT] = {"mnt", PIDFD_GET_MNT_NAMESPACE, LAYER_MOUNT_NS, true},
	[NS_NET] = {"net", PIDFD_GET_NET_NAMESPACE, LAYER_NET_NS, false},
	[NS_IPC] = {"ipc", PIDFD_GET_IPC_NAMESPACE, LAYER_IPC_NS, true},
	[NS_UTS] = {"uts", PIDFD_GET_UTS_NAMESPACE, LAYER_UTS_NS, true},
	[NS_CGROUP] = {"cgroup", PIDFD_GET_CGROUP_NAMESPACE, LAYER_CGROUP_NS, false},
	[NS_TIME] = {"time_for_children", PIDFD_GET_TIME_FOR_CHILDREN_NAMESPACE, LAYER_TIME_NS,
		     false},
};
static_assert(ARRAY_LEN(namespaces) == NS_COUNT, "a row per namespace");

/* 0: not known. An fd that a lying call returns would be on another file system. */
static ino_t take_id(struct namespace_ids *n, const struct stat *st)
{
	if (n->dev == 0)
		n->dev = st->st_dev;
	return st->st_dev == n->dev ? st->st_ino : 0;
}

/* With a pidfd (Linux 6.11) the kernel need not create files of /proc first. */
static ino_t read_id(struct namespace_ids *n, int self, int i)
{
	auto_close int fd = self < 0 ? -1 : ioctl(self, namespaces[i].ask, 0);
	struct stat st = {.st_dev = 0};
	char path[64];

	if (fd > 2 && fstat(fd, &st) == 0)
		return take_id(n, &st);
	snprintf(path, sizeof(path), "/proc/self/ns/%s", namespaces[i].file);
	return stat(path, &st) == 0 ? take_id(n, &st) : 0;
}

static void read_ids(struct namespace_ids *n, bool each)
{
	auto_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0);

	for (int i = 0; i < NS_COUNT; i++)
		n->ids[i] = each || !namespaces[i].by_clone ? read_id(n, self, i) : 0;
}

void verify_read_namespaces(struct namespace_ids *ret, bool each)
{
	*ret = (struct namespace_ids){0};
	read_ids(ret, each);
}

/*
 * The namespaces of one clone come all together: a filter can refuse clone3 or lie about its
 * result, but cannot change its flags, and we are in a new pid namespace only if the kernel carried
 * it out.
 */
layer_set verify_namespaces(const struct namespace_ids *outside, bool each)
{
	struct namespace_ids own = {.dev = outside->dev};
	layer_set proven = 0;

	read_ids(&own, each);
	for (int i = 0; i < NS_COUNT; i++)
		if (own.ids[i] && outside->ids[i] && own.ids[i] != outside->ids[i])
			proven |= LAYER_BIT(namespaces[i].layer);
	for (int i = 0; i < NS_COUNT; i++)
		if (!each && namespaces[i].by_clone && (proven & LAYER_BIT(LAYER_PID_NS)))
			proven |= LAYER_BIT(namespaces[i].layer);
	return proven;
}

static bool ids_are_users(const struct plan *p)
{
	bool process = p->spec->level == LEVEL_PROCESS;
	uid_t want = process ? plan_user_id(p) : plan_inner_id(p);
	gid_t want_gid = process && p->rootless ? p->gid : want;
	/* No valid ids: they stay if a call only pretends to answer. */
	uid_t r = (uid_t)-1, e = (uid_t)-1, s = (uid_t)-1;
	gid_t rg = 1, eg = 2, sg = 3;

	if (getresuid(&r, &e, &s) < 0 || getresgid(&rg, &eg, &sg) < 0)
		return false;
	if (r != want || e != want || s != want || rg != want_gid || eg != want_gid ||
	    sg != want_gid)
		return false;
	/*
	 * Even without capabilities uid 0 owns most files, unless a user namespace maps it to an
	 * ordinary user.
	 */
	if (want == 0 && caps_own_all_ids())
		return false;
	/* An ordinary user cannot give up supplementary groups; as root they must be gone. */
	return p->rootless || getgroups(0, NULL) == 0;
}

/* The profile's own answer to a number that is no fd; the kernel says EBADF, others EPERM or 0. */
#define FILTER_CANARY 0x636c6f63
#define WARM_HOST_CANARY 0x6e657374

/*
 * Each profile answers only its own canary. A task in a warm sandbox is under both filters, and
 * must have the inner one.
 */
static bool filter_answers(const struct plan *p)
{
	static const int canaries[] = {
		[ROOT_INSIDE_NO] = FILTER_CANARY,	    [ROOT_INSIDE_NESTED] = 0x726f6f74,
		[ROOT_INSIDE_NESTED_SHARED] = 0x726f6f73,   [ROOT_INSIDE_ANSWERED] = 0x616e7377,
		[ROOT_INSIDE_ANSWERED_SHARED] = 0x616e7373,
	};
	int canary =
		p->guest && p->guest->warm_host ? WARM_HOST_CANARY : canaries[plan_root_inside(p)];

	return syscall(SYS_setns, canary, 0) == -1 && errno == EXFULL;
}

/*
 * Opens the canary for writing; 0 or errno. This process may write it by its mode and its mount; only Landlock
 * is in the way.
 */
static int try_canary(int scratch, const char *name)
{
	auto_close int fd = openat(scratch, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? errno : 0;
}

/*
 * A new network namespace has nothing but loopback; if it is redirected, net_redirect has tried that. At level process the filter refuses sockets; to
 * try one here would deadlock: the call waits for our init, which waits for our exec.
 */
static bool network_is_closed(const struct plan *p, layer_set proven)
{
	bool process = p->spec->level == LEVEL_PROCESS;

	if (p->net && p->page->redirect != NET_REDIRECT_TPROXY &&
	    p->page->redirect != NET_REDIRECT_PORTS)
		return false;
	return (process ? proven : p->page->proven) &
	       LAYER_BIT(process ? LAYER_SECCOMP : LAYER_NET_NS);
}

/* A tmpfs without a limit says that it has 0 blocks. */
static bool is_tmpfs_of(const struct statfs *fs, uint64_t bytes)
{
	return fs->f_type == TMPFS_MAGIC && fs->f_blocks > 0 &&
	       fs->f_blocks * (uint64_t)fs->f_bsize <= bytes + 4096;
}

static bool bind_is_bounded(const struct bind *b)
{
	struct statfs fs = {.f_type = 0};

	if (!b->writable)
		return true;
	if (bind_is_hosts(b) || statfs(b->target, &fs) < 0)
		return false;
	return b->disk_bytes ? disk_is_bounded(&fs, b->disk_bytes)
			     : is_tmpfs_of(&fs, b->tmpfs_bytes);
}

static bool writes_are_bounded(const struct plan *p, int scratch)
{
	uint64_t most = p->spec->limits.disk_bytes + ROOT_SKELETON_BYTES;
	struct statfs fs = {.f_type = 0};

	/* Writes to the host's disk are bounded only for each file. */
	if (p->workspace_mode == WORKSPACE_DIRECT)
		return false;
	for (size_t i = 0; i < p->bind_count; i++)
		if (!bind_is_bounded(&p->binds[i]))
			return false;
	if (p->spec->level == LEVEL_PROCESS || fstatfs(scratch, &fs) < 0)
		return false;
	return p->disk ? disk_is_bounded(&fs, p->spec->limits.disk_bytes) : is_tmpfs_of(&fs, most);
}

/* ".." of the root must be the root itself: an old root below it would appear there. */
static bool is_top(const struct stat *root)
{
	struct stat above = {.st_ino = 0};

	return stat("/..", &above) == 0 && above.st_ino == root->st_ino &&
	       above.st_dev == root->st_dev;
}

/* If the image is the host's, its directories must be mounted read-only. */
static bool is_shut(const struct plan *p)
{
	/* If the workspace is /usr, it is copy-on-write. */
	bool is_workspace = str_equal(p->workspace_path, "/usr");
	const unsigned long wanted = ST_NOSUID | ST_NODEV | (is_workspace ? 0 : ST_RDONLY);
	struct statvfs fs = {.f_flag = 0};

	if (!p->image_is_host || p->spec->root == ROOT_OVERLAY)
		return true;
	return statvfs("/usr", &fs) == 0 && (fs.f_flag & wanted) == wanted;
}

static bool root_is_own(const struct plan *p)
{
	struct stat st = {.st_ino = p->host.root.st_ino, .st_dev = p->host.root.st_dev};

	if (p->spec->level == LEVEL_PROCESS || stat("/", &st) < 0)
		return false;
	if (st.st_ino == p->host.root.st_ino && st.st_dev == p->host.root.st_dev)
		return false;
	return is_top(&st) && is_shut(p);
}

void verify_canary_opens(struct status_page *b, int scratch, const char *name)
{
	b->canary_opens = try_canary(scratch, name) == 0;
}

bool verify_canary_holds(int scratch, const char *name)
{
	return try_canary(scratch, name) == EACCES;
}

/* pid 1 and the network are in a user namespace above, over which these capabilities mean nothing. */
static bool is_below_outer(const struct plan *p)
{
	struct namespace_ids own;

	verify_read_namespaces(&own, false);
	return own.ids[NS_USER] && p->page->outer_user_ns &&
	       own.ids[NS_USER] != p->page->outer_user_ns;
}

static bool caps_are_as_planned(const struct plan *p)
{
	if (p->as_root != AS_ROOT_NESTED)
		/* Without CAP_SETPCAP the bounding set stays; no_new_privs makes it inert (rule 17). */
		return caps_none(!p->rootless || p->spec->level != LEVEL_PROCESS);
	if (!is_below_outer(p) || !caps_are(root_inside_caps(plan_root_inside(p)), true))
		return false;
	p->page->caps = root_inside_caps(plan_root_inside(p));
	return true;
}

static layer_set when(bool holds, enum layer layer)
{
	return holds ? LAYER_BIT(layer) : 0;
}

layer_set verify_privileges(const struct plan *p, int scratch)
{
	bool two = p->as_root == AS_ROOT_NESTED && !p->guest;
	const char *canary = two ? VERIFY_CANARY_BELOW : VERIFY_CANARY;
	layer_set proven = when(ids_are_users(p), LAYER_IDS);

	proven |= when(caps_are_as_planned(p), LAYER_CAPS);
	proven |= when(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, LAYER_NO_NEW_PRIVS);
	proven |= when(filter_answers(p), LAYER_SECCOMP);
	proven |= when(network_is_closed(p, proven), LAYER_NETWORK);
	proven |= when(writes_are_bounded(p, scratch), LAYER_DISK);
	proven |= when(root_is_own(p), LAYER_ROOT);
	return proven |
	       when(p->page->canary_opens && verify_canary_holds(scratch, canary), LAYER_LANDLOCK);
}

/* Where /proc cannot be read: poll says POLLNVAL for an fd that is not open. */
static bool only_streams_by_poll(int highest)
{
	static struct pollfd polls[1024];
	struct rlimit most;
	size_t count = ARRAY_LEN(polls);

	/* poll takes no more than there may be open files; above that there are none. */
	if (getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur < count)
		count = most.rlim_cur;
	for (size_t i = 0; i < count; i++)
		polls[i] = (struct pollfd){.fd = (int)i + highest + 1};
	if (poll(polls, count, 0) < 0)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!(polls[i].revents & POLLNVAL))
			return false;
	return true;
}

static bool only_streams(int fd, int highest)
{
	struct dirents_entry entry;
	struct dirents list;
	bool any = false;

	dirents_start(&list, fd);
	while (dirents_next(&list, &entry)) {
		any = true;
		if (entry.name[0] != '.' && atoi(entry.name) > highest && atoi(entry.name) != fd)
			return false;
	}
	return any;
}

/* Since Linux 6.2 the size of this directory is the number of open fds; -1: unknown. */
static int count_fds(void)
{
	struct stat st = {.st_size = 0};

	return stat("/proc/self/fd", &st) == 0 && st.st_size > 0 ? (int)st.st_size : -1;
}

layer_set verify_fds(int highest)
{
	int count = count_fds(), known = 0;
	auto_close int fd = -1;

	/*
	 * If as many are open in all as up to `highest`, none is above. Reading the list takes ten
	 * times as long.
	 */
	for (int i = 0; i <= highest; i++)
		known += fcntl(i, F_GETFD) >= 0;
	if (count > 0)
		return when(count == known, LAYER_FDS);
	fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return when(fd >= 0 ? only_streams(fd, highest) : only_streams_by_poll(highest), LAYER_FDS);
}

int verify_required(const struct plan *p, struct err *e)
{
	layer_set lacking = p->spec->required_layers & ~p->page->proven;

	for (int i = 0; i < LAYER_COUNT; i++)
		if (lacking & LAYER_BIT(i))
			return err_field(e, ERR_UNSUPPORTED, "require",
					 "layer %s is required but did not hold when tried; "
					 "`cloche doctor` says more, --optional %s runs without it",
					 layer_name(i), layer_name(i));
	return 0;
}
