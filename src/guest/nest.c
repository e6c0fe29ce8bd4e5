#include "guest/nest.h"

#include "base/auto.h"
#include "base/str.h"
#include "guest/denials.h"
#include "guest/server.h"
#include "kern/sys.h"
#include "sandbox/message.h"
#include "zygote/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FAILURES_MAX 16
#define REVIVE_FIRST_MS 500
#define REVIVE_MOST_MS 60000

enum seat_state {
	SEAT_MAKING,  /* a cell is being made */
	SEAT_ORDERED, /* the interpreter was asked for a tenant */
	SEAT_READY,
	SEAT_TAKEN,   /* a tenant of a request */
	SEAT_LEAVING, /* the tenant is dead, its cell is dying */
	SEAT_BROKEN,
};

struct seat {
	struct nest *nest;
	int index;
	enum nest_kind kind;
	enum seat_state state;
	struct slot slot;
	int joins[CELL_JOINS];
	struct loop_watch control, report, notify, dns;
	struct loop_watch cell; /* its pidfd; fd -1: there is none */
	int scratch, mounts;
	pid_t tenant;
	uint32_t eid;
	int streams[3]; /* our ends */
	struct cell_report told;
	void (*gone)(void *arg, int exec_errno, bool out_of_memory);
	void *gone_arg;
};

struct nest {
	struct guest *guest;
	struct nest_options options;
	struct seat *seats;
	int seat_count;
	int *exec_errnos; /* shared with a tenant until its exec, one for each seat */
	struct loop_task ready;
	struct loop_timer revive; /* what broke */
	uint64_t revive_ms;
	unsigned failures; /* of tenants, one after the other */
	struct err why;	   /* the last seat that broke, did */
	struct {
		pid_t pid;
		struct loop_watch control;
		bool loaded;
		struct seat *asked; /* one order at a time */
	} zygote;
};

static void next_step(struct seat *s);

static void on_ready(void *arg)
{
	struct nest *n = arg;

	warm_serve(n->guest);
}

/* Those who wait are told when this round is over. */
static void be_ready(struct seat *s)
{
	s->nest->failures = 0;
	s->nest->revive_ms = REVIVE_FIRST_MS;
	s->state = SEAT_READY;
	loop_task_add(s->nest->guest->loop, &s->nest->ready);
}

static void revive_later(struct nest *n)
{
	if (n->revive.place)
		return;
	loop_timer_set(n->guest->loop, &n->revive, n->revive_ms);
	n->revive_ms = n->revive_ms * 2 < REVIVE_MOST_MS ? n->revive_ms * 2 : REVIVE_MOST_MS;
}

static void be_broken(struct seat *s)
{
	s->state = SEAT_BROKEN;
	loop_task_add(s->nest->guest->loop, &s->nest->ready);
	revive_later(s->nest);
}

/* ---- cells ---- */

static int watch_fd(struct seat *s, struct loop_watch *w, int fd, void (*call)(void *, uint32_t))
{
	*w = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = call, .arg = s};
	return fd < 0 ? 0 : loop_watch(s->nest->guest->loop, w);
}

static void close_streams(struct seat *s)
{
	for (int i = 0; i < 3; i++)
		close_fd(&s->streams[i]);
}

static void unwatch(struct seat *s, struct loop_watch *w)
{
	if (w->fd < 0)
		return;
	loop_unwatch(s->nest->guest->loop, w);
	close(w->fd);
	w->fd = -1;
}

static void clear_cell(struct seat *s)
{
	unwatch(s, &s->report);
	unwatch(s, &s->notify);
	unwatch(s, &s->cell);
	close_fd(&s->scratch);
	close_fd(&s->mounts);
	close_streams(s);
	s->tenant = 0;
	s->told = (struct cell_report){0};
}

/* Everything in it is dead: whoever waits for that goes first. */
static void cell_is_gone(struct seat *s, bool out_of_memory)
{
	void (*gone)(void *, int, bool) = s->gone;

	s->gone = NULL;
	if (gone)
		gone(s->gone_arg, s->nest->exec_errnos[s->index], out_of_memory);
}

