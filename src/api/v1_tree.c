#include "api/v1.h"

#include "api/guest_stat.h"
#include "api/text.h"
#include "api/transfer.h"
#include "base/auto.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>

#define SEARCH_MAX 10000
#define DEPTH_MAX 64

static const struct body_field search_fields[] = {
	{"path", BODY_TEXT, 0, "the directory; the workspace unless said", NULL},
	{"glob", BODY_TEXT, 0, "of the path; ** crosses directories", NULL},
	{"content", BODY_TEXT, 0, "text that a line holds", NULL},
	{"regex", BODY_FLAG, 0, "content is a POSIX extended expression", NULL},
	{"ignore_case", BODY_FLAG, 0, "small and capital letters are alike", NULL},
	{"hidden", BODY_FLAG, 0, "names with a leading dot as well", NULL},
	{"max", BODY_COUNT, 0, "results (100)", NULL},
};
const struct body_table v1_search_table = {search_fields, ARRAY_LEN(search_fields), BODY_ALONE};

/* ---- lists of items, sent on as they come ---- */

struct items {
	struct exchange *x;
	struct call *call;
	json_t *(*show)(struct unpack *u);
	const char *name; /* of the array; NULL: events */
	bool begun, some, cut;
	size_t debt;
	struct sse sse;
};

static void items_done(void *data)
{
	sse_close(&((struct items *)data)->sse);
}

static void begin(struct items *t)
{
	t->begun = true;
	if (!t->name) {
		sse_open(&t->sse, t->x);
		sse_send(&t->sse, "start", json_object());
		return;
	}
	exchange_stream(t->x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	exchange_write(t->x, "{\"", 2);
	exchange_write(t->x, t->name, strlen(t->name));
	exchange_write(t->x, "\":[", 3);
}

static void item(struct items *t, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	json_t *o = t->show(&u);
	char *text;

	if (o && !t->name) {
		sse_send(&t->sse, "change", o);
	} else if (o) {
		text = json_dumps(o, JSON_COMPACT);
		if (t->some)
			exchange_write(t->x, ",", 1);
		if (text)
			exchange_write(t->x, text, strlen(text));
		t->some = true;
		free(text);
		json_decref(o);
	}
	if (exchange_room(t->x))
		call_credit(t->call, len);
	else
		t->debt += len;
}

static void on_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct items *t = arg;
	struct unpack u = unpack_from(payload, len);

	if (type == G_OK)
		begin(t);
	else if (type == G_ITEM)
		item(t, payload, len);
	else if (type == G_END)
		t->cut = unpack_u8(&u);
}

static void on_end(void *arg, const struct err *e)
{
	struct items *t = arg;
	bool failed = e && e->kind != ERR_NONE;

	t->call = NULL;
	if (!t->begun && failed) {
		exchange_error(t->x, e);
		return;
	}
	if (!t->begun)
		begin(t);
	if (failed) {
		exchange_abort(t->x);
		return;
	}
	if (t->name)
		exchange_write(t->x, t->cut ? "],\"truncated\":true}" : "],\"truncated\":false}",
			       t->cut ? 19 : 20);
	exchange_finish(t->x);
}

static void on_taken(void *arg)
{
	struct items *t = arg;

	if (t->call && t->debt)
		call_credit(t->call, t->debt);
	t->debt = 0;
}

static void on_gone(void *arg)
{
	struct items *t = arg;

	if (t->call)
		call_drop(take_ptr(t->call));
	if (t->begun)
		exchange_finish(t->x);
	else
		exchange_fail(t->x, ERR_SYSTEM, "the client has gone");
}

static void send_items(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		       const struct items *how)
{
	static const struct call_ops ops = {.on_frame = on_frame, .on_end = on_end};
	struct items *t = exchange_attach(x, sizeof(*t), items_done);

	*t = *how;
	t->x = x;
	exchange_on_gone(x, on_gone, t);
	exchange_on_room(x, on_taken, t);
	t->call = sandbox_call(s, type, buf_head(request), request->len, &ops, t);
	buf_done(request);
	if (!t->call)
		exchange_fail(x, ERR_CONFLICT, "the sandbox is not running");
}

/* ---- listing ---- */

static json_t *show_stat(struct unpack *u)
{
	struct guest_stat st;

	return guest_stat_read(u, &st) ? guest_stat_json(&st) : NULL;
}

