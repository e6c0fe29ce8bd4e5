/*
 * --seccomp FILE: the caller's profile is compiled by cloche-seccomp, a program of its own, and kept in
 * the caller's cache for as long as the file stays as it is. A cache that somebody else could
 * write to is not used; and whatever is in it, the filter is loaded on top of the built-in one and
 * cannot allow more.
 */
#include "sandbox/plan/plan.h"

#include "kern/seccomp.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DIGEST 71 /* "sha256:" and 64 digits */

extern char **environ;

/* Which file, as it was when it was compiled, and by which version. */
struct seccomp_cache_key {
	uint64_t dev, ino, size;
	struct timespec modified, changed;
	char builtin[DIGEST + 1];
};

struct compiled {
	struct seccomp_cache_key key;
	char digest[DIGEST + 1];
	struct sock_filter insns[SECCOMP_OWN_MAX];
};

static int refuse(struct err *e, const char *file, const char *why)
{
	return err_field(e, ERR_INVALID, "seccomp", "seccomp: %s: %s", file, why);
}

static int make_key(const char *file, struct seccomp_cache_key *ret, struct err *e)
{
	struct stat st;

	if (stat(file, &st) < 0)
		return refuse(e, file, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(e, file, "not a regular file");
	memset(ret, 0, sizeof(*ret)); /* it is compared as bytes */
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	ret->size = (uint64_t)st.st_size;
	ret->modified = st.st_mtim;
	ret->changed = st.st_ctim;
	snprintf(ret->builtin, sizeof(ret->builtin), "%s", seccomp_profile_default.digest);
	return 0;
}

/* ---- the cache ---- */

/* -1: there is none. */
static int open_cache(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	auto_free char *above = NULL, *dir = NULL;
	struct stat st;
	int fd;

	if (cache && cache[0] == '/')
		above = str_copy(cache);
	else if (home && home[0] == '/')
		above = str_format("%s/.cache", home);
	else
		return -1;
	dir = str_format("%s/cloche", above);
	(void)mkdir(above, 0700);
	(void)mkdir(dir, 0700);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & 022))
		close_fd(&fd);
	return fd;
}

static void name_entry(const struct seccomp_cache_key *key, char *ret, size_t size)
{
	snprintf(ret, size, "seccomp-%" PRIx64 "-%" PRIx64, key->dev, key->ino);
}

