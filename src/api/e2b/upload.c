/*
 * POST /files: one file as a bare body, or several as multipart/form-data; either may be gzipped. Bytes
 * go from the client through inflate and the multipart reader to the guest. Only a window of them is
 * held: the client is not read while the guest has no room.
 */
#include "api/e2b/e2b_internal.h"

#include "auth/shares.h"
#include "policy/config.h"
#include "wire/multipart.h"

#include <ctype.h>
#include <strings.h>
#include <zlib.h>

#define HELD (128u << 10) /* bytes of the body that are held at most */
#define PIECE (32u << 10) /* inflated at a time */
#define FILES_MAX 10000
#define SKIPPED_MAX (1u << 20) /* bytes of parts that are no files */
/* Above INFLATED_FREE, a body may inflate to RATIO_MAX times its size: a longer one is a bomb. */
#define INFLATED_FREE (64u << 20)
#define RATIO_MAX 200
#define METADATA_MAX 4096
#define METADATA_KEY_MAX 246

struct upload {
	struct e2b_request *q;
	bool is_gzip;
	struct multipart parts;
	struct multipart_event event; /* the last one of parts */
	struct buf packed;	      /* not yet inflated */
	z_stream z;
	bool z_end;
	uint64_t skipped;
	struct loop_task going_on; /* in another turn */
	bool all_in;		   /* the body is complete */
	bool skipping;		   /* a part that is no file */
	bool busy;		   /* waits for an answer of the guest */
	bool closing;		   /* the file is complete */
	bool over;		   /* answered */
	struct call *call;	   /* of the file being written */
	char *path;		   /* of the same */
	json_t *written;	   /* array of results */
	json_t *seen;		   /* object: paths of this request */
	json_t *metadata;	   /* object: from the headers */
	size_t metadata_len;
	const char *bad_metadata; /* an error in them, or NULL */
	void *marking;		  /* iterator of metadata */
};

static void upload_done(void *more)
{
	struct upload *u = more;

	call_drop(u->call);
	loop_task_remove(u->q->x->api->loop, &u->going_on);
	inflateEnd(&u->z); /* does nothing if it was never begun */
	multipart_done(&u->parts);
	buf_done(&u->packed);
	free(u->path);
	json_decref(u->written);
	json_decref(u->seen);
	json_decref(u->metadata);
}

static void upload_advance(void *arg);

/* Answers with an error; nothing more happens. */
static void upload_fail(struct upload *u, int status, const char *message)
{
	u->over = true;
	call_drop(take_ptr(u->call));
	e2b_fail(u->q->x, status, "%s", message);
}

/* NULL: answered; nothing more happens. */
static struct sandbox *still_running(struct upload *u)
{
	struct sandbox *s = e2b_still(u->q);

	u->over = !s;
	return s;
}

/* ---- one file ---- */

static void file_written(struct upload *u)
{
	json_t *o = json_pack("{s:s,s:s,s:s}", "path", u->path, "name", strrchr(u->path, '/') + 1,
			      "type", "file");

	if (o && json_object_size(u->metadata))
		json_object_set(o, "metadata", u->metadata);
	json_array_append_new(u->written, o ? o : json_object());
	free(take_ptr(u->path));
	u->busy = u->closing = false;
	upload_advance(u);
}

static void file_opened(void *arg, const struct file_info *info)
{
	struct upload *u = arg;

	u->busy = false;
	upload_advance(u);
}

/* The file is written, or one piece of its metadata: stores the next piece as an extended attribute. */
static void file_step_done(void *arg, const struct answer *a, const struct err *e)
{
	struct err early = {.kind = ERR_SYSTEM, .msg = "the sandbox ended the upload"};
	struct upload *u = arg;
	struct sandbox *s;
	char name[METADATA_KEY_MAX + 16];

	u->call = NULL;
	e = e || u->closing ? e : &early;
	/* On a file system without extended attributes the file stays, without metadata. */
	if (e && !(u->marking && (e->errnum == EOPNOTSUPP || e->errnum == ENOSYS))) {
		u->over = true;
		e2b_files_error(u->q->x, e);
		return;
	}
	u->marking = u->marking ? json_object_iter_next(u->metadata, u->marking)
				: json_object_iter(u->metadata);
	if (!u->marking) {
		file_written(u);
	} else if ((s = still_running(u))) {
		snprintf(name, sizeof(name), E2B_XATTR "%s", json_object_iter_key(u->marking));
		u->call = call_xattr_set(s, u->path, name,
					 json_string_value(json_object_iter_value(u->marking)),
					 file_step_done, u);
	}
}

