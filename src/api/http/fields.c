/* Request bodies against their tables: see fields.h. */
#include "api/http/fields.h"

#include "base/base64.h"
#include "calls/calls.h"

#include <assert.h>
#include <math.h>

/* ---- which options there are ---- */

/* No client of the daemon names a path of the host (rule 4), nor what only a command line means. */
static const char *const refused[] = {"mount",	 "mount_read", "mount_write", "forbid", "workspace",
				      "apply",	 "apply_also", "diff",	      "empty",	"tools",
				      "file",	 "policy",     "audit",	      "json",	"tty",
				      "capture", "env",	       "encoding"};

static const char *const limits[] = {"memory",	   "cpus",	"pids",
				     "disk",	   "timeout",	"cpu_time",
				     "open_files", "file_size", "output_limit"};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(name, names[i]))
			return true;
	return false;
}

bool body_knows_spec(const struct body_table *t, const struct field *f)
{
	if (t->with == BODY_ALONE || is_one_of(f->name, refused, ARRAY_LEN(refused)))
		return false;
	return t->with == BODY_WITH_SPEC || is_one_of(f->name, limits, ARRAY_LEN(limits));
}

static const struct body_field *find(const struct body_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (str_equal(t->fields[i].name, name))
			return &t->fields[i];
	return NULL;
}

static bool is_near(const char *a, const char *b)
{
	size_t n = strlen(a);

	return n > 2 && (!strncmp(a, b, n - 1) || str_starts(b, a) || str_starts(a, b));
}

static int unknown(const struct body_table *t, const char *name, struct err *e)
{
	const struct field *f = spec_field_find(name);
	const char *near = t->with == BODY_ALONE ? NULL : spec_field_near(name);

	if (f && t->with != BODY_ALONE && is_one_of(f->name, refused, ARRAY_LEN(refused)))
		return err_field(e, ERR_DENIED, f->name,
				 "%s: not taken from clients of the daemon; what is of the host is "
				 "the operator's to offer, as volumes and images",
				 f->name);
	for (size_t i = 0; i < t->count && !near; i++)
		if (is_near(name, t->fields[i].name))
			near = t->fields[i].name;
	return err_field(e, ERR_INVALID, name, "unknown field '%.60s'%s%s%s", name,
			 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* ---- types ---- */

static bool is_text(const json_t *v)
{
	return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
}

static bool is_list(const json_t *v)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)v, i, item)
		if (!is_text(item))
			return false;
	return true;
}

static bool is_map(const json_t *v)
{
	const json_t *item;
	const char *key;

	json_object_foreach ((json_t *)v, key, item)
		if (!is_text(item))
			return false;
	return true;
}

/* Kinds of values; one value can be of several. */
enum {
	TEXT = 1,
	COUNT = 2,
	NUMBER = 4,
	FLAG = 8,
	TEXTS = 16,
	MAP_OF_TEXTS = 32,
	ARRAY = 64,
	OBJECT = 128
};

static unsigned kinds_of(const json_t *v)
{
	if (json_is_number(v))
		return json_number_value(v) < 0 ? 0 : NUMBER | (json_is_integer(v) ? COUNT : 0);
	if (json_is_array(v))
		return ARRAY | (is_list(v) ? TEXTS : 0);
	if (json_is_object(v))
		return OBJECT | (is_map(v) ? MAP_OF_TEXTS : 0);
	return json_is_boolean(v) ? FLAG : is_text(v) ? TEXT : 0;
}

#define STRING "{\"type\":\"string\"}"
#define LIST "{\"type\":\"array\",\"items\":" STRING "}"
#define MAP "{\"type\":\"object\",\"additionalProperties\":" STRING "}"

