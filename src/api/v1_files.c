#include "api/v1.h"

#include "api/guest_stat.h"
#include "api/text.h"
#include "api/transfer.h"
#include "base/auto.h"
#include "base/parse.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct body_field mkdir_fields[] = {
	{"path", BODY_TEXT, BODY_REQUIRED, "the directory", NULL},
	{"mode", BODY_TEXT, 0, "octal; 755 unless said", NULL},
	{"parents", BODY_FLAG, 0, "false: only the last one, which must be new; true unless said",
	 NULL},
};
const struct body_table v1_mkdir_table = {mkdir_fields, ARRAY_LEN(mkdir_fields), BODY_ALONE};

static const struct body_field move_fields[] = {
	{"from", BODY_TEXT, BODY_REQUIRED, "what", NULL},
	{"to", BODY_TEXT, BODY_REQUIRED, "its new path", NULL},
	{"overwrite", BODY_FLAG, 0, "replace what is there", NULL},
};
const struct body_table v1_move_table = {move_fields, ARRAY_LEN(move_fields), BODY_ALONE};

static const struct body_field chmod_fields[] = {
	{"path", BODY_TEXT, BODY_REQUIRED, "what", NULL},
	{"mode", BODY_TEXT, 0, "octal", NULL},
	{"uid", BODY_COUNT, 0, "its owner, inside", NULL},
	{"gid", BODY_COUNT, 0, "its group, inside", NULL},
};
const struct body_table v1_chmod_table = {chmod_fields, ARRAY_LEN(chmod_fields), BODY_ALONE};

/* ---- arguments ---- */

/* Without components that are ".", since the names of entries are made of it. */
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

/* Relative paths are in the workspace, or where a sandbox elsewhere begins. */
void v1_pack_path(struct buf *b, const struct sandbox *s, const char *path)
{
	const struct sandbox_spec *spec = sandbox_spec(s);
	const char *base = spec->provider == PROVIDER_NS ? "/workspace" : spec->workdir;
	auto_free char *whole = path[0] == '/' ? str_copy(path)
					       : str_format("%s%s%s", base, *path ? "/" : "", path);

	drop_dots(whole);
	pack_str(b, whole);
}

const char *v1_path(struct exchange *x)
{
	const char *path = exchange_arg(x, "path");
	struct err e = {0};

	if (path && *path && strlen(path) < GUEST_MAX_PATH - 16)
		return path;
	err_field(&e, ERR_INVALID, "path", "path: is missing, empty or too long");
	exchange_error(x, &e);
	return NULL;
}

bool v1_fits(struct exchange *x, const char *field, size_t size)
{
	const char *text = body_text(x->json, field);
	struct err e = {0};

	if (!text || strlen(text) < size - 16)
		return true;
	err_field(&e, ERR_INVALID, field, "%s: is too long", field);
	exchange_error(x, &e);
	return false;
}

static int read_mode(const char *text, uint32_t dflt, uint32_t *ret, struct err *e)
{
	char *end;
	unsigned long mode = text ? strtoul(text, &end, 8) : dflt;

	if (text && (!*text || *end || mode > 07777 || text[0] == '-'))
		return err_field(e, ERR_INVALID, "mode", "mode: '%.20s' is not one; try 644", text);
	*ret = (uint32_t)mode;
	return 0;
}

/* ---- one question, one answer ---- */

struct asking {
	struct exchange *x;
	struct call *call;
	void (*answer)(struct exchange *x, const void *payload, size_t len);
	struct buf payload;
};

static void asking_done(void *data)
{
	buf_done(&((struct asking *)data)->payload);
}

static void ask_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct asking *a = arg;

	if (type == G_OK)
		buf_add(&a->payload, payload, len);
}

static void ask_end(void *arg, const struct err *e)
{
	struct asking *a = arg;

	a->call = NULL;
	if (e && e->kind != ERR_NONE)
		exchange_error(a->x, e);
	else
		a->answer(a->x, a->payload.len ? buf_head(&a->payload) : "", a->payload.len);
}

static void ask(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		void (*answer)(struct exchange *x, const void *payload, size_t len))
{
	static const struct call_ops ops = {.on_frame = ask_frame, .on_end = ask_end};
	struct asking *a = must_alloc(calloc(1, sizeof(*a)));

	a->x = x;
	a->answer = answer;
	exchange_also_free(x, a, asking_done);
	a->call = sandbox_call(s, type, buf_head(request), request->len, &ops, a);
	buf_done(request);
	if (!a->call)
		exchange_fail(x, ERR_CONFLICT, "the sandbox is not running");
}

