/* Tools and resources for files: guest calls (calls/calls.h) with results that are bounded for a model. */
#include "api/mcp/mcp_internal.h"

#include "base/base64.h"

#define READ_MAX (256u << 10)
#define IMAGE_MAX (1u << 20)
#define EDIT_MAX (4u << 20)
#define LIST_MAX 2000
#define LIST_BYTES (512u << 10)
#define LINE_MAX_BYTES 1000

/* The state of one tool while its guest call runs. */
struct file_job {
	struct buf bytes; /* of the file */
	size_t most;	  /* bytes or items */
	bool cut;
	char path[CALL_PATH_MAX + 1];
	uint64_t offset, size;
	json_t *items;
	size_t item_bytes;
	struct cleaned cleaned; /* of items */
	const char *uri;	/* resources/read */
};

static void job_done(void *work)
{
	struct file_job *j = work;

	buf_done(&j->bytes);
	json_decref(j->items);
}

void mcp_file_error(struct mcp_call *c, const char *path, const struct err *e)
{
	switch (e->errnum) {
	case ENOENT:
		mcp_call_refuse(c, "There is no '%.200s'. list_files shows what there is.", path);
		break;
	case EISDIR:
		mcp_call_refuse(c, "'%.200s' is a directory. Use list_files for it.", path);
		break;
	case EACCES:
	case EROFS:
	case EPERM:
		mcp_call_refuse(
			c,
			"'%.200s' cannot be used: %s. Files below /workspace, /home/user and "
			"/tmp can be read and written.",
			path, e->msg);
		break;
	case ENOSPC:
		mcp_call_refuse(c,
				"'%.200s': the disk of the sandbox is full. Remove what is not "
				"needed any more.",
				path);
		break;
	default:
		mcp_call_error(c, e);
	}
}

/* NULL: the path is too long, and the call was refused. Relative paths are in the workspace. */
static struct file_job *job_new(struct mcp_call *c, const char *path)
{
	struct file_job *j = must_alloc(calloc(1, sizeof(*j)));

	c->work = j;
	c->work_done = job_done;
	if (snprintf(j->path, sizeof(j->path), "%s%s", path[0] == '/' ? "" : "/workspace/", path) <
	    CALL_PATH_MAX)
		return j;
	mcp_call_refuse(c, "The path is too long.");
	return NULL;
}

/* A file has been read, written, listed or searched to its end. False: that failed, and was answered. */
static bool job_ended(struct mcp_call *c, const struct err *e)
{
	struct file_job *j = c->work;

	c->guest_call = NULL;
	if (!e)
		return true;
	if (j->uri)
		mcp_resource_missing(c, j->uri);
	else
		mcp_file_error(c, j->path, e);
	return false;
}

/* The limit is reached; the rest is not read. */
static void job_cut(struct mcp_call *c)
{
	struct file_job *j = c->work;

	j->cut = true;
	call_drop(take_ptr(c->guest_call));
}

/* ---- reading ---- */

static const char *image_type(const char *bytes, size_t len)
{
	static const struct {
		const char *magic;
		size_t at, len;
		const char *type;
	} images[] = {
		{"\x89PNG\r\n\x1a\n", 0, 8, "image/png"},
		{"\xff\xd8\xff", 0, 3, "image/jpeg"},
		{"GIF8", 0, 4, "image/gif"},
		{"WEBP", 8, 4, "image/webp"},
	};

	for (size_t i = 0; i < ARRAY_LEN(images); i++)
		if (len >= images[i].at + images[i].len &&
		    memcmp(bytes + images[i].at, images[i].magic, images[i].len) == 0)
			return images[i].type;
	return NULL;
}

static void answer_resource(struct mcp_call *c, const char *bytes, size_t len)
{
	struct file_job *j = c->work;
	struct cleaned n = {0};
	json_t *text = json_stringn(bytes, len);
	const char *type = text ? "text/plain" : image_type(bytes, len);

	if (text) {
		json_decref(text);
		text = mcp_text(c, bytes, len, &n);
	}

	mcp_call_result(c,
			json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", j->uri, "mimeType",
				  type ? type : "application/octet-stream", text ? "text" : "blob",
				  text ? text : text_json_base64(bytes, len)));
}

