/*
 * Children of the guest that do long work; their frames are relayed to the stream that they work
 * for.
 */
#include "guest/link/worker.h"

#include "kern/caps.h"
#include "kern/close_async.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FRAME (5u) /* u32 size, u8 type */

struct worker {
	struct worker *next, **back;
	struct guest *guest;
	struct guest_stream *stream;
	pid_t pid; /* 0: reaped */
	struct loop_watch out, in;
	struct buf got;	    /* frames that the worker sent */
	struct buf waiting; /* for its stdin */
	bool input_ends, goes_on;
};

/* ---- in the child ---- */

static void write_or_end(int fd, const void *bytes, size_t len)
{
	if (io_write_all(fd, bytes, len) < 0)
		_exit(1);
}

void work_frame(struct work *w, uint8_t type, const void *payload, size_t len)
{
	unsigned char h[FRAME] = {(unsigned char)len, (unsigned char)(len >> 8),
				  (unsigned char)(len >> 16), (unsigned char)(len >> 24), type};

	write_or_end(w->out, h, sizeof(h));
	write_or_end(w->out, payload, len);
}

void work_ok(struct work *w, const struct buf *payload)
{
	w->answered = true;
	work_frame(w, G_OK, payload ? buf_head(payload) : NULL, payload ? payload->len : 0);
}

void work_error(struct work *w, int errnum, const char *fmt, ...)
{
	struct buf b = {0};
	va_list args;

	va_start(args, fmt);
	stream_pack_error(&b, errnum, fmt, args);
	va_end(args);
	work_frame(w, G_ERROR, buf_head(&b), b.len);
	_exit(0);
}

static void flush_data(struct work *w)
{
	if (w->len)
		work_frame(w, G_DATA, w->data, w->len);
	w->len = 0;
}

int work_data(void *work, const void *bytes, size_t len)
{
	struct work *w = work;

	if (!w->data)
		w->data = must_alloc(malloc(GUEST_MAX_PAYLOAD));
	while (len > 0) {
		size_t part = GUEST_MAX_PAYLOAD - w->len < len ? GUEST_MAX_PAYLOAD - w->len : len;

		memcpy(w->data + w->len, bytes, part);
		w->len += part;
		bytes = (const char *)bytes + part;
		len -= part;
		if (w->len == GUEST_MAX_PAYLOAD)
			flush_data(w);
	}
	return 0;
}

void work_end(struct work *w, const void *payload, size_t len)
{
	flush_data(w);
	work_frame(w, G_END, payload, len);
	_exit(0);
}

ssize_t work_read(void *work, void *bytes, size_t len)
{
	struct work *w = work;
	ssize_t n;

	do
		n = read(w->in, bytes, len);
	while (n < 0 && errno == EINTR);
	return n;
}

