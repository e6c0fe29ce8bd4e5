/*
 * Theory of operation
 *
 * One thread, one loop. The daemon connects to the listener that the guest inherited. A connection
 * is a stranger until its hello. Then it becomes the one that is served, if its generation is
 * higher than that of the connection before, which is closed. Frames are handled in order. Handlers
 * append their answers to one buffer. At the end of a round, streams that have something to send do
 * so (pump) as long as the buffer is below SERVER_HIGH and their window is open; then as much is
 * written as the socket takes. When the daemon does not read, streams stop at SERVER_HIGH, and
 * requests at SERVER_FULL.
 *
 * Work that takes long or may block (trees, tars, searches, connects) is done by children
 * (worker.c): the loop also answers the filter's notifications, and must never make a call that is
 * notified itself.
 */
#include "guest/link/server.h"

#include "guest/exec/command.h"
#include "guest/warm/host.h"
#include "guest/exec/spawn.h"
#include "guest/link/worker.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#define REQUEST_FRAMES (GUEST_MAX_EXEC / GUEST_MAX_PAYLOAD)

struct conn {
	struct guest *guest;
	struct loop_watch watch;
	struct buf in, out;
	size_t held; /* bytes of out that may wait until there is more to send */
	int pipe[2]; /* pages of a file on their way to the socket; -1: not needed yet */
	size_t piped,
		piped_at;     /* bytes in the pipe, and after how many bytes of out they are sent */
	uint32_t last_stream; /* the highest number so far */
	struct buf more;      /* the parts of a request that is larger than a frame */
	uint32_t more_stream;
	unsigned more_frames;
};

struct buf *server_out(struct guest *g)
{
	return g->conn ? &g->conn->out : NULL;
}

void server_wake(struct guest *g)
{
	loop_task_add(g->loop, &g->work);
}

/* ---- requests ---- */

static bool handle_request(struct conn *c, uint8_t type, struct unpack u, uint32_t number)
{
	struct guest *g = c->guest;
	struct guest_stream *s;

	if (!request_is_known(type))
		return false;
	s = stream_new(g, number);
	if (g->stream_count > GUEST_MAX_STREAMS) {
		stream_error(s, EMFILE, "too many streams are open");
		return true;
	}
	/* The stream of a malformed request is freed with the link. */
	return request_take(g, s, type, &u);
}

static bool take_request(struct conn *c, const struct guest_header *h, const char *payload)
{
	bool ok;

	if (h->stream == 0 || h->stream <= c->last_stream)
		return false;
	if (c->more_frames && c->more_stream != h->stream)
		return false;
	if (h->type == G_MORE) {
		if (++c->more_frames >= REQUEST_FRAMES)
			return false;
		c->more_stream = h->stream;
		buf_add(&c->more, payload, h->size);
		return true;
	}
	c->last_stream = h->stream;
	if (!c->more_frames)
		return handle_request(c, h->type, unpack_from(payload, h->size), h->stream);
	buf_add(&c->more, payload, h->size);
	ok = handle_request(c, h->type, unpack_from(buf_head(&c->more), c->more.len), h->stream);
	buf_done(&c->more);
	c->more_frames = 0;
	return ok;
}

static bool take_frame(struct conn *c, const struct guest_header *h, const char *payload)
{
	struct guest_stream *s;

	if (h->type == G_MORE || h->type < G_DATA)
		return take_request(c, h, payload);
	if (h->type > G_MORE)
		return false;
	s = stream_find(c->guest, h->stream);
	/* The stream may have ended meanwhile. */
	return s ? stream_take(s, h->type, payload, h->size) : true;
}

/* ---- connections ---- */

static void conn_free(struct conn *c)
{
	if (!c)
		return;
	loop_unwatch(c->guest->loop, &c->watch);
	close(c->watch.fd);
	close_fd(&c->pipe[0]);
	close_fd(&c->pipe[1]);
	buf_done(&c->in);
	buf_done(&c->out);
	buf_done(&c->more);
	free(c);
}

static void forget_stranger(struct conn *c)
{
	for (size_t i = 0; i < SERVER_STRANGERS; i++)
		if (c->guest->strangers[i] == c)
			c->guest->strangers[i] = NULL;
}

static void drop_conn(struct conn *c)
{
	struct guest *g = c->guest;

	if (c == g->conn) {
		g->conn = NULL;
		stream_lose_all(g);
	}
	forget_stranger(c);
	conn_free(c);
	/* Without a listener there will never be another. */
	if (g->listener.fd < 0)
		loop_stop(g->loop);
}

