/*
 * Images over REST. Pulling says how far it is as server-sent events, if the client accepts these.
 */
#include "api/rest/rest.h"

#include "api/http/image_op.h"

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

struct image_answer {
	struct exchange *x;
	json_t *images, *notes, *removed;
	bool streams; /* events */
	struct sse sse;
	int status;
};

static void image_answer_done(void *data)
{
	struct image_answer *a = data;

	if (a->streams)
		sse_close(&a->sse);
	json_decref(a->images);
	json_decref(a->notes);
	json_decref(a->removed);
}

static json_t *whole_answer(struct image_answer *a)
{
	if (a->removed)
		return json_incref(a->removed);
	return json_pack("{s:O,s:O}", "images", a->images, "notes", a->notes);
}

static void on_said(void *arg, const struct image_said *s)
{
	struct image_answer *a = arg;
	json_t *event = NULL;

	switch (s->kind) {
	case IMAGE_SAID_NOTE:
		if (json_array_size(a->notes) < NOTES_MAX)
			json_array_append_new(a->notes, text_json_of(s->text));
		break;
	case IMAGE_SAID_PROGRESS:
		event = json_pack("{s:I,s:I}", "done", (json_int_t)s->done, "total",
				  (json_int_t)s->total);
		break;
	case IMAGE_SAID_MADE:
		json_array_append_new(a->images, json_pack("{s:o,s:o}", "id",
							   json_sprintf("sha256:%s", s->hex),
							   "name", text_json_of(s->name)));
		break;
	case IMAGE_SAID_PRUNED:
		json_decref(a->removed);
		a->removed = json_pack("{s:I,s:I,s:I}", "images", (json_int_t)s->done, "layers",
				       (json_int_t)s->total, "bytes", (json_int_t)s->bytes);
		break;
	default:
		break;
	}
	/* A client that does not read misses how far it is, and no more. */
	if (event && a->streams && exchange_room(a->x))
		sse_send(&a->sse, "progress", event);
	else
		json_decref(event);
}

static void on_end(void *arg, const struct err *e)
{
	struct image_answer *a = arg;

	if (a->streams) {
		sse_send(&a->sse, e ? "error" : "done",
			 e ? exchange_error_body(exchange_status_of(e), e) : whole_answer(a));
		exchange_finish(a->x);
	} else if (e) {
		exchange_error(a->x, e);
	} else {
		exchange_json(a->x, a->status, whole_answer(a));
	}
}

static struct image_answer *answer_new(struct exchange *x, int status)
{
	struct image_answer *a = exchange_attach(x, sizeof(*a), image_answer_done);

	*a = (struct image_answer){
		.x = x, .images = json_array(), .notes = json_array(), .status = status};
	return a;
}

static void work(struct image_answer *a, const struct image_wish *wish)
{
	static const struct image_op_ops ops = {on_said, on_end};

	image_op_start(a->x, wish, &ops, a);
}

void v1_image_pull(struct exchange *x)
{
	struct image_answer *a = answer_new(x, 201);

	a->streams = exchange_accepts(x, "text/event-stream");
	if (a->streams)
		sse_open(&a->sse, x);
	work(a, &(struct image_wish){.job = IMAGE_JOB_PULL, .name = body_text(x->json, "name")});
}

void v1_image_tag(struct exchange *x)
{
	work(answer_new(x, 201), &(struct image_wish){.job = IMAGE_JOB_TAG,
						      .name = body_text(x->json, "image"),
						      .to = body_text(x->json, "name")});
}

static void remove_images(struct exchange *x, enum ipc_image_job job, const char *image)
{
	struct image_answer *a = answer_new(x, 200);

	a->removed = json_pack("{s:i,s:i,s:i}", "images", 0, "layers", 0, "bytes", 0);
	work(a, &(struct image_wish){.job = job, .name = image});
}

void v1_image_delete(struct exchange *x)
{
	const char *image = wanted_image(x);

	if (image)
		remove_images(x, IMAGE_JOB_REMOVE, image);
}

void v1_image_prune(struct exchange *x)
{
	remove_images(x, IMAGE_JOB_PRUNE, NULL);
}

void v1_image_import(struct exchange *x)
{
	work(answer_new(x, 201),
	     &(struct image_wish){.job = IMAGE_JOB_IMPORT, .name = exchange_arg(x, "name")});
}

void v1_image_export(struct exchange *x)
{
	const char *image = wanted_image(x);

	if (image)
		work(answer_new(x, 200),
		     &(struct image_wish){.job = IMAGE_JOB_EXPORT, .name = image});
}
