/* YAML's events become JSON values. Anchors, aliases and tags are refused by events.c, depth and size here. */
#include "policy/document.h"

#include "policy/events.h"

#include <dirent.h>

#define DEPTH 8
#define FILE_BYTES (1u << 20)
#define FILES 256

struct reader {
	struct events ev;
	json_t *into; /* borrowed: the mapping or list that is read */
	unsigned depth;
};

static json_t *read_value(struct reader *r);

static json_t *scalar_value(struct events *ev)
{
	const char *text = events_text(ev);
	bool plain = ev->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	char *end = NULL;
	long long n;

	if (events_at_null(ev))
		return json_null();
	if (plain && (str_equal(text, "true") || str_equal(text, "false")))
		return json_boolean(text[0] == 't');
	errno = 0;
	n = plain ? strtoll(text, &end, 10) : 0;
	if (plain && end != text && !*end && errno == 0)
		return json_integer(n);
	if (plain && str_only(text, STR_DIGITS ".", 1, 32) && strchr(text, '.'))
		return json_real(strtod(text, NULL));
	return json_string(text);
}

static int read_item(void *arg)
{
	struct reader *r = arg;
	json_t *value = read_value(r);

	return value ? json_array_append_new(r->into, value) : -1;
}

static int read_pair(void *arg)
{
	struct reader *r = arg;
	auto_free char *key = NULL;
	json_t *into = r->into, *value;

	if (events_want_scalar(&r->ev, "", "a key") < 0)
		return -1;
	key = str_copy(events_text(&r->ev));
	if (json_object_get(into, key))
		return events_fail(&r->ev, key, "%.64s: is given twice", key);
	if (events_next(&r->ev) < 0)
		return -1;
	value = read_value(r);
	return value ? json_object_set_new(into, key, value) : -1;
}

static json_t *read_value(struct reader *r)
{
	bool is_list = r->ev.event.type == YAML_SEQUENCE_START_EVENT;
	json_t *outer = r->into, *ret;
	int rc;

	if (events_at_scalar(&r->ev)) {
		ret = scalar_value(&r->ev);
		if (!ret)
			events_fail(&r->ev, "", "the value is not UTF-8");
		return ret;
	}
	if (++r->depth > DEPTH) {
		events_fail(&r->ev, "", "it is nested too deeply");
		return NULL;
	}
	ret = is_list ? json_array() : json_object();
	r->into = ret;
	rc = events_each(&r->ev, is_list ? read_item : read_pair, r);
	r->into = outer;
	r->depth--;
	if (rc == 0)
		return ret;
	json_decref(ret);
	return NULL;
}

json_t *document_read(const char *file, const char *text, size_t len, struct err *e)
{
	struct reader r = {.into = json_object()};
	json_t *ret = r.into;
	int rc;

	*e = (struct err){0};
	events_init(&r.ev, file, text, len, e);
	rc = events_document(&r.ev, "this file", false, read_pair, &r);
	events_done(&r.ev);
	if (rc == 0)
		return ret;
	json_decref(ret);
	return NULL;
}

/* ---- directories ---- */

static json_t *read_file(const char *path, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	auto_free char *text = NULL;
	size_t len = 0;

	if (fd < 0 || io_read_whole(fd, FILE_BYTES, &text, &len) < 0) {
		err_sys(e, "%s: cannot read", path);
		return NULL;
	}
	return document_read(path, text, len, e);
}

/* The NAME of NAME.yaml; false: it is no such file. */
static bool name_of(const char *file, char *ret, size_t size)
{
	size_t len = strlen(file);

	if (len < 6 || len - 5 >= size || !str_equal(file + len - 5, ".yaml"))
		return false;
	memcpy(ret, file, len - 5);
	ret[len - 5] = '\0';
	return str_only(ret, STR_LOWER STR_DIGITS "-_", 1, 63);
}

static void read_directory(const char *dir, json_t *ret,
			   void (*bad)(const char *file, const struct err *e))
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	char name[64];

	while (d && (entry = readdir(d)) && json_object_size(ret) < FILES) {
		auto_free char *path = str_format("%s/%s", dir, entry->d_name);
		struct err e = {0};
		json_t *value;

		if (!name_of(entry->d_name, name, sizeof(name)))
			continue;
		value = read_file(path, &e);
		if (value)
			json_object_set_new(ret, name, value);
		else
			bad(path, &e);
	}
	if (d)
		closedir(d);
}

json_t *documents_read(const char *const *dirs, size_t count,
		       void (*bad)(const char *file, const struct err *e))
{
	json_t *ret = json_object();

	for (size_t i = 0; i < count; i++)
		if (dirs[i] && dirs[i][0])
			read_directory(dirs[i], ret, bad);
	return ret;
}
