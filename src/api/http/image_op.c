/* Connects an exchange to work on the store of images, and passes archives on as fast as both sides take them. */
#include "api/http/image_op.h"

#define PIECE (128u << 10)

struct image_op {
	struct exchange *x;
	struct image_work *work;
	const struct image_op_ops *ops;
	void *arg;
	bool exports;
	int pipe;
	struct loop_watch watch;
	bool is_open, is_complete; /* an export: the answer has begun; all of it is in the pipe */
};

static void op_done(void *data)
{
	struct image_op *o = data;

	/* First the socket: who is at the pipe must not take its end for that of the archive. */
	image_work_stop(o->work);
	loop_unwatch(o->x->api->loop, &o->watch);
	close_fd(&o->pipe);
}

static void op_gone(void *arg)
{
	struct image_op *o = arg;

	image_work_stop(take_ptr(o->work));
	loop_unwatch(o->x->api->loop, &o->watch);
	close_fd(&o->pipe);
	exchange_answer_gone(o->x);
}

/* ---- an archive comes in ---- */

static size_t take_archive(void *arg, const char *bytes, size_t len)
{
	struct image_op *o = arg;
	size_t done = 0;

	while (done < len && o->pipe >= 0) {
		ssize_t n = write(o->pipe, bytes + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_watch(o->x->api->loop, &o->watch);
			return done;
		}
		/* The reader has seen enough; what it says about that is the answer. */
		if (n < 0) {
			close_fd(&o->pipe);
			break;
		}
		done += (size_t)n;
	}
	return o->pipe < 0 ? len : done;
}

static void archive_taken(void *arg)
{
	struct image_op *o = arg;

	loop_unwatch(o->x->api->loop, &o->watch);
	close_fd(&o->pipe);
}

static void on_writable(void *arg, uint32_t events)
{
	struct image_op *o = arg;

	loop_unwatch(o->x->api->loop, &o->watch);
	exchange_more(o->x);
}

static void begin_import(struct image_op *o)
{
	static const struct body_ops ops = {take_archive, archive_taken};

	o->watch = (struct loop_watch){
		.fd = o->pipe, .events = EPOLLOUT, .call = on_writable, .arg = o};
	exchange_take_body(o->x, &ops, o);
}

/* ---- an archive goes out ---- */

static void give_archive(void *arg)
{
	struct image_op *o = arg;
	auto_free char *piece = must_alloc(malloc(PIECE));

	while (o->pipe >= 0 && exchange_room(o->x)) {
		ssize_t n = read(o->pipe, piece, PIECE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_watch(o->x->api->loop, &o->watch);
			return;
		}
		/* Whether that was all, the process says. */
		loop_unwatch(o->x->api->loop, &o->watch);
		if (n <= 0) {
			close_fd(&o->pipe);
			break;
		}
		exchange_write(o->x, piece, (size_t)n);
	}
	loop_unwatch(o->x->api->loop, &o->watch);
	if (o->pipe < 0 && o->is_complete)
		exchange_finish(o->x);
}

static void on_readable(void *arg, uint32_t events)
{
	give_archive(arg);
}

static void begin_export(struct image_op *o)
{
	o->is_open = true;
	o->watch = (struct loop_watch){
		.fd = o->pipe, .events = EPOLLIN, .call = on_readable, .arg = o};
	exchange_stream(o->x, 200, "application/x-tar", EXCHANGE_UNKNOWN_LENGTH);
	exchange_on_room(o->x, give_archive, o);
	give_archive(o);
}

static void end_export(struct image_op *o, const struct err *e)
{
	if (e) {
		exchange_abort(o->x);
		return;
	}
	o->is_complete = true;
	give_archive(o);
}

/* ---- what the process says ---- */

static void on_said(void *arg, const struct image_said *s, int fd)
{
	struct image_op *o = arg;

	if (s->kind == IMAGE_SAID_PIPE && fd >= 0) {
		o->pipe = fd;
		if (o->exports)
			begin_export(o);
		else
			begin_import(o);
		return;
	}
	close_fd(&fd);
	if (o->ops->said)
		o->ops->said(o->arg, s);
}

static void on_end(void *arg, const struct err *e)
{
	struct image_op *o = arg;

	o->work = NULL;
	if (o->is_open)
		end_export(o, e);
	else
		o->ops->end(o->arg, e);
}

struct image_op *image_op_start(struct exchange *x, const struct image_wish *wish,
				const struct image_op_ops *ops, void *arg)
{
	static const struct image_work_ops work_ops = {on_said, on_end};
	struct image_op *o = must_alloc(calloc(1, sizeof(*o)));

	*o = (struct image_op){.x = x,
			       .ops = ops,
			       .arg = arg,
			       .pipe = -1,
			       .watch.fd = -1,
			       .exports = wish->job == IMAGE_JOB_EXPORT};
	exchange_also_free(x, o, op_done);
	exchange_on_gone(x, op_gone, o);
	o->work = manager_image_work(x->api->manager, &x->caller, wish, &work_ops, o);
	return o;
}
