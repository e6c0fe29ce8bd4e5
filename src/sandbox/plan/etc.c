/*
 * Builds the /etc of a sandbox: a few files of its own, and those of the host that programs
 * need.
 */
#include "sandbox/plan/etc.h"

#include "kern/dirents.h"
#include "kern/mount.h"
#include "sandbox/inside/skeleton.h"

#include <dirent.h>

/*
 * Names in the host's /etc that programs may need; a star matches any ending. None of them holds a
 * secret or a token.
 */
static const char *const allowed[] = {
	"ImageMagick-*", "alternatives", "ca-certificates", "fonts",
	"java*",	 "ld.so.*",	 "localtime",	    "manpath.config",
	"matplotlibrc",	 "mime.types",	 "os-release",	    "papersize",
	"perl",		 "protocols",	 "python3*",	    "services",
};

/*
 * The same for directories that may also hold secrets: only the names listed, without which
 * programs do not start. Below /var these were made when packages were installed. Debian's
 * chromium, emacs and maven read every file of a directory, where keys may be, and fail if there is
 * none: they get an empty file.
 */
static const struct etc_part {
	const char *dir;
	const char *names[4];
	const char *empty_in;
} parts[] = {
	{"etc/R", {"Makeconf", "Renviron", "ldpaths", "repositories"}, NULL}, /* *.site: tokens */
	{"etc/chromium.d", {NULL}, "."},
	{"etc/emacs", {NULL}, "site-start.d"},
	{"etc/libreoffice", {"registry", "sofficerc"}, NULL},
	{"etc/maven", {"m2.conf"}, "logging"},	     /* settings.xml: passwords */
	{"etc/ssl", {"certs", "openssl.cnf"}, NULL}, /* private: keys */
};
static const struct etc_part var_lib = {"var/lib", {"gems", "ghc", "texmf"}, NULL};

static bool is_allowed(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		size_t len = strcspn(allowed[i], "*");

		if (strncmp(name, allowed[i], len) == 0 && (allowed[i][len] || !name[len]))
			return true;
	}
	return false;
}

/*
 * One directory of the host, and the skeleton's that shows some of it; `path` is relative to both
 * roots.
 */
struct etc_view {
	int from, to;
	const char *path;
	const struct etc_template *template; /* or NULL */
};

/*
 * A small file is copied: that is cheaper than a mount, both to make and to tear down. A template
 * has room for more.
 */
#define COPY_MOST (16 << 10)
#define COPY_MOST_ONCE (256 << 10)

static int show_mounted(const struct etc_view *v, const char *name, struct err *e)
{
	char from[NAME_MAX + 32], to[NAME_MAX + 32];

	if (v->template) {
		list_take(v->template->mounts, str_format("%s/%s", v->path, name));
		return 0;
	}
	snprintf(from, sizeof(from), "/%s/%s", v->path, name);
	snprintf(to, sizeof(to), "root/%s/%s", v->path, name);
	return mount_bind_bare(from, to, 0, e);
}