/* The structuredContent of read_file. */
static json_t *describe_read(const struct file_job *j, const char *encoding, json_t *content)
{
	bool is_cut = content && j->offset + j->bytes.len < j->size;

	return json_pack("{s:o, s:I, s:s, s:o, s:b}", "path", text_json_of(j->path), "size",
			 (json_int_t)j->size, "encoding", encoding, "content",
			 content ? content : json_string(""), "truncated", is_cut);
}

/* Text is made fit for the model, unless it asks for the bytes; other bytes are base64 in any case. */
static void answer_text(struct mcp_call *c, const char *bytes, size_t len)
{
	struct cleaned n = {0};
	json_t *text = body_flag(c->args, "raw") ? NULL : json_stringn(bytes, len), *result;

	if (text) {
		json_decref(text);
		text = mcp_text(c, bytes, len, &n);
	}
	result = describe_read(c->work, text ? "utf-8" : "base64",
			       text ? text : text_json_base64(bytes, len));
	text_add_cleaned(result, &n);
	mcp_call_structured(c, result);
}

static void answer_read(struct mcp_call *c)
{
	struct file_job *j = c->work;
	const char *bytes = j->bytes.len ? buf_head(&j->bytes) : "";
	size_t len = j->bytes.len;
	const char *image = j->offset == 0 && !j->cut ? image_type(bytes, len) : NULL;

	if (j->uri) {
		answer_resource(c, bytes, len);
	} else if (image) {
		mcp_call_result(c, json_pack("{s:[{s:s, s:o, s:s}], s:o, s:b}", "content", "type",
					     "image", "data", text_json_base64(bytes, len),
					     "mimeType", image, "structuredContent",
					     describe_read(j, "image", NULL), "isError", 0));
	} else {
		answer_text(c, bytes, len);
	}
}

static void on_read_begin(void *arg, const struct file_info *info)
{
	struct file_job *j = ((struct mcp_call *)arg)->work;

	j->size = info->size;
	if (info->path[0])
		memcpy(j->path, info->path, sizeof(j->path));
}

static void on_read_bytes(void *arg, const void *bytes, size_t len)
{
	struct mcp_call *c = arg;
	struct file_job *j = c->work;
	size_t room;

	/* An image is shown whole or not at all. */
	if (j->bytes.len == 0 && j->offset == 0 && image_type(bytes, len) && j->size <= IMAGE_MAX &&
	    !json_object_get(c->args, "length"))
		j->most = IMAGE_MAX;
	room = j->most - j->bytes.len;
	buf_add(&j->bytes, bytes, len < room ? len : room);
	if (len < room)
		return;
	job_cut(c);
	/* A text is not cut within a character. */
	if (j->bytes.len && j->bytes.len < j->size)
		j->bytes.len -= utf8_cut_at_end(buf_head(&j->bytes), j->bytes.len);
	answer_read(c);
}

static void on_read_done(void *arg, const struct answer *a, const struct err *e)
{
	if (job_ended(arg, e))
		answer_read(arg);
}

static void start_read(struct mcp_call *c, struct file_job *j)
{
	const struct receiver r = {
		.begin = on_read_begin, .bytes = on_read_bytes, .done = on_read_done, .arg = c};

	mcp_call_guest(c, call_read(c->box, j->path, j->offset, UINT64_MAX, &r));
}

void mcp_read_file(struct mcp_call *c)
{
	struct file_job *j = job_new(c, mcp_arg_text(c, "path", ""));

	if (!j)
		return;
	j->most = (size_t)mcp_arg_number(c, "length", READ_MAX);
	j->offset = (uint64_t)mcp_arg_number(c, "offset", 0);
	start_read(c, j);
}