static const struct {
	unsigned kinds; /* any of them */
	const char *wants, *schema;
} types[] = {
	[BODY_TEXT] = {TEXT, "a string", STRING},
	[BODY_WORD] = {TEXT | COUNT, "a string or a whole number",
		       "{\"oneOf\":[{\"type\":\"integer\"}," STRING "]}"},
	[BODY_COUNT] = {COUNT, "a whole number", "{\"type\":\"integer\",\"minimum\":0}"},
	[BODY_TIME] = {TEXT | NUMBER, "seconds or a time like \"500ms\"",
		       "{\"oneOf\":[{\"type\":\"number\"}," STRING "]}"},
	[BODY_FLAG] = {FLAG, "true or false", "{\"type\":\"boolean\"}"},
	[BODY_LIST] = {TEXTS, "an array of strings", LIST},
	[BODY_MAP] = {MAP_OF_TEXTS, "an object of strings", MAP},
	[BODY_ENV] = {TEXTS | MAP_OF_TEXTS, "an object of strings, or an array of \"K=V\"",
		      "{\"oneOf\":[" MAP "," LIST "]}"},
	[BODY_ITEMS] = {ARRAY, "an array of objects", "{\"type\":\"array\"}"},
	[BODY_OBJECT] = {OBJECT, "an object", "{\"type\":\"object\"}"},
};
static_assert(ARRAY_LEN(types) == BODY_TYPE_COUNT, "a row per type");

const char *body_type_schema(enum body_type type)
{
	return types[type].schema;
}

/* A relative path is put behind that of the workspace. */
static bool is_too_long(const struct body_field *f, const json_t *v)
{
	size_t most = f->flags & BODY_PATH ? CALL_PATH_MAX : CALL_GLOB_MAX;

	return f->flags & (BODY_PATH | BODY_GLOB) && json_string_length(v) >= most - 16;
}

static int refuse_type(const struct body_field *f, struct err *e)
{
	return err_field(e, ERR_INVALID, f->name, "%s: wants %s", f->name, types[f->type].wants);
}

static int check_value(const struct body_field *f, const json_t *v, struct err *e)
{
	json_t *item;
	size_t i;

	if (!(kinds_of(v) & types[f->type].kinds))
		return refuse_type(f, e);
	if (is_too_long(f, v))
		return err_field(e, ERR_INVALID, f->name, "%s: is too long", f->name);
	if (f->type == BODY_OBJECT && f->items)
		return body_check(v, f->items, e);
	if (f->type != BODY_ITEMS || !f->items)
		return 0;
	json_array_foreach ((json_t *)v, i, item) {
		if (!json_is_object(item))
			return refuse_type(f, e);
		if (body_check(item, f->items, e) < 0)
			return err_wrap(e, "%s[%zu]", f->name, i);
	}
	return 0;
}

int body_check(const json_t *body, const struct body_table *t, struct err *e)
{
	const json_t *v;
	const char *key;

	if (body && !json_is_object(body))
		return err_set(e, ERR_INVALID, "the body is not a JSON object");
	json_object_foreach ((json_t *)body, key, v) {
		const struct body_field *f = find(t, key);
		const struct field *option = f ? NULL : spec_field_find(key);

		if (json_is_null(v))
			continue;
		if (f && check_value(f, v, e) < 0)
			return -1;
		if (!f && (!option || strchr(key, '-') || !body_knows_spec(t, option)))
			return unknown(t, key, e);
	}
	for (size_t i = 0; i < t->count; i++)
		if (t->fields[i].flags & BODY_REQUIRED && !body_has(body, t->fields[i].name))
			return err_field(e, ERR_INVALID, t->fields[i].name, "%s: is missing",
					 t->fields[i].name);
	return 0;
}

/* ---- sandbox options ---- */

/* A JSON scalar as it would be typed on a command line. */
static bool as_text(const json_t *v, char *text, size_t size)
{
	if (is_text(v))
		return (size_t)snprintf(text, size, "%s", json_string_value(v)) < size;
	if (json_is_boolean(v))
		snprintf(text, size, "%s", json_is_true(v) ? "true" : "false");
	else if (json_is_integer(v))
		snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v) && isfinite(json_real_value(v)) && json_real_value(v) >= 0 &&
		 json_real_value(v) < 1e12)
		snprintf(text, size, "%.3f", json_real_value(v));
	else
		return false;
	return true;
}