pid_t worker_fork(const int *keep, size_t count)
{
	pid_t parent = getpid(), pid = fork();
	sigset_t none;

	if (pid != 0)
		return pid;
	/* A worker must not outlive the guest; for pid 1 the kernel ensures that anyway. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	close_async_others(3, keep, count);
	return 0;
}

/* ---- in the guest ---- */

/* Kills the worker if it still runs: until it is reaped, its pid is its own. */
static void worker_free(void *arg)
{
	struct worker *w = arg;

	if (w->pid > 0)
		kill(w->pid, SIGKILL);
	loop_unwatch(w->guest->loop, &w->in);
	loop_unwatch(w->guest->loop, &w->out);
	close_fd(&w->in.fd);
	close_fd(&w->out.fd);
	buf_done(&w->got);
	buf_done(&w->waiting);
	*w->back = w->next;
	if (w->next)
		w->next->back = w->back;
	free(w);
}

static uint32_t frame_size(const struct buf *b)
{
	struct unpack u = unpack_from(buf_head(b), 4);

	return unpack_u32(&u);
}

/* Relays one frame; false: the worker is gone. */
static bool relay(struct worker *w, uint8_t type, const char *payload, size_t len)
{
	struct guest_stream *s = w->stream;
	struct buf b = {.data = (char *)payload, .len = len};

	switch (type) {
	case G_OK:
		if (w->goes_on) {
			stream_ok(s, &b);
			return true;
		}
		s->ops = NULL;
		stream_ok(s, &b);
		break;
	case G_ERROR:
		stream_send(s, G_ERROR, payload, len);
		s->ops = NULL;
		stream_drop(s);
		break;
	case G_END:
		stream_end(s, payload, len);
		break;
	default:
		if (guest_is_counted(type))
			stream_put(s, type, payload, len);
		else
			stream_send(s, type, payload, len);
		return true;
	}
	worker_free(w);
	return false;
}

/* Relays frames as far as there is room; false: the worker is gone. */
static bool relay_all(struct worker *w)
{
	while (w->got.len >= FRAME) {
		uint32_t size = frame_size(&w->got);
		uint8_t type = (uint8_t)buf_head(&w->got)[4];

		if (size > GUEST_MAX_PAYLOAD || w->got.len < FRAME + size)
			break;
		if (guest_is_counted(type) && stream_room(w->stream) < size)
			break;
		if (!relay(w, type, buf_head(&w->got) + FRAME, size))
			return false;
		buf_drop(&w->got, FRAME + size);
	}
	return true;
}

static void set_interest(struct worker *w)
{
	bool full = w->got.len >= FRAME + GUEST_MAX_PAYLOAD;

	if (full)
		loop_unwatch(w->guest->loop, &w->out);
	else
		loop_change(w->guest->loop, &w->out, EPOLLIN);
}

static void relay_more(void *arg)
{
	struct worker *w = arg;

	if (relay_all(w))
		set_interest(w);
}

static void on_out(void *arg, uint32_t events)
{
	struct worker *w = arg;
	ssize_t n = read(w->out.fd, buf_reserve(&w->got, 32768), 32768);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		buf_added(&w->got, (size_t)n);
	if (!relay_all(w))
		return;
	if (n <= 0) {
		/* Its last frame may still wait for room in the window. */
		if (w->got.len >= FRAME && w->got.len >= FRAME + frame_size(&w->got)) {
			loop_unwatch(w->guest->loop, &w->out);
			return;
		}
		stream_error(w->stream, EIO, "the guest's worker was killed");
		worker_free(w);
		return;
	}
	set_interest(w);
}

static void write_input(void *arg, uint32_t events)
{
	struct worker *w = arg;

	stream_write_waiting(w->stream, &w->waiting, w->in.fd);
	if (w->waiting.len) {
		loop_change(w->guest->loop, &w->in, EPOLLOUT);
		return;
	}
	loop_unwatch(w->guest->loop, &w->in);
	if (w->input_ends)
		close_fd(&w->in.fd);
}

static void take_input(void *arg, const char *bytes, size_t len)
{
	struct worker *w = arg;

	buf_add(&w->waiting, bytes, len);
	write_input(w, 0);
}

static void end_input(void *arg)
{
	struct worker *w = arg;

	w->input_ends = true;
	write_input(w, 0);
}

bool worker_reaped(struct guest *g, pid_t pid, int status)
{
	for (struct worker *w = g->workers; w; w = w->next) {
		if (w->pid == pid) {
			w->pid = 0; /* the end of its pipe ends the stream */
			return true;
		}
	}
	return false;
}

/* What lies there is hostile: the kernel decides what this process may reach, as for the sandbox's user. */
static void enter_sandbox(struct work *w, const struct worker_job *job)
{
	auto_close int lane = (int)syscall(SYS_pidfd_open, job->lane, 0);
	struct err e;

	/* To change the root takes a capability that only the lane's user namespace gives. */
	if (lane < 0 || setns(lane, CLONE_NEWUSER) < 0 || setns(job->mounts, CLONE_NEWNS) < 0)
		work_error(w, errno, "cannot enter the sandbox: %m");
	if (caps_clear(&e) < 0 || !caps_none(false))
		work_error(w, EPERM, "cannot give up privileges");
	close(job->mounts);
}

void work_start(struct guest_stream *s, const struct unpacked_request *r,
		const struct worker_job *job)
{
	struct guest *g = s->guest;
	static const struct stream_ops ops = {take_input, end_input, relay_more, worker_free};
	int in[2] = {-1, -1}, out[2];
	struct worker *w;
	pid_t pid = -1;

	if (pipe2(out, O_CLOEXEC) == 0) {
		if (!job->takes_input || pipe2(in, O_CLOEXEC) == 0)
			pid = worker_fork((int[]){in[0] >= 0 ? in[0] : out[1], out[1],
						  job->lane > 0 ? job->mounts : out[1]},
					  3);
		if (pid == 0) {
			struct work work = {.in = in[0], .out = out[1]};

			if (job->lane > 0)
				enter_sandbox(&work, job);
			job->run(&work, r);
			_exit(0);
		}
		close(out[1]);
		close_fd(&in[0]);
	}
	if (pid < 0) {
		stream_error(s, errno, "cannot start a worker: %m");
		close_fd(&in[1]);
		return;
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	if (in[1] >= 0)
		fcntl(in[1], F_SETFL, O_NONBLOCK);
	w = must_alloc(calloc(1, sizeof(*w)));
	*w = (struct worker){.guest = g, .stream = s, .pid = pid, .goes_on = job->goes_on};
	w->out = (struct loop_watch){.fd = out[0], .events = EPOLLIN, .call = on_out, .arg = w};
	w->in = (struct loop_watch){.fd = in[1], .events = EPOLLOUT, .call = write_input, .arg = w};
	w->back = &g->workers;
	w->next = g->workers;
	if (w->next)
		w->next->back = &w->next;
	g->workers = w;
	stream_go_on(s, &ops, w);
	loop_watch(g->loop, &w->out);
}
