/*
 * Theory of operation
 *
 * The path is opened once, and all that follows is about that fd. Its name is asked of the kernel
 * (/proc/self/fd/N), so symlinks, "..", races and magic links have no say in it: the name is the
 * place in the tree of mounts where the object hangs. Within one mount an object has one name, so
 * comparing it with the forbidden names decides everything but these:
 *
 *  - A forbidden name leads elsewhere by a symlink (~/.ssh, /var/lib/docker on another disk):
 *    forbidden_init looks at each name and adds the targets.
 *  - A file has hard links: compared by device and inode.
 *  - A file system, or a part of one, is shown twice (bind mount, second mount). That takes two
 *    mounts of one file system, so it cannot be when the source is seen through the mount of "/"
 *    and no forbidden place is on another mount of the same file system. Otherwise the list of
 *    mounts is read, and the source is judged by each name that it has in any of them.
 *  - Something is mounted below the source: the same list tells. An overlay does not show what is
 *    mounted below its lower layer, so a source that is only copied can do without (this is the
 *    current directory of every run, and reading the list costs more than all the rest).
 *
 * Not found: files that were hard-linked or copied from a forbidden place into an allowed directory,
 * and symlinked entries in homes other than the caller's and root's.
 */
#include "policy/paths/source.h"

#include "kern/mountinfo.h"
#include "kern/sys.h"
#include "policy/paths/forbidden.h"

#include <assert.h>

/* One source on its way through the checks. */
struct judge {
	const char *field;
	const char *typed;
	enum source_use use;
	const struct source *source;
	struct place_id id;
	struct forbidden forbidden;
};

/* For messages: a link inside an untrusted tree may lead to a name full of control bytes. */
struct shown {
	char text[160];
};

static struct shown show(const char *path)
{
	struct shown s;

	str_sanitise(s.text, sizeof(s.text), path, strlen(path));
	return s;
}

static int refuse(const struct judge *j, const struct refusal *r, struct err *e)
{
	static const char *const what[] = {
		[REFUSE_IS] = "is forbidden",
		[REFUSE_BELOW] = "lies below a forbidden place",
		[REFUSE_CONTAINS] = "contains a forbidden place",
	};
	static const char *const remedy[] = {
		[REFUSE_IS] = "name a directory elsewhere",
		[REFUSE_BELOW] = "name a directory elsewhere",
		[REFUSE_CONTAINS] = "name a smaller directory, such as one project",
	};
	static_assert(ARRAY_LEN(what) == REFUSE_KIND_COUNT, "a text per kind");
	struct shown typed = show(j->typed), path = show(j->source->path), place = show(r->place);
	bool same = str_equal(j->typed, j->source->path);

	return err_field(e, ERR_DENIED, j->field, "%s: '%s'%s%s%s %s (%s); %s", j->field,
			 typed.text, same ? "" : " leads to '", same ? "" : path.text,
			 same ? "" : "' and", what[r->kind], place.text, remedy[r->kind]);
}

static int refuse_path(struct err *e, enum err_kind kind, const char *field, const char *path,
		       const char *text)
{
	return err_field(e, kind, field, "%s: '%s'%s", field, show(path).text, text);
}

static int open_error(const char *field, const char *path, struct err *e)
{
	if (errno == ENOENT || errno == ENOTDIR)
		return refuse_path(e, ERR_NOT_FOUND, field, path, " does not exist");
	if (errno == ELOOP)
		return refuse_path(
			e, ERR_DENIED, field, path,
			" goes through a link of /proc, or in circles; name the place itself");
	if (errno == EACCES)
		return refuse_path(e, ERR_DENIED, field, path, ": you may not go there");
	err_sys(e, "%s: cannot open '%s'", field, show(path).text);
	snprintf(e->field, sizeof(e->field), "%s", field);
	return -1;
}

