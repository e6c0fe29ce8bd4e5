/* Probes of file systems and mounts. */
#include "kern/caps.h"
#include "kern/mount.h"
#include "kern/probe.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <sys/mount.h>

/* A new tmpfs, and a read-only copy of it that really is read-only. */
int probe_mount_api(struct feature *f)
{
	int errnum = probe_enter_scratch(f);
	int made, copy;
	struct err e;

	if (errnum)
		return errnum;
	if (mkdir("a", 0755) < 0 || mkdir("b", 0755) < 0)
		return probe_failed(f, "mkdir");
	made = mount_new("tmpfs", 0, NULL, &e);
	if (made < 0 || mount_attach(made, AT_FDCWD, "a", &e) < 0)
		return probe_error(f, &e);
	/* Flags by a call of their own: newer kernels can set them while cloning. */
	copy = mount_clone(AT_FDCWD, "a", 0, &e);
	if (copy < 0 || mount_reflag(copy, MOUNT_READ_ONLY, &e) < 0 ||
	    mount_attach(copy, AT_FDCWD, "b", &e) < 0)
		return probe_error(f, &e);
	if (mkdir("a/x", 0755) < 0)
		return probe_failed(f, "writing to a new mount");
	return mkdir("b/y", 0755) < 0
		       ? 0
		       : probe_says(f, EINVAL, "a read-only mount can be written to");
}

/* Copy up, delete, and see both in the upper directory. */
int probe_overlay(struct feature *f)
{
	bool rootless = !caps_can_administer();
	int errnum = probe_enter_scratch(f);
	struct stat st;

	if (errnum)
		return errnum;
	if (mkdir("l", 0755) < 0 || mkdir("l/kept", 0755) < 0 || mkdir("l/gone", 0755) < 0 ||
	    mkdir("u", 0755) < 0 || mkdir("w", 0755) < 0 || mkdir("m", 0755) < 0)
		return probe_failed(f, "mkdir");
	if (mount("none", "m", "overlay", 0,
		  rootless ? "lowerdir=l,upperdir=u,workdir=w,userxattr"
			   : "lowerdir=l,upperdir=u,workdir=w") < 0)
		return probe_failed(f, "mounting an overlay");
	if (mkdir("m/kept/new", 0755) < 0 || rmdir("m/gone") < 0)
		return probe_failed(f, "writing to an overlay");
	if (stat("u/kept/new", &st) < 0 || lstat("u/gone", &st) < 0 || !S_ISCHR(st.st_mode) ||
	    stat("l/gone", &st) < 0)
		return probe_failed(f, "an overlay's upper directory");
	return 0;
}

/* Needed only by root: an ordinary user's sandbox has that user's own id. */
int probe_idmap(struct feature *f)
{
	auto_close int userns = -1;
	auto_close int tmpfs = -1;
	auto_close int here = -1;
	struct id_map map;
	struct userns made;
	struct err e;
	int errnum;

	if (!caps_can_administer())
		return probe_says(f, 0, "not needed by an ordinary user");
	id_map_range(&map, 1 << 20);
	if (userns_create(&map, &map, &made, &e) == 0) {
		userns = made.fd;
		userns_release(&made);
	}
	here = userns < 0 ? -1 : mount_clone(AT_FDCWD, ".", 0, &e);
	if (userns < 0 || here < 0)
		return probe_error(f, &e);
	errnum = probe_enter_mounts(f);
	if (errnum)
		return errnum;
	tmpfs = mount_new("tmpfs", 0, NULL, &e);
	if (tmpfs < 0)
		return probe_error(f, &e);
	if (mount_idmap(here, userns) == 0)
		return 0;
	f->state = FEATURE_LIMITED;
	snprintf(f->detail, sizeof(f->detail), "not on the current directory's file system: %s",
		 strerror(errno));
	if (mount_idmap(tmpfs, userns) == 0)
		return 0;
	return probe_failed(f, "mount_setattr");
}
