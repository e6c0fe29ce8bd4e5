/* What the host tells about itself: files to be masked, names to be replaced, secrets to be gone.
 */
#include "probe.h"

#include "base/auto.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

/* Has this directory an entry? -1 if it cannot be read. */
static int has_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	int found = 0;

	if (!dir)
		return -1;
	while ((d = readdir(dir)))
		found |= strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
	closedir(dir);
	return found;
}

/* Absent, closed, empty: all of these are masks. */
static void masked(struct probe *p)
{
	const char *path = p->c->arg;
	struct stat st;
	char buf[4096];
	ssize_t n;

	if (stat(path, &st) < 0) {
		judge(p, path, -1, HIDDEN);
		return;
	}
	n = S_ISDIR(st.st_mode) ? has_entries(path) : read_text(path, buf, sizeof(buf));
	/* Some of them want to be read in certain sizes: let in all the same. */
	if (n > 0 || (n < 0 && errno == EINVAL))
		got_through(p, "%s can be read", path);
	else if (n == 0)
		refused(p, "empty");
	else
		judge(p, path, -1, ERRS(EACCES, EPERM, EIO, ENOENT));
}

/* Addresses that are all zero give nothing away. */
static void addresses(struct probe *p)
{
	char buf[65536], *line, *rest = NULL;

	if (read_text(p->c->arg, buf, sizeof(buf)) <= 0) {
		refused(p, "absent or empty");
		return;
	}
	for (line = strtok_r(buf, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		/* "ADDRESS name" or "FROM-TO : name" */
		char *end;
		unsigned long long from = strtoull(line, &end, 16);

		if (from || (*end == '-' && strtoull(end + 1, NULL, 16))) {
			got_through(p, "shows addresses: %.40s", line);
			return;
		}
	}
	refused(p, "addresses are hidden");
}

/* Is the host's own value of this to be read? The runner says what that is. */
static void same_as_host(struct probe *p, const char *path, const char *canary)
{
	const char *host = need(p, canary);
	char buf[4096];

	if (!host)
		return;
	if (read_text(path, buf, sizeof(buf)) <= 0)
		refused(p, "%s cannot be read", path);
	else if (strstr(buf, host))
		got_through(p, "%s is the host's", path);
	else
		refused(p, "%s is not the host's", path);
}

static void boot_id(struct probe *p)
{
	same_as_host(p, "/proc/sys/kernel/random/boot_id", "boot-id");
}

static void machine_id(struct probe *p)
{
	same_as_host(p, "/etc/machine-id", "machine-id");
	same_as_host(p, "/var/lib/dbus/machine-id", "machine-id");
}

static void hostname(struct probe *p)
{
	const char *host = need(p, "hostname");
	struct utsname u;

	if (!host)
		return;
	uname(&u);
	if (!strcmp(u.nodename, host))
		got_through(p, "uname says %s", u.nodename);
	else
		refused(p, "uname says %s", u.nodename);
	same_as_host(p, "/etc/hostname", "hostname");
	same_as_host(p, "/proc/sys/kernel/hostname", "hostname");
}

static void search_environment(struct probe *p, const char *secret)
{
	static const char *const names[] = {"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
					    "XDG_RUNTIME_DIR", "AWS_SECRET_ACCESS_KEY", "DISPLAY"};
	char buf[65536];
	ssize_t n;

	for (char **v = environ; *v; v++)
		if (strstr(*v, secret))
			got_through(p, "the environment has %.40s", *v);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (getenv(names[i]))
			got_through(p, "the environment has %s", names[i]);
	n = read_text("/proc/self/environ", buf, sizeof(buf));
	if (n > 0 && memmem(buf, (size_t)n, secret, strlen(secret)))
		got_through(p, "/proc/self/environ has the secret");
}

/* The runner sets some variables with a secret in them before it starts the sandbox. */
static void environment(struct probe *p)
{
	const char *secret = need(p, "env-secret");

	if (!secret)
		return;
	search_environment(p, secret);
	refused(p, "nothing of the caller's environment is here");
}

/* Every process in sight: is one of the host's among them, does one tell the secret? */
static void processes(struct probe *p)
{
	const char *tag = need(p, "host");
	DIR *proc = tag ? opendir("/proc") : NULL;
	struct dirent *d;

	if (tag && !proc)
		refused(p, "/proc: %s", errno_name(errno));
	while (proc && (d = readdir(proc))) {
		char buf[4096];
		ssize_t n;

		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		n = read_text(fmt_path("/proc/%s/cmdline", d->d_name), buf, sizeof(buf));
		/* "--plant TAG": our own command line names the tag, too, but not as a plant. */
		if (n > 0 && memmem(buf, (size_t)n, "--plant", 7))
			got_through(p, "sees pid %s of the host", d->d_name);
	}
	if (proc)
		closedir(proc);
	refused(p, "no process of the host is in sight");
}

/* The mount source's name on the host must not be told: it holds user and project names. */
static void host_paths(struct probe *p)
{
	static const char *const files[] = {
		"/proc/self/mountinfo",
		"/proc/self/mounts",
		"/proc/self/mountstats",
		"/proc/mounts",
		"/proc/1/mountinfo",
		"/proc/1/cmdline",
		"/etc/mtab",
	};
	const char *hidden = need(p, "hidden"), *ro = need(p, "ro");
	static char buf[1 << 18];

	if (!hidden || !ro)
		return;
	if (p->control && mount(ro, "/mnt", NULL, MS_BIND, NULL) < 0)
		cannot_tell(p, "bind mount: %s", errno_name(errno));
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		ssize_t n = read_text(files[i], buf, sizeof(buf));

		/* As pid 1 we would find what we were told ourselves. */
		if (p->boss == 0 && !strcmp(files[i], "/proc/1/cmdline"))
			continue;
		if (n > 0 && memmem(buf, (size_t)n, hidden, strlen(hidden)))
			got_through(p, "%s names a path of the host", files[i]);
	}
	refused(p, "no path of the host is named");
}

