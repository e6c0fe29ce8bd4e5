/* Checks JSON objects against tables of fields, and writes the schemas of those tables: see fields.h. */
#include "api/http/fields.h"

#include "base/base64.h"
#include "calls/calls.h"

#include <assert.h>
#include <math.h>

/* ---- which options there are ---- */

/* Clients of the daemon may not name paths of the host (rule 4), nor options of a command line only. */
static const char *const refused[] = {
	"mount",      "mount_read",   "mount_write", "forbid",	"workspace", "apply",
	"apply_also", "diff",	      "empty",	     "no_git",	"tools",     "file",
	"policy",     "audit",	      "json",	     "tty",	"capture",   "env",
	"encoding",   "keep_control", "cwd_file",    "seccomp", "net_log",   "secret",
	"publish",    "tool_rule",    "interceptor"};

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

static bool is_of_network(const char *name)
{
	return str_equal(name, "net") || str_equal(name, "allow") || str_equal(name, "deny") ||
	       (str_starts(name, "net_") && !str_equal(name, "net_log"));
}

bool body_knows_spec(const struct body_table *t, const struct field *f)
{
	if (t->with == BODY_ALONE || is_one_of(f->name, refused, ARRAY_LEN(refused)))
		return false;
	if (t->with == BODY_WITH_NETWORK)
		return is_of_network(f->name);
	return t->with == BODY_WITH_SPEC || is_one_of(f->name, limits, ARRAY_LEN(limits));
}

const struct body_field *body_field_find(const struct body_table *t, const char *name)
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

static int refuse_unknown(const struct body_table *t, const char *name, struct err *e)
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

/* Are all items of an array, or all values of an object, texts? */
static bool holds_texts(const json_t *v)
{
	const json_t *item;
	const char *key;
	size_t i;

	json_array_foreach ((json_t *)v, i, item)
		if (!is_text(item))
			return false;
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
	OBJECT = 128,
	ANY_TEXT = 256,
	ANY_INTEGER = 512,
	ANY_NUMBER = 1024
};

static unsigned kinds_of(const json_t *v)
{
	unsigned any = json_is_integer(v) ? ANY_INTEGER | ANY_NUMBER : ANY_NUMBER;

	if (json_is_number(v))
		return json_number_value(v) < 0 ? any
						: any | NUMBER | (json_is_integer(v) ? COUNT : 0);
	if (json_is_array(v))
		return ARRAY | (holds_texts(v) ? TEXTS : 0);
	if (json_is_object(v))
		return OBJECT | (holds_texts(v) ? MAP_OF_TEXTS : 0);
	if (json_is_string(v))
		return ANY_TEXT | (is_text(v) ? TEXT : 0);
	return json_is_boolean(v) ? FLAG : 0;
}

#define STRING "{\"type\":\"string\"}"
#define LIST "{\"type\":\"array\",\"items\":" STRING "}"
#define MAP "{\"type\":\"object\",\"additionalProperties\":" STRING "}"

static const struct {
	unsigned kinds; /* any of them */
	const char *wants;
	const char *name;   /* of JSON's types, or NULL */
	const char *schema; /* NULL: just that type */
} types[] = {
	[BODY_TEXT] = {TEXT, "a string", "string", NULL},
	[BODY_PATH] = {TEXT, "a string", "string", NULL},
	[BODY_GLOB] = {TEXT, "a string", "string", NULL},
	[BODY_WORD] = {TEXT | COUNT, "a string or a whole number", NULL,
		       "{\"oneOf\":[{\"type\":\"integer\"}," STRING "]}"},
	[BODY_COUNT] = {COUNT, "a whole number", "integer", "{\"type\":\"integer\",\"minimum\":0}"},
	[BODY_TIME] = {TEXT | NUMBER, "seconds or a time like \"500ms\"", NULL,
		       "{\"oneOf\":[{\"type\":\"number\"}," STRING "]}"},
	[BODY_FLAG] = {FLAG, "true or false", "boolean", NULL},
	[BODY_LIST] = {TEXTS, "an array of strings", "array", LIST},
	[BODY_MAP] = {MAP_OF_TEXTS, "an object of strings", "object", MAP},
	[BODY_ENV] = {TEXTS | MAP_OF_TEXTS, "an object of strings, or an array of \"K=V\"", NULL,
		      "{\"oneOf\":[" MAP "," LIST "]}"},
	[BODY_ITEMS] = {ARRAY, "an array of objects", "array", NULL},
	[BODY_OBJECT] = {OBJECT, "an object", "object", NULL},
	[BODY_STRING] = {ANY_TEXT, "a string", "string", NULL},
	[BODY_INTEGER] = {ANY_INTEGER, "a whole number", "integer", NULL},
	[BODY_NUMBER] = {ANY_NUMBER, "a number", "number", NULL},
};
static_assert(ARRAY_LEN(types) == BODY_TYPE_COUNT, "a row per type");

