/* Directories of a sandbox over REST: lists, searches, watches and archives. */
#include "api/rest/rest.h"

#include "api/http/transfer.h"

#include <assert.h>

#define SEARCH_MAX 10000
#define DEPTH_MAX 64

const struct body_table v1_search_table =
	BODY_TABLE(BODY_ALONE, FIELD("path", BODY_PATH, "the directory; the workspace unless said"),
		   FIELD("glob", BODY_GLOB, "of the path; ** crosses directories"),
		   FIELD("content", BODY_PATH, "text that a line holds"),
		   FIELD("regex", BODY_FLAG, "content is a POSIX extended expression"),
		   FIELD("ignore_case", BODY_FLAG, "small and capital letters are alike"),
		   FIELD("hidden", BODY_FLAG, "names with a leading dot as well"),
		   FIELD("max", BODY_COUNT, "results (100)"));

/* ---- arrays of items, sent on as they come ---- */

struct items {
	const char *name; /* of the array */
	bool some;
};

static int64_t begin_array(struct exchange *x, const struct file_info *info)
{
	struct items *t = x->data;

	exchange_stream(x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	exchange_write(x, "{\"", 2);
	exchange_write(x, t->name, strlen(t->name));
	exchange_write(x, "\":[", 3);
	return TRANSFER_UNKNOWN;
}

/* Takes the value over. */
static void send_item(struct exchange *x, json_t *o)
{
	struct items *t = x->data;
	char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	if (t->some)
		exchange_write(x, ",", 1);
	if (text)
		exchange_write(x, text, strlen(text));
	t->some = true;
	free(text);
}

static void send_file(void *arg, const struct file_info *f)
{
	send_item(((struct transfer *)arg)->x, v1_file_json(f));
}

static void send_match(void *arg, const struct file_match *m)
{
	json_t *o = json_pack("{s:o}", "path", text_json_of(m->path));

	if (m->line) {
		json_object_set_new(o, "line", json_integer((json_int_t)m->line));
		json_object_set_new(o, "text", text_json(m->text, m->len));
	}
	send_item(((struct transfer *)arg)->x, o);
}

static void end_array(struct exchange *x, const struct answer *a)
{
	const char *end = a->cut ? "],\"truncated\":true}" : "],\"truncated\":false}";

	exchange_write(x, end, strlen(end));
}

static struct transfer *send_array(struct exchange *x, const char *name)
{
	static const struct transfer_ops ops = {.begin = begin_array, .end = end_array};
	struct items *items = exchange_attach(x, sizeof(*items), NULL);
	struct transfer *t = transfer_down(x, &ops);

	items->name = name;
	t->receiver.file = send_file;
	t->receiver.match = send_match;
	return t;
}

void v1_file_list(struct exchange *x)
{
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct transfer *t;
	uint64_t depth;

	if (!v1_arg_uint(x, "depth", 1, DEPTH_MAX, &depth))
		return;
	t = send_array(x, "entries");
	t->call = call_list(x->sandbox, path, depth ? (uint32_t)depth : 1, &t->receiver);
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
	struct transfer *t = send_array(x, "results");

	t->call = call_search(x->sandbox, &q, &t->receiver);
}

/* ---- watching ---- */

static void close_events(void *data)
{
	sse_close(data);
}

static int64_t begin_events(struct exchange *x, const struct file_info *info)
{
	exchange_set_endless(x);
	sse_open(x->data, x);
	sse_send(x->data, "start", json_object());
	return TRANSFER_UNKNOWN;
}

static void send_change(void *arg, const struct file_change *c)
{
	static const char *const names[] = {"created", "written", "removed",
					    "renamed", "chmod",	  "overflow"};
	struct transfer *t = arg;

	static_assert(ARRAY_LEN(names) == FILE_COUNT, "a name per kind");
	sse_send(t->x->data, "change",
		 json_pack("{s:s, s:o, s:b}", "change", names[c->kind], "path",
			   text_json_of(c->path), "directory", c->is_dir));
}

void v1_file_watch(struct exchange *x)
{
	static const struct transfer_ops ops = {.begin = begin_events};
	auto_free char *path = v1_file_path(x->sandbox, exchange_arg(x, "path"));
	struct transfer *t = transfer_down(x, &ops);

	exchange_attach(x, sizeof(struct sse), close_events);
	t->receiver.change = send_change;
	t->call = call_watch(x->sandbox, path, exchange_arg_flag(x, "recursive"), &t->receiver);
}

/* ---- archives ---- */

static int64_t begin_tar(struct exchange *x, const struct file_info *info)
{
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
