/*
 * Images over REST. Pulling says how far it is as server-sent events, if the client accepts these. Archives are
 * passed between the client and the process that reads or writes them, never kept here.
 */
#include "api/rest/rest.h"

#include "image/make/job.h"

#include <sys/socket.h>

#define PIECE (128u << 10)
#define NOTES_MAX 32

const struct body_table v1_image_pull_table =
	BODY_TABLE(BODY_ALONE, NEEDED("name", BODY_TEXT,
				      "as Docker writes it: debian:12, ghcr.io/a/b@sha256:..."));

const struct body_table v1_image_tag_table =
	BODY_TABLE(BODY_ALONE, NEEDED("image", BODY_TEXT, "its name or id"),
		   NEEDED("name", BODY_TEXT, "another name for it"));

void v1_images(struct exchange *x)
{
	exchange_json(x, 200, manager_images(x->api->manager, &x->caller));
}

/* The image of the query; NULL: an error was answered. */
static const char *wanted_image(struct exchange *x)
{
	const char *image = exchange_arg(x, "image");

	if (image && *image)
		return image;
	exchange_refuse(x, "image", "is missing; name an image, or its id");
	return NULL;
}

void v1_image_inspect(struct exchange *x)
{
	const char *image = wanted_image(x);
	struct err e = {0};
	json_t *o = image ? manager_image(x->api->manager, &x->caller, image, &e) : NULL;

	if (o)
		exchange_json(x, 200, o);
	else if (image)
		exchange_error(x, &e);
}

/* ---- work ---- */

struct image_op {
	struct exchange *x;
	struct image_work *work;
	json_t *images, *notes, *removed;
	bool streams, is_open; /* events, or an archive: the answer has begun */
	struct sse sse;
	int pipe;
	struct loop_watch watch;
	bool is_complete; /* the archive was taken, or given, whole */
	int status;
};

static void op_done(void *data)
{
	struct image_op *o = data;

	/* First the socket: who is at the pipe must not take its end for that of the archive. */
	image_work_stop(o->work);
	loop_unwatch(o->x->api->loop, &o->watch);
	close_fd(&o->pipe);
	if (o->streams)
		sse_close(&o->sse);
	json_decref(o->images);
	json_decref(o->notes);
	json_decref(o->removed);
}

static json_t *op_answer(struct image_op *o)
{
	if (o->removed)
		return json_incref(o->removed);
	return json_pack("{s:O,s:O}", "images", o->images, "notes", o->notes);
}

static void op_said(void *arg, const struct image_said *s, int fd)
{
	struct image_op *o = arg;
	json_t *event = NULL;

	close_fd(&fd);
	switch (s->kind) {
	case IMAGE_SAID_NOTE:
		if (json_array_size(o->notes) < NOTES_MAX)
			json_array_append_new(o->notes, text_json_of(s->text));
		break;
	case IMAGE_SAID_PROGRESS:
		event = json_pack("{s:I,s:I}", "done", (json_int_t)s->done, "total",
				  (json_int_t)s->total);
		break;
	case IMAGE_SAID_MADE:
		json_array_append_new(o->images, json_pack("{s:o,s:o}", "id",
							   json_sprintf("sha256:%s", s->hex),
							   "name", text_json_of(s->name)));
		break;
	case IMAGE_SAID_PRUNED:
		json_decref(o->removed);
		o->removed = json_pack("{s:I,s:I,s:I}", "images", (json_int_t)s->done, "layers",
				       (json_int_t)s->total, "bytes", (json_int_t)s->bytes);
		break;
	default:
		break;
	}
	/* A client that does not read misses how far it is, and no more. */
	if (event && o->streams && exchange_room(o->x))
		sse_send(&o->sse, "progress", event);
	else
		json_decref(event);
}

static void op_end(void *arg, const struct err *e)
{
	struct image_op *o = arg;

	o->work = NULL;
	if (o->streams) {
		sse_send(&o->sse, e ? "error" : "done",
			 e ? exchange_error_body(exchange_status_of(e), e) : op_answer(o));
		exchange_finish(o->x);
	} else if (e) {
		exchange_error(o->x, e);
	} else {
		exchange_json(o->x, o->status, op_answer(o));
	}
}

