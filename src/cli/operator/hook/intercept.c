/*
 * Interceptors: programs of the user's that judge a tool call behind the rules. Each runs as `cloche run` of its own,
 * with no workspace, no network and little of everything; the call is its input. An agent takes a hook that is late for
 * a broken one and goes on without it, so all interceptors together have CHAIN_MS. What is not a clear answer in time is
 * a denial. Every verdict is noted in a hash-chained file before it counts.
 */
#include "cli/operator/hook/hook.h"

#include "audit/audit.h"
#include "cli/cli.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define CHAIN_MS 20000 /* agents wait 30 s and more */
#define LATE_MS 1000   /* for cloche to end a program whose time is up */
#define INSIDE "/mnt/interceptor"

extern char **environ;

/* ---- the file of verdicts ---- */

static char *audit_path(const struct hook *h)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (h->audit)
		return str_copy(h->audit);
	if (state && *state == '/')
		return str_format("%s/cloche/hook/audit.log", state);
	return home && *home == '/' ? str_format("%s/.local/state/cloche/hook/audit.log", home)
				    : NULL;
}

/* Those above our own place, not those of --audit. */
static void make_directories(char *path)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		(void)mkdir(path, 0700); /* what is missing then cannot be opened */
		*p = '/';
	}
}

static int note(const struct hook *h, const char *by, const struct tool_judgement *j, struct err *e)
{
	struct audit_entry entry = {.what = "tool"};
	auto_free char *path = audit_path(h);

	if (!path)
		return err_set(e, ERR_INVALID,
			       "there is no HOME for the verdicts; give --audit FILE");
	snprintf(entry.who, sizeof(entry.who), "%.63s", by);
	str_sanitise(entry.target, sizeof(entry.target), h->call.tool, strlen(h->call.tool));
	snprintf(entry.verdict, sizeof(entry.verdict), "%s", tool_verdict_name(j->verdict));
	str_sanitise(entry.why, sizeof(entry.why), j->reason, strlen(j->reason));
	if (!h->audit)
		make_directories(path);
	return audit_note(path, &entry, e) < 0 ? err_wrap(e, "the verdict cannot be noted") : 0;
}

/* ---- one program ---- */

/* The call as interceptors get it, in a file that nobody else has. */
static int write_call(const struct hook *h, struct err *e)
{
	json_auto_t *call = json_pack("{s:s, s:O, s:s?}", "tool", h->call.tool, "arguments",
				      h->call.input, "cwd", h->call.cwd);
	auto_free char *text = call ? json_dumps(call, JSON_COMPACT) : NULL;
	auto_close int fd = memfd_create("call", MFD_CLOEXEC);

	if (!text || fd < 0 || io_write_all(fd, text, strlen(text)) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return err_set(e, ERR_SYSTEM, "the call cannot be handed to an interceptor");
	return take_fd(&fd);
}

/* What an agent can change must not judge the agent. */
static int find_program(const struct hook *h, const char *file, char path[PATH_MAX], struct err *e)
{
	if (file[0] != '/' || !realpath(file, path) || access(path, X_OK) < 0)
		return err_field(e, ERR_INVALID, "interceptor",
				 "--interceptor %.200s: is no absolute path of a program", file);
	if (hook_is_in_workspace(h, path))
		return err_field(e, ERR_DENIED, "interceptor",
				 "--interceptor %.200s: is in the project, where the agent can "
				 "change it",
				 file);
	return 0;
}

static pid_t start_program(const char *path, int64_t ms, int in, int out, struct err *e)
{
	auto_free char *mount = str_format("%s:" INSIDE, path);
	auto_free char *timeout = str_format("%" PRId64 "ms", ms);
	char launcher[PATH_MAX];
	const char *argv[] = {launcher, "run",	  "--empty", "--timeout", timeout, "--memory",
			      "256M",	"--pids", "64",	     "--disk",	  "16M",   "--mount",
			      mount,	"--",	  INSIDE,    NULL};
	posix_spawn_file_actions_t files;
	pid_t pid;
	int rc;

	if (strchr(path, ':') || cli_find_helper("cloche", launcher, sizeof(launcher)) < 0)
		return err_set(e, ERR_SYSTEM,
			       "cloche is not installed beside cloched, or the "
			       "interceptor's path has a ':'");
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in, 0);
	posix_spawn_file_actions_adddup2(&files, out, 1);
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&pid, launcher, &files, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (rc == 0)
		return pid;
	errno = rc;
	return err_sys(e, "cannot start %s", launcher);
}

/* Up to its end, or until it is late or says too much; then it is killed, and its sandbox with it. */
static bool read_answer(pid_t pid, int from, int64_t until_ns, struct buf *b)
{
	struct pollfd p = {.fd = from, .events = POLLIN};
	ssize_t n = 1;
	int status, ms;

	while (n > 0 && b->len <= TOOL_ANSWER_MAX) {
		ms = (int)((until_ns - now_ns()) / 1000000);
		if (ms <= 0 || poll(&p, 1, ms) == 0)
			break;
		n = read(from, buf_reserve(b, 4096), 4096);
		if (n > 0)
			buf_added(b, (size_t)n);
	}
	if (n != 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int ask(const struct hook *h, const char *file, int64_t until_ns, struct tool_judgement *ret,
	       struct err *e)
{
	int64_t ms = (until_ns - now_ns()) / 1000000;
	auto_close int call = write_call(h, e), from = -1, to = -1;
	auto_buf struct buf b = {0};
	char path[PATH_MAX];
	int ends[2];
	pid_t pid;
	bool good;

	if (call < 0 || find_program(h, file, path, e) < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(e, "no pipe");
	from = ends[0];
	to = ends[1];
	pid = start_program(path, ms > 0 ? ms : 1, call, to, e);
	if (pid < 0)
		return -1;
	close_fd(&to);
	good = read_answer(pid, from, until_ns + LATE_MS * 1000000LL, &b);
	tool_verdict_read(strrchr(file, '/') + 1, good && b.len ? buf_head(&b) : "",
			  good ? b.len : 0, ret);
	return 0;
}

int hook_intercept(struct hook *h, struct tool_judgement *j, struct err *e)
{
	const struct list *all = &h->spec.interceptors;
	int64_t until = now_ns() + (int64_t)(h->chain_ms ? h->chain_ms : CHAIN_MS) * 1000000;
	struct tool_judgement one;

	if (h->spec.tool_rules.count && (h->audit || all->count) && note(h, "rules", j, e) < 0)
		return -1;
	if (all->count && hook_find_project(h, e) < 0)
		return -1;
	for (size_t i = 0; i < all->count && j->verdict != TOOL_DENY; i++) {
		if (ask(h, all->items[i], until, &one, e) < 0 || note(h, one.rule, &one, e) < 0)
			return -1;
		tool_take_stricter(j, &one);
	}
	return 0;
}
