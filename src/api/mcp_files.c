/* Tools and resources that are files: raw guest calls (wire/guest.h), bounded here. */
#include "api/mcp_inside.h"

#include "base/auto.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READ_MAX (256u << 10)
#define IMAGE_MAX (1u << 20)
#define LIST_MAX 2000
#define LIST_BYTES (512u << 10)

/* One guest call of a tool. */
struct job {
	struct call *call;
	struct buf bytes; /* read: what came; write: what is to go */
	size_t most;	  /* bytes or items */
	bool cut, sent;
	char path[GUEST_MAX_PATH + 1];
	uint64_t offset, size;
	json_t *items;
	size_t item_bytes;
	const char *uri; /* resources/read */
	void (*next)(struct mcp_call *c, uint64_t size);
};

static void job_done(void *work)
{
	struct job *j = work;

	if (!j)
		return;
	buf_done(&j->bytes);
	json_decref(j->items);
}

static void job_stop(struct mcp_call *c)
{
	struct job *j = c->work;

	if (j->call)
		call_drop(take_ptr(j->call));
}

static struct job *job_new(struct mcp_call *c)
{
	struct job *j = must_alloc(calloc(1, sizeof(*j)));

	c->work = j;
	c->work_done = job_done;
	c->stop = job_stop;
	return j;
}

static void job_start(struct mcp_call *c, uint8_t type, struct buf *payload,
		      const struct call_ops *ops)
{
	struct job *j = c->work;

	j->call = sandbox_call(c->box, type, buf_head(payload), payload->len, ops, c);
	buf_done(payload);
	if (!j->call)
		mcp_call_refuse(c, "The sandbox is not running. Try again.");
}

/* What there is enough of is not read to its end. */
static void job_cut(struct mcp_call *c)
{
	struct job *j = c->work;

	j->cut = true;
	job_stop(c);
}

static void job_failed(struct mcp_call *c, const struct err *e)
{
	struct job *j = c->work;

	if (j->uri)
		mcp_resource_missing(c, j->uri);
	else if (e->errnum == ENOENT)
		mcp_call_refuse(c, "There is no '%.200s'. list_files shows what there is.",
				j->path);
	else if (e->errnum == EISDIR)
		mcp_call_refuse(c, "'%.200s' is a directory. Use list_files for it.", j->path);
	else if (e->errnum == EACCES || e->errnum == EROFS || e->errnum == EPERM)
		mcp_call_refuse(
			c,
			"'%.200s' cannot be used: %s. Files below /workspace, /home/user and "
			"/tmp can be read and written.",
			j->path, e->msg);
	else if (e->errnum == ENOSPC)
		mcp_call_refuse(c,
				"'%.200s': the disk of the sandbox is full. Remove what is not "
				"needed any more.",
				j->path);
	else
		mcp_call_error(c, e);
}

/* The guest has answered to the end. */
static void job_end(struct mcp_call *c, const struct err *e, void (*finish)(struct mcp_call *c))
{
	struct job *j = c->work;

	j->call = NULL;
	if (e)
		job_failed(c, e);
	else
		finish(c);
}

/* Relative paths are the guest's business: it knows the working directory. False: refused. */
static bool set_path(struct mcp_call *c, const char *path)
{
	struct job *j = c->work;

	if (strlen(path) < sizeof(j->path)) {
		snprintf(j->path, sizeof(j->path), "%s%s", path[0] == '/' ? "" : "/workspace/",
			 path);
		if (strlen(j->path) < sizeof(j->path) - 1)
			return true;
	}
	mcp_call_refuse(c, "The path is too long.");
	return false;
}

/* ---- reading ---- */

struct image {
	const char *magic;
	size_t at, len;
	const char *type;
};

static const char *image_type(const struct job *j)
{
	static const struct image images[] = {
		{"\x89PNG\r\n\x1a\n", 0, 8, "image/png"},
		{"\xff\xd8\xff", 0, 3, "image/jpeg"},
		{"GIF8", 0, 4, "image/gif"},
		{"WEBP", 8, 4, "image/webp"},
	};

	for (size_t i = 0; i < ARRAY_LEN(images); i++)
		if (j->bytes.len >= images[i].at + images[i].len &&
		    memcmp(buf_head(&j->bytes) + images[i].at, images[i].magic, images[i].len) == 0)
			return images[i].type;
	return NULL;
}