static void op_gone(void *arg)
{
	struct image_op *o = arg;

	image_work_stop(take_ptr(o->work));
	close_fd(&o->pipe);
	exchange_answer_gone(o->x);
}

static struct image_op *op_new(struct exchange *x, int status)
{
	struct image_op *o = exchange_attach(x, sizeof(*o), op_done);

	*o = (struct image_op){.x = x,
			       .images = json_array(),
			       .notes = json_array(),
			       .pipe = -1,
			       .watch.fd = -1,
			       .status = status};
	exchange_on_gone(x, op_gone, o);
	return o;
}

static const struct image_work_ops plain_ops = {op_said, op_end};

static void op_start(struct image_op *o, const struct image_wish *wish)
{
	o->work = manager_image_work(o->x->api->manager, &o->x->caller, wish, &plain_ops, o);
}

void v1_image_pull(struct exchange *x)
{
	struct image_op *o = op_new(x, 201);

	o->streams = exchange_accepts(x, "text/event-stream");
	if (o->streams)
		sse_open(&o->sse, x);
	op_start(o, &(struct image_wish){IMAGE_JOB_PULL, body_text(x->json, "name"), NULL});
}

void v1_image_tag(struct exchange *x)
{
	op_start(op_new(x, 201), &(struct image_wish){IMAGE_JOB_TAG, body_text(x->json, "image"),
						      body_text(x->json, "name")});
}

static void op_remove(struct exchange *x, enum ipc_image_job job, const char *image)
{
	struct image_op *o = op_new(x, 200);

	o->removed = json_pack("{s:i,s:i,s:i}", "images", 0, "layers", 0, "bytes", 0);
	op_start(o, &(struct image_wish){job, image, NULL});
}

void v1_image_delete(struct exchange *x)
{
	const char *image = wanted_image(x);

	if (image)
		op_remove(x, IMAGE_JOB_REMOVE, image);
}

void v1_image_prune(struct exchange *x)
{
	op_remove(x, IMAGE_JOB_PRUNE, NULL);
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

static void import_said(void *arg, const struct image_said *s, int fd)
{
	static const struct body_ops ops = {take_archive, archive_taken};
	struct image_op *o = arg;

	if (s->kind != IMAGE_SAID_PIPE || fd < 0) {
		op_said(arg, s, fd);
		return;
	}
	o->pipe = fd;
	o->watch = (struct loop_watch){.fd = fd, .events = EPOLLOUT, .call = on_writable, .arg = o};
	exchange_take_body(o->x, &ops, o);
}

void v1_image_import(struct exchange *x)
{
	static const struct image_work_ops ops = {import_said, op_end};
	struct image_op *o = op_new(x, 201);

	o->work = manager_image_work(
		x->api->manager, &x->caller,
		&(struct image_wish){IMAGE_JOB_IMPORT, exchange_arg(x, "name"), NULL}, &ops, o);
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

static void export_said(void *arg, const struct image_said *s, int fd)
{
	struct image_op *o = arg;

	if (s->kind != IMAGE_SAID_PIPE || fd < 0) {
		close_fd(&fd);
		return;
	}
	o->pipe = fd;
	o->is_open = true;
	o->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_readable, .arg = o};
	exchange_stream(o->x, 200, "application/x-tar", EXCHANGE_UNKNOWN_LENGTH);
	exchange_on_room(o->x, give_archive, o);
	give_archive(o);
}

static void export_end(void *arg, const struct err *e)
{
	struct image_op *o = arg;

	o->work = NULL;
	if (!o->is_open) {
		exchange_error(o->x, e);
		return;
	}
	if (e) {
		exchange_abort(o->x);
		return;
	}
	o->is_complete = true;
	give_archive(o);
}

void v1_image_export(struct exchange *x)
{
	static const struct image_work_ops ops = {export_said, export_end};
	const char *image = wanted_image(x);
	struct image_op *o = image ? op_new(x, 200) : NULL;

	if (o)
		o->work = manager_image_work(x->api->manager, &x->caller,
					     &(struct image_wish){IMAGE_JOB_EXPORT, image, NULL},
					     &ops, o);
}