static int show_file(const struct etc_view *v, const char *name, struct err *e)
{
	auto_close int in = openat(v->from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char pages[COPY_MOST];
	auto_free char *more = v->template ? must_alloc(malloc(COPY_MOST_ONCE)) : NULL;
	size_t room = more ? COPY_MOST_ONCE : sizeof(pages);
	char *buf = more ? more : pages;
	struct stat st;
	ssize_t n = in < 0 ? -1 : read(in, buf, room);

	if (v->template)
		list_take(v->template->seen, str_format("/%s/%s", v->path, name));
	/* A file that the caller cannot read is left out, and so is one that only root can read. */
	if (n < 0 || fstat(in, &st) < 0 || !(st.st_mode & S_IROTH))
		return 0;
	if (n < (ssize_t)room)
		return skeleton_file(v->to, name, buf, (size_t)n, 0444, e);
	return skeleton_point(v->to, name, e) < 0 ? -1 : show_mounted(v, name, e);
}

static int show_entry(const struct etc_view *v, const struct dirents_entry *d, struct err *e)
{
	char link[PATH_MAX];
	ssize_t n;

	switch (d->type) {
	case DT_REG:
		return show_file(v, d->name, e);
	case DT_LNK:
		n = readlinkat(v->from, d->name, link, sizeof(link) - 1);
		if (n < 0)
			return 0;
		link[n] = '\0';
		if (symlinkat(link, v->to, d->name) < 0)
			return err_sys(e, "cannot link /etc/%s", d->name);
		return 0;
	case DT_DIR:
		if (mkdirat(v->to, d->name, 0755) < 0)
			return err_sys(e, "cannot create /etc/%s", d->name);
		return show_mounted(v, d->name, e);
	default:
		return 0;
	}
}

static int make_empty(int dir, const char *name, struct err *e)
{
	auto_close int at = skeleton_dir(dir, name, e);

	return at < 0 ? -1 : skeleton_file(at, "default", "", 0, 0444, e);
}

/* All parents are ours. */
static int make_etc_dir(int root_fd, const char *path, struct err *e)
{
	int fd = -1;

	if (mkdirat(root_fd, path, 0755) == 0 || errno == EEXIST)
		fd = openat(root_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "cannot create /%s", path) : fd;
}

/* The skeleton's directory is made only if there is something to show in it. */
static int show_part(const struct etc_part *part, int root_fd, const struct etc_template *t,
		     struct err *e)
{
	char path[32];
	auto_close int from = -1, to = -1;

	snprintf(path, sizeof(path), "/%s", part->dir);
	if (t)
		list_add(t->seen, path);
	from = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (from < 0)
		return 0;
	if (part->empty_in) {
		to = make_etc_dir(root_fd, part->dir, e);
		if (to < 0 || make_empty(to, part->empty_in, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_LEN(part->names) && part->names[i]; i++) {
		struct stat st;

		if (fstatat(from, part->names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (to < 0)
			to = make_etc_dir(root_fd, part->dir, e);
		if (to < 0 ||
		    show_entry(&(struct etc_view){from, to, part->dir, t},
			       &(struct dirents_entry){part->names[i], IFTODT(st.st_mode)}, e) < 0)
			return -1;
	}
	return 0;
}

static const struct etc_part *find_part(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (str_equal(parts[i].dir + strlen("etc/"), name))
			return &parts[i];
	return NULL;
}

/* Listing the directory once is cheaper than a lookup for each name. */
static int show_etc(int root_fd, int etc, const struct etc_template *t, struct err *e)
{
	auto_close int from = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct etc_view v = {from, etc, "etc", t};
	struct dirents_entry d;
	struct dirents list;

	if (from < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot read /etc");
	dirents_start(&list, from);
	while (dirents_next(&list, &d)) {
		const struct etc_part *part = find_part(d.name);

		if (part && show_part(part, root_fd, t, e) < 0)
			return -1;
		if (is_allowed(d.name) && show_entry(&v, &d, e) < 0)
			return -1;
	}
	return 0;
}

int etc_write_hosts(const char *hostname, int etc, struct err *e)
{
	char hosts[256];

	snprintf(hosts, sizeof(hosts),
		 "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n", hostname);
	return skeleton_file(etc, "hosts", hosts, strlen(hosts), 0444, e);
}

static int write_own(const char *hostname, int etc, struct err *e)
{
	static const struct {
		const char *name, *text;
	} files[] = {
		{"passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
			   "user:x:1000:1000:user:/home/user:/bin/sh\n"
			   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
		/* No group tty: what finds one (sshd) gives it terminals, which nobody inside may do. */
		{"group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
		{"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"
				  "protocols: files\nnetworks: files\n"},
		{"resolv.conf", "nameserver 127.0.0.1\noptions attempts:1 timeout:2\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (skeleton_file(etc, files[i].name, files[i].text, strlen(files[i].text), 0444,
				  e) < 0)
			return -1;
	return etc_write_hosts(hostname, etc, e);
}

int etc_build(const char *hostname, const struct etc_template *t, int root_fd, struct err *e)
{
	auto_close int etc = openat(root_fd, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (t)
		list_add(t->seen, "/etc");
	if (etc < 0)
		return err_sys(e, "cannot open the new /etc");
	if (write_own(hostname, etc, e) < 0 || show_etc(root_fd, etc, t, e) < 0 ||
	    show_part(&var_lib, root_fd, t, e) < 0)
		return -1;
	return etc_php_build(etc, t ? t->seen : NULL, e);
}

#define ACCOUNTS_MOST (256u << 10)

static int write_account(int dir, const char *name, const char *text, const char *line)
{
	auto_close int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	return fd < 0 || fchmod(fd, 0644) < 0 || io_write_all(fd, text, strlen(text)) < 0
		       ? -1
		       : io_write_all(fd, line, strlen(line));
}

/*
 * A copy with this line takes the file's place, unless a line begins with "user:". It is a mount: what is changed in
 * an image's root is part of snapshots.
 */
static void add_account(int etc, const char *name, const char *line)
{
	auto_free char *text = must_alloc(malloc(ACCOUNTS_MOST + 3));
	auto_close int fd = -1;
	struct err ignored;
	struct stat st;
	ssize_t n;

	if (fstatat(etc, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    st.st_size <= (off_t)ACCOUNTS_MOST)
		fd = openat(etc, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	text[0] = '\n';
	n = fd < 0 ? -1 : io_read_all(fd, text + 1, ACCOUNTS_MOST);
	if (n < 0)
		return;
	if (text[n] != '\n')
		text[1 + n++] = '\n';
	text[1 + n] = '\0';
	(void)unlink(name); /* on a disk, of an earlier start */
	if (!strstr(text, "\nuser:") && write_account(AT_FDCWD, name, text + 1, line) == 0)
		(void)!mount_bind(AT_FDCWD, name, etc, name, MOUNT_READ_ONLY, &ignored);
}

void etc_name_user(int root_fd, bool may_add)
{
	static const struct {
		const char *name, *root, *line;
	} rows[] = {{"passwd", "root:x:0:0:root:/root:/bin/sh\n",
		     "user:x:1000:1000:user:/home/user:/bin/sh\n"},
		    {"group", "root:x:0:\n", "user:x:1000:\n"}};
	struct err ignored;
	auto_close int etc = skeleton_dir(root_fd, "etc", &ignored);

	for (size_t i = 0; i < ARRAY_LEN(rows) && etc >= 0; i++)
		if (faccessat(etc, rows[i].name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			add_account(etc, rows[i].name, rows[i].line);
		else if (may_add)
			(void)!write_account(etc, rows[i].name, rows[i].root, rows[i].line);
}

static int grant_allowed(struct landlock *l, struct err *e)
{
	auto_close int etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirents_entry d;
	struct dirents list;

	if (etc < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot read /etc");
	dirents_start(&list, etc);
	while (dirents_next(&list, &d))
		if (is_allowed(d.name) && landlock_allow(l, etc, d.name, LANDLOCK_READ, e) < 0)
			return -1;
	return 0;
}

static int grant_part(const struct etc_part *part, struct landlock *l, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(part->names) && part->names[i]; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/%s/%s", part->dir, part->names[i]);
		if (landlock_allow(l, AT_FDCWD, path, LANDLOCK_READ, e) < 0)
			return -1;
	}
	return 0;
}

int etc_grant(struct landlock *l, struct err *e)
{
	if (grant_allowed(l, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (grant_part(&parts[i], l, e) < 0)
			return -1;
	return grant_part(&var_lib, l, e);
}
