/* Reaching files of the host: by path, by alias, by what was left open. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* RENAME_EXCHANGE, which not every C library knows */
#define EXCHANGE 2
#define UPWARDS "../../../../../../../../../../../../../../../../.."

static void read_absolute(struct probe *p)
{
	const char *outside = need(p, "outside");

	if (outside)
		try_read(p, fmt_path("%s/secret", outside));
}

static void read_dotdot(struct probe *p)
{
	const char *outside = need(p, "outside");

	if (outside) {
		try_read(p, fmt_path(UPWARDS "%s/secret", outside));
		try_read(p, fmt_path("/usr/" UPWARDS "%s/secret", outside));
	}
}

static void read_symlink(struct probe *p)
{
	const char *outside = need(p, "outside"), *dir = outside ? scratch_dir(p) : NULL;
	char here[64];

	if (!dir)
		return;
	if (symlink(fmt_path("%s/secret", outside), fmt_path("%s/l0", dir)) < 0)
		cannot_tell(p, "symlink: %s", errno_name(errno));
	for (int i = 1; i < 20; i++) {
		snprintf(here, sizeof(here), "l%d", i - 1);
		if (symlink(here, fmt_path("%s/l%d", dir, i)) < 0)
			cannot_tell(p, "symlink: %s", errno_name(errno));
	}
	try_read(p, fmt_path("%s/l0", dir));
	try_read(p, fmt_path("%s/l19", dir));
	if (symlink(outside, fmt_path("%s/d", dir)) == 0)
		try_read(p, fmt_path("%s/d/../d/secret", dir));
	if (symlink("/proc/self/root", fmt_path("%s/r", dir)) == 0)
		try_read(p, fmt_path("%s/r%s/secret", dir, outside));
	remove_tree(dir);
}