/* The slot is done with the last cell as well, and makes the next one. */
static void renew(struct seat *s)
{
	int mounts = take_fd(&s->mounts);

	clear_cell(s);
	s->state = SEAT_MAKING;
	/* What fails again and again would only keep the processors busy. */
	if (s->nest->failures > FAILURES_MAX || slot_make_cell(&s->slot, mounts) < 0)
		be_broken(s);
	close_fd(&mounts);
}

/* Only the slot can tell whether it was the watch that ended it. */
static void on_cell_death(void *arg, uint32_t events)
{
	struct seat *s = arg;

	(void)events;
	unwatch(s, &s->cell);
	if (s->nest->options.terms.cgroup_layers & LAYER_BIT(LAYER_MEMORY))
		cell_is_gone(s, false);
}

/* The slot is gone, and its cell with it; a tenant is still to be reaped. */
static void break_seat(struct seat *s, const struct err *e)
{
	pid_t tenant = s->tenant;

	s->nest->why = *e;
	if (s->cell.fd >= 0)
		sys_pidfd_send_signal(s->cell.fd, SIGKILL);
	loop_unwatch(s->nest->guest->loop, &s->control);
	clear_cell(s);
	s->tenant = tenant;
	be_broken(s);
	cell_is_gone(s, false);
}

static void on_control(void *arg, uint32_t events)
{
	struct seat *s = arg;
	struct cell_message m;
	int fds[CELL_FDS];

	(void)events;
	if (slot_receive(&s->slot, &m, fds) < 0 || m.news == CELL_FAILED) {
		break_seat(s, &m.err);
	} else if (m.news == CELL_GONE) {
		cell_is_gone(s, m.exit_code == CELL_OUT_OF_MEMORY);
		renew(s);
	} else {
		watch_fd(s, &s->cell, fds[CELL_PIDFD], on_cell_death);
		s->scratch = fds[CELL_SCRATCH];
		s->mounts = fds[CELL_MOUNTS];
		next_step(s);
	}
}

static void on_notify(void *arg, uint32_t events)
{
	struct seat *s = arg;

	if (!(events & EPOLLIN))
		unwatch(s, &s->notify);
	else
		denials_take_notice(s->nest->guest, s->notify.fd, s->eid);
}

static void on_dns(void *arg, uint32_t events)
{
	struct seat *s = arg;

	(void)events;
	denials_take_query(s->nest->guest, s->dns.fd, s->eid);
}

/* ---- tenants ---- */

/* The tenant's last words before it is one. */
static int take_report(struct seat *s, int from)
{
	int fds[KEEPER_MAX_FDS];

	if (message_receive(from, &s->told, sizeof(s->told), fds, &s->told.err) < 0 ||
	    s->told.err.kind != ERR_NONE) {
		s->nest->why = s->told.err;
		return -1;
	}
	return watch_fd(s, &s->notify, fds[0], on_notify);
}

static void on_report(void *arg, uint32_t events)
{
	struct seat *s = arg;
	int rc = take_report(s, s->report.fd);

	(void)events;
	unwatch(s, &s->report);
	if (rc < 0) {
		s->nest->failures++;
		sys_pidfd_send_signal(s->cell.fd, SIGKILL);
		return;
	}
	if (s->state == SEAT_ORDERED && s->tenant)
		be_ready(s);
}

/* Pipes for a tenant: theirs go to it and are closed here afterwards. */
static int open_streams(struct seat *s, int theirs[3], struct err *e)
{
	int pair[2];

	for (int i = 0; i < 3; i++) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			return err_sys(e, "cannot create pipes");
		theirs[i] = pair[i != 0];
		s->streams[i] = pair[i == 0];
		fcntl(s->streams[i], F_SETFL, O_NONBLOCK);
	}
	return 0;
}

static void close_all(int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close_fd(&fds[i]);
}

static void exec_search(char **argv, char **env)
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

/* The terms that pack_request wrote: argv[0], cwd, how many arguments follow, they, the environment. */
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
		exec_search(argv.items, env.items);
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

	for (int sig = 1; sig < 64; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (cell_enter(&t->entry) < 0)
		_exit(125);
	umask(022);
	request = receive_terms(&len);
	exec_terms(request, len);
	*t->exec_errno = errno;
	_exit(errno == ENOENT ? 127 : 126);
}