static int open_path(const char *path)
{
	int fd = sys_openat2(AT_FDCWD, path, O_PATH | O_CLOEXEC, RESOLVE_NO_MAGICLINKS);

	/* Without openat2 this is safe as well: the fd is judged, not the path to it. */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = open(path, O_PATH | O_CLOEXEC);
	return fd;
}

/* The kernel marks a removed object with a suffix that a file may also have as its name. */
static bool is_removed(const struct source *s)
{
	static const char mark[] = " (deleted)";
	size_t len = strlen(s->path), n = sizeof(mark) - 1;
	struct stat st;

	if (len < n || !str_equal(s->path + len - n, mark))
		return false;
	return lstat(s->path, &st) < 0 || st.st_ino != s->st.st_ino || st.st_dev != s->st.st_dev;
}

/* Reads the place of the fd in the tree of mounts. */
static int read_name(const char *path, struct source *s)
{
	/* The same answer without a file of /proc; fails for a directory that was removed. */
	if (str_equal(path, ".") && syscall(SYS_getcwd, s->path, sizeof(s->path)) > 0)
		return 0;
	return io_fd_path(s->fd, s->path, sizeof(s->path));
}

/* Opens path and asks the kernel what and where it is. */
static int open_source(const char *field, const char *path, struct source *s, struct err *e)
{
	s->fd = open_path(path);
	if (s->fd < 0)
		return open_error(field, path, e);
	if (read_name(path, s) < 0 || fstat(s->fd, &s->st) < 0)
		return err_sys(e, "%s: cannot tell where '%s' leads", field, show(path).text);
	if (s->path[0] != '/' || is_removed(s))
		return refuse_path(e, ERR_NOT_FOUND, field, path,
				   " has been removed or is out of reach");
	if (!S_ISDIR(s->st.st_mode) && !S_ISREG(s->st.st_mode))
		return refuse_path(
			e, ERR_DENIED, field, path,
			" is neither a directory nor a regular file; sockets and devices are "
			"not shown");
	return 0;
}

/* The part of a file system that starts at `inner`, by every name that this host has for it. */
static bool judge_names(const struct judge *j, const struct mountinfo *m, const char *dev,
			const char *inner, struct refusal *ret)
{
	char name[PATH_MAX * 2];

	for (size_t i = 0; i < m->count; i++) {
		const struct mount_entry *at = &m->entries[i];
		const char *root = str_equal(at->root, "/") ? "" : at->root;
		const char *point = str_equal(at->point, "/") ? "" : at->point;

		if (!str_equal(at->dev, dev))
			continue;
		if (path_below(inner, at->root)) {
			const char *rest = str_equal(inner, "/") ? "" : inner + strlen(root);

			snprintf(name, sizeof(name), "%s%s", point, rest);
			if (forbidden_judge(&j->forbidden, *name ? name : "/", ret))
				return true;
		} else if (path_below(at->root, inner) &&
			   forbidden_judge(&j->forbidden, at->point, ret)) {
			ret->kind = REFUSE_CONTAINS;
			return true;
		}
	}
	return false;
}

static bool is_kernel_fs(const char *type)
{
	static const char *const types[] = {
		"proc",	    "sysfs",	  "devtmpfs",	"devpts",    "cgroup",	    "cgroup2",
		"debugfs",  "tracefs",	  "securityfs", "selinuxfs", "smackfs",	    "bpf",
		"configfs", "efivarfs",	  "pstore",	"mqueue",    "binfmt_misc", "fusectl",
		"nsfs",	    "rpc_pipefs", "resctrl",
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (str_equal(type, types[i]))
			return true;
	return false;
}

/* File systems that are mounted below the source are shown with it. */
static bool judge_submounts(const struct judge *j, const struct mountinfo *m, struct refusal *ret)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct mount_entry *at = &m->entries[i];

		if (str_equal(at->point, j->source->path) ||
		    !path_below(at->point, j->source->path))
			continue;
		if (is_kernel_fs(at->type))
			snprintf(ret->place, sizeof(ret->place), "%s, type %s", at->point,
				 at->type);
		else if (!judge_names(j, m, at->dev, at->root, ret))
			continue;
		ret->kind = REFUSE_CONTAINS;
		return true;
	}
	return false;
}

