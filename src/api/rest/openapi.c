/* /openapi.json: from the table of routes and the tables of their bodies, so that it cannot lie. */
#include "api/rest/rest.h"

#include <ctype.h>

static json_t *table_schema(const struct body_table *t);

static json_t *type_schema(const struct body_field *f)
{
	json_t *o = json_loads(body_type_schema(f->type), 0, NULL);

	if (f->type == BODY_ITEMS)
		json_object_set_new(o, "items",
				    f->items ? table_schema(f->items)
					     : json_loads(body_type_schema(BODY_OBJECT), 0, NULL));
	else if (f->items)
		json_object_update_new(o, table_schema(f->items));
	return o;
}

/* Sizes, times and counts are numbers, or texts with a unit, as times of bodies are. */
static json_t *option_schema(const struct field *f)
{
	static const enum body_type types[] = {
		[FIELD_SIZE] = BODY_TIME,   [FIELD_TIME] = BODY_TIME, [FIELD_COUNT_] = BODY_TIME,
		[FIELD_MILLI] = BODY_TIME,  [FIELD_ENUM] = BODY_TEXT, [FIELD_BOOL] = BODY_FLAG,
		[FIELD_STRING] = BODY_TEXT, [FIELD_LIST] = BODY_LIST,
	};
	json_t *o = json_loads(body_type_schema(types[f->type]), 0, NULL), *values = json_array();

	for (size_t i = 0; f->type == FIELD_ENUM && f->values[i]; i++)
		json_array_append_new(values, json_string(f->values[i]));
	if (json_array_size(values))
		json_object_set(o, "enum", values);
	json_decref(values);
	return o;
}

/* What differs from `cloche run`. Defaults are the operator's (cloche.conf(5)), so no numbers. */
static const char *daemon_help(const struct field *f)
{
	static const struct {
		const char *name, *help;
	} rows[] = {
		{"memory", "memory of the whole sandbox, swap off"},
		{"cpus", "processors, a fraction is fine"},
		{"pids", "processes and threads at one time"},
		{"disk", "all that it writes, but to volumes; at most memory"},
		{"timeout", "wall time of a command"},
		{"open_files", "open files of each process"},
		{"output_limit", "captured bytes of stdout and of stderr, head and tail kept"},
		{"image", "host, or the name of an image of the operator's"},
		{"root", "overlay: the root can be written (default, but for runs), or ro"},
		{"level", "container; others are refused"},
		{"net", "none; allow, public and isolated are not built yet"},
		{"guard", "of Python code: off (default), imports, or strict (calculations only)"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(rows[i].name, f->name))
			return rows[i].help;
	return f->help;
}

static json_t *table_schema(const struct body_table *t)
{
	json_t *properties = json_object(), *required = json_array(), *o, *p;

	for (size_t i = 0; i < t->count; i++) {
		p = type_schema(&t->fields[i]);
		json_object_set_new(p, "description", json_string(t->fields[i].help));
		json_object_set_new(properties, t->fields[i].name, p);
		if (t->fields[i].flags & BODY_REQUIRED)
			json_array_append_new(required, json_string(t->fields[i].name));
	}
	for (size_t i = 0; i < spec_field_count; i++) {
		const struct field *f = &spec_fields[i];

		if (!body_knows_spec(t, f) || json_object_get(properties, f->name))
			continue;
		p = option_schema(f);
		json_object_set_new(p, "description", json_string(daemon_help(f)));
		json_object_set_new(properties, f->name, p);
	}
	o = json_pack("{s:s, s:b, s:o}", "type", "object", "additionalProperties", 0, "properties",
		      properties);
	if (json_array_size(required))
		json_object_set(o, "required", required);
	json_decref(required);
	return o;
}

/* ---- paths ---- */

static void add_parameter(json_t *all, const char *name, size_t len, bool in_path)
{
	json_array_append_new(all, json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", name, len, "in",
					     in_path ? "path" : "query", "required", in_path,
					     "schema", "type", "string"));
}

static json_t *parameters(const struct route *r)
{
	json_t *all = json_array();

	for (const char *at = r->pattern; (at = strchr(at, '{')); at++)
		add_parameter(all, at + 1, strcspn(at + 1, "}"), true);
	if (strchr(r->pattern, '*'))
		add_parameter(all, "rest", 4, true);
	for (const char *at = route_query(r); at && *at; at += strcspn(at, " "), at += *at == ' ')
		add_parameter(all, at, strcspn(at, " "), false);
	return all;
}

static json_t *body_schema(const struct route *r)
{
	if (r->body == BODY_STREAM)
		return json_pack("{s:{s:{s:{s:s, s:s}}}}", "content", "application/octet-stream",
				 "schema", "type", "string", "format", "binary");
	return json_pack("{s:{s:{s:o}}}", "content", "application/json", "schema",
			 table_schema(r->describe));
}

static json_t *operation(const struct route *r)
{
	json_t *o =
		json_pack("{s:s, s:o, s:{s:{s:s}, s:{s:s}}}", "summary", r->summary, "parameters",
			  parameters(r), "responses", "default", "description",
			  "the answer; an error is {\"error\":{\"kind\",\"message\",\"field\"}}",
			  "401", "description", "no or no known token");

	if (r->body != BODY_NONE && (r->body == BODY_STREAM || r->describe))
		json_object_set_new(o, "requestBody", body_schema(r));
	if (r->flags & ROUTE_OPEN)
		json_object_set_new(o, "security", json_array());
	return o;
}

static void add_operations(json_t *path, const struct route *r)
{
	static const char *const any[] = {"get", "post", "put", "patch", "delete"};
	char method[16];
	size_t i;

	if (r->flags & ROUTE_ANY_METHOD) {
		for (i = 0; i < ARRAY_LEN(any); i++)
			json_object_set_new(path, any[i], operation(r));
		return;
	}
	for (i = 0; r->method[i] && i < sizeof(method) - 1; i++)
		method[i] = (char)tolower((unsigned char)r->method[i]);
	method[i] = '\0';
	json_object_set_new(path, method, operation(r));
}

void v1_openapi(struct exchange *x)
{
	json_t *paths = json_object();

	for (size_t i = 0; i < rest_door.route_count; i++) {
		const struct route *r = &rest_door.routes[i];
		char pattern[128];
		json_t *path;

		snprintf(pattern, sizeof(pattern), "%s", r->pattern);
		if (strlen(pattern) && pattern[strlen(pattern) - 1] == '*')
			strcpy(pattern + strlen(pattern) - 1, "{rest}");
		path = json_object_get(paths, pattern);
		if (!path) {
			path = json_object();
			json_object_set_new(paths, pattern, path);
		}
		add_operations(path, r);
	}
	exchange_json(x, 200,
		      json_pack("{s:s, s:{s:s, s:s}, s:[{s:[]}], s:{s:{s:{s:s, s:s}}}, s:o}",
				"openapi", "3.0.3", "info", "title", "cloche", "version",
				CLOCHE_VERSION, "security", "token", "components",
				"securitySchemes", "token", "type", "http", "scheme", "bearer",
				"paths", paths));
}