/* A tenant for a command, ahead of any request: our own child, born into the cell's pid namespace. */
static int fork_tenant(struct seat *s, struct err *e)
{
	struct nest *n = s->nest;
	int theirs[3] = {-1, -1, -1}, pair[2], rc = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	if (open_streams(s, theirs, e) == 0 && watch_fd(s, &s->report, pair[0], on_report) == 0) {
		struct tenant t = {.entry = {.terms = &n->options.terms,
					     .cell = s->cell.fd,
					     .scratch = s->scratch,
					     .report = pair[1],
					     .streams = {theirs[0], theirs[1], theirs[2]}},
				   .exec_errno = &n->exec_errnos[s->index]};
		const struct cell_birth birth = {
			.cell = s->cell.fd, .born = tenant_main, .arg = &t};

		memcpy(t.entry.joins, s->joins, sizeof(t.entry.joins));
		s->tenant = cell_bear(&birth, e);
		rc = s->tenant > 0 ? 0 : -1;
	}
	close(pair[1]);
	close_all(theirs, 3);
	s->state = rc == 0 ? SEAT_ORDERED : s->state;
	return rc;
}

/* A tenant of the interpreter's, ahead of any request. */
static int order_tenant(struct seat *s, struct err *e)
{
	struct nest *n = s->nest;
	struct zygote_order order = {n->options.terms};
	int theirs[3] = {-1, -1, -1}, pair[2], fds[ZYGOTE_FDS], count = 0, rc = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	if (open_streams(s, theirs, e) == 0 && watch_fd(s, &s->report, pair[0], on_report) == 0) {
		fds[count++] = s->cell.fd;
		fds[count++] = s->scratch;
		fds[count++] = pair[1];
		for (int i = 0; i < 3; i++)
			fds[count++] = theirs[i];
		for (int i = 0; i < n->options.terms.join_count; i++)
			fds[count++] = s->joins[i];
		rc = message_send(n->zygote.control.fd, &order, sizeof(order), fds, count, e);
	}
	close(pair[1]);
	close_all(theirs, 3);
	if (rc == 0) {
		s->state = SEAT_ORDERED;
		n->zygote.asked = s;
	}
	return rc;
}

/* One order at a time, those that wait longest first as they stand. */
static void order_next(struct nest *n)
{
	struct err e;

	for (int i = 0; i < n->seat_count && n->zygote.loaded && !n->zygote.asked; i++) {
		struct seat *s = &n->seats[i];

		if (s->kind == NEST_PYTHON && s->state == SEAT_MAKING && s->cell.fd >= 0 &&
		    order_tenant(s, &e) < 0)
			be_broken(s);
	}
}

static void next_step(struct seat *s)
{
	if (s->kind == NEST_PYTHON)
		order_next(s->nest);
	else if (fork_tenant(s, &s->nest->why) < 0)
		be_broken(s);
}

static void lose_zygote(struct nest *n)
{
	struct seat *asked = n->zygote.asked;

	loop_unwatch(n->guest->loop, &n->zygote.control);
	close_fd(&n->zygote.control.fd);
	n->zygote.loaded = false;
	n->zygote.asked = NULL;
	/* Its order may have been carried out, or not: begin anew. */
	if (asked && asked->cell.fd >= 0)
		sys_pidfd_send_signal(asked->cell.fd, SIGKILL);
	loop_task_add(n->guest->loop, &n->ready);
	revive_later(n);
}

static void on_zygote(void *arg, uint32_t events)
{
	struct nest *n = arg;
	struct zygote_answer a;
	struct seat *s = n->zygote.asked;
	ssize_t got = recv(n->zygote.control.fd, &a, sizeof(a), 0);

	(void)events;
	if (got != (ssize_t)sizeof(a) || (!s && a.pid < 0)) {
		if (got == (ssize_t)sizeof(a))
			n->why = a.err;
		else
			err_set(&n->why, ERR_SYSTEM, "the warm interpreter ended");
		lose_zygote(n);
		return;
	}
	if (!n->zygote.loaded) {
		n->zygote.loaded = true;
	} else if (s) {
		n->zygote.asked = NULL;
		s->tenant = a.pid > 0 ? a.pid : 0;
		/* Its report may have been quicker. */
		if (s->tenant && s->report.fd < 0 && s->told.err.kind == ERR_NONE)
			be_ready(s);
		if (!s->tenant) {
			n->failures++;
			n->why = a.err;
			sys_pidfd_send_signal(s->cell.fd, SIGKILL);
		}
	}
	order_next(n);
}