/* Takes the first frame; false: refused. */
static bool take_hello(struct conn *c, const struct guest_header *h, const char *payload)
{
	struct guest *g = c->guest;
	struct unpack u = unpack_from(payload, h->size);
	uint32_t version = unpack_u32(&u);
	uint64_t generation = unpack_u64(&u);
	auto_buf struct buf welcome = {0};

	if (h->type != G_HELLO || h->stream != 0 || !unpack_is_done(&u) ||
	    version != GUEST_VERSION || generation < g->generation ||
	    (g->conn && generation == g->generation))
		return false;
	if (g->conn)
		drop_conn(g->conn);
	forget_stranger(c);
	g->conn = c;
	g->generation = generation;
	/* The daemon has recorded this sandbox by now, so the sandbox may survive whoever made it. Before,
	 * a daemon that died would have left it behind. */
	if (g->options.lives_on)
		prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
	pack_u32(&welcome, GUEST_VERSION);
	pack_u64(&welcome, generation);
	pack_u64(&welcome, g->boot_id);
	guest_frame_add(&c->out, 0, G_WELCOME, buf_head(&welcome), welcome.len);
	server_wake(g);
	return true;
}

/* Handles the received frames; false: drop the connection. */
static bool take_frames(struct conn *c)
{
	struct guest_header h;

	while (c->in.len >= GUEST_HEADER && c->out.len < SERVER_FULL) {
		const char *payload = buf_head(&c->in) + GUEST_HEADER;

		if (!guest_header_get((const unsigned char *)buf_head(&c->in), &h))
			return false;
		if (c->in.len < GUEST_HEADER + h.size)
			return true;
		if (!(c == c->guest->conn ? take_frame(c, &h, payload)
					  : take_hello(c, &h, payload)))
			return false;
		buf_drop(&c->in, GUEST_HEADER + h.size);
	}
	return true;
}

static void set_interest(struct conn *c)
{
	uint32_t events = (c->out.len > c->held || c->piped ? EPOLLOUT : 0) |
			  (c->out.len < SERVER_FULL ? EPOLLIN : 0);

	loop_change(c->guest->loop, &c->watch, events);
}

/* Writes once: first the bytes before the pages, then the pages, then the rest. */
static ssize_t write_some(struct conn *c)
{
	size_t first = c->piped ? c->piped_at : c->out.len;
	ssize_t n;

	if (first) {
		n = send(c->watch.fd, buf_head(&c->out), first, MSG_NOSIGNAL);
		if (n > 0)
			buf_drop(&c->out, (size_t)n);
		if (n > 0 && c->piped)
			c->piped_at -= (size_t)n;
		return n;
	}
	n = splice(c->pipe[0], NULL, c->watch.fd, NULL, c->piped, SPLICE_F_NONBLOCK);
	if (n > 0)
		c->piped -= (size_t)n;
	return n;
}

/* Writes as much as the socket takes; false: the connection is gone. */
static bool flush_conn(struct conn *c)
{
	if (c->out.len == c->held && !c->piped)
		return true;
	c->held = 0;
	while (c->out.len || c->piped) {
		ssize_t n = write_some(c);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
	}
	return true;
}

ssize_t server_splice(struct guest *g, const struct guest_header *like, int fd, uint64_t offset,
		      size_t max)
{
	struct conn *c = g->conn;
	struct guest_header h = *like;
	off64_t at = (off64_t)offset;
	ssize_t n;

	if (c->piped)
		return errno = EAGAIN, -1;
	if (c->pipe[0] < 0 && pipe2(c->pipe, O_CLOEXEC) < 0)
		return -1;
	n = splice(fd, &at, c->pipe[1], NULL, max, SPLICE_F_NONBLOCK);
	/* The pipe is empty, so the file returned EAGAIN: no event would ever follow. */
	if (n < 0 && errno == EAGAIN)
		errno = EINVAL;
	if (n <= 0)
		return n;
	h.size = (uint32_t)n;
	guest_header_put((unsigned char *)buf_reserve(&c->out, GUEST_HEADER), &h);
	buf_added(&c->out, GUEST_HEADER);
	c->piped = (size_t)n;
	c->piped_at = c->out.len;
	return n;
}

