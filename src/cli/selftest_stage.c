#include "cli/selftest_stage.h"

#include "base/auto.h"
#include "base/clock.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* Bytes of a program's output that are looked at; the probe needs a tenth of it. */
#define OUTPUT_MAX (512 << 10)
/* Only there so that a sandbox which keeps the caller's groups is found out. */
#define EXTRA_GROUP 65532
/* Neither the caller nor the sandbox: its files are for root only. */
#define OTHER_UID 65531

extern char **environ;

/* ---- files ---- */

static int write_file(const char *path, const char *text, mode_t mode, struct err *e)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
	    fchmod(fd, mode) < 0)
		return err_sys(e, "cannot write %s", path);
	return 0;
}

static int copy_file(const char *from, const char *to, mode_t mode, struct err *e)
{
	auto_close int in = open(from, O_RDONLY | O_CLOEXEC);
	auto_close int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	char buf[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		return err_sys(e, "cannot copy %s to %s", from, to);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			return err_sys(e, "cannot write %s", to);
	if (n < 0 || fchmod(out, mode) < 0)
		return err_sys(e, "cannot copy %s to %s", from, to);
	return 0;
}

static void remove_tree(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (!str_equal(d->d_name, ".") && !str_equal(d->d_name, ".."))
			remove_tree(fd, d->d_name);
	if (dir)
		closedir(dir);
	unlinkat(at, name, dir ? AT_REMOVEDIR : 0);
}

void stage_reset(const struct stage *s)
{
	auto_free char *path = str_format("%s/file", s->ro);
	auto_free char *text = str_format("read-only %s\n", s->token);
	struct err ignored;

	write_file(path, text, 0666, &ignored);
}

/* ---- programs ---- */

/* Beside this program, or where `make install` puts it. */
static int find_program(const char *name, char *ret, struct err *e)
{
	static const char *const places[] = {"", "../libexec/cloche/", "../../bin/"};
	char self[PATH_MAX], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return err_sys(e, "cannot find this program");
	self[n] = '\0';
	slash = strrchr(self, '/');
	slash[1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if ((size_t)snprintf(ret, PATH_MAX, "%s%s%s", self, places[i], name) < PATH_MAX &&
		    access(ret, X_OK) == 0)
			return 0;
	return err_set(e, ERR_NOT_FOUND, "%s is not installed beside this program", name);
}

/* What a caller has in his environment and a sandbox must not get. */
static void careless_environment(const struct stage *s, struct list *ret)
{
	static const char *const names[] = {"API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK",
					    "DBUS_SESSION_BUS_ADDRESS"};

	for (char **v = environ; *v; v++)
		list_add(ret, *v);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		list_take(ret, str_format("%s=x:%s", names[i], s->secret));
}

struct streams {
	int in, out, err; /* of the child */
	int master;	  /* of the terminal, ours */
};

static void close_streams(struct streams *f)
{
	close_fd(&f->in);
	close_fd(&f->out);
	close_fd(&f->err);
	close_fd(&f->master);
}

static int open_terminal(struct streams *f)
{
	char name[64];

	f->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (f->master < 0 || grantpt(f->master) < 0 || unlockpt(f->master) < 0 ||
	    ptsname_r(f->master, name, sizeof(name)) != 0)
		return -1;
	f->in = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return f->in;
}

static int open_stdin(const struct stage *s, enum start_stdin kind, struct streams *f)
{
	switch (kind) {
	case STDIN_TTY:
		return open_terminal(f);
	case STDIN_DIRECTORY:
		return f->in = open(s->outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	default:
		return f->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
}

/* In the child: open descriptors, a terminal, groups, then the program. */
static void become_program(const struct stage *s, const struct start *how, struct streams *f)
{
	auto_free char *secret = str_format("%s/secret", s->outside);
	struct list env = {0};
	const gid_t groups[] = {0, EXTRA_GROUP};

	if (how->in_group)
		setpgid(0, s->host.pid);
	else
		setsid();
	careless_environment(s, &env);
	if (dup2(f->in, 0) < 0 || dup2(f->out, 1) < 0 || dup2(f->err, 2) < 0)
		_exit(125);
	if (how->in == STDIN_TTY)
		ioctl(0, TIOCSCTTY, 0);
	dup2(open(secret, O_RDWR), 50);
	dup2(open(s->outside, O_RDONLY | O_DIRECTORY), 51);
	dup2(open("/", O_PATH | O_DIRECTORY), 52);
	if (geteuid() == 0 && setgroups(ARRAY_LEN(groups), groups) < 0)
		_exit(125);
	if (how->cwd && chdir(how->cwd) < 0)
		_exit(125);
	execve(how->argv->items[0], how->argv->items, env.items);
	_exit(125);
}

static void add_bytes(char **text, size_t *len, const char *bytes, size_t n)
{
	if (*len + n > OUTPUT_MAX)
		n = OUTPUT_MAX - *len;
	*text = must_alloc(realloc(*text, *len + n + 1));
	memcpy(*text + *len, bytes, n);
	*len += n;
	(*text)[*len] = '\0';
}

/* Reads both streams until they end; false when the time is over first. */
static bool collect(int out, int err, unsigned timeout_ms, struct ended *ret)
{
	struct pollfd polls[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
	int64_t end = now_ns() + timeout_ms * 1000000ll;
	char **const texts[] = {&ret->out, &ret->err};
	size_t lens[2] = {0, 0};

	for (int i = 0; i < 2; i++)
		add_bytes(texts[i], &lens[i], "", 0);
	while (polls[0].fd >= 0 || polls[1].fd >= 0) {
		int64_t left = (end - now_ns()) / 1000000;
		char buf[4096];

		if (left <= 0)
			return false;
		if (poll(polls, 2, (int)left) < 0 && errno != EINTR)
			return false;
		for (int i = 0; i < 2; i++) {
			ssize_t n;

			if (polls[i].fd < 0 || !polls[i].revents)
				continue;
			n = read(polls[i].fd, buf, sizeof(buf));
			if (n <= 0)
				polls[i].fd = -1;
			else
				add_bytes(texts[i], &lens[i], buf, (size_t)n);
		}
	}
	return true;
}

static int shell_status(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int open_output(const struct stage *s, const struct start *start, int fds[2])
{
	auto_free char *path = str_format("%s/out", s->root);
	auto_free char *text = str_format("%s\n", s->token);
	struct err ignored;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	if (!start->to_file)
		return 0;
	/* The read end stays: it ends at once, and the file is read afterwards. */
	close(fds[1]);
	if (write_file(path, text, 0600, &ignored) < 0)
		return -1;
	fds[1] = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	return fds[1] < 0 ? -1 : 0;
}

static void read_output_file(const struct stage *s, struct ended *ret)
{
	auto_free char *path = str_format("%s/out", s->root);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	char buf[4096];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		add_bytes(&ret->out, &len, buf, (size_t)n);
}

int stage_run(struct stage *s, const struct start *start, struct ended *ret, struct err *e)
{
	struct streams f = {-1, -1, -1, -1};
	int out[2] = {-1, -1}, err[2] = {-1, -1};
	struct ended got = {0};
	bool in_time;
	pid_t pid;

	if (open_stdin(s, start->in, &f) < 0 || open_output(s, start, out) < 0 ||
	    pipe2(err, O_CLOEXEC) < 0) {
		err_sys(e, "cannot open the streams of a program");
		close_streams(&f);
		return -1;
	}
	f.out = out[1];
	f.err = err[1];
	pid = fork();
	if (pid == 0)
		become_program(s, start, &f);
	close_fd(&f.in);
	close_fd(&f.out);
	close_fd(&f.err);
	if (pid < 0) {
		close_streams(&f);
		return err_sys(e, "cannot fork");
	}
	in_time = collect(out[0], err[0], start->timeout_ms, &got);
	if (!in_time)
		kill(pid, SIGKILL);
	got.status = shell_status(pid);
	if (!in_time)
		got.status = -1;
	close(out[0]);
	close(err[0]);
	close_streams(&f);
	if (start->to_file)
		read_output_file(s, &got);
	*ret = got;
	return 0;
}

void ended_done(struct ended *ended)
{
	free(ended->out);
	free(ended->err);
	*ended = (struct ended){0};
}

/* ---- plants ---- */

/* One line without its newline; false at the end or after ten seconds. */
static bool read_line(int fd, char *buf, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		struct pollfd p = {fd, POLLIN, 0};

		if (poll(&p, 1, 10000) != 1 || read(fd, buf + len, 1) != 1)
			return false;
		if (buf[len] == '\n') {
			buf[len] = '\0';
			return true;
		}
		len++;
	}
	return false;
}

int plant_start(const struct start *start, struct plant *ret, struct err *e)
{
	struct plant p = {.pid = -1, .to = -1, .from = -1};
	int in[2], out[2];
	char line[512];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make a pipe");
	p.pid = fork();
	if (p.pid == 0) {
		struct streams f = {in[0], out[1], 2, -1};

		setpgid(0, 0);
		dup2(f.in, 0);
		dup2(f.out, 1);
		if (chdir(start->cwd) == 0)
			execv(start->argv->items[0], start->argv->items);
		_exit(125);
	}
	close(in[0]);
	close(out[1]);
	p.to = in[1];
	p.from = out[0];
	while (p.pid > 0 && read_line(p.from, line, sizeof(line))) {
		if (str_equal(line, "planted")) {
			*ret = p;
			return 0;
		}
		if (strchr(line, '='))
			list_add(&p.facts, line);
	}
	plant_stop(&p);
	return err_set(e, ERR_SYSTEM, "what the attacks reach for could not be set up");
}

void plant_stop(struct plant *p)
{
	close_fd(&p->to);
	close_fd(&p->from);
	if (p->pid > 0)
		shell_status(p->pid);
	p->pid = -1;
	list_done(&p->facts);
}

void stage_hits(struct stage *s, struct list *ret)
{
	char line[128];

	if (write(s->host.to, "?\n", 2) != 2)
		return;
	while (read_line(s->host.from, line, sizeof(line)) && !str_equal(line, "sync"))
		if (str_starts(line, "hit "))
			list_add(ret, line + 4);
}

static const char *fact(const struct plant *p, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < p->facts.count; i++)
		if (!strncmp(p->facts.items[i], name, len) && p->facts.items[i][len] == '=')
			return p->facts.items[i] + len + 1;
	return NULL;
}

/* ---- canaries ---- */

static void add(struct list *ret, const char *name, const char *value)
{
	if (value && *value)
		list_take(ret, str_format("%s=%s", name, value));
}

static void add_file(struct list *ret, const char *name, const char *path)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[128] = "";
	ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf) - 1) : 0;

	if (n > 0)
		buf[strcspn(buf, "\n")] = '\0';
	add(ret, name, buf);
}

static void add_namespaces(struct list *ret)
{
	static const char *const names[] = {"user", "pid", "mnt",    "net",
					    "ipc",  "uts", "cgroup", "time"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *path = str_format("/proc/self/ns/%s", names[i]);
		auto_free char *name = str_format("ns-%s", names[i]);
		struct stat st;
		char number[32];

		if (stat(path, &st) < 0)
			continue;
		snprintf(number, sizeof(number), "%llu", (unsigned long long)st.st_ino);
		add(ret, name, number);
	}
}

/* An address of the host that is not loopback: connecting a datagram socket sends nothing. */
static void add_address(struct list *ret)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9)};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	char text[INET_ADDRSTRLEN];

	inet_pton(AF_INET, "198.51.100.1", &a.sin_addr);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
	    inet_ntop(AF_INET, &a.sin_addr, text, sizeof(text)))
		add(ret, "addr", text);
}