static void open_file(struct upload *u, const char *filename)
{
	const char *path = exchange_arg(u->q->x, "path");
	struct sandbox *s;

	u->path = e2b_files_path(u->q, path && *path ? path : filename);
	u->over = !u->path;
	if (u->over || !(s = still_running(u)))
		return;
	if (json_object_get(u->seen, u->path) || json_object_size(u->seen) == FILES_MAX) {
		upload_fail(u, 400, "you cannot upload multiple files to the same path");
		return;
	}
	json_object_set_new_nocheck(u->seen, u->path, json_true());
	u->busy = true;
	u->call = call_write(s,
			     &(struct file_write){.path = u->path,
						  .mode = WRITE_KEEP_MODE,
						  .offset = WRITE_WHOLE,
						  .parents = true},
			     &(struct receiver){.begin = file_opened,
						.room = upload_advance,
						.done = file_step_done,
						.arg = u});
}

/* ---- bytes on their way ---- */

/* Bounds what is inflated; false after an answer. */
static bool is_inflated_well(struct upload *u)
{
	uint64_t most = u->q->x->api->config->max_upload_bytes, size = u->z.total_out;

	if (most && size > most) {
		upload_fail(u, 413, "the body is inflated to more than http.max_upload");
		return false;
	}
	if (size > INFLATED_FREE && size / RATIO_MAX > u->z.total_in) {
		upload_fail(u, 413, "the body inflates too much; send it without gzip");
		return false;
	}
	return true;
}

/* Inflates some of the packed bytes; false after an answer. */
static bool inflate_some(struct upload *u)
{
	unsigned char out[PIECE];
	int rc = Z_OK;

	while (u->packed.len && u->parts.in.len < HELD && !u->z_end) {
		u->z.next_in = (unsigned char *)buf_head(&u->packed);
		u->z.avail_in = (unsigned)u->packed.len;
		u->z.next_out = out;
		u->z.avail_out = sizeof(out);
		rc = inflate(&u->z, Z_NO_FLUSH);
		buf_drop(&u->packed, u->packed.len - u->z.avail_in);
		multipart_add(&u->parts, out, sizeof(out) - u->z.avail_out);
		if (!is_inflated_well(u))
			return false;
		if (rc == Z_STREAM_END)
			u->z_end = true;
		else if (rc == Z_BUF_ERROR)
			break;
		else if (rc != Z_OK) {
			upload_fail(u, 400, "the body is not gzip");
			return false;
		}
	}
	if (u->z_end && u->packed.len) {
		upload_fail(u, 400, "the body has bytes behind its gzip end");
		return false;
	}
	return true;
}

/* False: the guest has no room now. */
static bool push_data(struct upload *u)
{
	size_t len = u->event.len, n = u->skipping ? len : call_push(u->call, u->event.data, len);

	u->skipped += u->skipping ? len : 0;
	if (u->skipped > SKIPPED_MAX) {
		upload_fail(u, 413, "the parts that are not named 'file' are too long");
		return false;
	}
	multipart_used(&u->parts, n);
	return n > 0;
}

/* False: a callback continues later. */
static bool take_event(struct upload *u)
{
	switch (u->event.kind) {
	case MULTIPART_PART:
		u->skipping = !str_equal(u->event.name, "file");
		if (!u->skipping)
			open_file(u, u->event.filename);
		return u->skipping;
	case MULTIPART_DATA:
		return push_data(u);
	case MULTIPART_PART_END:
		if (!u->skipping) {
			u->busy = u->closing = true;
			call_close(u->call);
		}
		return u->skipping;
	default:
		u->over = true;
		if (!json_array_size(u->written))
			e2b_fail(u->q->x, 400, "the body has no part named 'file'");
		else
			exchange_json(u->q->x, 200, json_incref(u->written));
		return false;
	}
}