static json_t *base64_of(const struct buf *b)
{
	size_t len = BASE64_ROOM(b->len);
	auto_free char *text = must_alloc(malloc(len + 1));
	json_t *value;

	len = base64_encode(text, b->len ? buf_head(b) : "", b->len);
	value = json_stringn(text, len);
	return value;
}

static void answer_read(struct mcp_call *c)
{
	struct job *j = c->work;
	const char *image = j->offset == 0 && !j->cut ? image_type(j) : NULL;
	json_t *text = json_stringn(j->bytes.len ? buf_head(&j->bytes) : "", j->bytes.len);
	json_t *path = mcp_text(j->path, strlen(j->path));
	bool whole_text = text != NULL;
	json_t *value;

	if (image) {
		json_decref(text);
		value = json_pack("{s:o, s:I, s:s, s:s, s:b}", "path", path, "size",
				  (json_int_t)j->size, "encoding", "image", "content", "",
				  "truncated", 0);
		mcp_call_result(c, json_pack("{s:[{s:s, s:o, s:s}], s:o, s:b}", "content", "type",
					     "image", "data", base64_of(&j->bytes), "mimeType",
					     image, "structuredContent", value, "isError", 0));
		return;
	}
	value = json_pack("{s:o, s:I, s:s, s:o, s:b}", "path", path, "size", (json_int_t)j->size,
			  "encoding", whole_text ? "utf-8" : "base64", "content",
			  whole_text ? text : base64_of(&j->bytes), "truncated",
			  j->offset + j->bytes.len < j->size);
	mcp_call_structured(c, value);
}

static void answer_resource(struct mcp_call *c)
{
	struct job *j = c->work;
	json_t *text = json_stringn(j->bytes.len ? buf_head(&j->bytes) : "", j->bytes.len);
	json_t *item = json_pack("{s:s}", "uri", j->uri);

	if (text) {
		json_object_set_new(item, "mimeType", json_string("text/plain"));
		json_object_set_new(item, "text", text);
	} else {
		const char *image = image_type(j);

		json_object_set_new(item, "mimeType",
				    json_string(image ? image : "application/octet-stream"));
		json_object_set_new(item, "blob", base64_of(&j->bytes));
	}
	mcp_call_result(c, json_pack("{s:[o]}", "contents", item));
}

static void finish_read(struct mcp_call *c)
{
	struct job *j = c->work;

	if (j->uri)
		answer_resource(c);
	else
		answer_read(c);
}

/* A text is not cut within a character. */
static void trim_text(struct job *j)
{
	size_t len = j->bytes.len;
	const char *head = j->bytes.len ? buf_head(&j->bytes) : "";

	for (size_t back = 1; back <= 4 && back <= len; back++) {
		unsigned char b = (unsigned char)head[len - back];

		if ((b & 0xc0) == 0x80)
			continue;
		if (b >= 0xc0 && back < (b >= 0xf0 ? 4u : b >= 0xe0 ? 3u : 2u))
			j->bytes.len -= back;
		return;
	}
}

static void read_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct mcp_call *c = arg;
	struct job *j = c->work;
	struct unpack u = unpack_from(payload, len);
	char path[GUEST_MAX_PATH + 1];
	size_t room;

	if (type == G_OK) {
		unpack_str(&u, path, sizeof(path));
		unpack_u8(&u);
		unpack_u32(&u);
		unpack_u32(&u);
		unpack_u32(&u);
		j->size = unpack_u64(&u);
		if (!u.bad && path[0])
			memcpy(j->path, path, sizeof(path));
		return;
	}
	if (type != G_DATA)
		return;
	/* An image is shown whole or not at all. */
	if (j->bytes.len == 0 && j->offset == 0) {
		buf_add(&j->bytes, payload, len);
		if (image_type(j) && j->size <= IMAGE_MAX && !json_object_get(c->args, "length"))
			j->most = IMAGE_MAX;
		buf_drop(&j->bytes, len);
	}
	room = j->most - j->bytes.len;
	buf_add(&j->bytes, payload, len < room ? len : room);
	call_credit(j->call, len);
	if (len < room)
		return;
	job_cut(c);
	if (j->bytes.len < j->size)
		trim_text(j);
	finish_read(c);
}

static void read_end(void *arg, const struct err *e)
{
	job_end(arg, e, finish_read);
}

