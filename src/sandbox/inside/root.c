/*
 * Theory of operation
 *
 * One file system, the scratch, holds all that can be written and is as large as the disk limit: a tmpfs, or the
 * mount of a disk (disk/disk.h), where the places that a snapshot has are those of the last sandbox on it:
 *
 *   scratch/tmp home shm vartmp    shown at /tmp /home/user /dev/shm /var/tmp
 *   scratch/ws work                the workspace, or the upper and work directory of its overlay
 *   scratch/git* gitwork*          the same for parts of a git repository besides the workspace
 *   scratch/rootup rootwork        the same for the root, with an image or --root overlay
 *   scratch/root                   skeleton of the new root: mount points, /etc, /dev; with a template
 *                                  (root.h) the upper directory of an overlay, skelwork its work
 *   scratch/passwd group           with an image that has no `user`: shown in /etc
 *   scratch/canary                 what Landlock must refuse (verify.c)
 *
 * It is attached over /proc of our own mount namespace while building, because /proc is there on
 * every host and no source may lie below it. The host's directories are attached below
 * scratch/root one by one, read-only; then scratch/root becomes the root and everything else is
 * detached. Of the scratch an fd remains, for pid 1 and the keeper.
 */
#include "sandbox/inside/shown.h"

#include "image/links.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "kern/userns.h"
#include "sandbox/inside/warm_settings.h"
#include "sandbox/inside/inside_internal.h"
#include "sandbox/plan/etc.h"
#include "sandbox/workspace/inject.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/skeleton.h"
#include "sandbox/inside/trust.h"
#include "sandbox/inside/verify.h"

#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

/* No mount may propagate back to the host (rule 12). */
static int cut_propagation(struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		return 0;
	if (errno == EINVAL)
		return err_set(e, ERR_UNSUPPORTED,
			       "the root directory is no mount, so this is a chroot, where the "
			       "kernel gives no namespaces; enter it by pivot_root, a container or "
			       "systemd-nspawn, or use --level process");
	return err_sys(e, "cannot make mounts private");
}

static bool has_template(const struct plan *p)
{
	return p->template && p->image_is_host && p->spec->root == ROOT_OVERLAY;
}

/* A place that the last sandbox on this disk has left. */
static bool is_there_already(const struct plan *p)
{
	return errno == EEXIST && p->disk;
}

static int make_place(const struct plan *p, const struct writable_place *w, struct err *e)
{
	/* The umask is 0 here. */
	if (mkdir(w->scratch, w->mode) < 0)
		return is_there_already(p) ? 0 : err_sys(e, "cannot create %s", w->scratch);
	return w->users ? plan_give_to_user(p, AT_FDCWD, w->scratch, e) : 0;
}