void stage_canaries(const struct stage *s, const struct place *place, const struct plant *peer,
		    struct list *ret)
{
	static const char *const from_plant[] = {"tcp", "tcp6", "udp", "pid"};
	struct utsname u;

	uname(&u);
	add(ret, "outside", s->outside);
	add(ret, "token", s->token);
	add(ret, "host", s->tag);
	add(ret, "ro", place->ro);
	add(ret, "ws", place->ws);
	add(ret, "env-secret", s->secret);
	add(ret, "hidden", strrchr(s->hidden, '/') + 1);
	add(ret, "hostname", u.nodename);
	add_file(ret, "boot-id", "/proc/sys/kernel/random/boot_id");
	add_file(ret, "machine-id", "/etc/machine-id");
	add(ret, "host-has", fact(&s->host, "has"));
	for (size_t i = 0; i < ARRAY_LEN(from_plant); i++)
		add(ret, from_plant[i], fact(&s->host, from_plant[i]));
	add_namespaces(ret);
	add_address(ret);
	if (geteuid() == 0)
		list_take(ret, str_format("private=%s/private", place->ro));
	if (peer) {
		add(ret, "peer-has", fact(peer, "has"));
		add(ret, "peer-tcp", fact(peer, "tcp"));
	}
}

/* ---- life ---- */