static int set_option(struct sandbox_spec *s, const struct field *f, const json_t *v, struct err *e)
{
	char text[4096];
	const json_t *item;
	size_t i;

	if (f->type == FIELD_LIST && json_is_array(v)) {
		json_array_foreach ((json_t *)v, i, item) {
			if (!as_text(item, text, sizeof(text)))
				return err_field(e, ERR_INVALID, f->name,
						 "%s: wants an array of strings", f->name);
			if (spec_set(s, f->name, text, e) < 0)
				return -1;
		}
		return 0;
	}
	if (!as_text(v, text, sizeof(text)))
		return err_field(e, ERR_INVALID, f->name, "%s: wants a string or a number",
				 f->name);
	return spec_set(s, f->name, text, e);
}

int body_spec(const json_t *body, const struct body_table *t, struct sandbox_spec *s, struct err *e)
{
	const json_t *v;
	const char *key;

	json_object_foreach ((json_t *)body, key, v) {
		const struct field *f = find(t, key) ? NULL : spec_field_find(key);

		if (f && !json_is_null(v) && set_option(s, f, v, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- getters ---- */

int body_choice(const json_t *body, const char *name, const char *const *values, struct err *e)
{
	const char *text = body_text(body, name);
	char all[128] = "";
	size_t len = 0;

	for (int i = 0; values[i]; i++) {
		if (!text || str_equal(text, values[i]))
			return i;
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "",
					values[i]);
	}
	return err_field(e, ERR_INVALID, name, "%s: '%.40s' is not one of %s", name, text, all);
}

bool body_has(const json_t *body, const char *name)
{
	const json_t *v = json_object_get(body, name);

	return v && !json_is_null(v);
}

const char *body_text(const json_t *body, const char *name)
{
	return json_string_value(json_object_get(body, name));
}

uint64_t body_count(const json_t *body, const char *name, uint64_t dflt)
{
	return body_has(body, name) ? (uint64_t)json_integer_value(json_object_get(body, name))
				    : dflt;
}

bool body_flag(const json_t *body, const char *name)
{
	return json_is_true(json_object_get(body, name));
}

int body_time(const json_t *body, const char *name, uint64_t dflt_ms, uint64_t *ret_ms,
	      struct err *e)
{
	struct err inner = {0};
	char text[64];

	if (!body_has(body, name)) {
		*ret_ms = dflt_ms;
		return 0;
	}
	if (!as_text(json_object_get(body, name), text, sizeof(text)))
		return err_field(e, ERR_INVALID, name, "%s: is not a time", name);
	if (parse_time(text, ret_ms, &inner) < 0)
		return err_field(e, inner.kind, name, "%s: %.400s", name, inner.msg);
	return 0;
}

void body_list(const json_t *body, const char *name, struct list *ret)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(body, name), i, item)
		list_add(ret, json_string_value(item));
}

static int add_variable(struct list *ret, const char *name, char *pair, struct err *e)
{
	if (pair[0] == '=' || !strchr(pair, '=') || strchr(pair, '\n') == pair) {
		free(pair);
		return err_field(e, ERR_INVALID, name, "%s: wants names with values, K=V", name);
	}
	list_take(ret, pair);
	return 0;
}

int body_env(const json_t *body, const char *name, struct list *ret, struct err *e)
{
	const json_t *env = json_object_get(body, name), *item;
	const char *key;
	size_t i;

	json_array_foreach ((json_t *)env, i, item)
		if (add_variable(ret, name, str_copy(json_string_value(item)), e) < 0)
			return -1;
	json_object_foreach ((json_t *)env, key, item) {
		if (strchr(key, '='))
			return err_field(e, ERR_INVALID, name, "%s: '=' in a name", name);
		if (add_variable(ret, name, str_format("%s=%s", key, json_string_value(item)), e) <
		    0)
			return -1;
	}
	return 0;
}

int body_bytes(const json_t *body, const char *text, const char *base64, char **ret,
	       size_t *ret_len, struct err *e)
{
	const json_t *coded = json_object_get(body, base64), *plain = json_object_get(body, text);
	size_t len = json_string_length(json_is_string(coded) ? coded : plain);

	*ret = must_alloc(malloc(len + 1));
	*ret_len = len;
	if (!json_is_string(coded)) {
		memcpy(*ret, len ? json_string_value(plain) : "", len);
	} else if (base64_decode(*ret, json_string_value(coded), len, ret_len) < 0) {
		free(take_ptr(*ret));
		return err_field(e, ERR_INVALID, base64, "%s: is not base64", base64);
	}
	return 0;
}
