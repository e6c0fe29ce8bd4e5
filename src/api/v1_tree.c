/* Directories of a sandbox over REST: lists, searches, watches and archives. */
#include "api/v1.h"

#include "api/text.h"
#include "api/transfer.h"
#include "base/auto.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SEARCH_MAX 10000
#define DEPTH_MAX 64

static const struct body_field search_fields[] = {
	{"path", BODY_TEXT, BODY_PATH, "the directory; the workspace unless said", NULL},
	{"glob", BODY_TEXT, BODY_GLOB, "of the path; ** crosses directories", NULL},
	{"content", BODY_TEXT, BODY_PATH, "text that a line holds", NULL},
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
	struct pump pump;
	const char *name; /* of the array; NULL: events */
	bool begun, some;
	struct sse sse;
};

static void items_done(void *data)
{
	sse_close(&((struct items *)data)->sse);
}

static void begin_items(void *arg, const struct file_info *info)
{
	struct items *t = arg;

	(void)info;
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

/* Takes the value over. */
static void send_item(struct items *t, json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	if (t->some)
		exchange_write(t->x, ",", 1);
	if (text)
		exchange_write(t->x, text, strlen(text));
	t->some = true;
	free(text);
}

static void end_items(void *arg, const struct answer *a, const struct err *e)
{
	struct items *t = arg;
	const char *end = a && a->cut ? "],\"truncated\":true}" : "],\"truncated\":false}";

	t->call = NULL;
	if (!t->begun) {
		exchange_error(t->x, e);
		return;
	}
	if (e) {
		exchange_abort(t->x);
		return;
	}
	if (t->name)
		exchange_write(t->x, end, strlen(end));
	exchange_finish(t->x);
}

static void client_gone(void *arg)
{
	struct items *t = arg;

	call_drop(take_ptr(t->call));
	if (t->begun)
		exchange_finish(t->x);
	else
		exchange_fail(t->x, ERR_SYSTEM, "the client has gone");
}

static void send_file(void *arg, const struct file_info *f)
{
	send_item(arg, v1_file_json(f));
}

static void send_match(void *arg, const struct file_match *m)
{
	json_t *o = json_pack("{s:o}", "path", text_json(m->path, strlen(m->path)));

	if (m->line) {
		json_object_set_new(o, "line", json_integer((json_int_t)m->line));
		json_object_set_new(o, "text", text_json(m->text, m->len));
	}
	send_item(arg, o);
}

static void send_change(void *arg, const struct file_change *c)
{
	static const char *const names[] = {"created", "written", "removed",
					    "renamed", "chmod",	  "overflow"};
	struct items *t = arg;

	static_assert(ARRAY_LEN(names) == FILE_COUNT, "a name per kind");
	sse_send(&t->sse, "change",
		 json_pack("{s:s, s:o, s:b}", "change", names[c->kind], "path",
			   text_json(c->path, strlen(c->path)), "directory", c->is_dir));
}

/* name: of the array; NULL: events. */
static struct items *new_items(struct exchange *x, const char *name, struct receiver *ret)
{
	struct items *t = exchange_attach(x, sizeof(*t), items_done);

	t->x = x;
	t->name = name;
	exchange_on_gone(x, client_gone, t);
	exchange_pump(x, &t->pump);
	*ret = (struct receiver){.begin = begin_items,
				 .file = send_file,
				 .match = send_match,
				 .change = send_change,
				 .done = end_items,
				 .arg = t,
				 .pump = &t->pump};
	return t;
}

void v1_file_list(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct receiver r;
	struct items *t;
	uint64_t depth;

	if (!v1_arg_uint(x, "depth", 1, DEPTH_MAX, &depth))
		return;
	t = new_items(x, "entries", &r);
	t->call = call_list(x->sandbox, path, depth ? (uint32_t)depth : 1, &r);
}

void v1_file_search(struct exchange *x)
{
	const char *path = body_text(x->json, "path");
	auto_free char *whole = v1_file_path(x->sandbox, path ? path : "");
	uint64_t most = body_count(x->json, "max", 100);
	struct file_search q = {.path = whole,
				.glob = body_text(x->json, "glob"),
				.content = body_text(x->json, "content"),
				.regex = body_flag(x->json, "regex"),
				.ignore_case = body_flag(x->json, "ignore_case"),
				.hidden = body_flag(x->json, "hidden"),
				.most = (uint32_t)(most > SEARCH_MAX ? SEARCH_MAX : most)};
	struct receiver r;
	struct items *t = new_items(x, "results", &r);

	t->call = call_search(x->sandbox, &q, &r);
}

void v1_file_watch(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct receiver r;
	struct items *t = new_items(x, NULL, &r);

	t->call = call_watch(x->sandbox, path, exchange_arg_flag(x, "recursive"), &r);
}

/* ---- archives ---- */

static int64_t begin_tar(struct exchange *x, const struct file_info *info)
{
	(void)info;
	exchange_stream(x, 200, "application/x-tar", EXCHANGE_UNKNOWN_LENGTH);
	return TRANSFER_UNKNOWN;
}

void v1_file_get_tar(struct exchange *x)
{
	static const struct transfer_ops ops = {.begin = begin_tar};
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct transfer *t = transfer_down(x, &ops);

	t->call = call_pack(x->sandbox, path, &t->receiver);
}

static void was_unpacked(struct exchange *x, uint64_t entries)
{
	exchange_json(x, 200, json_pack("{s:I}", "entries", (json_int_t)entries));
}

void v1_file_put_tar(struct exchange *x)
{
	static const struct transfer_ops ops = {.done = was_unpacked};
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct transfer *t = transfer_up(x, &ops);

	t->call = call_unpack(x->sandbox, path, exchange_arg_flag(x, "strict"), &t->receiver);
}