static void start_read(struct mcp_call *c)
{
	static const struct call_ops ops = {.on_frame = read_frame, .on_end = read_end};
	struct job *j = c->work;
	struct buf b = {0};

	pack_str(&b, j->path);
	pack_u64(&b, j->offset);
	pack_u64(&b, UINT64_MAX);
	job_start(c, G_READ, &b, &ops);
}

void mcp_read_file(struct mcp_call *c)
{
	struct job *j = job_new(c);

	j->most = (size_t)mcp_arg_number(c, "length", READ_MAX);
	j->offset = (uint64_t)mcp_arg_number(c, "offset", 0);
	if (set_path(c, mcp_arg_text(c, "path", "")))
		start_read(c);
}

void mcp_read_as_resource(struct mcp_call *c, const char *uri, const char *path)
{
	struct job *j = job_new(c);

	j->most = IMAGE_MAX;
	j->uri = uri;
	if (set_path(c, path))
		start_read(c);
}

/* ---- writing ---- */

static void pump(struct job *j)
{
	while (j->bytes.len && call_room(j->call)) {
		size_t n = call_room(j->call);

		n = n < j->bytes.len ? n : j->bytes.len;
		n = n < GUEST_MAX_PAYLOAD ? n : GUEST_MAX_PAYLOAD;
		if (!call_send(j->call, buf_head(&j->bytes), n))
			return;
		buf_drop(&j->bytes, n);
	}
	if (!j->bytes.len && !j->sent) {
		j->sent = true;
		call_close(j->call);
	}
}

static void write_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct mcp_call *c = arg;
	struct job *j = c->work;
	struct unpack u = unpack_from(payload, len);

	if (type == G_OK)
		pump(j);
	else if (type == G_DONE)
		j->size = unpack_u64(&u);
}

static void write_room(void *arg)
{
	struct mcp_call *c = arg;

	pump(c->work);
}

static void write_end(void *arg, const struct err *e)
{
	struct mcp_call *c = arg;
	struct job *j = c->work;
	void (*next)(struct mcp_call * c, uint64_t size) = j->next;
	uint64_t size = j->size;

	j->call = NULL;
	if (e) {
		job_failed(c, e);
		return;
	}
	job_done(j);
	free(take_ptr(c->work));
	c->work_done = NULL;
	c->stop = NULL;
	next(c, size);
}

void mcp_write_bytes(struct mcp_call *c, const struct mcp_write *w)
{
	static const struct call_ops ops = {
		.on_frame = write_frame, .on_end = write_end, .on_room = write_room};
	struct job *j = job_new(c);
	struct buf b = {0};

	buf_add(&j->bytes, w->bytes, w->len);
	free(w->bytes);
	j->next = w->next;
	if (!set_path(c, w->path))
		return;
	pack_str(&b, j->path);
	pack_u32(&b, w->mode);
	pack_u64(&b, UINT64_MAX);
	pack_u8(&b, 1);
	job_start(c, G_WRITE, &b, &ops);
}

static void on_written(struct mcp_call *c, uint64_t size)
{
	mcp_call_structured(c, json_pack("{s:s, s:I}", "path", mcp_arg_text(c, "path", ""), "size",
					 (json_int_t)size));
}

void mcp_write_file(struct mcp_call *c)
{
	const json_t *content = json_object_get(c->args, "content");
	size_t len = json_string_length(content);
	struct mcp_write w = {
		.path = mcp_arg_text(c, "path", ""),
		.mode = mcp_arg_flag(c, "executable") ? 0755 : 0644,
		.bytes = must_alloc(malloc(len + 1)),
		.len = len,
		.next = on_written,
	};

	if (str_equal(mcp_arg_text(c, "encoding", "utf-8"), "utf-8")) {
		memcpy(w.bytes, json_string_value(content), len);
	} else if (base64_decode(w.bytes, json_string_value(content), len, &w.len) < 0) {
		free(w.bytes);
		mcp_call_refuse(c,
				"write_file: content is not base64. Send plain text with encoding "
				"utf-8, or base64 with padding and without line breaks.");
		return;
	}
	mcp_write_bytes(c, &w);
}

/* ---- lists ---- */

