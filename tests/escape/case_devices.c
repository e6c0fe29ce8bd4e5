/* Devices: nodes that are there, and nodes to be made. */
#include "probe.h"

#include "base/auto.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* No watchdog in this list: opening one starts it. */
static void device_nodes(struct probe *p)
{
	static const char *const nodes[] = {
		"/dev/mem",
		"/dev/kmem",
		"/dev/port",
		"/dev/kvm",
		"/dev/fuse",
		"/dev/cuse",
		"/dev/loop-control",
		"/dev/loop0",
		"/dev/net/tun",
		"/dev/dri/card0",
		"/dev/dri/renderD128",
		"/dev/sda",
		"/dev/vda",
		"/dev/nvme0n1",
		"/dev/dm-0",
		"/dev/mapper/control",
		"/dev/vhost-net",
		"/dev/vhost-vsock",
		"/dev/vsock",
		"/dev/uinput",
		"/dev/input/event0",
		"/dev/kmsg",
		"/dev/tty0",
		"/dev/vcs",
		"/dev/hpet",
		"/dev/rtc0",
		"/dev/userfaultfd",
		"/dev/autofs",
		"/dev/btrfs-control",
		"/dev/cpu/0/msr",
		"/dev/nvram",
		"/dev/sev",
		"/dev/snapshot",
		"/dev/ppp",
		"/dev/bus/usb",
		"/dev/fb0",
		"/dev/hwrng",
		"/dev/zfs",
		"/dev/udmabuf",
		"/dev/nvidiactl",
	};

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		auto_close int fd = open(nodes[i], O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

		judge(p, nodes[i], fd, HIDDEN);
	}
}

static void device_extra(struct probe *p)
{
	static const char *const expected[] = {
		"null", "zero", "full",	 "random", "urandom", "tty",  "ptmx",	"pts",
		"shm",	"fd",	"stdin", "stdout", "stderr",  "core", "mqueue", "console"};
	DIR *dir = opendir("/dev");
	struct dirent *d;

	if (!dir) {
		refused(p, "/dev: %s", errno_name(errno));
		return;
	}
	while ((d = readdir(dir))) {
		bool known = d->d_name[0] == '.';

		for (size_t i = 0; !known && i < ARRAY_LEN(expected); i++)
			known = !strcmp(d->d_name, expected[i]);
		if (!known)
			got_through(p, "/dev/%s is there", d->d_name);
	}
	closedir(dir);
	refused(p, "nothing but the usual");
}

static void make_node(struct probe *p)
{
	static const struct {
		mode_t type;
		unsigned major, minor;
		const char *what;
	} rows[] = {
		{S_IFCHR, 1, 1, "mknod of /dev/mem"},	     {S_IFCHR, 1, 3, "mknod of /dev/null"},
		{S_IFCHR, 10, 200, "mknod of /dev/net/tun"}, {S_IFBLK, 7, 0, "mknod of /dev/loop0"},
		{S_IFBLK, 254, 0, "mknod of a disk"},
	};
	const char *dir = scratch_dir(p);
	char node[4096];

	if (!dir)
		return;
	snprintf(node, sizeof(node), "%s/node", dir);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int rc = mknod(node, rows[i].type | 0600, makedev(rows[i].major, rows[i].minor));

		judge(p, rows[i].what, rc, ERRS(EPERM, EACCES));
		unlink(node);
	}
	remove_tree(dir);
}

/* A pseudo-terminal of the host is in its own devpts, not in ours. */
static void host_terminals(struct probe *p)
{
	DIR *dir = opendir("/dev/pts");
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		auto_close int fd = -1;

		if (d->d_name[0] < '0' || d->d_name[0] > '9')
			continue;
		fd = open(fmt_path("/dev/pts/%s", d->d_name),
			  O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		judge(p, fmt_path("terminal %s", d->d_name), fd, ERRS(EACCES, EPERM, EIO, ENXIO));
	}
	if (dir)
		closedir(dir);
	refused(p, "no terminal of the host is in sight");
}

static const struct probe_case cases[] = {
	{"device-nodes", 38, "open a device of the host", SAFE, L(ROOT) | L(LANDLOCK), 0,
	 device_nodes, 0},
	{"device-extra", 38, "find more in /dev than there should be", SAFE | CONTAINER_ONLY,
	 L(ROOT), 0, device_extra, 0},
	{"device-mknod", 38, "make a device node", SAFE, L(CAPS) | L(SECCOMP) | L(USER_NS), 0,
	 make_node, 0},
	{"device-terminals", 0, "open other terminals of the host", SAFE, L(ROOT) | L(LANDLOCK), 0,
	 host_terminals, 0},
};
const struct case_group group_devices = {cases, ARRAY_LEN(cases)};
