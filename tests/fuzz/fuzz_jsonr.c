/* What a daemon answers, or whoever sits in its place: what is found must be what jansson finds. */
#include "fuzz.h"

#include "base/jsonr.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void check_string(const struct jsonr *v, const json_t *known)
{
	size_t len = 0;
	char *text = jsonr_string(v, &len);

	PROMISE((text != NULL) == json_is_string(known));
	if (text)
		PROMISE(len == json_string_length(known) &&
			memcmp(text, json_string_value(known), len) == 0 && text[len] == '\0');
	free(text);
}

static void check_items(const struct jsonr *v, const json_t *known)
{
	const char *at = NULL;
	struct jsonr item;
	size_t count = 0;

	while (jsonr_item(v, &at, &item)) {
		PROMISE(item.at >= v->at && item.at + item.len <= v->at + v->len);
		count++;
	}
	if (json_is_array(known))
		PROMISE(count == json_array_size(known));
}

static void check(const struct jsonr *v, const json_t *known)
{
	int64_t n;
	bool b;

	if (jsonr_bool(v, &b))
		PROMISE(json_is_boolean(known) && json_is_true(known) == b);
	if (jsonr_int(v, &n))
		PROMISE(json_is_integer(known) && json_integer_value(known) == n);
	PROMISE(jsonr_is_null(v) == json_is_null(known));
	check_string(v, known);
	check_items(v, known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"status", "exit_code", "stdout", "x", ""};
	json_t *all =
		json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct jsonr v = {0};
		bool found = jsonr_member((const char *)data, size, names[i], &v);

		PROMISE(!found || (v.len > 0 && v.at >= (const char *)data &&
				   v.at + v.len <= (const char *)data + size));
		/* jansson is stricter about bytes that are not UTF-8, and knows numbers too large. */
		if (found && json_is_object(all) && json_object_get(all, names[i]))
			check(&v, json_object_get(all, names[i]));
	}
	json_decref(all);
	return 0;
}