/* False: there are enough. */
static bool add_item(struct mcp_call *c, json_t *item, size_t bytes)
{
	struct job *j = c->work;

	json_array_append_new(j->items, item);
	j->item_bytes += bytes;
	return json_array_size(j->items) < j->most && j->item_bytes < LIST_BYTES;
}

static const char *kind_name(uint8_t kind)
{
	return kind == 'f' ? "file" : kind == 'd' ? "directory" : kind == 'l' ? "link" : "other";
}

static void answer_list(struct mcp_call *c)
{
	struct job *j = c->work;
	const char *name = c->tool->run == mcp_list_files ? "files" : "matches";

	mcp_call_structured(c, json_pack("{s:O, s:b}", name, j->items, "truncated", j->cut));
}

static void list_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct mcp_call *c = arg;
	struct job *j = c->work;
	struct unpack u = unpack_from(payload, len);
	char path[GUEST_MAX_PATH + 1];
	uint64_t size, mtime;
	uint8_t kind;

	if (type != G_ITEM)
		return;
	unpack_str(&u, path, sizeof(path));
	kind = unpack_u8(&u);
	for (int i = 0; i < 3; i++)
		unpack_u32(&u);
	size = unpack_u64(&u);
	mtime = unpack_u64(&u);
	call_credit(j->call, len);
	if (u.bad)
		return;
	if (!add_item(c,
		      json_pack("{s:o, s:s, s:I, s:I}", "path", mcp_text(path, strlen(path)),
				"type", kind_name(kind), "size", (json_int_t)size, "modified",
				(json_int_t)(mtime / 1000000000)),
		      strlen(path) + 80)) {
		job_cut(c);
		answer_list(c);
	}
}

static void search_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct mcp_call *c = arg;
	struct job *j = c->work;
	struct unpack u = unpack_from(payload, len);
	const char *path, *text;
	size_t path_len, text_len;
	uint64_t line;

	if (type != G_ITEM)
		return;
	path = unpack_bytes(&u, &path_len);
	line = unpack_u64(&u);
	text = unpack_bytes(&u, &text_len);
	call_credit(j->call, len);
	if (u.bad)
		return;
	if (text_len > 1000)
		text_len = 1000;
	if (!add_item(c,
		      json_pack("{s:o, s:I, s:o}", "path", mcp_text(path, path_len), "line",
				(json_int_t)line, "text", mcp_text(text, text_len)),
		      path_len + text_len + 40)) {
		job_cut(c);
		answer_list(c);
	}
}

static void list_end(void *arg, const struct err *e)
{
	job_end(arg, e, answer_list);
}

void mcp_list_files(struct mcp_call *c)
{
	static const struct call_ops ops = {.on_frame = list_frame, .on_end = list_end};
	struct job *j = job_new(c);
	struct buf b = {0};

	j->items = json_array();
	j->most = LIST_MAX;
	if (!set_path(c, mcp_arg_text(c, "path", "/workspace")))
		return;
	pack_str(&b, j->path);
	pack_u32(&b, (uint32_t)mcp_arg_number(c, "depth", 1));
	job_start(c, G_LIST, &b, &ops);
}

void mcp_search_files(struct mcp_call *c)
{
	static const struct call_ops ops = {.on_frame = search_frame, .on_end = list_end};
	const char *glob = mcp_arg_text(c, "glob", ""), *content = mcp_arg_text(c, "content", "");
	struct job *j;
	struct buf b = {0};

	if (!*glob && !*content) {
		mcp_call_refuse(c, "search_files needs content, glob or both.");
		return;
	}
	if (strlen(glob) >= GUEST_MAX_GLOB || strlen(content) >= GUEST_MAX_PATH) {
		mcp_call_refuse(c, "search_files: content or glob is too long.");
		return;
	}
	j = job_new(c);
	j->items = json_array();
	j->most = (size_t)mcp_arg_number(c, "max_results", 100);
	if (!set_path(c, mcp_arg_text(c, "path", "/workspace")))
		return;
	pack_str(&b, j->path);
	pack_str(&b, glob);
	pack_str(&b, content);
	pack_u8(&b, (uint8_t)((mcp_arg_flag(c, "regex") ? GUEST_SEARCH_REGEX : 0) |
			      (mcp_arg_flag(c, "ignore_case") ? GUEST_SEARCH_NOCASE : 0)));
	pack_u32(&b, (uint32_t)j->most);
	job_start(c, G_SEARCH, &b, &ops);
}