/* ---- seating ---- */

static void add_sized(struct buf *b, const void *bytes, size_t len)
{
	uint32_t size = (uint32_t)len;

	buf_add(b, &size, sizeof(size));
	buf_add(b, bytes, len);
}

/* What a tenant reads before it runs anything; see decode() in zygote.py. */
static void pack_request(const struct nest_request *r, struct buf *ret)
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

static struct seat *find_ready(struct nest *n, enum nest_kind kind)
{
	for (int i = 0; i < n->seat_count; i++)
		if (n->seats[i].kind == kind && n->seats[i].state == SEAT_READY)
			return &n->seats[i];
	return NULL;
}

int nest_seat(struct nest *n, const struct nest_request *r, struct spawned *ret,
	      struct cell_report *ret_report, struct err *e)
{
	struct seat *s = find_ready(n, r->kind);

	if (!s) {
		errno = EAGAIN;
		return n->why.kind == ERR_NONE
			       ? err_sys(e, "no warm sandbox is ready")
			       : err_sys(e, "no warm sandbox is ready (%.300s)", n->why.msg);
	}
	n->exec_errnos[s->index] = 0;
	s->state = SEAT_TAKEN;
	*ret = (struct spawned){.pid = s->tenant,
				.in = take_fd(&s->streams[0]),
				.out = take_fd(&s->streams[1]),
				.err = take_fd(&s->streams[2])};
	*ret_report = s->told;
	return 0;
}

void nest_pack_request(const struct nest_request *r, struct buf *ret)
{
	pack_request(r, ret);
}

/* ---- the end of a tenant ---- */

static struct seat *find_tenant(struct nest *n, pid_t pid)
{
	for (int i = 0; n && pid > 0 && i < n->seat_count; i++)
		if (n->seats[i].tenant == pid)
			return &n->seats[i];
	return NULL;
}

bool nest_reaped(struct nest *n, pid_t pid,
		 void (*gone)(void *arg, int exec_errno, bool out_of_memory), void *arg)
{
	struct seat *s = find_tenant(n, pid);

	if (!s)
		return false;
	s->tenant = 0;
	s->gone = gone;
	s->gone_arg = arg;
	if (s->state == SEAT_BROKEN) {
		cell_is_gone(s, false);
		return true;
	}
	/* A pid 1 ends only when all in its namespace were reaped: the cell is still there. */
	s->state = SEAT_LEAVING;
	sys_pidfd_send_signal(s->cell.fd, SIGKILL);
	return true;
}

bool nest_kill(struct nest *n, pid_t pid)
{
	struct seat *s = find_tenant(n, pid);

	if (!s)
		return false;
	sys_pidfd_send_signal(s->cell.fd, SIGKILL);
	return true;
}

void nest_name_tenant(struct nest *n, pid_t pid, uint32_t eid)
{
	struct seat *s = find_tenant(n, pid);

	if (s)
		s->eid = eid;
}

bool nest_is_possible(const struct nest *n, enum nest_kind kind)
{
	for (int i = 0; i < n->seat_count; i++)
		if (n->seats[i].kind == kind && n->seats[i].state != SEAT_BROKEN &&
		    (kind != NEST_PYTHON || n->zygote.control.fd >= 0))
			return true;
	return false;
}

/* ---- beginning and end ---- */

static int start_zygote(struct nest *n, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "cannot create a socket pair");
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* Number 3 is what the environment says. */
		if (dup2(pair[1], 3) == 3 && sys_close_range(4, ~0u, 0) == 0)
			exec_search(n->options.interpreter, n->options.environment);
		_exit(127);
	}
	close(pair[1]);
	n->zygote.pid = pid;
	n->zygote.control =
		(struct loop_watch){.fd = pair[0], .events = EPOLLIN, .call = on_zygote, .arg = n};
	if (pid < 0 || loop_watch(n->guest->loop, &n->zygote.control) < 0)
		return err_sys(e, "cannot start a warm interpreter");
	return 0;
}

