/* Parses the launcher's record and answers questions about it. */
#include "lib/record.h"

#include "base/base64.h"

#include <jansson.h>

struct record_file {
	const char *path;
	char *data;
	size_t len;
};

struct cloche_result {
	char *text;
	json_t *root;
	struct record_file *files;
	size_t file_count;
};

/* Output of the program may hold NUL. */
enum { LOAD_FLAGS = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES };

static int decode_file(struct record_file *f, const json_t *row)
{
	const json_t *content = json_object_get(row, "content_base64");
	size_t len = json_string_length(content);

	f->path = json_string_value(json_object_get(row, "path"));
	if (!f->path || !json_is_string(content))
		return -1;
	f->data = malloc(len / 4 * 3 + 1);
	if (!f->data || base64_decode(f->data, json_string_value(content), len, &f->len) < 0)
		return -1;
	f->data[f->len] = '\0';
	return 0;
}

static int decode_files(struct cloche_result *r)
{
	const json_t *rows = json_object_get(r->root, "files");
	size_t count = json_array_size(rows);

	if (count == 0)
		return 0;
	r->files = calloc(count, sizeof(*r->files));
	if (!r->files)
		return -1;
	for (; r->file_count < count; r->file_count++)
		if (decode_file(&r->files[r->file_count], json_array_get(rows, r->file_count)) <
		    0) {
			r->file_count++;
			return -1;
		}
	return 0;
}

struct cloche_result *record_parse(char *text, size_t len)
{
	struct cloche_result *r = text ? calloc(1, sizeof(*r)) : NULL;

	if (!r) {
		free(text);
		return NULL;
	}
	r->text = text;
	r->root = json_loadb(text, len, LOAD_FLAGS, NULL);
	if (!json_is_string(json_object_get(r->root, "status")) ||
	    !json_is_string(json_object_get(r->root, "stdout")) ||
	    !json_is_string(json_object_get(r->root, "stderr")) || decode_files(r) < 0) {
		cloche_result_free(r);
		return NULL;
	}
	while (len > 0 && text[len - 1] == '\n')
		text[--len] = '\0';
	return r;
}

enum cloche_error_kind record_error(const char *text, size_t len, char *ret, size_t size)
{
	static const struct {
		const char *name;
		enum cloche_error_kind kind;
	} kinds[] = {
		{"invalid", CLOCHE_INVALID},	     {"denied", CLOCHE_DENIED},
		{"not_found", CLOCHE_NOT_FOUND},     {"limit", CLOCHE_LIMIT},
		{"unsupported", CLOCHE_UNSUPPORTED},
	};
	json_t *root = text ? json_loadb(text, len, LOAD_FLAGS, NULL) : NULL;
	const json_t *error = json_object_get(root, "error");
	const char *kind = json_string_value(json_object_get(error, "kind"));
	const char *message = json_string_value(json_object_get(error, "message"));
	enum cloche_error_kind result = kind && message ? CLOCHE_SYSTEM : CLOCHE_OK;

	for (size_t i = 0; result && i < ARRAY_LEN(kinds); i++)
		if (strcmp(kind, kinds[i].name) == 0)
			result = kinds[i].kind;
	if (result)
		snprintf(ret, size, "%s", message);
	json_decref(root);
	return result;
}

/* ---- what callers ask ---- */

void cloche_result_free(struct cloche_result *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->file_count; i++)
		free(r->files[i].data);
	free(r->files);
	json_decref(r->root);
	free(r->text);
	free(r);
}

const char *cloche_result_status(const struct cloche_result *r)
{
	return json_string_value(json_object_get(r->root, "status"));
}

int cloche_result_success(const struct cloche_result *r)
{
	return json_is_true(json_object_get(r->root, "success"));
}

int cloche_result_exit_code(const struct cloche_result *r)
{
	const json_t *code = json_object_get(r->root, "exit_code");

	return json_is_integer(code) ? (int)json_integer_value(code) : -1;
}

int cloche_result_signal(const struct cloche_result *r)
{
	return (int)json_integer_value(json_object_get(r->root, "signal"));
}

static const char *text_of(const struct cloche_result *r, const char *name, size_t *ret_len)
{
	const json_t *text = json_object_get(r->root, name);

	if (ret_len)
		*ret_len = json_string_length(text);
	return json_string_value(text);
}

const char *cloche_result_stdout(const struct cloche_result *r, size_t *ret_len)
{
	return text_of(r, "stdout", ret_len);
}

const char *cloche_result_stderr(const struct cloche_result *r, size_t *ret_len)
{
	return text_of(r, "stderr", ret_len);
}

int cloche_result_truncated(const struct cloche_result *r)
{
	return json_is_true(json_object_get(r->root, "stdout_truncated")) ||
	       json_is_true(json_object_get(r->root, "stderr_truncated"));
}

double cloche_result_number(const struct cloche_result *r, const char *name)
{
	const json_t *number = json_object_get(r->root, name);

	return json_is_number(number) ? json_number_value(number) : -1;
}

size_t cloche_result_file_count(const struct cloche_result *r)
{
	return r->file_count;
}

const char *cloche_result_file_path(const struct cloche_result *r, size_t index)
{
	return index < r->file_count ? r->files[index].path : NULL;
}

const void *cloche_result_file_data(const struct cloche_result *r, size_t index, size_t *ret_len)
{
	if (index >= r->file_count)
		return NULL;
	if (ret_len)
		*ret_len = r->files[index].len;
	return r->files[index].data;
}

const char *cloche_result_json(const struct cloche_result *r)
{
	return r->text;
}
