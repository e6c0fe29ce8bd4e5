/*
 * One layer each, tried where no other layer hides that it is gone: for a sandbox that lost it, and
 * for claims in the record.
 */
#include "probe.h"

#include "base/auto.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The runner says "ns-NAME=NUMBER" for each namespace that it is in itself. */
static void own_namespace(struct probe *p)
{
	const char *name = p->c->arg;
	const char *host = need(p, fmt_path("ns-%s", name));
	char buf[128];
	ssize_t n = readlink(fmt_path("/proc/self/ns/%s", name), buf, sizeof(buf) - 1);

	if (!host)
		return;
	buf[n > 0 ? n : 0] = '\0';
	if (n <= 0)
		cannot_tell(p, "/proc/self/ns/%s: %s", name, errno_name(errno));
	else if (strstr(buf, host))
		got_through(p, "shares the host's: %s", buf);
	else
		refused(p, "is in one of its own");
}

/* By system calls, since /proc may be out of reach. */
static void capability_sets(struct probe *p)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &head, data) < 0)
		cannot_tell(p, "capget: %s", errno_name(errno));
	for (int i = 0; i < 2; i++)
		if (data[i].effective | data[i].permitted | data[i].inheritable)
			got_through(p, "effective %x, permitted %x, inheritable %x",
				    data[i].effective, data[i].permitted, data[i].inheritable);
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1)
			got_through(p, "capability %d is ambient", cap);
	}
	refused(p, "no set has any");
}

/* With no_new_privs the bounding set is inert, and without privilege it cannot be emptied. */
static void capability_bounds(struct probe *p)
{
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			got_through(p, "capability %d is in the bounding set", cap);
	refused(p, "the bounding set is empty");
}

/* What CAP_DAC_OVERRIDE is for: the mode of an own file does not count. */
static void capability_use(struct probe *p)
{
	const char *dir = scratch_dir(p);
	auto_close int fd = -1;
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/closed", dir);
	if (write_text(f, "x") < 0 || chmod(f, 0) < 0)
		cannot_tell(p, "setting up: %s", errno_name(errno));
	fd = open(f, O_RDWR | O_CLOEXEC);
	judge(p, "opening a file of mode 0", fd, ERRS(EACCES));
	remove_tree(dir);
}

static void no_new_privs(struct probe *p)
{
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		refused(p, "is set");
	else
		got_through(p, "is not set");
}

/* Ids that the user namespace does not map all look like this one. */
#define OVERFLOW_ID 65534

/* One's own id can always be set again, unless it is none of this namespace. */
static void unmapped_ids(struct probe *p)
{
	if (geteuid() == OVERFLOW_ID && setreuid(OVERFLOW_ID, OVERFLOW_ID) < 0)
		got_through(p, "runs as a uid of the host that is not mapped here");
	if (getegid() == OVERFLOW_ID && setregid(OVERFLOW_ID, OVERFLOW_ID) < 0)
		got_through(p, "runs as a gid of the host that is not mapped here");
}

static void user_id(struct probe *p)
{
	uid_t r, e, s;

	unmapped_ids(p);
	getresuid(&r, &e, &s);
	if (r == 0 || e == 0 || s == 0 || getgid() == 0)
		got_through(p, "runs as uid %d, gid %d", (int)e, (int)getgid());
	else if (r != e || e != s)
		got_through(p, "can change back: uids %d %d %d", (int)r, (int)e, (int)s);
	else
		refused(p, "runs as uid %d", (int)e);
}

static void groups(struct probe *p)
{
	gid_t list[256];
	int n = getgroups((int)ARRAY_LEN(list), list);

	for (int i = 0; i < n; i++) {
		if (list[i] == getgid())
			continue;
		/* Without root the kernel does not let a user namespace drop groups. */
		if (list[i] == 65534 && !given("private"))
			not_here(p, "not started by root, the caller's groups cannot be dropped");
		else
			got_through(p, "is in group %d, too", (int)list[i]);
	}
	refused(p, "has no other group");
}

/* A file of a third user, mode 0600, in a directory that is shown: root could read it. */
static void private_file(struct probe *p)
{
	const char *path = given("private");

	if (path)
		try_read(p, path);
	else
		not_here(p, "not started by root, the caller's files are ours to read");
}

/* What the mounts of the system promise, whoever else would refuse to write there. */
static void system_flags(struct probe *p)
{
	static const struct {
		unsigned long bit;
		const char *word;
	} flags[] = {{ST_RDONLY, "read-only"}, {ST_NOSUID, "nosuid"}, {ST_NODEV, "nodev"}};
	struct statvfs fs;

	if (statvfs("/usr", &fs) < 0) {
		not_here(p, "no /usr");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (!(fs.f_flag & flags[i].bit))
			got_through(p, "/usr is not mounted %s", flags[i].word);
	refused(p, "/usr is mounted read-only, nosuid and nodev");
}

/*
 * A read-only mount does not mind writing into a FIFO, and its mode lets everybody: only Landlock is
 * in the way. Whose FIFO it is, and whether anybody reads, does not matter here.
 */
static void landlock_alone(struct probe *p)
{
	const char *ro = need(p, "ro"), *path = ro ? fmt_path("%s/fifo", ro) : NULL;
	auto_close int fd = path ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;

	if (!path)
		return;
	if (fd < 0 && errno == ENXIO)
		got_through(p, "let in, and nobody reads");
	else
		judge(p, "opening a fifo for writing", fd, ERRS(EACCES));
}

#define NS(kind, flags, layer)                                                                     \
	{                                                                                          \
		"ns-" kind, 74, "share the host's " kind " namespace",                             \
			SAFE | CONTAINER_ONLY | (flags), L(layer), 0, own_namespace, kind          \
	}

static const struct probe_case cases[] = {
	NS("user", 0, USER_NS),
	NS("pid", 0, PID_NS),
	NS("mnt", 0, MOUNT_NS),
	NS("net", 0, NET_NS),
	NS("ipc", 0, IPC_NS),
	NS("uts", 0, UTS_NS),
	NS("cgroup", 0, CGROUP_NS),
	NS("time", 0, TIME_NS),
	{"caps-sets", 74, "hold a capability", SAFE | CONTROL_NS, L(CAPS), 0, capability_sets, 0},
	{"caps-bounds", 74, "have capabilities in the bounding set", SAFE | CONTAINER_ONLY, L(CAPS),
	 0, capability_bounds, 0},
	{"caps-use", 74, "open an own file against its mode", SAFE | CONTROL_NS, L(CAPS), 0,
	 capability_use, 0},
	{"no-new-privs", 74, "run without no_new_privs", SAFE, L(NO_NEW_PRIVS), 0, no_new_privs, 0},
	{"user-id", 74, "run as root, or be able to go back", SAFE | CONTROL_NS, L(IDS), 0, user_id,
	 0},
	{"groups", 74, "keep the caller's groups", SAFE, L(IDS), 0, groups, 0},
	{"system-flags", 74, "find the system writable, or set-id programs in force",
	 SAFE | CONTAINER_ONLY, L(MOUNT_NS) | L(ROOT), 0, system_flags, 0},
	{"landlock-alone", 74, "write where only Landlock says no", SAFE, L(LANDLOCK), 0,
	 landlock_alone, 0},
	{"private-file", 74, "read a file of another user, as root could", SAFE, L(IDS) | L(CAPS),
	 0, private_file, 0},
};
const struct case_group group_layers = {cases, ARRAY_LEN(cases)};