static bool receive_bytes(struct conn *c)
{
	/* Room for a whole frame, so that a frame never waits for room. */
	size_t want = GUEST_HEADER + GUEST_MAX_PAYLOAD;
	char small[1024];
	ssize_t n;

	if (c->in.len) {
		n = recv(c->watch.fd, buf_reserve(&c->in, want), want, MSG_DONTWAIT);
		if (n > 0)
			buf_added(&c->in, (size_t)n);
	} else {
		/* Most requests are small; larger ones come in two steps. */
		n = recv(c->watch.fd, small, sizeof(small), MSG_DONTWAIT);
		if (n > 0)
			buf_add(&c->in, small, (size_t)n);
	}
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_conn(void *arg, uint32_t events)
{
	struct conn *c = arg;
	bool alive = true;

	if (events & EPOLLOUT)
		alive = flush_conn(c);
	if (alive && (events & EPOLLIN))
		alive = receive_bytes(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		alive = false;
	if (!alive || !take_frames(c)) {
		drop_conn(c);
		return;
	}
	if (c->in.len == 0 && c->in.room > 4096)
		buf_done(&c->in);
	if (c != c->guest->conn)
		set_interest(c);
	server_wake(c->guest);
}

size_t server_pending(const struct guest *g)
{
	return g->conn ? g->conn->out.len : 0;
}

void server_hold(struct guest *g, size_t before)
{
	if (g->conn && g->conn->held == before)
		g->conn->held = g->conn->out.len;
}

void server_release(struct guest *g)
{
	if (g->conn)
		g->conn->held = 0;
	server_wake(g);
}

void server_send(void *guest)
{
	struct guest *g = guest;

	if (!g->conn)
		return;
	stream_pump_all(g);
	/* An idle guest keeps no buffers. */
	if (g->conn->out.len == 0 && g->conn->out.room > 4096)
		buf_done(&g->conn->out);
	/* Requests that waited for room in the answer's buffer go on here. */
	if (!flush_conn(g->conn) || (g->conn->in.len && !take_frames(g->conn))) {
		drop_conn(g->conn);
		return;
	}
	set_interest(g->conn);
}

static void add_stranger(struct guest *g, int fd)
{
	struct conn *c = must_alloc(calloc(1, sizeof(*c)));

	c->guest = g;
	c->pipe[0] = c->pipe[1] = -1;
	c->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_conn, .arg = c};
	/* The oldest stranger makes room. */
	conn_free(g->strangers[SERVER_STRANGERS - 1]);
	memmove(g->strangers + 1, g->strangers, sizeof(*g->strangers) * (SERVER_STRANGERS - 1));
	g->strangers[0] = c;
	if (loop_watch(g->loop, &c->watch) < 0)
		drop_conn(c);
}

static void on_listener(void *arg, uint32_t events)
{
	struct guest *g = arg;
	int fd = accept4(g->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		/* The listener would be ready again at once. */
		loop_unwatch(g->loop, &g->listener);
		loop_timer_set(g->loop, &g->listen_again, 1000);
	}
	if (fd >= 0)
		add_stranger(g, fd);
}

static void listen_again(void *arg)
{
	struct guest *g = arg;

	loop_watch(g->loop, &g->listener);
}

/* ---- children ---- */

static void on_signal(void *arg, uint32_t events)
{
	struct guest *g = arg;
	struct signalfd_siginfo info[8];
	struct rusage usage;
	int status;
	pid_t pid;

	while (read(g->signals.fd, info, sizeof(info)) > 0)
		;
	while ((pid = wait4(-1, &status, WNOHANG | __WALL, &usage)) > 0)
		if (!worker_reaped(g, pid, status) && !connect_reaped(g, pid, status))
			command_reaped(g, pid, status, &usage);
}

static int watch_children(struct guest *g)
{
	sigset_t all, wanted;

	/*
	 * All signals are blocked: commands must not reach us by them. SIGCHLD is read from a
	 * signalfd.
	 */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	if (getpid() != 1)
		spawn_reset_signals();
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	g->signals = (struct loop_watch){
		.fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK),
		.events = EPOLLIN,
		.call = on_signal,
		.arg = g,
	};
	return g->signals.fd < 0 ? -1 : loop_watch(g->loop, &g->signals);
}

/* ---- time to live, configuration ---- */

void server_expire(struct guest *g)
{
	denials_tell_end(g);
	if (g->conn)
		flush_conn(g->conn);
	loop_stop(g->loop);
}

static void on_ttl(void *arg, uint32_t events)
{
	server_expire(arg);
}