/* On the mount of "/", and no forbidden place is on another mount of the same file system. */
static bool has_one_name(const struct judge *j)
{
	struct place_id root;

	return j->id.mount && place_id_get(AT_FDCWD, "/", &root) == 0 &&
	       root.mount == j->id.mount && !forbidden_shares_fs(&j->forbidden, &j->id);
}

/* True if the source is refused, also because the list of mounts does not have it (ret says why). */
static bool judge_mount(const struct judge *j, const struct mountinfo *m, struct refusal *ret)
{
	const char *path = j->source->path;
	const struct mount_entry *own = NULL;
	char inner[PATH_MAX * 2];

	for (size_t i = 0; i < m->count; i++)
		if ((uint64_t)m->entries[i].id == j->id.mount)
			own = &m->entries[i];
	/* Before Linux 5.8: the last mount whose point is nearest above the path. */
	for (size_t i = 0; i < m->count && !j->id.mount; i++)
		if (path_below(path, m->entries[i].point) &&
		    (!own || strlen(m->entries[i].point) >= strlen(own->point)))
			own = &m->entries[i];
	/* In a chroot the mount of "/" is not listed. */
	if (!own && has_one_name(j))
		return false;
	if (!own || !path_below(path, own->point)) {
		*ret = (struct refusal){REFUSE_IS, "a mount of another namespace"};
		return true;
	}
	if (is_kernel_fs(own->type)) {
		ret->kind = REFUSE_BELOW;
		snprintf(ret->place, sizeof(ret->place), "%s, type %s", own->point, own->type);
		return true;
	}
	snprintf(inner, sizeof(inner), "%s%s", str_equal(own->root, "/") ? "" : own->root,
		 str_equal(own->point, "/") ? path : path + strlen(own->point));
	return judge_names(j, m, own->dev, *inner ? inner : "/", ret);
}

static int judge_forbidden(const struct judge *j, struct err *e)
{
	struct mountinfo mounts;
	struct refusal r;
	bool bad;

	if (forbidden_judge(&j->forbidden, j->source->path, &r) ||
	    forbidden_judge_id(&j->forbidden, &j->id, &r))
		return refuse(j, &r, e);
	if (j->use == SOURCE_COPY && has_one_name(j))
		return 0;
	if (mountinfo_read(&mounts, e) < 0)
		return -1;
	bad = judge_mount(j, &mounts, &r) ||
	      (j->use != SOURCE_COPY && judge_submounts(j, &mounts, &r));
	mountinfo_done(&mounts);
	return bad ? refuse(j, &r, e) : 0;
}

static bool is_below_any(const char *path, const struct list *dirs)
{
	char real[PATH_MAX];

	for (size_t i = 0; i < dirs->count; i++) {
		auto_close int fd = open_path(dirs->items[i]);

		if (fd >= 0 && io_fd_path(fd, real, sizeof(real)) == 0 && path_below(path, real))
			return true;
	}
	return false;
}

/* Without a list every source is allowed. A source that may be written may be read. */
static int judge_allowed(const struct judge *j, const struct sandbox_spec *s, struct err *e)
{
	const char *path = j->source->path, *list = "mount_read";
	bool ok = !s->mount_read.count || is_below_any(path, &s->mount_read);

	if (j->use == SOURCE_WRITE && s->mount_write.count) {
		list = "mount_write";
		ok = is_below_any(path, &s->mount_write);
	} else if (!ok) {
		ok = is_below_any(path, &s->mount_write);
	}
	if (ok)
		return 0;
	return err_field(
		e, ERR_DENIED, j->field,
		"%s: '%s' leads to '%s', which is not below a directory of %s; name one that "
		"is, or add it there",
		j->field, show(j->typed).text, show(path).text, list);
}