static void answer_empty(struct exchange *x, const void *payload, size_t len)
{
	(void)payload;
	(void)len;
	exchange_reply(x, 204, NULL, "", 0);
}

static void answer_stat(struct exchange *x, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	struct guest_stat st;

	if (guest_stat_read(&u, &st))
		exchange_json(x, 200, guest_stat_json(&st));
	else
		exchange_fail(x, ERR_SYSTEM, "the guest's answer is malformed");
}

/* ---- reading ---- */

struct range {
	bool given, suffix;
	uint64_t first, last; /* suffix: first is how many */
};

/* One range of bytes; others are not understood, and then the whole file is sent (RFC 9110). */
static struct range read_range(const char *text)
{
	struct range r = {.last = UINT64_MAX};
	char first[24], last[24];
	struct err e;
	int n = 0;

	if (!text || sscanf(text, "bytes=%20[0-9]-%20[0-9]%n", first, last, &n) == 2) {
		if (!text || text[n] || parse_count(first, &r.first, &e) < 0 ||
		    parse_count(last, &r.last, &e) < 0 || r.last < r.first)
			return (struct range){.last = UINT64_MAX};
		r.given = true;
	} else if (sscanf(text, "bytes=%20[0-9]-%n", first, &n) == 1 && n && !text[n]) {
		r.given = parse_count(first, &r.first, &e) == 0;
	} else if (sscanf(text, "bytes=-%20[0-9]%n", last, &n) == 1 && !text[n]) {
		r.given = r.suffix = parse_count(last, &r.first, &e) == 0;
	}
	return r.given ? r : (struct range){.last = UINT64_MAX};
}

static void set_file_headers(struct exchange *x, const struct guest_stat *st)
{
	char text[64];

	exchange_set_header(x, "Accept-Ranges", "bytes");
	snprintf(text, sizeof(text), "%04o", st->mode & 07777);
	exchange_set_header(x, "X-File-Mode", text);
}

static bool begin_whole(struct exchange *x, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	struct guest_stat st;

	if (!guest_stat_read(&u, &st)) {
		exchange_fail(x, ERR_SYSTEM, "the guest's answer is malformed");
		return false;
	}
	set_file_headers(x, &st);
	/* What says that it is empty may be a file of /proc: its length is known at its end. */
	if (st.size)
		transfer_limit(x, st.size);
	exchange_stream(x, 200, "application/octet-stream",
			st.size ? (int64_t)st.size : EXCHANGE_UNKNOWN_LENGTH);
	return true;
}

/* The part that is wanted of this size; false: none of it is there. */
static bool clip(struct range *r, uint64_t size)
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

static bool begin_part(struct exchange *x, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	struct range r = read_range(exchange_header(x, "Range"));
	struct guest_stat st;
	char text[96];

	if (!guest_stat_read(&u, &st) || !clip(&r, st.size)) {
		exchange_fail(x, ERR_SYSTEM, "the file changed meanwhile");
		return false;
	}
	set_file_headers(x, &st);
	snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r.first, r.last,
		 st.size);
	exchange_set_header(x, "Content-Range", text);
	transfer_limit(x, r.last - r.first + 1);
	exchange_stream(x, 206, "application/octet-stream", (int64_t)(r.last - r.first + 1));
	return true;
}

static void read_file(struct exchange *x, struct sandbox *s, uint64_t offset, uint64_t len,
		      bool part)
{
	static const struct transfer_ops whole = {begin_whole, NULL}, piece = {begin_part, NULL};
	struct buf b = {0};

	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u64(&b, offset);
	pack_u64(&b, len);
	transfer_down(x, s, G_READ, &b, part ? &piece : &whole);
}

/* Its size is known: now the part. */
static void on_sized(struct exchange *x, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	struct range r = read_range(exchange_header(x, "Range"));
	struct guest_stat st;
	struct sandbox *s;
	struct err e = {0};
	char text[64];

	if (!guest_stat_read(&u, &st) || !clip(&r, st.size)) {
		snprintf(text, sizeof(text), "bytes */%" PRIu64, st.size);
		exchange_set_header(x, "Content-Range", text);
		err_field(&e, ERR_INVALID, "Range", "Range: the file ends before it");
		exchange_error_as(x, 416, &e);
	} else if ((s = v1_sandbox(x))) {
		read_file(x, s, r.first, r.last - r.first + 1, true);
	}
}