static void cgroup_paths(struct probe *p)
{
	char buf[8192], *line, *rest = NULL;

	if (read_text("/proc/self/cgroup", buf, sizeof(buf)) <= 0) {
		refused(p, "cannot be read");
		return;
	}
	for (line = strtok_r(buf, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *path = strrchr(line, ':');

		if (path && strcmp(path, ":/"))
			got_through(p, "/proc/self/cgroup says %s", line);
	}
	refused(p, "every path is /");
}

#define MASK(name, title, path)                                                                    \
	{                                                                                          \
		"leak-" name, 36, "read " title, SAFE | WEAK, L(ROOT) | L(LANDLOCK), 0, masked,    \
			path                                                                       \
	}

static const struct probe_case cases[] = {
	MASK("kcore", "the kernel's memory", "/proc/kcore"),
	MASK("keys", "keys of the host", "/proc/keys"),
	MASK("key-users", "who has keys", "/proc/key-users"),
	MASK("timer-list", "the kernel's timers", "/proc/timer_list"),
	MASK("sched-debug", "the scheduler's state", "/proc/sched_debug"),
	MASK("interrupts", "interrupt counts", "/proc/interrupts"),
	MASK("cmdline", "the kernel's command line", "/proc/cmdline"),
	MASK("bootconfig", "the same, as the boot loader's settings", "/proc/bootconfig"),
	MASK("kmsg", "the kernel's log", "/proc/kmsg"),
	MASK("vmallocinfo", "kernel allocations", "/proc/vmallocinfo"),
	MASK("modules", "the kernel's modules", "/proc/modules"),
	MASK("slabinfo", "the kernel's caches", "/proc/slabinfo"),
	MASK("pagetypeinfo", "page types", "/proc/pagetypeinfo"),
	MASK("kpageflags", "page flags", "/proc/kpageflags"),
	MASK("acpi", "ACPI", "/proc/acpi"),
	MASK("scsi", "SCSI", "/proc/scsi"),
	MASK("sys-firmware", "firmware tables", "/sys/firmware"),
	MASK("sys-debug", "the debug file system", "/sys/kernel/debug"),
	MASK("sys-tracing", "the tracing file system", "/sys/kernel/tracing"),
	MASK("sys-security", "the security file system", "/sys/kernel/security"),
	MASK("sys-dmi", "the machine's serial numbers", "/sys/class/dmi/id"),
	MASK("sys-powercap", "energy counters", "/sys/devices/virtual/powercap"),
	MASK("sys-block", "block devices", "/sys/block"),
	{"leak-kallsyms", 36, "read kernel addresses", SAFE | WEAK, L(ROOT) | L(LANDLOCK), 0,
	 addresses, "/proc/kallsyms"},
	{"leak-iomem", 36, "read physical addresses", SAFE | WEAK, L(ROOT) | L(LANDLOCK), 0,
	 addresses, "/proc/iomem"},
	{"leak-boot-id", 36, "read the host's boot id", SAFE | WEAK, L(ROOT) | L(LANDLOCK), 0,
	 boot_id, 0},
	{"leak-machine-id", 36, "read the host's machine id", SAFE | WEAK, L(ROOT) | L(LANDLOCK), 0,
	 machine_id, 0},
	{"leak-hostname", 36, "learn the host's name", SAFE | WEAK, L(UTS_NS), 0, hostname, 0},
	{"leak-environment", 39, "find the caller's environment", SAFE, L(ROOT), 0, environment, 0},
	{"leak-processes", 36, "see processes of the host", SAFE | WEAK, L(PID_NS) | L(LANDLOCK), 0,
	 processes, 0},
	{"leak-host-paths", 36, "learn where on the host a mount comes from",
	 SAFE | WEAK | CONTROL_NS, L(MOUNT_NS) | L(ROOT), 0, host_paths, 0},
	{"leak-cgroup-paths", 36, "learn the host's cgroup paths", SAFE | WEAK, L(CGROUP_NS), 0,
	 cgroup_paths, 0},
};
const struct case_group group_leaks = {cases, ARRAY_LEN(cases)};