const char *body_type_name(enum body_type type)
{
	return types[type].name;
}

bool body_has_type(const json_t *value, enum body_type type)
{
	return kinds_of(value) & types[type].kinds;
}

/* 16: room for the path of the workspace, which is put before a relative path. */
static bool is_too_long(const struct body_field *f, const json_t *v)
{
	size_t most = f->type == BODY_PATH   ? CALL_PATH_MAX
		      : f->type == BODY_GLOB ? CALL_GLOB_MAX
					     : SIZE_MAX;

	return json_string_length(v) >= most - 16;
}

static int refuse_type(const struct body_field *f, struct err *e)
{
	return err_field(e, ERR_INVALID, f->name, "%s: wants %s", f->name, types[f->type].wants);
}

static int check_value(const struct body_field *f, const json_t *v, struct err *e)
{
	json_t *item;
	size_t i;

	if (!body_has_type(v, f->type))
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
		const struct body_field *f = body_field_find(t, key);
		const struct field *option = f ? NULL : spec_field_find(key);

		if (json_is_null(v))
			continue;
		if (f && check_value(f, v, e) < 0)
			return -1;
		if (!f && (!option || strchr(key, '-') || !body_knows_spec(t, option)))
			return refuse_unknown(t, key, e);
	}
	for (size_t i = 0; i < t->count; i++)
		if (t->fields[i].flags & BODY_REQUIRED && !body_has(body, t->fields[i].name))
			return err_field(e, ERR_INVALID, t->fields[i].name, "%s: is missing",
					 t->fields[i].name);
	return 0;
}

/* ---- schemas ---- */

static json_t *type_schema(enum body_type type)
{
	return types[type].schema ? json_loads(types[type].schema, 0, NULL)
				  : json_pack("{s:s}", "type", types[type].name);
}

static void set_values(json_t *schema, const char *const *values)
{
	json_t *all = json_array();

	for (size_t i = 0; values[i]; i++)
		json_array_append_new(all, json_string(values[i]));
	json_object_set_new(schema, "enum", all);
}

static json_t *number_bound(const struct body_field *f, double n)
{
	return f->type == BODY_INTEGER ? json_integer((json_int_t)n) : json_real(n);
}

static json_t *field_schema(const struct body_field *f)
{
	json_t *o = type_schema(f->type);

	json_object_set_new(o, "description", json_string(f->help));
	if (f->min < f->max) {
		json_object_set_new(o, "minimum", number_bound(f, f->min));
		json_object_set_new(o, "maximum", number_bound(f, f->max));
	}
	if (f->values)
		set_values(o, f->values);
	if (f->type == BODY_ITEMS)
		json_object_set_new(o, "items",
				    f->items ? body_schema(f->items) : type_schema(BODY_OBJECT));
	else if (f->items)
		json_object_update_new(o, body_schema(f->items));
	return o;
}

