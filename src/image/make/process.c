/* Starts processes that read what strangers made, and says what went wrong in them. */
#include "image/make/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#define SAID_MAX 4096

/* Nothing of the caller's but the way to the internet. */
static void set_environment(struct list *env)
{
	static const char *const proxies[] = {"https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"};

	list_add(env, "LC_ALL=C");
	for (size_t i = 0; i < ARRAY_LEN(proxies); i++)
		if (getenv(proxies[i]))
			list_take(env, str_format("%s=%s", proxies[i], getenv(proxies[i])));
}

int worker_start(struct worker *w, char **argv, int in, int out, struct err *e)
{
	posix_spawn_file_actions_t files;
	auto_list struct list env = {0};
	int to[2] = {-1, -1}, said[2];
	int rc;

	set_environment(&env);
	*w = (struct worker){.pid = -1, .out = -1, .err = -1};
	if (pipe2(said, O_CLOEXEC) < 0 || (out < 0 && pipe2(to, O_CLOEXEC) < 0))
		return err_sys(e, "cannot create a pipe");
	if (out < 0)
		fcntl(to[0], F_SETPIPE_SZ, 1 << 20);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in, 0);
	posix_spawn_file_actions_adddup2(&files, out < 0 ? to[1] : out, 1);
	posix_spawn_file_actions_adddup2(&files, said[1], 2);
	rc = posix_spawn(&w->pid, argv[0], &files, NULL, argv, env.items);
	posix_spawn_file_actions_destroy(&files);
	close(said[1]);
	if (out < 0)
		close(to[1]);
	w->out = to[0];
	w->err = said[0];
	if (rc == 0)
		return 0;
	w->pid = -1;
	worker_stop(w);
	errno = rc;
	return err_sys(e, "cannot run %s", argv[0]);
}

int process_await(pid_t pid, int said, const char *what, struct buf *ret_said, struct err *e)
{
	char text[SAID_MAX];
	ssize_t n = io_read_all(said, text, sizeof(text));
	int status = 0;

	close(said);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, "cannot wait");
	if (n > 0 && ret_said)
		buf_add(ret_said, text, (size_t)n);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return err_set(e, ERR_INVALID, "%s was ended by signal %d", what, WTERMSIG(status));
	while (n > 0 && text[n - 1] == '\n')
		n--;
	return err_set(e, ERR_INVALID, "%s: %.*s", what, n > 400 ? 400 : (int)(n > 0 ? n : 0),
		       text);
}

int worker_end(struct worker *w, const char *what, struct err *e)
{
	pid_t pid = w->pid;

	w->pid = -1;
	close_fd(&w->out);
	return process_await(pid, take_fd(&w->err), what, NULL, e);
}

void worker_stop(struct worker *w)
{
	close_fd(&w->out);
	close_fd(&w->err);
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		waitpid(w->pid, NULL, 0);
	}
	w->pid = -1;
}