static void get_file(struct exchange *x, struct sandbox *s)
{
	struct buf b = {0};

	if (exchange_arg_flag(x, "stat") || read_range(exchange_header(x, "Range")).given) {
		v1_pack_path(&b, s, exchange_arg(x, "path"));
		pack_u8(&b, !exchange_arg_flag(x, "nofollow"));
		ask(x, s, G_STAT, &b, exchange_arg_flag(x, "stat") ? answer_stat : on_sized);
		return;
	}
	read_file(x, s, 0, UINT64_MAX, false);
}

void v1_file_get(struct exchange *x)
{
	if (!v1_path(x))
		return;
	if (exchange_arg_flag(x, "list"))
		v1_file_list(x);
	else
		v1_awake(x, get_file);
}

/* ---- writing ---- */

static void was_written(struct exchange *x, uint64_t size)
{
	const char *path = exchange_arg(x, "path");

	exchange_json(x, 200,
		      json_pack("{s:o, s:I}", "path", text_json(path, strlen(path)), "size",
				(json_int_t)size));
}

static void put_file(struct exchange *x, struct sandbox *s)
{
	static const struct transfer_ops ops = {NULL, was_written};
	struct buf b = {0};
	struct err e = {0};
	uint64_t offset;
	uint32_t mode;

	if (exchange_arg_uint(x, "offset", UINT64_MAX, INT64_MAX, &offset, &e) < 0 ||
	    read_mode(exchange_arg(x, "mode"), 0644, &mode, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u32(&b, mode);
	pack_u64(&b, offset);
	pack_u8(&b, !exchange_arg(x, "parents") || exchange_arg_flag(x, "parents"));
	transfer_up(x, s, G_WRITE, &b, &ops);
}

void v1_file_put(struct exchange *x)
{
	if (v1_path(x))
		v1_awake(x, put_file);
}

static void remove_file(struct exchange *x, struct sandbox *s)
{
	struct buf b = {0};

	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u8(&b, exchange_arg_flag(x, "recursive"));
	ask(x, s, G_REMOVE, &b, answer_empty);
}

void v1_file_delete(struct exchange *x)
{
	if (v1_path(x))
		v1_awake(x, remove_file);
}

/* ---- by name ---- */

static void was_made(struct exchange *x, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	bool created = unpack_u8(&u);

	exchange_json(x, created ? 201 : 200, json_pack("{s:b}", "created", created));
}

static void make_dir(struct exchange *x, struct sandbox *s)
{
	struct buf b = {0};
	struct err e = {0};
	uint32_t mode;

	if (read_mode(body_text(x->json, "mode"), 0755, &mode, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	v1_pack_path(&b, s, body_text(x->json, "path"));
	pack_u32(&b, mode);
	pack_u8(&b, !body_has(x->json, "parents") || body_flag(x->json, "parents"));
	ask(x, s, G_MKDIR, &b, was_made);
}

void v1_file_mkdir(struct exchange *x)
{
	if (v1_body(x) && v1_fits(x, "path", GUEST_MAX_PATH))
		v1_awake(x, make_dir);
}

static void move_file(struct exchange *x, struct sandbox *s)
{
	struct buf b = {0};

	v1_pack_path(&b, s, body_text(x->json, "from"));
	v1_pack_path(&b, s, body_text(x->json, "to"));
	pack_u8(&b, body_flag(x->json, "overwrite"));
	ask(x, s, G_MOVE, &b, answer_stat);
}

void v1_file_move(struct exchange *x)
{
	if (v1_body(x) && v1_fits(x, "from", GUEST_MAX_PATH) && v1_fits(x, "to", GUEST_MAX_PATH))
		v1_awake(x, move_file);
}

static void change_mode(struct exchange *x, struct sandbox *s)
{
	struct buf b = {0};
	struct err e = {0};
	uint32_t mode;

	if (read_mode(body_text(x->json, "mode"), UINT32_MAX, &mode, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	v1_pack_path(&b, s, body_text(x->json, "path"));
	pack_u32(&b, mode);
	pack_u32(&b, (uint32_t)body_count(x->json, "uid", UINT32_MAX));
	pack_u32(&b, (uint32_t)body_count(x->json, "gid", UINT32_MAX));
	ask(x, s, G_CHMOD, &b, answer_empty);
}

void v1_file_chmod(struct exchange *x)
{
	if (v1_body(x) && v1_fits(x, "path", GUEST_MAX_PATH))
		v1_awake(x, change_mode);
}