void mcp_read_as_resource(struct mcp_call *c, const char *uri, const char *path)
{
	struct file_job *j = job_new(c, path);

	if (!j)
		return;
	j->most = IMAGE_MAX;
	j->uri = uri;
	start_read(c, j);
}

/* ---- writing ---- */

static void on_written(void *arg, const struct answer *a, const struct err *e)
{
	struct mcp_call *c = arg;

	if (job_ended(c, e))
		mcp_call_structured(c, json_pack("{s:s, s:I}", "path", mcp_arg_text(c, "path", ""),
						 "size", (json_int_t)a->count));
}

void mcp_write_file(struct mcp_call *c)
{
	const json_t *content = json_object_get(c->args, "content");
	struct file_job *j = job_new(c, mcp_arg_text(c, "path", ""));
	size_t len = json_string_length(content);
	char *decoded;
	struct file_put put = {.mode = body_flag(c->args, "executable") ? 0755 : 0644,
			       .bytes = json_string_value(content),
			       .len = len};

	if (!j)
		return;
	put.path = j->path;
	if (!str_equal(mcp_arg_text(c, "encoding", "utf-8"), "utf-8")) {
		decoded = buf_reserve(&j->bytes, len + 1);
		if (base64_decode(decoded, put.bytes, len, &put.len) < 0) {
			mcp_call_refuse(c, "write_file: content is not base64. Send plain text "
					   "with encoding utf-8, or base64 with padding and "
					   "without line breaks.");
			return;
		}
		put.bytes = decoded;
	}
	mcp_call_guest(c, call_put(c->box, &put, on_written, c));
}

/* ---- editing: the whole file is read, changed and replaced ---- */

/* Copies the file with the texts replaced; returns how often. */
static size_t replace_text(struct buf *to, const char *text, size_t len, const json_t *args)
{
	const json_t *old = json_object_get(args, "old"), *fresh = json_object_get(args, "new");
	size_t old_len = json_string_length(old), count = 0;
	const char *end = text + len, *at;

	while ((at = memmem(text, (size_t)(end - text), json_string_value(old), old_len))) {
		buf_add(to, text, (size_t)(at - text));
		buf_add(to, json_string_value(fresh), json_string_length(fresh));
		text = at + old_len;
		count++;
	}
	buf_add(to, text, (size_t)(end - text));
	return count;
}

static void on_edited(void *arg, const struct answer *a, const struct err *e)
{
	struct mcp_call *c = arg;
	const struct file_job *j = c->work;

	if (job_ended(c, e))
		mcp_call_structured(c,
				    json_pack("{s:s, s:I, s:I}", "path",
					      mcp_arg_text(c, "path", ""), "replaced",
					      (json_int_t)j->most, "size", (json_int_t)a->count));
}

static void on_got_to_edit(void *arg, const struct answer *a, const struct err *e)
{
	struct mcp_call *c = arg;
	struct file_job *j = c->work;
	struct file_put put = {.path = j->path};

	if (!job_ended(c, e) || !mcp_call_box(c))
		return;
	if (a->info->size > a->len) {
		mcp_call_refuse(c, "edit_file: the file has more than %u bytes.", EDIT_MAX);
		return;
	}
	j->most = replace_text(&j->bytes, a->bytes, a->len, c->args);
	if (j->most == 0 || (j->most > 1 && !body_flag(c->args, "all"))) {
		mcp_call_refuse(c,
				"edit_file: the old text is in '%.200s' %zu times. Give a text "
				"that is there exactly once%s.",
				j->path, j->most, j->most ? ", or set all" : "");
		return;
	}
	put.mode = a->info->mode & 0777;
	put.bytes = j->bytes.len ? buf_head(&j->bytes) : "";
	put.len = j->bytes.len;
	mcp_call_guest(c, call_put(c->box, &put, on_edited, c));
}

