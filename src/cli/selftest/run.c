/* Starts programs the way a careless caller would, and plants that attacks can reach. */
#include "cli/selftest/run.h"

#include <ctype.h>
#include <dirent.h>
#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* Bytes of a program's output that are looked at; the probe needs a tenth of it. */
#define OUTPUT_MAX (512 << 10)
/* Only there so that a sandbox which keeps the caller's groups is found out. */
#define EXTRA_GROUP 65532
/* A plant that does not answer for so long is lost. */
#define PLANT_MS 10000

extern char **environ;

struct streams {
	int in, out, err;     /* of the child */
	int from_out, to_err; /* ours */
	int master;	      /* of the terminal, ours */
};

static void close_streams(struct streams *f)
{
	int *const all[] = {&f->in, &f->out, &f->err, &f->from_out, &f->to_err, &f->master};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		close_fd(all[i]);
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

static int open_stdin(const struct caller *caller, enum start_stdin kind, struct streams *f)
{
	switch (kind) {
	case STDIN_TTY:
		return open_terminal(f);
	case STDIN_DIRECTORY:
		return f->in = open(caller->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

/* With to_file our end of the pipe ends at once, and the file is read afterwards. */
static int open_stdout(const struct caller *caller, bool to_file, struct streams *f)
{
	size_t len = strlen(caller->out_text);

	if (make_pipe(&f->from_out, &f->out) < 0)
		return -1;
	if (!to_file)
		return 0;
	close_fd(&f->out);
	f->out = open(caller->out_file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	return f->out < 0 || write(f->out, caller->out_text, len) != (ssize_t)len ? -1 : 0;
}

static int open_streams(const struct caller *caller, const struct start *start, struct streams *f)
{
	*f = (struct streams){-1, -1, -1, -1, -1, -1};
	if (open_stdin(caller, start->in, f) < 0 || open_stdout(caller, start->to_file, f) < 0)
		return -1;
	return make_pipe(&f->to_err, &f->err);
}

/* What a caller has in his environment and a sandbox must not get. */
static void careless_environment(const struct caller *caller, struct list *ret)
{
	static const char *const names[] = {"API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK",
					    "DBUS_SESSION_BUS_ADDRESS"};

	for (char **v = environ; *v; v++)
		list_add(ret, *v);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		list_take(ret, str_format("%s=x:%s", names[i], caller->secret));
}

/* Signals that the self test takes by descriptor are not its children's business. */
static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the child: open descriptors, a terminal, groups, then the program. */
static void become_program(const struct caller *caller, const struct start *how, struct streams *f)
{
	auto_free char *secret = str_format("%s/secret", caller->dir);
	struct list env = {0};
	const gid_t groups[] = {0, EXTRA_GROUP};

	unblock_signals();
	if (how->group)
		setpgid(0, how->group);
	else
		setsid();
	careless_environment(caller, &env);
	if (dup2(f->in, 0) < 0 || dup2(f->out, 1) < 0 || dup2(f->err, 2) < 0)
		_exit(125);
	if (how->in == STDIN_TTY)
		ioctl(0, TIOCSCTTY, 0);
	dup2(open(secret, O_RDWR), 50);
	dup2(open(caller->dir, O_RDONLY | O_DIRECTORY), 51);
	dup2(open("/", O_PATH | O_DIRECTORY), 52);
	if (geteuid() == 0 && setgroups(ARRAY_LEN(groups), groups) < 0)
		_exit(125);
	if (how->cwd && chdir(how->cwd) < 0)
		_exit(125);
	execve(how->argv->items[0], how->argv->items, env.items);
	_exit(125);
}

/* What is beyond the bound is read and dropped. */
static void keep_bytes(struct buf *b, const char *bytes, size_t n)
{
	size_t room = OUTPUT_MAX - b->len;

	buf_add(b, bytes, n < room ? n : room);
}

/* Reads both streams until they end; false when the time is over first, or all is to stop. */
static bool collect(const struct streams *f, int stop, unsigned timeout_ms, struct buf ret[2])
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

/* A text that the caller frees; an empty one if there is none. */
static char *take_text(struct buf *b)
{
	char *text = str_format("%.*s", (int)b->len, b->len ? buf_head(b) : "");

	buf_done(b);
	return text;
}

int run_program(const struct caller *caller, const struct start *start, struct ended *ret,
		struct err *e)
{
	struct buf texts[2] = {0};
	struct streams f;
	bool in_time;
	int status;
	pid_t pid;

	if (open_streams(caller, start, &f) < 0 || (pid = fork()) < 0) {
		err_sys(e, "cannot start a program");
		close_streams(&f);
		return -1;
	}
	if (pid == 0)
		become_program(caller, start, &f);
	close_fd(&f.in);
	close_fd(&f.out);
	close_fd(&f.err);
	in_time = collect(&f, caller->stop, start->timeout_ms, texts);
	if (!in_time)
		kill(pid, SIGKILL);
	status = shell_status(pid);
	close_streams(&f);
	if (start->to_file) {
		char *room = buf_reserve(&texts[0], OUTPUT_MAX);
		ssize_t n = io_read_path(room, OUTPUT_MAX, "%s", caller->out_file);

		buf_added(&texts[0], n > 0 ? (size_t)n : 0);
	}
	*ret = (struct ended){in_time ? status : -1, take_text(&texts[0]), take_text(&texts[1])};
	if (!is_to_stop(caller->stop))
		return 0;
	ended_done(ret);
	return err_set(e, ERR_SYSTEM, "stopped by a signal");
}

void ended_done(struct ended *ended)
{
	free(ended->out);
	free(ended->err);
	*ended = (struct ended){0};
}

/* ---- plants ---- */

/* One line without its newline; false at the end, or when none comes. */
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

/* What cloche says about the sandbox of a plant is said about the others as well: once will do. */
static void become_plant(const struct start *start, int in, int out)
{
	unblock_signals();
	setpgid(0, 0);
	dup2(in, 0);
	dup2(out, 1);
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
	if (chdir(start->cwd) == 0)
		execv(start->argv->items[0], start->argv->items);
	_exit(125);
}

int plant_start(const struct start *start, struct plant *ret, struct err *e)
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
		become_plant(start, in, out);
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

const char *plant_fact(const struct plant *p, const char *name)
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
