/*
 * The host side of a self test: a directory with canaries, a process that holds what the attacks reach
 * for (the plant), and programs started the way a careless caller would start them.
 */
#include "cli/selftest/selftest_internal.h"

#include "base/id.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* Bytes of a program's output that are kept; the probe prints a tenth of them. */
#define OUTPUT_MAX (512 << 10)
/* A group of the caller's, to find out a sandbox that keeps the caller's groups. */
#define EXTRA_GROUP 65532
/* Neither the caller nor the sandbox: the files of this user are for root only. */
#define OTHER_UID 65531
/* A plant that does not answer for so long is lost. */
#define PLANT_MS 10000

extern char **environ;

/* ---- programs ---- */

struct program_streams {
	int in, out, err;     /* of the child */
	int from_out, to_err; /* ours */
	int master;	      /* of the terminal, ours */
};

static void close_streams(struct program_streams *f)
{
	int *const all[] = {&f->in, &f->out, &f->err, &f->from_out, &f->to_err, &f->master};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		close_fd(all[i]);
}

static int open_terminal(struct program_streams *f)
{
	char name[64];

	f->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (f->master < 0 || grantpt(f->master) < 0 || unlockpt(f->master) < 0 ||
	    ptsname_r(f->master, name, sizeof(name)) != 0)
		return -1;
	f->in = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return f->in;
}

static int open_stdin(const struct test_stage *s, enum program_stdin kind,
		      struct program_streams *f)
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

static int make_pipe(int *ret_from, int *ret_to)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	*ret_from = fds[0];
	*ret_to = fds[1];
	return 0;
}