static void upload_advance(void *arg)
{
	struct upload *u = arg;
	struct err e = {0};
	bool goes_on = true;
	int got = 1;

	if (u->over || u->busy)
		return;
	while (got > 0 && goes_on && (!u->is_gzip || inflate_some(u))) {
		if (loop_turn_is_over(u->q->x->api->loop)) {
			loop_task_add(u->q->x->api->loop, &u->going_on);
			return;
		}
		u->parts.is_complete = u->all_in && (!u->is_gzip || u->z_end);
		got = multipart_next(&u->parts, &u->event, &e);
		goes_on = got > 0 && take_event(u);
	}
	if (u->over || got > 0)
		return;
	if (got < 0)
		upload_fail(u, 400, e.msg);
	else if (u->all_in)
		upload_fail(u, 400, "the body ends too early");
	else
		exchange_more(u->q->x);
}

static size_t take_body(void *arg, const char *bytes, size_t len)
{
	struct upload *u = arg;
	size_t room =
		u->parts.in.len + u->packed.len < HELD ? HELD - u->parts.in.len - u->packed.len : 0;
	size_t n = len < room ? len : room;

	if (u->over)
		return len;
	if (u->is_gzip)
		buf_add(&u->packed, bytes, n);
	else
		multipart_add(&u->parts, bytes, n);
	upload_advance(u);
	return n;
}

static void body_ended(void *arg)
{
	struct upload *u = arg;

	u->all_in = true;
	upload_advance(u);
}

/* ---- the headers ---- */

/* X-Metadata-KEY: VALUE becomes an extended attribute of each file. */
static void take_header(void *arg, const char *name, const char *value)
{
	struct upload *u = arg;
	char key[METADATA_KEY_MAX + 1];
	size_t len;

	if (strncasecmp(name, "X-Metadata-", 11) != 0)
		return;
	name += 11;
	len = strlen(name);
	u->metadata_len += len + strlen(value);
	if (len == 0 || len > METADATA_KEY_MAX || u->metadata_len > METADATA_MAX) {
		u->bad_metadata = "the metadata are too long";
		return;
	}
	for (size_t i = 0; i <= len; i++)
		key[i] = (char)tolower((unsigned char)name[i]);
	for (const char *p = value; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			u->bad_metadata = "metadata must be printable ASCII";
	if (!u->bad_metadata)
		json_object_set_new(u->metadata, key, json_string(value));
}

static const char *read_headers(struct upload *u, struct err *e)
{
	struct exchange *x = u->q->x;
	const char *type = exchange_header(x, "Content-Type");
	const char *coding = exchange_header(x, "Content-Encoding");

	exchange_each_header(x, take_header, u);
	if (u->bad_metadata)
		return u->bad_metadata;
	if (coding && *coding && strcasecmp(coding, "identity") != 0) {
		if (strcasecmp(coding, "gzip") != 0)
			return "Content-Encoding: only gzip is understood";
		u->is_gzip = true;
	}
	if (type && strncasecmp(type, "application/octet-stream", 24) == 0)
		return exchange_arg(x, "path") ? (multipart_init_bare(&u->parts), NULL)
					       : "path: is missing";
	return multipart_init(&u->parts, type, e) < 0 ? e->msg : NULL;
}

static void upload_client_gone(void *arg)
{
	upload_fail(arg, 499, "the client has gone");
}

void e2b_files_post(struct e2b_request *q, struct sandbox *s)
{
	static const struct body_ops ops = {.take = take_body, .end = body_ended};
	struct upload *u = e2b_keep(q, sizeof(*u), upload_done);
	struct err e = {0};
	const char *bad;

	*u = (struct upload){.q = q,
			     .going_on = {.call = upload_advance,
					  .arg = u,
					  .user = shares_user(manager_shares(q->x->api->manager),
							      sandbox_owner(s))},
			     .written = must_alloc(json_array()),
			     .seen = must_alloc(json_object()),
			     .metadata = must_alloc(json_object())};
	bad = read_headers(u, &e);
	if (!bad && u->is_gzip && inflateInit2(&u->z, 15 + 16) != Z_OK)
		bad = "no memory for gzip";
	if (bad) {
		upload_fail(u, 400, bad);
		return;
	}
	exchange_on_gone(q->x, upload_client_gone, u);
	exchange_take_body(q->x, &ops, u);
}
