/* Tenants of cells: what they get, and what they say. */
#include "base/auto.h"
#include "base/str.h"
#include "guest/nest_inner.h"
#include "guest/server.h"
#include "kern/sys.h"
#include "sandbox/message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* The tenant's last words before it is one. */
static int take_report(struct seat *s, int from)
{
	int fds[KEEPER_MAX_FDS];

	if (message_receive(from, &s->told, sizeof(s->told), fds, &s->told.err) < 0 ||
	    s->told.err.kind != ERR_NONE) {
		s->nest->why = s->told.err;
		return -1;
	}
	return seat_watch_notices(s, fds[0]);
}

void seat_on_report(void *arg, uint32_t events)
{
	struct seat *s = arg;
	int rc = take_report(s, s->report.fd);

	(void)events;
	seat_unwatch(s, &s->report);
	if (rc < 0) {
		s->nest->failures++;
		sys_pidfd_send_signal(s->cell.fd, SIGKILL);
		return;
	}
	if (s->state == SEAT_ORDERED && s->tenant)
		seat_be_ready(s);
}

void tenant_close_fds(int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close_fd(&fds[i]);
}

void tenant_exec(char **argv, char **env)
{
	const char *dir = "/usr/local/bin:/usr/bin:/bin";
	int result = ENOENT;
	char path[PATH_MAX];

	for (char **e = env; *e; e++)
		if (str_starts(*e, "PATH="))
			dir = *e + 5;
	if (strchr(argv[0], '/') || !*argv[0]) {
		execve(argv[0], argv, env);
		return;
	}
	for (; *dir; dir += strcspn(dir, ":"), dir += *dir == ':') {
		snprintf(path, sizeof(path), "%.*s/%s", (int)strcspn(dir, ":"), dir, argv[0]);
		execve(path, argv, env);
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			return;
		if (errno == EACCES)
			result = EACCES;
	}
	errno = result;
}

/* In the tenant, with every layer in place: four bytes of length, then as many. */
static char *receive_terms(size_t *ret_len)
{
	uint32_t size;
	size_t got = 0;
	char *bytes;

	if (read(0, &size, sizeof(size)) != (ssize_t)sizeof(size))
		_exit(0); /* not needed any more */
	bytes = must_alloc(calloc(1, (size_t)size + 1));
	while (got < size) {
		ssize_t n = read(0, bytes + got, size - got);

		if (n <= 0)
			_exit(0);
		got += (size_t)n;
	}
	*ret_len = size;
	return bytes;
}

/* The terms that nest_pack_request wrote: argv[0], cwd, how many arguments follow, they, the environment. */
static void exec_terms(const char *bytes, size_t len)
{
	struct list fields = {0}, argv = {0}, env = {0};
	size_t argc;

	for (size_t at = 0; at < len; at += strlen(bytes + at) + 1)
		list_add(&fields, bytes + at);
	argc = (size_t)atoi(fields.items[2]);
	list_add(&argv, fields.items[0]);
	for (size_t i = 0; i < argc; i++)
		list_add(&argv, fields.items[3 + i]);
	for (size_t i = 3 + argc; i < fields.count; i++)
		list_add(&env, fields.items[i]);
	if (chdir(fields.items[1]) == 0)
		tenant_exec(argv.items, env.items);
}

struct tenant {
	struct cell_entry entry;
	int *exec_errno;
};

static void tenant_main(void *arg)
{
	struct tenant *t = arg;
	sigset_t none;
	char *request;
	size_t len;

	/* The nest's pid 1 waits for signals; it has no handlers, and ignores none. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (cell_enter(&t->entry) < 0)
		_exit(125);
	umask(022);
	/* Most will be told to go there, and have found the way by then. */
	(void)!chdir("/workspace");
	request = receive_terms(&len);
	exec_terms(request, len);
	*t->exec_errno = errno;
	_exit(errno == ENOENT ? 127 : 126);
}

int tenant_fork(struct seat *s, struct err *e)
{
	struct nest *n = s->nest;
	int theirs[3] = {-1, -1, -1}, pair[2], rc = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	if (spawn_open_streams(false, s->streams, theirs, e) == 0 &&
	    seat_watch(s, &s->report, pair[0], seat_on_report) == 0) {
		struct tenant t = {.entry = {.terms = &n->options.terms,
					     .cell = s->cell.fd,
					     .scratch = s->scratch,
					     .report = pair[1],
					     .streams = {theirs[0], theirs[1], theirs[2]}},
				   .exec_errno = &n->exec_errnos[s->index]};
		const struct cell_birth birth = {
			.cell = s->cell.fd, .born = tenant_main, .arg = &t};

		memcpy(t.entry.joins, s->joins, sizeof(t.entry.joins));
		rc = cell_bear(&birth, e);
		s->tenant = rc > 0 ? rc : 0;
		rc = rc > 0 ? 0 : -1;
	}
	close(pair[1]);
	tenant_close_fds(theirs, 3);
	s->state = rc == 0 ? SEAT_ORDERED : s->state;
	return rc;
}
static void add_sized(struct buf *b, const void *bytes, size_t len)
{
	uint32_t size = (uint32_t)len;

	buf_add(b, &size, sizeof(size));
	buf_add(b, bytes, len);
}

/* What a tenant reads before it runs anything; see decode() in zygote.py. */
void nest_pack_request(const struct nest_request *r, struct buf *ret)
{
	struct buf terms = {0};
	char count[16];
	int argc = 0;

	while (r->argv[argc + 1])
		argc++;
	snprintf(count, sizeof(count), "%d", argc);
	buf_add(&terms, r->argv[0], strlen(r->argv[0]) + 1);
	buf_add(&terms, r->cwd, strlen(r->cwd) + 1);
	buf_add(&terms, count, strlen(count) + 1);
	for (int i = 1; i <= argc; i++)
		buf_add(&terms, r->argv[i], strlen(r->argv[i]) + 1);
	for (char **e = r->env; *e; e++)
		buf_add(&terms, *e, strlen(*e) + 1);
	add_sized(ret, buf_head(&terms), terms.len);
	if (r->kind == NEST_PYTHON)
		add_sized(ret, r->code, r->code_len);
	buf_done(&terms);
}