void mcp_edit_file(struct mcp_call *c)
{
	struct file_job *j = job_new(c, mcp_arg_text(c, "path", ""));

	if (!j)
		return;
	if (json_string_length(json_object_get(c->args, "old")) == 0)
		mcp_call_refuse(c, "edit_file: the old text is empty. write_file makes a file.");
	else
		mcp_call_guest(c, call_get(c->box, &(struct file_get){j->path, EDIT_MAX, 0},
					   on_got_to_edit, c));
}

/* ---- lists ---- */

static void answer_list(struct mcp_call *c)
{
	struct file_job *j = c->work;
	const char *name = c->tool->run == mcp_list_files ? "files" : "matches";

	json_t *result = json_pack("{s:O, s:b}", name, j->items, "truncated", j->cut);

	text_add_cleaned(result, &j->cleaned);
	mcp_call_structured(c, result);
}

static void add_item(struct mcp_call *c, json_t *item, size_t bytes)
{
	struct file_job *j = c->work;

	json_array_append_new(j->items, item);
	j->item_bytes += bytes;
	if (json_array_size(j->items) < j->most && j->item_bytes < LIST_BYTES)
		return;
	job_cut(c);
	answer_list(c);
}

static void on_file(void *arg, const struct file_info *f)
{
	struct file_job *j = ((struct mcp_call *)arg)->work;
	size_t len = strlen(f->path);

	add_item(arg,
		 json_pack("{s:o, s:s, s:I, s:I}", "path", mcp_text(arg, f->path, len, &j->cleaned),
			   "type", file_kind_name(f->kind), "size", (json_int_t)f->size, "modified",
			   (json_int_t)(f->mtime_ns / 1000000000)),
		 len + 80);
}

static void on_match(void *arg, const struct file_match *m)
{
	struct file_job *j = ((struct mcp_call *)arg)->work;
	size_t path_len = strlen(m->path), len = m->len < LINE_MAX_BYTES ? m->len : LINE_MAX_BYTES;

	add_item(arg,
		 json_pack("{s:o, s:I, s:o}", "path", mcp_text(arg, m->path, path_len, &j->cleaned),
			   "line", (json_int_t)m->line, "text",
			   mcp_text(arg, m->text, len, &j->cleaned)),
		 path_len + len + 40);
}

static void on_list_done(void *arg, const struct answer *a, const struct err *e)
{
	if (job_ended(arg, e))
		answer_list(arg);
}

static struct file_job *list_new(struct mcp_call *c, size_t most)
{
	struct file_job *j = job_new(c, mcp_arg_text(c, "path", "/workspace"));

	if (j) {
		j->items = json_array();
		j->most = most;
	}
	return j;
}

void mcp_list_files(struct mcp_call *c)
{
	const struct receiver r = {.file = on_file, .done = on_list_done, .arg = c};
	struct file_job *j = list_new(c, LIST_MAX);

	if (j)
		mcp_call_guest(
			c, call_list(c->box, j->path, (uint32_t)mcp_arg_number(c, "depth", 1), &r));
}

void mcp_search_files(struct mcp_call *c)
{
	const struct receiver r = {.match = on_match, .done = on_list_done, .arg = c};
	struct file_search q = {.glob = mcp_arg_text(c, "glob", ""),
				.content = mcp_arg_text(c, "content", ""),
				.regex = body_flag(c->args, "regex"),
				.ignore_case = body_flag(c->args, "ignore_case"),
				.most = (uint32_t)mcp_arg_number(c, "max_results", 100)};
	struct file_job *j;

	if (!*q.glob && !*q.content) {
		mcp_call_refuse(c, "search_files needs content, glob or both.");
		return;
	}
	if (strlen(q.glob) >= CALL_GLOB_MAX || strlen(q.content) >= CALL_PATH_MAX) {
		mcp_call_refuse(c, "search_files: content or glob is too long.");
		return;
	}
	j = list_new(c, q.most);
	if (!j)
		return;
	q.path = j->path;
	mcp_call_guest(c, call_search(c->box, &q, &r));
}