/* Returns the count of instructions; 0: it is not there, or of another file. */
static size_t find_entry(int cache, const struct seccomp_cache_key *key, struct compiled *c)
{
	const size_t head = offsetof(struct compiled, insns);
	char name[64];
	ssize_t n;

	name_entry(key, name, sizeof(name));
	auto_close int fd = openat(cache, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	n = fd < 0 ? -1 : io_read_all(fd, (char *)c, sizeof(*c));
	if (n <= (ssize_t)head || ((size_t)n - head) % sizeof(c->insns[0]) != 0 ||
	    memcmp(&c->key, key, sizeof(*key)) != 0 || c->digest[DIGEST] != '\0')
		return 0;
	return ((size_t)n - head) / sizeof(c->insns[0]);
}

/* A file that has just changed may change again within the same tick of its clock. */
static bool is_settled(const struct seccomp_cache_key *key)
{
	return key->changed.tv_sec + 2 < time(NULL);
}

static void add_entry(int cache, const struct compiled *c, size_t count)
{
	size_t size = offsetof(struct compiled, insns) + count * sizeof(c->insns[0]);
	char name[64], fresh[96];
	int fd, rc;

	name_entry(&c->key, name, sizeof(name));
	snprintf(fresh, sizeof(fresh), "%s.%d", name, (int)getpid());
	fd = openat(cache, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	rc = io_write_all(fd, (const char *)c, size);
	close(fd);
	if (rc < 0 || renameat(cache, fresh, cache, name) < 0)
		(void)unlinkat(cache, fresh, 0);
}

/* ---- the compiler ---- */

/* Its output, or the reason of its failure. */
static ssize_t run_compiler(const char *compiler, const char *file, char *ret, size_t size,
			    int *ret_status, struct err *e)
{
	char *argv[] = {(char *)compiler, "--narrow", (char *)file, NULL};
	posix_spawn_file_actions_t actions;
	int pipe_fds[2], rc;
	ssize_t n;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(e, "seccomp: cannot create a pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 2);
	rc = posix_spawn(&pid, compiler, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	n = rc == 0 ? io_read_all(pipe_fds[0], ret, size) : -1;
	close(pipe_fds[0]);
	if (rc != 0 || n < 0 || waitpid(pid, ret_status, 0) < 0)
		return err_set(e, ERR_SYSTEM, "seccomp: cannot run %s", compiler);
	return n;
}

static int compile(const char *compiler, const char *file, struct compiled *c, size_t *ret_count,
		   struct err *e)
{
	static char text[DIGEST + 1 + sizeof(c->insns) + 1];
	int status = -1;
	ssize_t n = run_compiler(compiler, file, text, sizeof(text), &status, e);
	size_t bytes;

	if (n < 0)
		return -1;
	if (status != 0)
		return err_field(e, ERR_INVALID, "seccomp", "seccomp: %.*s",
				 (int)(n > 400 ? 400
				       : n     ? n - 1
					       : 19),
				 n ? text : "the compiler failed");
	bytes = (size_t)n > DIGEST + 1 ? (size_t)n - DIGEST - 1 : 0;
	if (!bytes || bytes > sizeof(c->insns) || bytes % sizeof(c->insns[0]) != 0 ||
	    text[DIGEST] != '\n')
		return err_set(e, ERR_SYSTEM, "seccomp: cloche-seccomp sent something else");
	memcpy(c->digest, text, DIGEST);
	c->digest[DIGEST] = '\0';
	memcpy(c->insns, text + DIGEST + 1, bytes);
	*ret_count = bytes / sizeof(c->insns[0]);
	return 0;
}

int own_seccomp_file(const char *compiler, const char *file, struct err *e)
{
	static struct compiled c;
	static struct seccomp_own own;
	const size_t head = offsetof(struct seccomp_own, insns);
	auto_close int fd = -1;
	size_t count;

	if (compile(compiler, file, &c, &count, e) < 0)
		return -1;
	memcpy(own.digest, c.digest, DIGEST + 1);
	memcpy(own.insns, c.insns, count * sizeof(own.insns[0]));
	fd = memfd_create("seccomp", MFD_CLOEXEC);
	if (fd < 0 || io_write_all(fd, (const char *)&own, head + count * sizeof(own.insns[0])) < 0)
		return err_sys(e, "seccomp: cannot keep the compiled profile");
	return take_fd(&fd);
}

int own_seccomp(struct plan *p, const char *compiler, struct err *e)
{
	static struct compiled c;
	static struct seccomp_profile profile;
	const char *file = p->spec->seccomp;
	struct seccomp_cache_key key, after;
	auto_close int cache = open_cache();
	size_t count;

	if (!compiler)
		return err_field(
			e, ERR_UNSUPPORTED, "seccomp",
			"seccomp: cloche-seccomp, which compiles profiles, is not installed");
	if (make_key(file, &key, e) < 0)
		return -1;
	count = cache < 0 ? 0 : find_entry(cache, &key, &c);
	if (count == 0) {
		if (compile(compiler, file, &c, &count, e) < 0 || make_key(file, &after, e) < 0)
			return -1;
		c.key = key;
		if (cache >= 0 && is_settled(&key) && memcmp(&key, &after, sizeof(key)) == 0)
			add_entry(cache, &c, count);
	}
	profile = (struct seccomp_profile){.name = "own",
					   .digest = c.digest,
					   .insns = c.insns,
					   .count = (unsigned short)count};
	p->seccomp = &profile;
	return 0;
}
