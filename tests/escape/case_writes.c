/* Knobs of the kernel, and cgroups: what is written is what was there already. */
#include "probe.h"

#include "base/auto.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define CLOSED ERRS(EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EISDIR, ENXIO)

static void write_back(struct probe *p)
{
	const char *path = p->c->arg;
	char value[4096];
	ssize_t n = read_text(path, value, sizeof(value));
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		judge(p, path, -1, CLOSED);
	else if (n > 0)
		judge(p, fmt_path("writing %s", path), write(fd, value, (size_t)n), CLOSED);
	else
		got_through(p, "%s can be opened for writing", path);
}

/* A letter that is no command: the kernel logs a help line at most. */
static void sysrq(struct probe *p)
{
	auto_close int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		judge(p, "open", -1, CLOSED);
	else
		judge(p, "writing", write(fd, "~", 1), CLOSED);
}

/* Not a valid line, so that nothing is registered. */
static void binfmt(struct probe *p)
{
	auto_close int fd = open("/proc/sys/fs/binfmt_misc/register", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		judge(p, "open", -1, CLOSED);
	else if (write(fd, "x", 1) < 0 && errno == EINVAL)
		got_through(p, "the kernel parsed the line");
	else
		judge(p, "writing", -1, CLOSED);
}

static void try_write(struct probe *p, const char *path, const char *value, const int *errs)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		judge(p, path, -1, CLOSED);
	else
		judge(p, path, write(fd, value, strlen(value)), errs);
}

static void oom_score(struct probe *p)
{
	try_write(p, "/proc/self/oom_score_adj", "-500", CLOSED);
	try_write(p, "/proc/self/oom_adj", "-10", CLOSED);
}

static void own_maps(struct probe *p)
{
	try_write(p, "/proc/self/uid_map", "0 0 4294967295", CLOSED);
	try_write(p, "/proc/self/gid_map", "0 0 4294967295", CLOSED);
	try_write(p, "/proc/self/setgroups", "allow", ERRS(EACCES, EPERM, EROFS, ENOENT, EINVAL));
	try_write(p, "/proc/self/timens_offsets", "1 1 1", CLOSED);
}

static void autogroup(struct probe *p)
{
	try_write(p, "/proc/self/autogroup", "-10",
		  ERRS(EACCES, EPERM, EROFS, ENOENT, EIO, EAGAIN));
}

static void write_cgroup(struct probe *p, const char *mount)
{
	static const char *const files[] = {"cgroup.procs",
					    "tasks",
					    "release_agent",
					    "notify_on_release",
					    "cgroup.subtree_control",
					    "memory.limit_in_bytes",
					    "memory.max",
					    "pids.max"};
	const char *dir = fmt_path("%s/cloche-probe-%d", mount, (int)getpid());
	struct statfs fs;

	/* The directory that holds the mounts is often a tmpfs: nothing to be gained there. */
	if (statfs(mount, &fs) == 0 && fs.f_type != CGROUP_SUPER_MAGIC &&
	    fs.f_type != CGROUP2_SUPER_MAGIC) {
		refused(p, "%s is no cgroup file system", mount);
		return;
	}
	if (mkdir(dir, 0755) == 0) {
		got_through(p, "made a cgroup below %s", mount);
		rmdir(dir);
	} else {
		judge(p, "mkdir", -1, CLOSED);
	}
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		auto_close int fd = open(fmt_path("%s/%s", mount, files[i]), O_WRONLY | O_CLOEXEC);

		judge(p, files[i], fd, CLOSED);
	}
}

/* Every cgroup file system in sight, and where one usually is. */
static void cgroup_write(struct probe *p)
{
	static char info[1 << 18];
	char *line, *rest = NULL;

	write_cgroup(p, "/sys/fs/cgroup");
	if (read_text("/proc/self/mountinfo", info, sizeof(info)) <= 0)
		return;
	for (line = strtok_r(info, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char where[2048];

		if (strstr(line, " - cgroup") && sscanf(line, "%*s %*s %*s %*s %2047s", where) == 1)
			write_cgroup(p, where);
	}
}

#define KNOB(name, title, path, flags)                                                             \
	{                                                                                          \
		"write-" name, 37, "write " title, flags, L(ROOT) | L(LANDLOCK) | L(USER_NS), 0,   \
			write_back, path                                                           \
	}

static const struct probe_case cases[] = {
	KNOB("core-pattern", "core_pattern", "/proc/sys/kernel/core_pattern", SAFE),
	KNOB("modprobe", "the path of modprobe", "/proc/sys/kernel/modprobe", SAFE),
	KNOB("hotplug", "the path of the hotplug helper", "/sys/kernel/uevent_helper", SAFE),
	KNOB("hostname", "the host name", "/proc/sys/kernel/hostname", SAFE),
	KNOB("printk", "the log level", "/proc/sys/kernel/printk", SAFE),
	KNOB("panic", "what panics", "/proc/sys/kernel/panic", SAFE),
	KNOB("overcommit", "memory overcommit", "/proc/sys/vm/overcommit_memory", SAFE),
	KNOB("drop-caches", "drop_caches", "/proc/sys/vm/drop_caches", NO_CONTROL),
	KNOB("file-max", "the file table's size", "/proc/sys/fs/file-max", SAFE),
	KNOB("ip-forward", "ip_forward", "/proc/sys/net/ipv4/ip_forward", SAFE),
	KNOB("last-pid", "the next pid", "/proc/sys/kernel/ns_last_pid", NO_CONTROL),
	KNOB("irq", "interrupt routing", "/proc/irq/default_smp_affinity", SAFE),
	{"write-sysrq", 37, "trigger a system request", NO_CONTROL, L(ROOT) | L(LANDLOCK), 0, sysrq,
	 0},
	{"write-binfmt", 37, "register a binary format", NO_CONTROL, L(ROOT) | L(LANDLOCK), 0,
	 binfmt, 0},
	{"write-oom-score", 37, "be spared when memory runs out", SAFE, L(CAPS) | L(USER_NS), 0,
	 oom_score, 0},
	{"write-maps", 29, "rewrite the own id maps", NO_CONTROL, L(CAPS), 0, own_maps, 0},
	{"write-autogroup", 33, "take a better priority by autogroup", SAFE, L(CAPS) | L(LANDLOCK),
	 0, autogroup, 0},
	{"cgroup-write", 35, "write to a cgroup file system", SAFE, L(ROOT) | L(LANDLOCK), 0,
	 cgroup_write, 0},
};
const struct case_group group_writes = {cases, ARRAY_LEN(cases)};