/* On a clock that goes on while the machine is suspended. */
static int set_ttl(struct guest *g, uint64_t ttl_ms)
{
	struct itimerspec t = {.it_value = {.tv_sec = (time_t)(ttl_ms / 1000),
					    .tv_nsec = (long)(ttl_ms % 1000) * 1000000}};

	if (ttl_ms / 1000 > 100ull * 365 * 86400)
		t.it_value.tv_sec = 100ll * 365 * 86400;
	if (g->ttl.fd < 0 && ttl_ms == 0)
		return 0;
	if (g->ttl.fd < 0) {
		g->ttl.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
		if (g->ttl.fd < 0 || loop_watch(g->loop, &g->ttl) < 0)
			return -1;
	}
	return timerfd_settime(g->ttl.fd, 0, &t, NULL);
}

bool configure_request(struct guest *g, struct guest_stream *s, struct unpack *u)
{
	uint64_t ttl_ms = unpack_u64(u), log_bytes = unpack_u64(u);
	struct list env = {0};
	char workdir[GUEST_MAX_PATH];
	uint32_t cpus;
	bool has_network;

	command_unpack_list(u, &env);
	unpack_str(u, workdir, sizeof(workdir));
	cpus = unpack_u32(u);
	has_network = u->at < u->end && unpack_u8(u);
	if (!unpack_is_done(u)) {
		list_done(&env);
		return false;
	}
	list_done(&g->env);
	g->env = env;
	g->configured++;
	free(g->workdir);
	g->workdir = str_copy(workdir);
	g->log_bytes = log_bytes;
	g->cpus_milli = cpus;
	if (has_network)
		denials_leave_names(g);
	if (set_ttl(g, ttl_ms) < 0)
		stream_error(s, errno, "cannot set the time to live: %m");
	else
		stream_ok(s, NULL);
	return true;
}

/* ---- the whole ---- */

/* The guest needs fds for its streams; commands keep the soft limit. */
static void raise_open_files(struct guest *g)
{
	struct rlimit r;

	if (g->options.warm_host || getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	g->open_files = r.rlim_cur;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

static int guest_init(struct guest *g, const struct guest_options *o)
{
	*g = (struct guest){.options = *o, .log_bytes = 256u << 10};
	g->streams_end = &g->streams;
	g->commands_end = &g->commands;
	g->pending_end = &g->pending;
	g->workdir = str_copy("");
	g->loop = loop_new();
	g->work = (struct loop_task){.call = server_send, .arg = g};
	g->listen_again = (struct loop_timer){.call = listen_again, .arg = g};
	g->ttl = (struct loop_watch){.fd = -1, .events = EPOLLIN, .call = on_ttl, .arg = g};
	g->agent.fd = -1;
	g->listener = (struct loop_watch){
		.fd = o->listener, .events = EPOLLIN, .call = on_listener, .arg = g};
	if (!g->loop || getrandom(&g->boot_id, sizeof(g->boot_id), 0) != sizeof(g->boot_id))
		return -1;
	raise_open_files(g);
	if (watch_children(g) < 0)
		return -1;
	fcntl(o->listener >= 0 ? o->listener : o->link, F_SETFL, O_NONBLOCK);
	if (o->listener < 0)
		add_stranger(g, o->link);
	else if (loop_watch(g->loop, &g->listener) < 0)
		return -1;
	if (denials_start(g) < 0)
		return -1;
	g->warm_host = o->warm_host ? warm_host_new(g, o->warm_host) : NULL;
	return 0;
}

static void guest_done(struct guest *g)
{
	if (g->conn)
		drop_conn(g->conn);
	for (size_t i = 0; i < SERVER_STRANGERS; i++)
		conn_free(g->strangers[i]);
	services_stop(g);
	command_free_all(g);
	denials_stop(g);
	loop_timer_stop(g->loop, &g->forget);
	loop_timer_stop(g->loop, &g->listen_again);
	loop_unwatch(g->loop, &g->listener);
	loop_unwatch(g->loop, &g->ttl);
	close_fd(&g->ttl.fd);
	loop_unwatch(g->loop, &g->signals);
	close_fd(&g->signals.fd);
	list_done(&g->env);
	free(g->workdir);
	loop_free(g->loop);
}

int guest_serve(const struct guest_options *o)
{
	struct guest g;

	/*
	 * An exec makes a process dumpable again: code of the same uid could then read and trace
	 * pid 1.
	 */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "cloche-guest", 0, 0, 0);
	if (getpid() != 1)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	umask(022);
	if (guest_init(&g, o) < 0)
		return 125;
	loop_run(g.loop);
	guest_done(&g);
	return 0;
}