int source_look(const char *field, const char *path, struct source *ret, struct err *e)
{
	struct source found = {.fd = -1};

	if (open_source(field, path, &found, e) < 0) {
		close_fd(&found.fd);
		return -1;
	}
	*ret = found;
	return 0;
}

int source_judge(const struct sandbox_spec *s, const char *field, const char *path,
		 enum source_use use, const struct source *source, struct err *e)
{
	struct judge j = {.field = field, .typed = path, .use = use, .source = source};
	int rc;

	if (place_id_get(source->fd, "", &j.id) < 0)
		return err_sys(e, "%s: cannot tell where '%s' leads", field, show(path).text);
	if (forbidden_init(&j.forbidden, s, use == SOURCE_COPY || use == SOURCE_BARE, e) < 0)
		return -1;
	rc = judge_forbidden(&j, e);
	if (rc == 0)
		rc = judge_allowed(&j, s, e);
	forbidden_done(&j.forbidden);
	return rc;
}

int source_open(const struct sandbox_spec *s, const char *field, const char *path,
		enum source_use use, struct source *ret, struct err *e)
{
	struct source found;

	if (source_look(field, path, &found, e) < 0)
		return -1;
	if (source_judge(s, field, path, use, &found, e) < 0) {
		close(found.fd);
		return -1;
	}
	*ret = found;
	return 0;
}

int source_reopen(const struct source *s, struct err *e)
{
	int fd = sys_openat2(AT_FDCWD, s->path, O_PATH | O_CLOEXEC,
			     RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd < 0)
		return err_sys(e, "cannot open %s", s->path);
	if (fstat(fd, &st) < 0 || st.st_dev != s->st.st_dev || st.st_ino != s->st.st_ino) {
		close(fd);
		return err_set(e, ERR_CONFLICT, "%s was replaced while the sandbox started",
			       s->path);
	}
	return fd;
}

static int check_target(const char *target, char *ret, struct err *e)
{
	static const char *const kept[] = {"/proc", "/sys", "/dev"};
	char clean[PATH_MAX];

	if (!path_clean(target, clean, sizeof(clean)) || !str_is_printable(clean))
		return err_field(
			e, ERR_INVALID, "mount",
			"mount: target '%s' must be an absolute path without '..'; the form "
			"is SRC:DST[:ro|rw]",
			show(target).text);
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (path_below(clean, kept[i]) || str_equal(clean, "/"))
			return err_field(e, ERR_DENIED, "mount",
					 "mount: target '%s' belongs to the sandbox itself; choose "
					 "another, such as /mnt/data",
					 show(clean).text);
	memcpy(ret, clean, sizeof(clean));
	return 0;
}

int mount_request_parse(const char *text, struct mount_request *ret, struct err *e)
{
	auto_free char *copy = str_copy(text);
	struct mount_request m = {0};
	char *colon = strrchr(copy, ':');

	if (colon && (str_equal(colon, ":ro") || str_equal(colon, ":rw"))) {
		m.writable = colon[2] == 'w';
		*colon = '\0';
		colon = strrchr(copy, ':');
	}
	/* The last colon parts them: a source may contain one, a target may not. */
	if (!colon || colon == copy || !colon[1])
		return err_field(e, ERR_INVALID, "mount",
				 "mount: '%s' is not of the form SRC:DST[:ro|rw]", show(text).text);
	*colon = '\0';
	if (strlen(copy) >= sizeof(m.source))
		return err_field(e, ERR_INVALID, "mount", "mount: the source is too long");
	memcpy(m.source, copy, strlen(copy) + 1);
	if (check_target(colon + 1, m.target, e) < 0)
		return -1;
	*ret = m;
	return 0;
}