static void look_around(struct cell_terms *t)
{
	static const char *const names[CELL_NAMESPACES] = {
		[NS_USER] = "user", [NS_PID] = "pid", [NS_MOUNT] = "mnt",     [NS_NET] = "net",
		[NS_IPC] = "ipc",   [NS_UTS] = "uts", [NS_CGROUP] = "cgroup", [NS_TIME] = "time"};
	char path[64];
	struct stat st;

	for (int i = 0; i < CELL_NAMESPACES; i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		t->outside[i] = stat(path, &st) == 0 ? st.st_ino : 0;
	}
}

static void start_seat(struct nest *n, struct seat *s, int index, enum nest_kind kind)
{
	const struct nest_options *o = &n->options;

	*s = (struct seat){.nest = n,
			   .index = index,
			   .kind = kind,
			   .state = SEAT_BROKEN,
			   .cell.fd = -1,
			   .scratch = -1,
			   .mounts = -1,
			   .streams = {-1, -1, -1},
			   .report.fd = -1,
			   .notify.fd = -1,
			   .dns.fd = -1};
	for (int i = 0; i < CELL_JOINS; i++)
		s->joins[i] = i < o->terms.join_count
				      ? o->first_join + index * o->terms.join_count + i
				      : -1;
	if (slot_start(&o->terms, index, s->joins, &s->slot, &n->why) < 0)
		return;
	if (watch_fd(s, &s->control, s->slot.control, on_control) == 0 &&
	    watch_fd(s, &s->dns, s->slot.dns, on_dns) == 0 && slot_make_cell(&s->slot, -1) == 0)
		s->state = SEAT_MAKING;
}

/* What broke is tried again, less and less often. */
static void revive(void *arg)
{
	struct nest *n = arg;
	struct err e;

	n->failures = 0;
	for (int i = 0; i < n->seat_count; i++) {
		struct seat *s = &n->seats[i];

		/* Until its last tenant was reaped, it is not over. */
		if (s->state != SEAT_BROKEN)
			continue;
		if (s->tenant) {
			revive_later(n);
			continue;
		}
		unwatch(s, &s->dns);
		s->control.fd = -1;
		s->slot.dns = -1;
		slot_stop(&s->slot);
		start_seat(n, s, s->index, s->kind);
		if (s->state == SEAT_BROKEN)
			revive_later(n);
	}
	if (n->zygote.control.fd < 0 && n->options.slots[NEST_PYTHON] && start_zygote(n, &e) < 0)
		lose_zygote(n);
}

struct nest *nest_new(struct guest *g, const struct nest_options *o)
{
	struct nest *n = must_alloc(calloc(1, sizeof(*n)));
	struct err e;
	int index = 0;

	n->guest = g;
	n->options = *o;
	n->zygote.control.fd = -1;
	n->ready = (struct loop_task){.call = on_ready, .arg = n};
	n->revive = (struct loop_timer){.call = revive, .arg = n};
	n->revive_ms = REVIVE_FIRST_MS;
	look_around(&n->options.terms);
	n->seat_count = (int)(o->slots[NEST_COMMAND] + o->slots[NEST_PYTHON]);
	n->seats = must_alloc(calloc((size_t)n->seat_count + 1, sizeof(*n->seats)));
	n->exec_errnos =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n->exec_errnos == MAP_FAILED)
		abort();
	for (int kind = 0; kind < NEST_KINDS; kind++)
		for (unsigned i = 0; i < o->slots[kind]; i++, index++)
			start_seat(n, &n->seats[index], index, (enum nest_kind)kind);
	/* After the slots: a tenant is process 2 in its cell, and what knows a fork by a changed
	 * number (OpenSSL) must not find the interpreter's own. */
	if (o->interpreter && o->slots[NEST_PYTHON] && start_zygote(n, &e) < 0)
		lose_zygote(n);
	return n;
}
