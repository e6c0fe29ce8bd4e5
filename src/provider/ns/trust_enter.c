/*
 * Shows the CA of a sandbox's egress in a sandbox that runs (sandbox/inside/trust.h). A child enters its mount
 * namespace and mounts a file system of its own there; for another CA later the files are written again.
 *
 * Everything that the child meets inside is hostile. It reads the sandbox's own bundle with the rights of the
 * sandbox's user, so that a link cannot make it copy what that user may not read. It writes only to the file
 * system that it made, which it knows again by its device number. Mounts land where the sandbox's own names lead
 * to, which concerns nobody else.
 */
#include "provider/ns/ns_internal.h"

#include "kern/mount.h"
#include "kern/sys.h"
#include "sandbox/inside/skeleton.h"
#include "sandbox/inside/trust.h"

#include <grp.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define FILES_MAX (32u << 20)
#define CHILD_SECONDS 10

/* In memory that both processes see. */
struct shared {
	uint64_t dev;
	struct err err;
};

static void read_as_user(int root, const struct trust_visit *v, struct trust_base *ret)
{
	if (!v->rootless) {
		setfsgid(v->uid);
		setfsuid(v->uid); /* takes the capabilities over files away until it is 0 again */
	}
	trust_read(root, ret);
	if (!v->rootless) {
		setfsuid(0);
		setfsgid(0);
	}
}

/* The mount is read-only before anybody inside sees it. */
static int show_first(int root, const struct trust_visit *v, struct shared *page)
{
	auto_close int mount = skeleton_tmpfs(FILES_MAX, "0755", &page->err), dir = -1, at = -1;
	struct trust_base base;
	struct stat st;
	int rc;

	dir = mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	read_as_user(root, v, &base);
	rc = trust_write(dir, &base, v->pem, v->len, &page->err);
	trust_base_done(&base);
	if (rc < 0 || trust_link_agent(dir, &page->err) < 0 ||
	    mount_reflag(mount, MOUNT_READ_ONLY | MOUNT_NO_EXEC, &page->err) < 0)
		return -1;
	at = skeleton_dir(root, &TRUST_DIR[1], &page->err);
	if (at < 0 || fstat(dir, &st) < 0 ||
	    mount_attach(take_fd(&mount), at, "", &page->err) < 0 ||
	    trust_cover(dir, root, &page->err) < 0)
		return -1;
	page->dev = st.st_dev;
	return 0;
}

/* A copy of the mount that can be written; -1: what is there now is not what was mounted. */
static int open_again(int root, uint64_t dev)
{
	struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
	auto_close int tree = sys_open_tree(
		root, &TRUST_DIR[1], AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	struct stat st;

	if (tree < 0 || fstat(tree, &st) < 0 || st.st_dev != dev ||
	    sys_mount_setattr(tree, AT_EMPTY_PATH, &writable) < 0)
		return -1;
	return openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int show(const struct trust_visit *v, struct shared *page)
{
	auto_close int root = -1, dir = -1;

	/* Files of a server that is gone must not hold the broker up. */
	alarm(CHILD_SECONDS);
	umask(0);
	if (setns(v->pidfd, CLONE_NEWNS | (v->rootless ? CLONE_NEWUSER : 0)) < 0)
		return err_sys(&page->err, "cannot enter the sandbox's mounts");
	if (!v->rootless && setgroups(0, NULL) < 0)
		return err_sys(&page->err, "cannot give up groups");
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(&page->err, "cannot open the sandbox's root");
	dir = v->dev ? open_again(root, v->dev) : -1;
	if (dir >= 0)
		return trust_replace(dir, v->pem, v->len, &page->err);
	return show_first(root, v, page);
}

int trust_enter(const struct trust_visit *v, uint64_t *ret_dev, struct err *e)
{
	struct shared *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	if (page == MAP_FAILED)
		return err_sys(e, "cannot get memory");
	page->dev = v->dev;
	/* Without an exit signal no other wait of the broker sees the child. */
	pid = sys_clone_fork(0, NULL);
	if (pid == 0)
		_exit(show(v, page) < 0);
	if (pid < 0)
		err_sys(&page->err, "cannot create a process");
	while (pid > 0 && waitpid(pid, &status, __WCLONE) < 0 && errno == EINTR)
		continue;
	if (status == 0)
		*ret_dev = page->dev;
	else if (page->err.kind)
		*e = page->err;
	else
		err_set(e, ERR_SYSTEM, "the visit of the sandbox's mounts ended");
	munmap(page, sizeof(*page));
	return status == 0 ? 0 : -1;
}