/* One process swaps a name between an own file and a link outside, the other keeps opening it. */
static void symlink_race(struct probe *p)
{
	const char *outside = need(p, "outside"), *token = need(p, "token");
	const char *dir = outside && token ? scratch_dir(p) : NULL;
	char own[4096], link[4096], name[4096], buf[256];
	pid_t pid;

	if (!dir)
		return;
	snprintf(own, sizeof(own), "%s/own", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	snprintf(name, sizeof(name), "%s/name", dir);
	if (write_text(own, "mine") < 0 || symlink(fmt_path("%s/secret", outside), link) < 0 ||
	    write_text(name, "mine") < 0) {
		cannot_tell(p, "setting up: %s", errno_name(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		for (;;)
			if (syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, link, EXCHANGE) < 0)
				_exit(1);
	}
	refused(p, "20000 opens, all of the own file");
	for (int i = 0; i < 20000; i++) {
		if (read_text(name, buf, sizeof(buf)) > 0 && strstr(buf, token)) {
			got_through(p, "open %d read the host's file", i);
			break;
		}
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	remove_tree(dir);
}

static void read_proc_root(struct probe *p)
{
	const char *outside = need(p, "outside");

	if (!outside)
		return;
	try_read(p, fmt_path("/proc/self/root%s/secret", outside));
	try_read(p, fmt_path("/proc/thread-self/root%s/secret", outside));
	try_read(p, fmt_path("/proc/self/cwd/" UPWARDS "%s/secret", outside));
	try_read(p, fmt_path("/proc/self/root/" UPWARDS "%s/secret", outside));
	try_read(p, fmt_path("/proc/1/root%s/secret", outside));
	try_read(p, fmt_path("/proc/1/cwd/" UPWARDS "%s/secret", outside));
	try_read(p, fmt_path("/proc/%d/root%s/secret", (int)p->boss, outside));
	try_read(p, fmt_path("/proc/%d/cwd/" UPWARDS "%s/secret", (int)p->boss, outside));
}

/* Every open directory of every process in sight, and the way up from it. */
static void read_proc_fd(struct probe *p)
{
	const char *outside = need(p, "outside");
	DIR *proc = outside ? opendir("/proc") : NULL;
	struct dirent *d;
	unsigned tried = 0;

	if (outside && !proc)
		refused(p, "/proc: %s", errno_name(errno));
	while (proc && (d = readdir(proc))) {
		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		for (int fd = 0; fd < 64; fd++) {
			const char *path = fmt_path("/proc/%s/fd/%d/" UPWARDS "%s/secret",
						    d->d_name, fd, outside);

			tried++;
			try_read(p, path);
		}
		if (tried > 64 * 256)
			break;
	}
	if (proc)
		closedir(proc);
}

static void home_secrets(struct probe *p)
{
	static const char *const paths[] = {
		"/etc/shadow",	    "/etc/gshadow",  "/etc/sudoers",  "/etc/ssh",
		"/etc/ssl/private", "/root/.ssh",    "/root/.aws",    "/root/.bashrc",
		"/root/.config",    "/root/.docker", "/root/.gnupg",  "/root/.netrc",
		"/var/lib/docker",  "/var/log",	     "/var/lib/dpkg", "/boot",
	};
	char buf[256];

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct stat st;
		DIR *dir = NULL;

		if (stat(paths[i], &st) < 0) {
			judge(p, paths[i], -1, HIDDEN);
		} else if (S_ISDIR(st.st_mode) ? !!(dir = opendir(paths[i]))
					       : read_text(paths[i], buf, sizeof(buf)) > 0) {
			/* An empty directory or file is a mask. */
			bool entry = !dir;

			for (struct dirent *d; dir && (d = readdir(dir));)
				entry |= d->d_name[0] != '.' || strlen(d->d_name) > 2;
			if (entry)
				got_through(p, "%s can be read", paths[i]);
		}
		if (dir)
			closedir(dir);
	}
	refused(p, "hidden or masked");
}

static void hardlink_out(struct probe *p)
{
	const char *outside = need(p, "outside"), *dir = outside ? scratch_dir(p) : NULL;
	char to[4096];

	if (!dir)
		return;
	snprintf(to, sizeof(to), "%s/hard", dir);
	if (link(fmt_path("%s/secret", outside), to) == 0)
		try_read(p, to);
	else
		judge(p, "link", -1, ERRS(ENOENT, EACCES, EPERM, EXDEV));
	remove_tree(dir);
}

/* A hard link to a read-only file, made where we may write, and then written through. */
static void hardlink_ro(struct probe *p)
{
	const char *ro = need(p, "ro");
	const char *dirs[] = {given("ws"), "/tmp", "."};

	for (size_t i = 0; ro && i < ARRAY_LEN(dirs); i++) {
		const char *to = fmt_path("%s/cloche-hard", dirs[i] ? dirs[i] : "/tmp");
		const char *from = fmt_path("%s/file", ro);
		auto_close int fd = -1;

		unlink(to);
		if (link(from, to) < 0 &&
		    linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) < 0) {
			judge(p, "link", -1, ERRS(EXDEV, EPERM, EACCES, EROFS, ENOENT));
			continue;
		}
		fd = open(to, O_WRONLY | O_APPEND | O_CLOEXEC);
		judge(p, "opening the hard link for writing", fd, READ_ONLY);
		unlink(to);
	}
}

static void inherited_fds(struct probe *p)
{
	char target[4096];
	unsigned found = 0;

	for (int fd = 3; fd < 4096; fd++) {
		ssize_t n;

		if (fcntl(fd, F_GETFD) < 0)
			continue;
		found++;
		n = readlink(fmt_path("/proc/self/fd/%d", fd), target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		got_through(p, "fd %d is open: %s", fd, target);
	}
	if (!found)
		refused(p, "only 0, 1 and 2 are open");
}

static void inherited_dir(struct probe *p)
{
	bool any = false;

	for (int fd = 3; fd < 4096; fd++) {
		auto_close int got = openat(fd, "secret", O_RDONLY | O_CLOEXEC);

		if (fchdir(fd) < 0 && got < 0)
			continue;
		any = true;
		got_through(p, "fd %d is a directory we can walk from", fd);
	}
	if (!any)
		refused(p, "no directory fd: EBADF");
}

/* A current directory that is not below our root would let ".." walk the host. */
static void cwd_outside(struct probe *p)
{
	const char *outside = need(p, "outside");
	struct stat top, root;
	char cwd[4096];

	if (!outside)
		return;
	if (stat(UPWARDS, &top) < 0 || stat("/", &root) < 0) {
		refused(p, "no way up: %s", errno_name(errno));
		return;
	}
	if (!getcwd(cwd, sizeof(cwd)) || cwd[0] != '/')
		got_through(p, "the current directory is outside of the root");
	else if (top.st_dev != root.st_dev || top.st_ino != root.st_ino)
		got_through(p, "'..' leads to another root");
	else
		try_read(p, fmt_path(UPWARDS "%s/secret", outside));
}

static void stdin_directory(struct probe *p)
{
	struct stat st;
	char buf[256];
	const char *token = need(p, "token");
	auto_close int fd = -1;

	if (!token)
		return;
	if (fstat(0, &st) < 0 || !S_ISDIR(st.st_mode)) {
		refused(p, "stdin is no directory inside");
		return;
	}
	fd = openat(0, "secret", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, buf, sizeof(buf)) > 0)
		got_through(p, "read a file through the directory that stdin is");
	if (fchdir(0) == 0 && read_text("secret", buf, sizeof(buf)) > 0)
		got_through(p, "fchdir to stdin, then read");
	refused(p, "nothing can be opened from there: %s", errno_name(errno));
}

/* stdout is a file of the host, handed to us for writing only. */
static void stdout_reopen(struct probe *p)
{
	static const char *const names[] = {"/proc/self/fd/1", "/dev/stdout", "/dev/fd/1",
					    "/proc/thread-self/fd/1"};
	const char *token = need(p, "token");
	struct stat st;

	if (!token)
		return;
	if (fstat(1, &st) < 0 || !S_ISREG(st.st_mode)) {
		refused(p, "stdout is no file inside");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_close int fd = open(names[i], O_RDWR | O_CLOEXEC);
		char buf[4096];
		ssize_t n;

		if (fd < 0) {
			judge(p, "reopening stdout", -1, ERRS(EACCES, EPERM, ENOENT, EROFS));
			continue;
		}
		n = pread(fd, buf, sizeof(buf) - 1, 0);
		buf[n > 0 ? n : 0] = '\0';
		if (strstr(buf, token))
			got_through(p, "read what stands in the file behind stdout");
		else
			got_through(p, "reopened stdout for reading and writing");
	}
}

static void handle_open(struct probe *p)
{
	const char *ro = need(p, "ro");
	_Alignas(struct file_handle) char room[sizeof(struct file_handle) + 128] = {0};
	struct file_handle *h = (struct file_handle *)room;
	int mount_id;
	auto_close int at = -1, fd = -1;

	if (!ro)
		return;
	h->handle_bytes = 128;
	at = open(ro, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (name_to_handle_at(AT_FDCWD, ro, h, &mount_id, 0) < 0) {
		judge(p, "name_to_handle_at", -1, ERRS(EPERM, ENOSYS, EOPNOTSUPP));
		/* The handle can be guessed as well: a small inode number of the same file system.
		 */
		h->handle_type = 1;
		h->handle_bytes = 8;
		room[sizeof(struct file_handle)] = 2;
	}
	fd = open_by_handle_at(at, h, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ESTALE)
		got_through(p, "open_by_handle_at looked the handle up (ESTALE)");
	else
		judge(p, "open_by_handle_at", fd, ERRS(EPERM, ENOSYS, EBADF));
}

static const struct probe_case cases[] = {
	{"read-absolute", 1, "read a host file by its absolute path", SAFE, L(ROOT) | L(LANDLOCK),
	 0, read_absolute, 0},
	{"read-dotdot", 1, "read a host file by way of ..", SAFE, L(ROOT) | L(LANDLOCK), 0,
	 read_dotdot, 0},
	{"read-symlink", 1, "read a host file through symbolic links made inside", SAFE,
	 L(ROOT) | L(LANDLOCK), 0, read_symlink, 0},
	{"symlink-race", 2, "swap a file for a link while it is opened, 20000 times", SAFE,
	 L(ROOT) | L(LANDLOCK), 0, symlink_race, 0},
	{"read-proc-root", 9, "reach the host by /proc/PID/root and cwd", SAFE,
	 L(ROOT) | L(LANDLOCK) | L(PID_NS), 0, read_proc_root, 0},
	{"read-proc-fd", 9, "reach the host by /proc/PID/fd/N/..", SAFE,
	 L(ROOT) | L(LANDLOCK) | L(PID_NS), 0, read_proc_fd, 0},
	{"secrets", 36, "read shadow, ssh keys, logs and other people's settings", SAFE | WEAK,
	 L(ROOT) | L(LANDLOCK), 0, home_secrets, 0},
	{"hardlink-out", 5, "hard-link a host file into a place of ours", SAFE,
	 L(ROOT) | L(LANDLOCK), 0, hardlink_out, 0},
	{"hardlink-ro", 5, "hard-link a read-only file and write through the link", SAFE,
	 L(MOUNT_NS) | L(LANDLOCK), 0, hardlink_ro, 0},
	{"inherited-fds", 14, "use a descriptor that the caller left open", SAFE, L(FDS), 0,
	 inherited_fds, 0},
	{"inherited-dir", 14, "walk the host from a directory left open", SAFE, L(FDS), 0,
	 inherited_dir, 0},
	{"cwd-outside", 14, "walk the host from the current directory", SAFE, L(ROOT) | L(LANDLOCK),
	 0, cwd_outside, 0},
	{"stdin-directory", 14, "walk the host from a directory given as stdin", SAFE, L(LANDLOCK),
	 "stdin-dir", stdin_directory, 0},
	{"stdout-reopen", 9, "open the file behind stdout again, for reading", SAFE, L(LANDLOCK),
	 "stdout-file", stdout_reopen, 0},
	{"open-by-handle", 21, "open a file of the host by its handle", SAFE, L(SECCOMP) | L(CAPS),
	 0, handle_open, 0},
};
const struct case_group group_files = {cases, ARRAY_LEN(cases)};
