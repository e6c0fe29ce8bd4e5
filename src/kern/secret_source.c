/* Reads values from a variable, a file or a command, and keeps them in memory that no child and no core has. */
#include "kern/secret_source.h"

#include <grp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define COMMAND_MS 10000

void *secret_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)!mlock(p, size); /* a small RLIMIT_MEMLOCK: swap may have it, nobody else */
	if (madvise(p, size, MADV_DONTFORK) < 0 || madvise(p, size, MADV_DONTDUMP) < 0) {
		munmap(p, size);
		return NULL;
	}
	return p;
}

void secret_memory_free(void *p, size_t size)
{
	if (!p)
		return;
	explicit_bzero(p, size);
	munmap(p, size);
}

void secret_forget_variable(const char *name)
{
	char *value = getenv(name);

	if (value)
		explicit_bzero(value, strlen(value));
	unsetenv(name);
}

size_t secret_trim(const char *value, size_t len)
{
	while (len && (value[len - 1] == '\n' || value[len - 1] == '\r'))
		len--;
	return len;
}

static int read_file(const char *path, char *ret, size_t room, size_t *ret_len, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot read %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "%s is no regular file", path);
	n = io_read_all(fd, ret, room);
	if (n < 0)
		return err_sys(e, "cannot read %s", path);
	*ret_len = (size_t)n;
	return 0;
}

static void exec_command(const struct secret_source *s, const struct secret_reader *as, int out)
{
	char *argv[SECRET_ARGS + 1] = {0};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (uint32_t i = 0; i < s->argc; i++)
		argv[i] = (char *)s->argv[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (as && as->uid &&
	    (setgroups(0, NULL) < 0 || setresgid(as->gid, as->gid, as->gid) < 0 ||
	     setresuid(as->uid, as->uid, as->uid) < 0))
		_exit(126);
	if (dup2(null, 0) < 0 || dup2(out, 1) < 0)
		_exit(126);
	execvp(argv[0], argv);
	_exit(127);
}

/* Until the output ends, at most COMMAND_MS. */
static ssize_t read_output(int fd, char *ret, size_t room)
{
	int64_t until = now_ns() + COMMAND_MS * 1000000LL;
	size_t len = 0;

	while (len < room) {
		int left = (int)((until - now_ns()) / 1000000);
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (left <= 0 || poll(&p, 1, left) <= 0)
			return -1;
		n = read(fd, ret + len, room - len);
		if (n <= 0)
			return n < 0 ? -1 : (ssize_t)len;
		len += (size_t)n;
	}
	return (ssize_t)len;
}

static int read_command(const struct secret_source *s, const struct secret_reader *as, char *ret,
			size_t room, size_t *ret_len, struct err *e)
{
	auto_close int in = -1, out = -1;
	int pair[2], status = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	in = pair[0];
	out = pair[1];
	pid = fork();
	if (pid < 0)
		return err_sys(e, "cannot start %s", s->argv[0]);
	if (pid == 0)
		exec_command(s, as, out);
	close_fd(&out);
	n = read_output(in, ret, room);
	if (n < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (n < 0)
		return err_set(e, ERR_SYSTEM, "%s did not end within 10 s", s->argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, ERR_SYSTEM, "%s failed", s->argv[0]);
	*ret_len = (size_t)n;
	return 0;
}

static int read_variable(const char *name, char *ret, size_t room, size_t *ret_len, struct err *e)
{
	const char *value = getenv(name);
	size_t len = value ? strlen(value) : 0;

	if (!value)
		return err_set(e, ERR_INVALID, "the variable %s is not set here", name);
	if (len <= room)
		memcpy(ret, value, len);
	*ret_len = len;
	return 0;
}

int secret_read(const struct secret_source *s, const struct secret_reader *as, char *ret,
		size_t room, size_t *ret_len, struct err *e)
{
	size_t len = 0;
	int rc;

	if (s->argc)
		rc = read_command(s, as, ret, room, &len, e);
	else if (s->file[0])
		rc = read_file(s->file, ret, room, &len, e);
	else
		rc = read_variable(s->env, ret, room, &len, e);
	if (rc < 0)
		return -1;
	if (len >= room)
		return err_set(e, ERR_LIMIT, "the value is longer than %zu bytes", room - 1);
	*ret_len = len;
	return 0;
}
