/* Files of a sandbox over REST: reading with ranges, writing, and the small calls on names. */
#include "api/rest/rest.h"

#include "api/http/transfer.h"

const struct body_table v1_mkdir_table =
	BODY_TABLE(BODY_ALONE, NEEDED("path", BODY_PATH, "the directory"),
		   FIELD("mode", BODY_TEXT, "octal; 755 unless said"),
		   FIELD("parents", BODY_FLAG,
			 "false: only the last one, which must be new; true unless said"));

const struct body_table v1_move_table = BODY_TABLE(
	BODY_ALONE, NEEDED("from", BODY_PATH, "what"), NEEDED("to", BODY_PATH, "its new path"),
	FIELD("overwrite", BODY_FLAG, "replace what is there"));

const struct body_table v1_chmod_table =
	BODY_TABLE(BODY_ALONE, NEEDED("path", BODY_PATH, "what"), FIELD("mode", BODY_TEXT, "octal"),
		   FIELD("uid", BODY_COUNT, "its owner, inside"),
		   FIELD("gid", BODY_COUNT, "its group, inside"));

/* ---- arguments ---- */

/* Removes "." components: the paths of listed entries begin with this path. */
static void drop_dots(char *path)
{
	char *to = path;

	for (const char *at = path; *at;) {
		size_t slashes = strspn(at, "/"), len = strcspn(at + slashes, "/");

		if (!(len == 1 && at[slashes] == '.')) {
			memmove(to, at, slashes + len);
			to += slashes + len;
		} else if (at[slashes + len] == '/' && !at[slashes + len + 1]) {
			len++;
		}
		at += slashes + len;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

char *v1_file_path(const struct sandbox *s, const char *path)
{
	const struct sandbox_spec *spec = sandbox_spec(s);
	const char *base = spec->provider == PROVIDER_NS ? "/workspace" : spec->workdir;
	char *whole = path[0] == '/' ? str_copy(path)
				     : str_format("%s%s%s", base, *path ? "/" : "", path);

	drop_dots(whole);
	return whole;
}

/* ---- answers ---- */

static void answer_empty(void *arg, const struct answer *a, const struct err *e)
{
	v1_answer_empty(arg, NULL, e);
}

json_t *v1_file_json(const struct file_info *f)
{
	const char *slash = strrchr(f->path, '/'), *name = slash && slash[1] ? slash + 1 : f->path;
	char mode[8], time[UTC_TEXT];
	json_t *o;

	snprintf(mode, sizeof(mode), "%04o", f->mode & 07777);
	o = json_pack("{s:o, s:o, s:s, s:s, s:I, s:s, s:I, s:I, s:o, s:o}", "path",
		      text_json_of(f->path), "name", text_json_of(name), "type",
		      file_kind_name(f->kind), "mode", mode, "size", (json_int_t)f->size, "mtime",
		      utc_text(f->mtime_ns / 1000000000, 0, 0, time), "uid", (json_int_t)f->uid,
		      "gid", (json_int_t)f->gid, "owner", text_json_of(f->owner), "group",
		      text_json_of(f->group));
	if (f->kind == 'l')
		json_object_set_new(o, "target", text_json_of(f->target));
	return o;
}

static void answer_info(void *arg, const struct answer *a, const struct err *e)
{
	v1_answer_json(arg, a ? v1_file_json(a->info) : NULL, e);
}

/* ---- reading ---- */

struct byte_range {
	bool given, suffix;
	uint64_t first, last; /* suffix: first is the number of bytes */
};

/* One range of bytes; for any other form the whole file is sent (RFC 9110). */
static struct byte_range read_range(const char *text)
{
	struct byte_range r = {.last = UINT64_MAX};
	char first[24], last[24];
	struct err e;
	int n = 0;

	if (!text || sscanf(text, "bytes=%20[0-9]-%20[0-9]%n", first, last, &n) == 2) {
		if (!text || text[n] || parse_count(first, &r.first, &e) < 0 ||
		    parse_count(last, &r.last, &e) < 0 || r.last < r.first)
			return (struct byte_range){.last = UINT64_MAX};
		r.given = true;
	} else if (sscanf(text, "bytes=%20[0-9]-%n", first, &n) == 1 && n && !text[n]) {
		r.given = parse_count(first, &r.first, &e) == 0;
	} else if (sscanf(text, "bytes=-%20[0-9]%n", last, &n) == 1 && !text[n]) {
		r.given = r.suffix = parse_count(last, &r.first, &e) == 0;
	}
	return r.given ? r : (struct byte_range){.last = UINT64_MAX};
}

/* Clips the range to a file of this size; false: nothing of it is left. */
static bool clip(struct byte_range *r, uint64_t size)
{
	if (r->suffix) {
		r->first = r->first < size ? size - r->first : 0;
		r->last = UINT64_MAX;
		r->suffix = false;
		if (size == 0)
			return false;
	}
	if (r->first >= size)
		return false;
	if (r->last >= size)
		r->last = size - 1;
	return true;
}

static void set_file_headers(struct exchange *x, const struct file_info *f)
{
	char text[64];

	exchange_set_header(x, "Accept-Ranges", "bytes");
	snprintf(text, sizeof(text), "%04o", f->mode & 07777);
	exchange_set_header(x, "X-File-Mode", text);
}

static int64_t begin_whole(struct exchange *x, const struct file_info *f)
{
	/* A file of size 0 may be one of /proc: its length is known at its end. */
	int64_t length = f->size ? (int64_t)f->size : TRANSFER_UNKNOWN;

	set_file_headers(x, f);
	exchange_stream(x, 200, "application/octet-stream", length);
	return length;
}

static int64_t begin_part(struct exchange *x, const struct file_info *f)
{
	struct byte_range r = read_range(exchange_header(x, "Range"));
	int64_t length;
	char text[96];

	if (!clip(&r, f->size)) {
		exchange_fail(x, ERR_SYSTEM, "the file changed meanwhile");
		return TRANSFER_ANSWERED;
	}
	set_file_headers(x, f);
	snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r.first, r.last,
		 f->size);
	exchange_set_header(x, "Content-Range", text);
	length = (int64_t)(r.last - r.first + 1);
	exchange_stream(x, 206, "application/octet-stream", length);
	return length;
}

static void read_file(struct exchange *x, struct sandbox *s, const struct byte_range *r)
{
	static const struct transfer_ops whole = {.begin = begin_whole},
					 part = {.begin = begin_part};
	auto_free char *path = v1_file_path(s, exchange_arg(x, "path"));
	struct transfer *t = transfer_down(x, r ? &part : &whole);

	t->call = call_read(s, path, r ? r->first : 0, r ? r->last - r->first + 1 : UINT64_MAX,
			    &t->receiver);
}

/* The file's size is known: now the part. */
static void read_part(void *arg, const struct answer *a, const struct err *e)
{
	struct exchange *x = arg;
	struct byte_range r = read_range(exchange_header(x, "Range"));
	struct sandbox *s;
	struct err out = {0};
	char text[64];

	if (e) {
		exchange_error(x, e);
	} else if (!clip(&r, a->info->size)) {
		snprintf(text, sizeof(text), "bytes */%" PRIu64, a->info->size);
		exchange_set_header(x, "Content-Range", text);
		err_field(&out, ERR_INVALID, "Range", "Range: the file ends before it");
		exchange_error_as(x, 416, &out);
	} else if ((s = v1_sandbox(x))) {
		read_file(x, s, &r);
	}
}

void v1_file_get(struct exchange *x)
{
	struct sandbox *s = x->sandbox;
	auto_free char *path = v1_file_path(s, exchange_arg(x, "path"));
	bool is_stat = exchange_arg_flag(x, "stat");

	if (exchange_arg_flag(x, "list"))
		v1_file_list(x);
	else if (is_stat || read_range(exchange_header(x, "Range")).given)
		call_stat(s, path, !exchange_arg_flag(x, "nofollow"),
			  is_stat ? answer_info : read_part, x);
	else
		read_file(x, s, NULL);
}

/* ---- writing ---- */

static void was_written(struct exchange *x, uint64_t size)
{
	const char *path = exchange_arg(x, "path");

	exchange_json(
		x, 200,
		json_pack("{s:o, s:I}", "path", text_json_of(path), "size", (json_int_t)size));
}

void v1_file_put(struct exchange *x)
{
	static const struct transfer_ops ops = {.done = was_written};
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct file_write w = {.path = path};
	struct transfer *t;
	struct err e = {0};

	w.parents = !exchange_arg(x, "parents") || exchange_arg_flag(x, "parents");
	if (exchange_arg_uint(x, "offset", WRITE_WHOLE, INT64_MAX, &w.offset, &e) < 0 ||
	    v1_read_mode(exchange_arg(x, "mode"), 0644, 07777, &w.mode, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	t = transfer_up(x, &ops);
	t->call = call_write(x->sandbox, &w, &t->receiver);
}

/* ---- by name ---- */

void v1_file_delete(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));

	call_remove(x->sandbox, path, exchange_arg_flag(x, "recursive"), answer_empty, x);
}

static void was_made(void *arg, const struct answer *a, const struct err *e)
{
	if (e)
		exchange_error(arg, e);
	else
		exchange_json(arg, a->created ? 201 : 200,
			      json_pack("{s:b}", "created", a->created));
}

void v1_file_mkdir(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, body_text(x->json, "path"));
	bool parents = !body_has(x->json, "parents") || body_flag(x->json, "parents");
	struct err e = {0};
	uint32_t mode;

	if (v1_read_mode(body_text(x->json, "mode"), 0755, 07777, &mode, &e) < 0)
		exchange_error(x, &e);
	else
		call_mkdir(x->sandbox, path, mode, parents, was_made, x);
}

void v1_file_move(struct exchange *x)
{
	auto_free char *from = v1_file_path(x->sandbox, body_text(x->json, "from"));
	auto_free char *to = v1_file_path(x->sandbox, body_text(x->json, "to"));

	call_move(x->sandbox, from, to, body_flag(x->json, "overwrite"), answer_info, x);
}

void v1_file_chmod(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, body_text(x->json, "path"));
	struct file_mode m = {.uid = (uint32_t)body_count(x->json, "uid", UINT32_MAX),
			      .gid = (uint32_t)body_count(x->json, "gid", UINT32_MAX)};
	struct err e = {0};

	if (v1_read_mode(body_text(x->json, "mode"), UINT32_MAX, 07777, &m.mode, &e) < 0)
		exchange_error(x, &e);
	else
		call_chmod(x->sandbox, path, &m, answer_empty, x);
}