/* With to_file our end of the pipe closes at once, and the file is read afterwards. */
static int open_stdout(const struct test_stage *s, bool to_file, struct program_streams *f)
{
	size_t len = strlen(s->out_text);

	if (make_pipe(&f->from_out, &f->out) < 0)
		return -1;
	if (!to_file)
		return 0;
	close_fd(&f->out);
	f->out = open(s->out_file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	return f->out < 0 || write(f->out, s->out_text, len) != (ssize_t)len ? -1 : 0;
}

static int open_streams(const struct test_stage *s, const struct program *p,
			struct program_streams *f)
{
	*f = (struct program_streams){-1, -1, -1, -1, -1, -1};
	if (open_stdin(s, p->in, f) < 0 || open_stdout(s, p->to_file, f) < 0)
		return -1;
	return make_pipe(&f->to_err, &f->err);
}

/* Variables that callers have in their environment and a sandbox must not get. */
static void careless_environment(const struct test_stage *s, struct list *ret)
{
	static const char *const names[] = {"API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK",
					    "DBUS_SESSION_BUS_ADDRESS"};

	for (char **v = environ; *v; v++)
		list_add(ret, *v);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		list_take(ret, str_format("%s=x:%s", names[i], s->secret));
}

/* The self test blocks signals that it reads from a signalfd; its children must not. */
static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the child: leaves descriptors open, sets the terminal and groups, executes the program. */
static void become_program(const struct test_stage *s, const struct program *p,
			   struct program_streams *f)
{
	auto_free char *secret = str_format("%s/secret", s->outside);
	struct list env = {0};
	const gid_t groups[] = {0, EXTRA_GROUP};

	unblock_signals();
	if (p->group)
		setpgid(0, p->group);
	else
		setsid();
	careless_environment(s, &env);
	if (dup2(f->in, 0) < 0 || dup2(f->out, 1) < 0 || dup2(f->err, 2) < 0)
		_exit(125);
	if (p->in == STDIN_TTY)
		ioctl(0, TIOCSCTTY, 0);
	dup2(open(secret, O_RDWR), 50);
	dup2(open(s->outside, O_RDONLY | O_DIRECTORY), 51);
	dup2(open("/", O_PATH | O_DIRECTORY), 52);
	if (geteuid() == 0 && setgroups(ARRAY_LEN(groups), groups) < 0)
		_exit(125);
	if (p->cwd && chdir(p->cwd) < 0)
		_exit(125);
	execve(p->argv->items[0], p->argv->items, env.items);
	_exit(125);
}

/* Keeps bytes up to the bound, and drops the rest. */
static void keep_bytes(struct buf *b, const char *bytes, size_t n)
{
	size_t room = OUTPUT_MAX - b->len;

	buf_add(b, bytes, n < room ? n : room);
}

/* Reads both streams until they end. False: the time was over first, or a signal came. */
static bool collect_output(const struct program_streams *f, int stop, unsigned timeout_ms,
			   struct buf ret[2])
{
	struct pollfd polls[3] = {
		{f->from_out, POLLIN, 0}, {f->to_err, POLLIN, 0}, {stop, POLLIN, 0}};
	int64_t end = now_ns() + timeout_ms * 1000000ll;

	while (polls[0].fd >= 0 || polls[1].fd >= 0) {
		int64_t left = (end - now_ns()) / 1000000;
		char buf[4096];

		if (left <= 0 || (poll(polls, 3, (int)left) < 0 && errno != EINTR) ||
		    polls[2].revents)
			return false;
		for (int i = 0; i < 2; i++) {
			ssize_t n;

			if (polls[i].fd < 0 || !polls[i].revents)
				continue;
			n = read(polls[i].fd, buf, sizeof(buf));
			if (n <= 0)
				polls[i].fd = -1;
			else
				keep_bytes(&ret[i], buf, (size_t)n);
		}
	}
	return true;
}

static bool is_to_stop(int stop)
{
	struct pollfd p = {stop, POLLIN, 0};

	return poll(&p, 1, 0) == 1;
}

static int shell_status(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The text of a buffer, which the caller frees; "" if it is empty. */
static char *take_text(struct buf *b)
{
	char *text = str_format("%.*s", (int)b->len, b->len ? buf_head(b) : "");

	buf_done(b);
	return text;
}

int stage_run(const struct test_stage *s, const struct program *p, struct program_end *ret,
	      struct err *e)
{
	struct buf texts[2] = {0};
	struct program_streams f;
	bool in_time;
	int status;
	pid_t pid;

	if (open_streams(s, p, &f) < 0 || (pid = fork()) < 0) {
		err_sys(e, "cannot start a program");
		close_streams(&f);
		return -1;
	}
	if (pid == 0)
		become_program(s, p, &f);
	close_fd(&f.in);
	close_fd(&f.out);
	close_fd(&f.err);
	in_time = collect_output(&f, s->stop, p->timeout_ms, texts);
	if (!in_time)
		kill(pid, SIGKILL);
	status = shell_status(pid);
	close_streams(&f);
	if (p->to_file) {
		char *room = buf_reserve(&texts[0], OUTPUT_MAX);
		ssize_t n = io_read_path(room, OUTPUT_MAX, "%s", s->out_file);

		buf_added(&texts[0], n > 0 ? (size_t)n : 0);
	}
	*ret = (struct program_end){in_time ? status : -1, take_text(&texts[0]),
				    take_text(&texts[1])};
	if (!is_to_stop(s->stop))
		return 0;
	program_end_done(ret);
	return err_set(e, ERR_SYSTEM, "stopped by a signal");
}

void program_end_done(struct program_end *end)
{
	free(end->out);
	free(end->err);
	*end = (struct program_end){0};
}

/* ---- plants ---- */

/* Reads one line without its newline. False at the end, or if none comes in time. */
static bool read_line(int fd, char *buf, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		struct pollfd p = {fd, POLLIN, 0};

		if (poll(&p, 1, PLANT_MS) != 1 || read(fd, buf + len, 1) != 1)
			return false;
		if (buf[len] == '\n') {
			buf[len] = '\0';
			return true;
		}
		len++;
	}
	return false;
}

/* stderr is dropped: cloche prints the same notes for the other sandboxes. */
static void become_plant(const struct list *argv, const char *cwd, int in, int out)
{
	unblock_signals();
	setpgid(0, 0);
	dup2(in, 0);
	dup2(out, 1);
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
	if (chdir(cwd) == 0)
		execv(argv->items[0], argv->items);
	_exit(125);
}

int plant_start(const struct list *argv, const char *cwd, struct plant *ret, struct err *e)
{
	auto_close int in = -1, out = -1;
	struct plant p = PLANT_NONE;
	char line[512];

	if (make_pipe(&in, &p.to) < 0 || make_pipe(&p.from, &out) < 0 || (p.pid = fork()) < 0) {
		err_sys(e, "cannot start a program");
		plant_stop(&p);
		return -1;
	}
	if (p.pid == 0)
		become_plant(argv, cwd, in, out);
	close_fd(&in);
	close_fd(&out);
	while (read_line(p.from, line, sizeof(line))) {
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

static const char *plant_fact(const struct plant *p, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < p->facts.count; i++)
		if (!strncmp(p->facts.items[i], name, len) && p->facts.items[i][len] == '=')
			return p->facts.items[i] + len + 1;
	return NULL;
}

void plant_hits(const struct plant *p, struct list *ret)
{
	char line[128];

	if (write(p->to, "?\n", 2) != 2)
		return;
	while (read_line(p->from, line, sizeof(line)) && !str_equal(line, "sync"))
		if (str_starts(line, "hit "))
			list_add(ret, line + 4);
}

/* ---- what is left ---- */

static bool is_alive_with(const char *pid, const char *tag)
{
	char cmdline[4096], stat[512];
	ssize_t n = io_read_path(cmdline, sizeof(cmdline), "/proc/%s/cmdline", pid);
	const char *state;

	if (n <= 0 || !memmem(cmdline, (size_t)n, tag, strlen(tag)) ||
	    io_read_path(stat, sizeof(stat), "/proc/%s/stat", pid) < 0)
		return false;
	state = strrchr(stat, ')');
	return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

unsigned count_tagged(const char *tag, bool end)
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

void stage_reset(const struct test_stage *s)
{
	auto_free char *path = str_format("%s/file", s->ro);
	auto_free char *text = str_format("read-only %s\n", s->token);
	struct err ignored;

	write_file(path, text, 0666, &ignored);
}

/* ---- canaries ---- */

static int find_program(const char *name, char *ret, struct err *e)
{
	if (cli_find_helper(name, ret, PATH_MAX) == 0)
		return 0;
	return err_set(e, ERR_NOT_FOUND, "%s is not installed beside this program", name);
}

/* ---- canaries ---- */

static void add_canary(struct list *ret, const char *name, const char *value)
{
	if (value && *value)
		list_take(ret, str_format("%s=%s", name, value));
}

static void add_file(struct list *ret, const char *name, const char *path)
{
	char buf[128];

	io_read_at(AT_FDCWD, path, buf, sizeof(buf));
	buf[strcspn(buf, "\n")] = '\0';
	add_canary(ret, name, buf);
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
		add_canary(ret, name, number);
	}
}

/* Adds an address of the host that is not loopback. Connecting a datagram socket sends nothing. */
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
		add_canary(ret, "addr", text);
}

void stage_canaries(const struct test_stage *s, const struct stage_paths *paths,
		    const struct plant *peer, struct list *ret)
{
	static const char *const from_plant[] = {"tcp", "tcp6", "udp", "pid"};
	struct utsname u;

	uname(&u);
	add_canary(ret, "outside", s->outside);
	add_canary(ret, "token", s->token);
	add_canary(ret, "host", s->tag);
	add_canary(ret, "ro", paths->ro);
	add_canary(ret, "ws", paths->ws);
	add_canary(ret, "rw", paths->rw);
	add_canary(ret, "env-secret", s->secret);
	add_canary(ret, "hidden", strrchr(s->hidden, '/') + 1);
	add_canary(ret, "hostname", u.nodename);
	add_file(ret, "boot-id", "/proc/sys/kernel/random/boot_id");
	add_file(ret, "machine-id", "/etc/machine-id");
	add_canary(ret, "host-has", plant_fact(&s->host, "has"));
	for (size_t i = 0; i < ARRAY_LEN(from_plant); i++)
		add_canary(ret, from_plant[i], plant_fact(&s->host, from_plant[i]));
	add_namespaces(ret);
	add_address(ret);
	if (geteuid() == 0)
		list_take(ret, str_format("private=%s/private", paths->ro));
	if (peer) {
		add_canary(ret, "peer-has", plant_fact(peer, "has"));
		add_canary(ret, "peer-tcp", plant_fact(peer, "tcp"));
	}
}

/* ---- life ---- */

static void random_hex(char *ret, const char *prefix, size_t bytes)
{
	size_t len = (size_t)sprintf(ret, "%s", prefix);

	if (id_hex(ret + len, bytes) < 0)
		sprintf(ret + len, "07");
}

/* Adds copies of the probe that gain privileges if exec lets them. */
static int fill_as_root(struct test_stage *s, struct err *e)
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

static int fill_stage(struct test_stage *s, struct err *e)
{
	const char *const dirs[] = {s->hidden, s->outside, s->ro, s->rw, s->work};
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
	/* The sandbox has to refuse, not a file mode. */
	for (size_t i = 1; i < ARRAY_LEN(dirs); i++)
		if (chmod(dirs[i], 0777) < 0)
			return err_sys(e, "cannot open %s", dirs[i]);
	return 0;
}

static int plant_host(struct test_stage *s, struct err *e)
{
	auto_list struct list argv = {0};

	list_add_all(&argv, (const char *const[]){s->probe, "--plant", s->tag, s->outside, s->ro,
						  s->rw, NULL});
	return plant_start(&argv, s->work, &s->host, e);
}

static void name_all(struct test_stage *s)
{
	random_hex(s->tag, "", 6);
	random_hex(s->token, "token-", 12);
	random_hex(s->secret, "secret-", 12);
	snprintf(s->outside, sizeof(s->outside), "%s/outside", s->root);
	snprintf(s->hidden, sizeof(s->hidden), "%s/hidden-%s", s->root, s->tag);
	snprintf(s->ro, sizeof(s->ro), "%s/ro", s->hidden);
	snprintf(s->rw, sizeof(s->rw), "%s/rw", s->hidden);
	snprintf(s->work, sizeof(s->work), "%s/work", s->root);
	snprintf(s->out_file, sizeof(s->out_file), "%s/out", s->root);
	snprintf(s->out_text, sizeof(s->out_text), "%s\n", s->token);
}

static int take_signals(struct err *e)
{
	sigset_t stop;
	int fd;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &stop, NULL) < 0 || (fd = signalfd(-1, &stop, SFD_CLOEXEC)) < 0)
		return err_sys(e, "cannot wait for signals");
	return fd;
}

int stage_open(struct test_stage *s, struct err *e)
{
	*s = STAGE_NONE;
	if (find_program("cloche", s->cloche, e) < 0 ||
	    find_program("cloche-probe", s->probe, e) < 0)
		return -1;
	s->stop = take_signals(e);
	if (s->stop < 0)
		return -1;
	strcpy(s->root, "/tmp/cloche-selftest-XXXXXX");
	if (!mkdtemp(s->root)) {
		s->root[0] = '\0';
		return err_sys(e, "cannot make a directory in /tmp");
	}
	name_all(s);
	if (chmod(s->root, 0755) < 0)
		return err_sys(e, "cannot open %s", s->root);
	return fill_stage(s, e) < 0 || plant_host(s, e) < 0 ? -1 : 0;
}

void stage_close(struct test_stage *s)
{
	plant_stop(&s->host);
	close_fd(&s->stop);
	if (s->root[0])
		cli_remove_tree(s->root);
	s->root[0] = '\0';
}