static void random_hex(char *ret, const char *prefix, size_t bytes)
{
	unsigned char raw[16];
	size_t len = (size_t)sprintf(ret, "%s", prefix);

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		memset(raw, 7, sizeof(raw));
	for (size_t i = 0; i < bytes; i++)
		len += (size_t)sprintf(ret + len, "%02x", raw[i]);
}

/* Copies of the probe that would be more than their caller, if exec let them. */
static int fill_as_root(struct stage *s, struct err *e)
{
	/* CAP_NET_RAW, effective; version 2 of the attribute */
	static const uint32_t caps[5] = {0x02000001, 1u << 13, 0, 0, 0};
	auto_free char *suid = str_format("%s/suid-probe", s->ro);
	auto_free char *file_caps = str_format("%s/caps-probe", s->ro);
	auto_free char *private = str_format("%s/private", s->ro);

	if (geteuid() != 0)
		return 0;
	if (copy_file(s->probe, suid, 04755, e) < 0 || copy_file(s->probe, file_caps, 0755, e) < 0)
		return -1;
	if (setxattr(file_caps, "security.capability", caps, sizeof(caps), 0) < 0)
		unlink(file_caps);
	if (write_file(private, s->token, 0600, e) < 0)
		return -1;
	if (chown(private, OTHER_UID, OTHER_UID) < 0)
		return err_sys(e, "cannot give %s away", private);
	return 0;
}

