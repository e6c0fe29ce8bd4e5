/* Builds the /dev of a sandbox: a few harmless devices, links and terminals. */
#include "sandbox/inside/inside_internal.h"

#include "kern/mount.h"
#include "sandbox/inside/skeleton.h"

#include <sys/sysmacros.h>

struct node {
	const char *name;
	unsigned major, minor;
};

/*
 * As root a node is made. An ordinary user may not make one, but may bind the host's. /dev is ours,
 * also in an image.
 */
static int make_node(const struct plan *p, int dev, const struct node *n, struct err *e)
{
	char path[32], point[32];

	if (!p->rootless && mknodat(dev, n->name, S_IFCHR | 0666, makedev(n->major, n->minor)) == 0)
		return 0;
	snprintf(path, sizeof(path), "/dev/%s", n->name);
	snprintf(point, sizeof(point), "root/dev/%s", n->name);
	if (skeleton_point(dev, n->name, e) < 0 || mount_bind_bare(path, point, 0, e) < 0)
		return -1;
	return mount_reflag_named(point, MOUNT_DEVICES, e);
}

static int make_nodes(const struct plan *p, int dev, struct err *e)
{
	static const struct node nodes[] = {
		{"null", 1, 3},	  {"zero", 1, 5},    {"full", 1, 7},
		{"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		if (make_node(p, dev, &nodes[i], e) < 0)
			return -1;
	return 0;
}

static int make_links(int dev, struct err *e)
{
	static const char *const links[][2] = {
		{"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
		{"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
		{"ptmx", "pts/ptmx"},
	};

	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlinkat(links[i][1], dev, links[i][0]) < 0)
			return err_sys(e, "cannot link /dev/%s", links[i][0]);
	return 0;
}

int dev_build(const struct plan *p, int root_fd, struct err *e)
{
	auto_close int dev = skeleton_dir(root_fd, "dev", e);

	if (dev < 0)
		return -1;
	/* An image's own /dev may hold anything: ours goes on top of it. */
	if (!p->image_is_host) {
		/*
		 * Without root it belongs to the user, who must not be able to store more than what
		 * is made here.
		 */
		static const char *const options[] = {"mode",	   "0755", "size", "4k",
						      "nr_inodes", "32",   NULL};
		int fd = mount_new("tmpfs", MOUNT_DEVICES, options, e);

		if (fd < 0 || mount_attach(fd, dev, "", e) < 0)
			return -1;
		close(dev);
		dev = openat(root_fd, "dev", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (make_nodes(p, dev, e) < 0 || make_links(dev, e) < 0)
		return -1;
	if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 01777) < 0)
		return err_sys(e, "cannot create /dev/pts");
	/* Loggers make their socket there. */
	return p->as_root ? plan_give_to_user(p, dev, "", e) : 0;
}

int dev_show_terminals(int root_fd, struct err *e)
{
	/* /dev is ours, whatever the root is: no link can be in this path. */
	return mount_terminals(root_fd, "dev/pts", e);
}