/* Options that differ from `cloche run`. No default values: the operator sets those (cloche.conf(5)). */
static const char *daemon_help(const struct field *f)
{
	static const struct {
		const char *name, *help;
	} rows[] = {
		{"memory", "memory of the whole sandbox, swap off"},
		{"cpus", "processors, a fraction is fine"},
		{"pids", "processes and threads at one time"},
		{"disk", "all that it writes, but to volumes; in memory at most memory"},
		{"disk_type",
		 "where that is kept: memory, or disk: larger than memory, and outlives a reboot"},
		{"timeout", "wall time of a command"},
		{"open_files", "open files of each process"},
		{"output_limit", "captured bytes of stdout and of stderr, head and tail kept"},
		{"image", "host, the name of an image of the operator's, or a name or id of one's "
			  "own"},
		{"root", "overlay: the root can be written (default, but for runs), or ro"},
		{"level", "container; others are refused"},
		{"net",
		 "none (default), allow (what the rules allow), public (the internet, nothing "
		 "private), isolated"},
		{"guard", "of Python code: off (default), imports, or strict (calculations only)"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(rows[i].name, f->name))
			return rows[i].help;
	return f->help;
}

/* Sizes, times and counts are numbers, or texts with a unit. */
static json_t *option_schema(const struct field *f)
{
	static const enum body_type of[] = {
		[FIELD_SIZE] = BODY_TIME,  [FIELD_TIME] = BODY_TIME,   [FIELD_COUNT_] = BODY_TIME,
		[FIELD_MILLI] = BODY_TIME, [FIELD_RATE] = BODY_TIME,   [FIELD_ENUM] = BODY_TEXT,
		[FIELD_BOOL] = BODY_FLAG,  [FIELD_STRING] = BODY_TEXT, [FIELD_LIST] = BODY_LIST,
	};
	json_t *o = type_schema(of[f->type]);

	if (f->type == FIELD_ENUM)
		set_values(o, f->values);
	json_object_set_new(o, "description", json_string(daemon_help(f)));
	return o;
}

json_t *body_schema(const struct body_table *t)
{
	json_t *properties = json_object(), *required = json_array(), *o;

	for (size_t i = 0; i < t->count; i++) {
		json_object_set_new(properties, t->fields[i].name, field_schema(&t->fields[i]));
		if (t->fields[i].flags & BODY_REQUIRED)
			json_array_append_new(required, json_string(t->fields[i].name));
	}
	for (size_t i = 0; i < spec_field_count; i++) {
		const struct field *f = &spec_fields[i];

		if (body_knows_spec(t, f) && !json_object_get(properties, f->name))
			json_object_set_new(properties, f->name, option_schema(f));
	}
	o = json_pack("{s:s, s:b, s:o}", "type", "object", "additionalProperties", 0, "properties",
		      properties);
	if (json_array_size(required))
		json_object_set(o, "required", required);
	json_decref(required);
	return o;
}

/* ---- sandbox options ---- */

/* A JSON scalar as text, as a command line would have it. */
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
		const struct field *f = body_field_find(t, key) ? NULL : spec_field_find(key);

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

/* A text or number as a value of this kind. */
static int body_parsed(const json_t *body, const char *name,
		       int (*parse)(const char *text, uint64_t *ret, struct err *e), uint64_t *ret,
		       struct err *e)
{
	struct err inner = {0};
	char text[64];

	if (!as_text(json_object_get(body, name), text, sizeof(text)))
		return err_field(e, ERR_INVALID, name, "%s: is too long", name);
	if (parse(text, ret, &inner) < 0)
		return err_field(e, inner.kind, name, "%s: %.400s", name, inner.msg);
	return 0;
}

int body_time(const json_t *body, const char *name, uint64_t dflt_ms, uint64_t *ret_ms,
	      struct err *e)
{
	if (body_has(body, name))
		return body_parsed(body, name, parse_time, ret_ms, e);
	*ret_ms = dflt_ms;
	return 0;
}

int body_size(const json_t *body, const char *name, uint64_t dflt, uint64_t *ret, struct err *e)
{
	if (body_has(body, name))
		return body_parsed(body, name, parse_size, ret, e);
	*ret = dflt;
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