static int fill(struct stage *s, struct err *e)
{
	const char *const dirs[] = {s->outside, s->hidden, s->ro, s->work};
	auto_free char *secret = str_format("%s/secret", s->outside);
	auto_free char *in_ro = str_format("%s/cloche-probe", s->ro);
	auto_free char *in_work = str_format("%s/cloche-probe", s->work);

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdir(dirs[i], 0755) < 0)
			return err_sys(e, "cannot make %s", dirs[i]);
	if (write_file(secret, s->token, 0666, e) < 0 || copy_file(s->probe, in_ro, 0755, e) < 0 ||
	    copy_file(s->probe, in_work, 0755, e) < 0 || fill_as_root(s, e) < 0)
		return -1;
	stage_reset(s);
	/* It is the sandbox that has to refuse, not a mode. */
	if (chmod(s->outside, 0777) < 0 || chmod(s->ro, 0777) < 0 || chmod(s->work, 0777) < 0)
		return err_sys(e, "cannot open %s", s->root);
	return 0;
}

static int plant_host(struct stage *s, struct err *e)
{
	struct start start = {.cwd = s->work};
	struct list argv = {0};
	int rc;

	list_add(&argv, s->probe);
	list_add(&argv, "--plant");
	list_add(&argv, s->tag);
	list_add(&argv, s->outside);
	list_add(&argv, s->ro);
	start.argv = &argv;
	rc = plant_start(&start, &s->host, e);
	list_done(&argv);
	return rc;
}

int stage_open(struct stage *s, struct err *e)
{
	memset(s, 0, sizeof(*s));
	s->host = (struct plant){.pid = -1, .to = -1, .from = -1};
	if (find_program("cloche", s->cloche, e) < 0 ||
	    find_program("cloche-probe", s->probe, e) < 0)
		return -1;
	strcpy(s->root, "/tmp/cloche-selftest-XXXXXX");
	if (!mkdtemp(s->root)) {
		s->root[0] = '\0';
		return err_sys(e, "cannot make a directory in /tmp");
	}
	random_hex(s->tag, "", 6);
	random_hex(s->token, "token-", 12);
	random_hex(s->secret, "secret-", 12);
	snprintf(s->outside, sizeof(s->outside), "%s/outside", s->root);
	snprintf(s->hidden, sizeof(s->hidden), "%s/hidden-%s", s->root, s->tag);
	snprintf(s->ro, sizeof(s->ro), "%s/ro", s->hidden);
	snprintf(s->work, sizeof(s->work), "%s/work", s->root);
	if (chmod(s->root, 0755) < 0)
		return err_sys(e, "cannot open %s", s->root);
	return fill(s, e) < 0 || plant_host(s, e) < 0 ? -1 : 0;
}

void stage_close(struct stage *s)
{
	plant_stop(&s->host);
	if (s->root[0])
		remove_tree(AT_FDCWD, s->root);
	s->root[0] = '\0';
}

static bool is_alive_with(const char *pid, const char *tag)
{
	auto_free char *cmdline = str_format("/proc/%s/cmdline", pid);
	auto_free char *stat_path = str_format("/proc/%s/stat", pid);
	auto_close int fd = open(cmdline, O_RDONLY | O_CLOEXEC);
	auto_close int stat_fd = open(stat_path, O_RDONLY | O_CLOEXEC);
	char buf[4096], stat_text[512] = "";
	ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf)) : 0;
	const char *state;

	if (n <= 0 || !memmem(buf, (size_t)n, tag, strlen(tag)))
		return false;
	if (stat_fd >= 0 && read(stat_fd, stat_text, sizeof(stat_text) - 1) < 0)
		return false;
	state = strrchr(stat_text, ')');
	return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

unsigned stage_tagged(const char *tag, bool end)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;
	unsigned count = 0;

	while (proc && (d = readdir(proc))) {
		if (!isdigit((unsigned char)d->d_name[0]) || !is_alive_with(d->d_name, tag))
			continue;
		count++;
		if (end)
			kill(atoi(d->d_name), SIGKILL);
	}
	if (proc)
		closedir(proc);
	return count;
}