static int make_scratch_places(const struct plan *p, struct err *e)
{
	bool overlay_root = !p->image_is_host || p->spec->root == ROOT_OVERLAY;
	bool cow = p->workspace_mode == WORKSPACE_COW;
	const struct {
		struct writable_place place;
		bool unneeded; /* in this sandbox */
	} others[] = {
		{{"root", NULL, 0755, false}, false},
		{{"work", NULL, 0700, false}, !cow},
		{{"lower", NULL, 0700, false}, !cow && !overlay_root && !p->bind_count && !p->git},
		{{"none", NULL, 0700, false}, !p->bind_count},
		{{"rootup", NULL, 0755, p->spec->root == ROOT_OVERLAY || p->as_root},
		 !overlay_root},
		{{"rootwork", NULL, 0700, false}, !overlay_root},
		{{"skelwork", NULL, 0700, false}, !has_template(p)},
	};

	for (size_t i = 0; i < WRITABLE_PLACES; i++) {
		struct writable_place w = writable_places[i];

		w.users |= p->as_root != AS_ROOT_NO;
		if (make_place(p, &w, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (!others[i].unneeded && make_place(p, &others[i].place, e) < 0)
			return -1;
	for (size_t i = 0; p->git && i < p->git->view_count; i++) {
		const struct cow_view *v = &p->git->views[i];

		if (make_place(p, &(struct writable_place){v->upper, NULL, 0755, true}, e) < 0 ||
		    make_place(p, &(struct writable_place){v->work, NULL, 0700, false}, e) < 0)
			return -1;
	}
	if (p->as_root == AS_ROOT_NESTED && !p->guest &&
	    skeleton_file(AT_FDCWD, VERIFY_CANARY_BELOW, "", 0, 0666, e) < 0)
		return -1;
	return skeleton_file(AT_FDCWD, VERIFY_CANARY, "", 0, 0666, e);
}

static int open_scratch(const struct plan *p, int *ret_fd, struct err *e)
{
	if (skeleton_mount_scratch(p->disk, p->spec->limits.disk_bytes, e) < 0)
		return -1;
	*ret_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret_fd < 0 ? err_sys(e, "cannot open the scratch file system")
			   : make_scratch_places(p, e);
}

static int open_root(int *ret, struct err *e)
{
	*ret = open("root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret < 0 ? err_sys(e, "cannot open the new root") : 0;
}

/* ---- where the root comes from ---- */

int root_clone_source(const struct source *s, unsigned flags, struct err *e)
{
	auto_close int fd = source_reopen(s, e);

	return fd < 0 ? -1 : mount_clone(fd, "", flags, e);
}

/*
 * Makes the owner's files the user's inside. A file system that cannot map ids is an error only if
 * the user is to write there.
 */
int root_map_owner(struct plan *p, int mount, const struct owned_mount *o, struct err *e)
{
	if (o->owner < 0 || mount_idmap(mount, p->owners[o->owner].userns) == 0)
		return 0;
	p->page->unmapped |= o->what;
	if (!o->remedy)
		return 0;
	return err_set(e, ERR_UNSUPPORTED, "the file system of %s cannot map ids (%s); %s", o->path,
		       strerror(errno), o->remedy);
}

/*
 * Without user attributes a directory of the lower layer cannot be removed or renamed (tmpfs before
 * Linux 6.6).
 */
bool root_has_user_attributes(const char *dir)
{
	return setxattr(dir, "user.cloche", "", 0, 0) == 0 && removexattr(dir, "user.cloche") == 0;
}

/*
 * Does an overlay keep its marks in user attributes? For a snapshot of a sandbox that lives on, the
 * marks must be readable without the host's privileges. Where a tmpfs has no user attributes
 * (before Linux 6.6), working directories matter more than a snapshot that knows which directories
 * are new.
 */
bool root_has_user_marks(const struct plan *p)
{
	return p->rootless || (has_template(p) ? p->template->user_marks
					       : p->guest && root_has_user_attributes("."));
}

/*
 * Directories of an overlay, relative to the scratch, which is the current directory; `lower` may
 * be absolute.
 */
struct overlay_dirs {
	const char *lower, *upper, *work;
};

/* Makes a detached overlay. */
static int overlay_of(const struct plan *p, const struct overlay_dirs *l, unsigned flags,
		      struct err *e)
{
	const char *marks = root_has_user_marks(p) ? "userxattr" : NULL;
	const char *options[] = {"lowerdir",	l->lower, "upperdir", l->upper, "workdir", l->work,
				 OVERLAY_RULES, "index",  "off",      marks,	NULL,	   NULL};

	return mount_new("overlay", flags, options, e);
}

/* The same with a mount as the lower layer. */
int root_overlay(const struct plan *p, int lower, const char *upper, const char *work,
		 struct err *e)
{
	if (mount_attach(lower, AT_FDCWD, "lower", e) < 0)
		return -1;
	/*
	 * The lower mount stays attached until the old root goes: to detach it alone would cost a
	 * wait for RCU.
	 */
	return overlay_of(p, &(struct overlay_dirs){"lower", upper, work}, 0, e);
}

/* --root overlay: the host's directory is the lower layer, the sandbox writes to the upper one. */
static int show_top_writable(struct plan *p, int root, const char *name, const char *path,
			     struct err *e)
{
	char upper[48], work[48];
	const struct owned_mount host = {UNMAPPED_ROOT, path, p->root_owner,
					 "do without --root overlay"};
	int lower, fd;

	snprintf(upper, sizeof(upper), "rootup/%s", name);
	snprintf(work, sizeof(work), "rootwork/%s", name);
	lower = mount_clone(AT_FDCWD, path, MOUNT_READ_ONLY, e);
	if (lower < 0 || root_map_owner(p, lower, &host, e) < 0)
		return -1;
	if ((mkdir(upper, 0755) < 0 && !is_there_already(p)) || mkdir(work, 0700) < 0)
		return err_sys(e, "cannot create %s", upper);
	if (plan_give_to_user(p, AT_FDCWD, upper, e) < 0)
		return -1;
	fd = root_overlay(p, lower, upper, work, e);
	return fd < 0 ? -1 : mount_attach(fd, root, name, e);
}

/* /bin, /lib and so on: a link where the host has one (merged /usr), else a mount point. */
static int make_top(int root, const char *name, const char *path, bool *ret_is_place, struct err *e)
{
	char link[128];
	ssize_t n = readlink(path, link, sizeof(link) - 1);

	*ret_is_place = false;
	if (n < 0 && errno == ENOENT)
		return 0;
	/* EINVAL: it exists, and is no link. */
	if (n < 0 && errno != EINVAL)
		return err_sys(e, "cannot read link %s", path);
	if (n >= 0) {
		link[n] = '\0';
		if (symlinkat(link, root, name) < 0)
			return err_sys(e, "cannot link %s", path);
		return 0;
	}
	if (mkdirat(root, name, 0755) < 0)
		return err_sys(e, "cannot create %s", path);
	*ret_is_place = true;
	return 0;
}

static int show_top(struct plan *p, int root, const char *name, struct err *e)
{
	char path[32], point[48];
	bool is_place;

	snprintf(path, sizeof(path), "/%s", name);
	if (make_top(root, name, path, &is_place, e) < 0)
		return -1;
	if (!is_place)
		return 0;
	if (p->spec->root == ROOT_OVERLAY)
		return show_top_writable(p, root, name, path, e);
	snprintf(point, sizeof(point), "root/%s", name);
	return mount_bind_bare(path, point, MOUNT_SUBMOUNTS, e);
}

static const char *const tops[] = {"usr", "bin", "sbin", "lib", "lib32", "libx32", "lib64", "opt"};

static int show_tops(struct plan *p, int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(tops); i++)
		if (show_top(p, root, tops[i], e) < 0)
			return -1;
	return 0;
}

static int show_host(struct plan *p, int root, struct err *e)
{
	bool writable = p->spec->root == ROOT_OVERLAY;

	if (mkdirat(root, "etc", 0755) < 0 || mkdirat(root, "var", 0755) < 0)
		return err_sys(e, "cannot create /etc and /var");
	if (writable &&
	    (plan_give_to_user(p, root, "", e) < 0 || plan_give_to_user(p, root, "etc", e) < 0))
		return -1;
	if (!writable && show_tops(p, root, e) < 0)
		return -1;
	/* All mounts so far are the host's; one call makes them read-only. */
	if (etc_build(p->spec->hostname, NULL, root, e) < 0 ||
	    mount_seal_below(root, MOUNT_DEVICES, e) < 0)
		return -1;
	return writable ? show_tops(p, root, e) : 0;
}

/* Layers keep the marks of what they remove in user attributes, for root as for users. */
static int show_layers(struct plan *p, int lower, struct err *e)
{
	char names[256];
	const char *options[] = {"lowerdir", names,	  "upperdir",	 "rootup",
				 "workdir",  "rootwork",  OVERLAY_RULES, "index",
				 "off",	     "userxattr", NULL,		 NULL};

	if (mount_attach(lower, AT_FDCWD, "lower", e) < 0 ||
	    image_link_layers(&p->stored->record.layers, "lower", names, e) < 0)
		return -1;
	return mount_new("overlay", 0, options, e);
}

static int show_image(struct plan *p, int *ret_root, struct err *e)
{
	/* Root inside without its own files would be of no use. */
	const struct owned_mount image = {
		UNMAPPED_ROOT, p->image.path, p->root_owner,
		p->as_root ? "copy the image to one that can (ext4, xfs, btrfs, tmpfs)" : NULL};
	int lower = root_clone_source(&p->image, MOUNT_READ_ONLY, e), fd = -1;

	if (lower >= 0 && root_map_owner(p, lower, &image, e) == 0)
		fd = p->stored ? show_layers(p, lower, e)
			       : root_overlay(p, lower, "rootup", "rootwork", e);
	if (fd < 0)
		return err_wrap(e, "image %s", p->spec->image);
	if (mount_attach(fd, AT_FDCWD, "root", e) < 0)
		return -1;
	return open_root(ret_root, e);
}

/* Mounts what the template has only mount points for, and writes what differs between sandboxes. */
static int complete_template(struct plan *p, int root, struct err *e)
{
	const struct template *t = p->template;
	char path[PATH_MAX], point[PATH_MAX];

	if (!str_equal(t->hosts, p->spec->hostname)) {
		auto_close int etc = openat(root, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (unlinkat(etc, "hosts", 0) < 0 || etc_write_hosts(p->spec->hostname, etc, e) < 0)
			return err_sys(e, "cannot write /etc/hosts");
	}
	for (size_t i = 0; i < t->mounts.count; i++) {
		snprintf(path, sizeof(path), "/%s", t->mounts.items[i]);
		snprintf(point, sizeof(point), "root/%s", t->mounts.items[i]);
		if (mount_bind_bare(path, point, 0, e) < 0)
			return -1;
	}
	if (mount_seal_below(root, MOUNT_DEVICES, e) < 0)
		return -1;
	for (size_t i = 0; i < t->tops.count; i++) {
		snprintf(path, sizeof(path), "/%s", t->tops.items[i]);
		if (show_top_writable(p, root, t->tops.items[i], path, e) < 0)
			return -1;
	}
	return 0;
}

static int show_template(struct plan *p, int *ret_root, struct err *e)
{
	const struct overlay_dirs layers = {p->template->path, "root", "skelwork"};
	int fd;

	if (mkdir("root/etc", 0755) < 0)
		return err_sys(e, "cannot create /etc");
	if (plan_give_to_user(p, AT_FDCWD, "root/etc", e) < 0 ||
	    plan_give_to_user(p, AT_FDCWD, "root", e) < 0)
		return -1;
	fd = overlay_of(p, &layers, MOUNT_DEVICES, e);
	if (fd < 0 || mount_attach(fd, AT_FDCWD, "root", e) < 0)
		return -1;
	return open_root(ret_root, e) < 0 ? -1 : complete_template(p, *ret_root, e);
}

/* ---- writable places ---- */

/* In a root of our own every name is known and trusted. */
static int make_known_places(struct err *e)
{
	static const char *const dirs[] = {"root/run",	"root/proc",	  "root/tmp",
					   "root/home", "root/home/user", "root/var/tmp"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdir(dirs[i], 0755) < 0)
			return err_sys(e, "cannot create %s", dirs[i]);
	return 0;
}

/*
 * In an image a name may lead anywhere, so no link is followed. A template also has the last one.
 */
static int make_unknown_places(int root, bool is_template, struct err *e)
{
	static const char *const dirs[] = {"run",	"proc",	   "tmp",
					   "home/user", "var/tmp", "workspace"};

	for (size_t i = 0; i < ARRAY_LEN(dirs) - !is_template; i++) {
		auto_close int at = skeleton_dir(root, dirs[i], e);

		if (at < 0)
			return -1;
	}
	return 0;
}

/* The image as it is, with a place for /proc only. */
static int make_saved_places(const struct plan *p, int root, struct err *e)
{
	auto_close int at = skeleton_dir(root, "proc", e);

	return at < 0 ? -1 : plan_give_to_user(p, root, "", e);
}

/* Directories that an image lacked were made with an id of the host. Where the image has them, it is of the range. */
int root_own_dir(const struct plan *p, int root, const char *dir, struct err *e)
{
	auto_close int at = skeleton_dir(root, dir, e);
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0)
		return err_sys(e, "cannot look at /%s", dir);
	return st.st_uid - p->id_base >= USERNS_OUTER_ID ? plan_give_to_user(p, at, "", e) : 0;
}

/* Root inside owns its root. */
static int own_places(const struct plan *p, int root, struct err *e)
{
	static const char *const dirs[] = {"",		"run", "tmp",	  "home",
					   "home/user", "var", "var/tmp", "workspace"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (root_own_dir(p, root, dirs[i], e) < 0)
			return -1;
	return 0;
}

/* A template brings the files of its home. It must not depend on what is in the root, which a restart finds changed. */
static bool has_home(const struct plan *p)
{
	return p->stored && p->stored->record.template && p->spec->root == ROOT_OVERLAY &&
	       (p->as_root || p->rootless);
}

static int show_writable(const struct plan *p, int root, struct err *e)
{
	for (size_t i = 0; i < WRITABLE_WORKSPACE; i++) {
		const struct writable_place *w = &writable_places[i];
		char shown[32];

		if (p->saving && !place_is_beside_root(w))
			continue;
		if (has_home(p) && str_equal(w->shown, SANDBOX_HOME))
			continue;
		snprintf(shown, sizeof(shown), "root%s", w->shown);
		if (p->image_is_host && mount_bind_bare(w->scratch, shown, 0, e) < 0)
			return -1;
		if (p->image_is_host)
			continue;
		auto_close int at = skeleton_dir(root, w->shown, e);

		if (at < 0 || mount_bind(AT_FDCWD, w->scratch, at, "", 0, e) < 0)
			return -1;
	}
	return 0;
}

/*
 * The root that warm sandboxes start from, see warm/warm.h. It has a complete /proc: the kernel
 * lets a warm sandbox mount its own only where a complete one is visible.
 */
static int show_sandbox_root(int root, struct err *e)
{
	auto_close int at = skeleton_dir(root, &WARM_ROOT[1], e);
	auto_close int proc = -1;
	int tree = at < 0 ? -1 : mount_clone(root, "", MOUNT_SUBMOUNTS | MOUNT_DEVICES, e), fd;

	/* The covers go to the mount point itself, which is otherwise empty. */
	if (tree < 0 || procfs_make_covers(at, e) < 0 || mount_attach(tree, at, "", e) < 0)
		return -1;
	proc = skeleton_dir(root, &WARM_ROOT "/proc"[1], e);
	fd = proc < 0 ? -1 : mount_new("proc", MOUNT_NO_EXEC, NULL, e);
	return fd < 0 ? -1 : mount_attach(fd, proc, "", e);
}

/*
 * In a warm sandbox a snippet has the same path as with `cloche code`, although /run is not
 * writable.
 */
static int link_code(int root, struct err *e)
{
	auto_close int run = skeleton_dir(root, "run", e);

	if (run < 0)
		return -1;
	if (symlinkat(WARM_CODE_PLACE, run, "code") < 0 && errno != EEXIST)
		return err_sys(e, "cannot link /run/code");
	return 0;
}

static int make_template_tops(struct template *t, int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		char path[32];
		bool is_place;

		snprintf(path, sizeof(path), "/%s", tops[i]);
		if (make_top(root, tops[i], path, &is_place, e) < 0)
			return -1;
		if (is_place)
			list_add(&t->tops, tops[i]);
	}
	return 0;
}

int root_make_template(struct template *t, int root, struct list *seen, struct err *e)
{
	const struct plan host = {.image_is_host = true};
	const struct etc_template etc = {&t->mounts, seen};
	auto_close int null = -1;

	t->user_marks = root_has_user_attributes(t->path);
	list_add(seen, "/");
	if (mkdirat(root, "etc", 0755) < 0)
		return err_sys(e, "cannot create /etc");
	if (make_unknown_places(root, true, e) < 0 || make_template_tops(t, root, e) < 0 ||
	    etc_build(t->hosts, &etc, root, e) < 0 || dev_build(&host, root, e) < 0)
		return -1;
	/*
	 * Where nodes cannot be made, the host's are mounted, and an overlay would not show these
	 * mounts.
	 */
	null = sys_openat2(root, "dev/null", O_PATH | O_CLOEXEC, RESOLVE_NO_XDEV);
	return null < 0 ? err_sys(e, "cannot make devices") : 0;
}

static int show_proc(const struct plan *p, int root, struct err *e)
{
	/* The scratch is mounted there for now. */
	const struct procfs_covers covers = {.dir = "/proc"};
	struct procfs_masks masks = p->host.proc;

	if (procfs_make_covers(AT_FDCWD, e) < 0)
		return -1;
	masks.caller_is_root = p->rootless && p->uid == 0;
	return procfs_show(root, &covers, &masks, e);
}

int root_start(const struct plan *p, int *ret_scratch, struct err *e)
{
	umask(0);
	return cut_propagation(e) < 0 ? -1 : open_scratch(p, ret_scratch, e);
}

static int make_places(const struct plan *p, int root, struct err *e)
{
	if (p->saving)
		return make_saved_places(p, root, e);
	return p->image_is_host ? make_known_places(e) : make_unknown_places(root, false, e);
}

int root_build(struct plan *p, struct err *e)
{
	auto_close int root = -1;

	if (has_template(p)) {
		if (show_template(p, &root, e) < 0)
			return -1;
	} else if (p->image_is_host) {
		/* Binds the skeleton to itself; mount_seal_below sets its flags. */
		if (mount_bind_bare("root", "root", 0, e) < 0 || open_root(&root, e) < 0 ||
		    show_host(p, root, e) < 0)
			return -1;
	} else if (show_image(p, &root, e) < 0) {
		return -1;
	}
	if (!has_template(p) && (make_places(p, root, e) < 0 || dev_build(p, root, e) < 0))
		return -1;
	if (p->as_root == AS_ROOT_NESTED && !p->image_is_host && !p->saving &&
	    own_places(p, root, e) < 0)
		return -1;
	if (!p->image_is_host && !p->as_root && !p->saving)
		etc_name_user(root, p->spec->root == ROOT_RO);
	/* Before anything is mounted that each warm sandbox has of its own. */
	if (p->guest && p->guest->warm_host &&
	    (show_sandbox_root(root, e) < 0 || link_code(root, e) < 0))
		return -1;
	return dev_show_terminals(root, e) < 0 ? -1 : show_writable(p, root, e);
}

/* ---- the last step ---- */

static int swap_root(int root, struct err *e)
{
	/* "." over ".": the old root ends up mounted on the new one, and is detached there. */
	if (fchdir(root) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0)
		return err_sys(e, "cannot change the root");
	return 0;
}

static int make_read_only(const struct plan *p, int root, unsigned flags, struct err *e)
{
	auto_close int sandboxes = -1;

	if (mount_reflag(root, flags, e) < 0)
		return -1;
	if (!p->guest || !p->guest->warm_host)
		return 0;
	sandboxes = openat(root, &WARM_ROOT[1], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return sandboxes < 0 ? err_sys(e, "cannot open the root of warm sandboxes")
			     : mount_reflag(sandboxes, flags, e);
}

/* A sandbox that lives on may be shown a CA later, when its root cannot be written any more. */
static int make_trust_place(int root, struct err *e)
{
	auto_close int at = skeleton_dir(root, &TRUST_DIR[1], e);

	return at < 0 ? -1 : trust_link_agent(at, e);
}

int root_finish(struct plan *p, int scratch, struct err *e)
{
	auto_close int root = -1;
	unsigned flags = MOUNT_READ_ONLY;
	struct statfs fs;

	if (open_root(&root, e) < 0 || show_proc(p, root, e) < 0)
		return -1;
	for (size_t i = 0; i < p->file_count; i++)
		if (inject_file(p, &p->files[i], e) < 0)
			return -1;
	if (p->ca.pem && trust_show(p, root, e) < 0)
		return -1;
	if (p->guest && make_trust_place(root, e) < 0)
		return -1;
	if (shown_binds(p, true, root, e) < 0 || shown_views(p, root, e) < 0 ||
	    (!p->saving && shown_workspace(p, root, e) < 0) || plan_follow_workspace(p, e) < 0 ||
	    shown_binds(p, false, root, e) < 0)
		return -1;
	if (fstatfs(scratch, &fs) == 0)
		p->page->scratch_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	/* The skeleton holds /dev; an image's own device nodes must not work, its /dev is a tmpfs. */
	if (p->image_is_host)
		flags |= MOUNT_DEVICES;
	if (p->spec->root == ROOT_RO && make_read_only(p, root, flags, e) < 0)
		return -1;
	return swap_root(root, e);
}