static void list_files(struct exchange *x, struct sandbox *s)
{
	static const struct items how = {.show = show_stat, .name = "entries"};
	struct buf b = {0};
	struct err e = {0};
	uint64_t depth;

	if (exchange_arg_uint(x, "depth", 1, DEPTH_MAX, &depth, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u32(&b, depth ? (uint32_t)depth : 1);
	send_items(x, s, G_LIST, &b, &how);
}

void v1_file_list(struct exchange *x)
{
	v1_awake(x, list_files);
}

/* ---- searching ---- */

static json_t *show_found(struct unpack *u)
{
	size_t path_len, text_len;
	const char *path = unpack_bytes(u, &path_len), *text;
	uint64_t line = unpack_u64(u);
	json_t *o;

	text = unpack_bytes(u, &text_len);
	if (u->bad)
		return NULL;
	o = json_pack("{s:o}", "path", text_json(path, path_len));
	if (line) {
		json_object_set_new(o, "line", json_integer((json_int_t)line));
		json_object_set_new(o, "text", text_json(text, text_len));
	}
	return o;
}

static void search_files(struct exchange *x, struct sandbox *s)
{
	static const struct items how = {.show = show_found, .name = "results"};
	const char *path = body_text(x->json, "path");
	uint64_t max = body_count(x->json, "max", 100);
	struct buf b = {0};

	v1_pack_path(&b, s, path ? path : "");
	pack_str(&b, body_text(x->json, "glob"));
	pack_str(&b, body_text(x->json, "content"));
	pack_u8(&b, (uint8_t)((body_flag(x->json, "regex") ? GUEST_SEARCH_REGEX : 0) |
			      (body_flag(x->json, "ignore_case") ? GUEST_SEARCH_NOCASE : 0) |
			      (body_flag(x->json, "hidden") ? GUEST_SEARCH_HIDDEN : 0)));
	pack_u32(&b, (uint32_t)(max > SEARCH_MAX ? SEARCH_MAX : max));
	send_items(x, s, G_SEARCH, &b, &how);
}

void v1_file_search(struct exchange *x)
{
	if (v1_body(x) && v1_fits(x, "path", GUEST_MAX_PATH) &&
	    v1_fits(x, "glob", GUEST_MAX_GLOB) && v1_fits(x, "content", GUEST_MAX_PATH))
		v1_awake(x, search_files);
}

/* ---- watching ---- */

static json_t *show_change(struct unpack *u)
{
	static const char *const names[] = {"created", "written", "removed",
					    "renamed", "chmod",	  "overflow"};
	uint8_t kind = unpack_u8(u);
	size_t len;
	const char *path = unpack_bytes(u, &len);
	bool is_dir = unpack_u8(u);

	if (u->bad || kind >= ARRAY_LEN(names))
		return NULL;
	return json_pack("{s:s, s:o, s:b}", "change", names[kind], "path", text_json(path, len),
			 "directory", is_dir);
}

static void watch_files(struct exchange *x, struct sandbox *s)
{
	static const struct items how = {.show = show_change};
	struct buf b = {0};

	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u8(&b, exchange_arg_flag(x, "recursive"));
	send_items(x, s, G_WATCH, &b, &how);
}

void v1_file_watch(struct exchange *x)
{
	if (v1_path(x))
		v1_awake(x, watch_files);
}

/* ---- tars ---- */

static bool begin_tar(struct exchange *x, const void *payload, size_t len)
{
	(void)payload;
	(void)len;
	exchange_stream(x, 200, "application/x-tar", EXCHANGE_UNKNOWN_LENGTH);
	return true;
}

static void get_tar(struct exchange *x, struct sandbox *s)
{
	static const struct transfer_ops ops = {begin_tar, NULL};
	struct buf b = {0};

	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u8(&b, 0);
	transfer_down(x, s, G_TAR_OUT, &b, &ops);
}

void v1_file_get_tar(struct exchange *x)
{
	if (v1_path(x))
		v1_awake(x, get_tar);
}

static void was_unpacked(struct exchange *x, uint64_t entries)
{
	exchange_json(x, 200, json_pack("{s:I}", "entries", (json_int_t)entries));
}

static void put_tar(struct exchange *x, struct sandbox *s)
{
	static const struct transfer_ops ops = {NULL, was_unpacked};
	struct buf b = {0};

	v1_pack_path(&b, s, exchange_arg(x, "path"));
	pack_u8(&b, exchange_arg_flag(x, "strict") ? GUEST_TAR_STRICT : 0);
	transfer_up(x, s, G_TAR_IN, &b, &ops);
}

void v1_file_put_tar(struct exchange *x)
{
	if (v1_path(x))
		v1_awake(x, put_tar);
}
