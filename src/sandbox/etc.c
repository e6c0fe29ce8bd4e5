#include "sandbox/etc.h"

#include "base/auto.h"
#include "base/str.h"
#include "kern/mount.h"
#include "sandbox/skeleton.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a program may need of the host's /etc. Nothing here holds a secret or a token. */
struct entry {
	const char *name;
	bool prefix; /* every name that starts so */
};

static const struct entry allowed[] = {
	{"alternatives", false}, {"ca-certificates", false}, {"fonts", false},
	{"java", true},		 {"ld.so.", true},	     {"localtime", false},
	{"matplotlibrc", false}, {"mime.types", false},	     {"os-release", false},
	{"perl", false},	 {"protocols", false},	     {"python3", true},
	{"services", false},
};

static bool is_allowed(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
		if (allowed[i].prefix ? str_starts(name, allowed[i].name)
				      : str_equal(name, allowed[i].name))
			return true;
	return false;
}

/* Small files are copied: cheaper than a mount, in making and in taking down. */
static int copy_file(int from_dir, const char *name, int to_dir, struct err *e)
{
	static char buf[64 << 10];
	auto_close int in = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = in < 0 ? -1 : read(in, buf, sizeof(buf));

	if (n < 0)
		return 0; /* not readable for the caller: not there inside */
	if (n == (ssize_t)sizeof(buf)) {
		if (skeleton_file(to_dir, name, "", 0, 0444, e) < 0)
			return -1;
		return mount_bind(from_dir, name, to_dir, name, MOUNT_READ_ONLY, e);
	}
	return skeleton_file(to_dir, name, buf, (size_t)n, 0444, e);
}

static int show_entry(int from_dir, const struct dirent *d, int to_dir, struct err *e)
{
	char link[PATH_MAX];
	ssize_t n;

	switch (d->d_type) {
	case DT_REG:
		return copy_file(from_dir, d->d_name, to_dir, e);
	case DT_LNK:
		n = readlinkat(from_dir, d->d_name, link, sizeof(link) - 1);
		if (n < 0)
			return 0;
		link[n] = '\0';
		if (symlinkat(link, to_dir, d->d_name) < 0)
			return err_sys(e, "cannot link /etc/%s", d->d_name);
		return 0;
	case DT_DIR:
		if (mkdirat(to_dir, d->d_name, 0755) < 0)
			return err_sys(e, "cannot create /etc/%s", d->d_name);
		return mount_bind(from_dir, d->d_name, to_dir, d->d_name, MOUNT_READ_ONLY, e);
	default:
		return 0;
	}
}

static int show_allowed(int etc, struct err *e)
{
	int from = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = from < 0 ? NULL : fdopendir(from);

	if (!dir) {
		if (from >= 0)
			close(from);
		return errno == ENOENT ? 0 : err_sys(e, "cannot read /etc");
	}
	for (struct dirent *d; rc == 0 && (d = readdir(dir));)
		if (is_allowed(d->d_name))
			rc = show_entry(from, d, etc, e);
	closedir(dir);
	return rc;
}

/* /etc/ssl may hold private keys beside the certificates. */
static int show_certificates(int etc, struct err *e)
{
	auto_close int from = open("/etc/ssl", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_close int to = -1;
	struct dirent certs = {.d_type = DT_DIR, .d_name = "certs"};
	struct stat st;

	if (from < 0 || fstatat(from, "certs", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode))
		return 0;
	if (mkdirat(etc, "ssl", 0755) < 0)
		return err_sys(e, "cannot create /etc/ssl");
	to = openat(etc, "ssl", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return copy_file(from, "openssl.cnf", to, e) < 0 ? -1 : show_entry(from, &certs, to, e);
}

static int write_own(const struct plan *p, int etc, struct err *e)
{
	char hosts[256];
	const struct {
		const char *name, *text;
	} files[] = {
		{"passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
			   "user:x:1000:1000:user:/home/user:/bin/sh\n"
			   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
		{"group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
		{"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"
				  "protocols: files\nnetworks: files\n"},
		{"resolv.conf", "nameserver 127.0.0.1\noptions attempts:1 timeout:2\n"},
		{"hosts", hosts},
	};

	/* Debian's chromium reads whatever is in there and fails if it is not; keys may be. */
	if (access("/etc/chromium.d", F_OK) == 0 &&
	    (mkdirat(etc, "chromium.d", 0755) < 0 ||
	     skeleton_file(etc, "chromium.d/default", "", 0, 0444, e) < 0))
		return err_sys(e, "cannot create /etc/chromium.d");
	snprintf(hosts, sizeof(hosts),
		 "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n",
		 p->spec->hostname);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (skeleton_file(etc, files[i].name, files[i].text, strlen(files[i].text), 0444,
				  e) < 0)
			return -1;
	return 0;
}

int etc_build(const struct plan *p, int root_fd, struct err *e)
{
	auto_close int etc = openat(root_fd, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (etc < 0)
		return err_sys(e, "cannot open the new /etc");
	if (write_own(p, etc, e) < 0 || show_allowed(etc, e) < 0)
		return -1;
	return show_certificates(etc, e);
}
