/* /openapi.json: made from the table of routes and the tables of their bodies, so that it is always true. */
#include "api/rest/rest.h"

/* ---- paths ---- */

static void add_parameter(json_t *all, const char *name, size_t len, bool in_path)
{
	json_array_append_new(all, json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", name, len, "in",
					     in_path ? "path" : "query", "required", in_path,
					     "schema", "type", "string"));
}

static json_t *describe_parameters(const struct route *r)
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

static json_t *request_schema(const struct route *r)
{
	if (r->body == BODY_STREAM)
		return json_pack("{s:{s:{s:{s:s, s:s}}}}", "content", "application/octet-stream",
				 "schema", "type", "string", "format", "binary");
	return json_pack("{s:{s:{s:o}}}", "content", "application/json", "schema",
			 body_schema(r->describe));
}

static json_t *describe_operation(const struct route *r, const char *method, const char *path)
{
	json_t *o = json_pack("{s:s, s:o}", "summary", r->summary, "parameters",
			      describe_parameters(r));

	answers_describe(o, method, path);
	if (r->body != BODY_NONE && (r->body == BODY_STREAM || r->describe))
		json_object_set_new(o, "requestBody", request_schema(r));
	if (r->flags & ROUTE_OPEN)
		json_object_set_new(o, "security", json_array());
	return o;
}

static void add_operations(json_t *paths, const char *pattern, const struct route *r)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
	static const char *const members[] = {"get", "post", "put", "patch", "delete"};
	json_t *path = json_object_get(paths, pattern);

	if (!path)
		json_object_set_new(paths, pattern, path = json_object());
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (r->flags & ROUTE_ANY_METHOD || str_equal(r->method, methods[i]))
			json_object_set_new(path, members[i],
					    describe_operation(r, methods[i], pattern));
}

static json_t *describe_all(void)
{
	json_t *paths = json_object();

	for (size_t i = 0; i < rest_door.route_count; i++) {
		const struct route *r = &rest_door.routes[i];
		char pattern[128];

		snprintf(pattern, sizeof(pattern), "%s", r->pattern);
		if (strlen(pattern) && pattern[strlen(pattern) - 1] == '*')
			strcpy(pattern + strlen(pattern) - 1, "{rest}");
		add_operations(paths, pattern, r);
	}
	return must_alloc(json_pack(
		"{s:s, s:{s:s, s:s, s:{s:s, s:s}}, s:[{s:s}], s:[{s:[]}], "
		"s:{s:{s:{s:s, s:s}}, s:o, s:{s:o}}, s:o}",
		"openapi", "3.0.3", "info", "title", "cloche", "version", CLOCHE_VERSION, "license",
		"name", "Apache-2.0", "url", "https://www.apache.org/licenses/LICENSE-2.0",
		"servers", "url", "/", "security", "token", "components", "securitySchemes",
		"token", "type", "http", "scheme", "bearer", "schemas", answers_schemas(),
		"responses", "Error", answers_error(), "paths", paths));
}

/* Made once: it takes milliseconds, and everybody may ask for it. */
void v1_openapi(struct exchange *x)
{
	static char *text;

	if (!text) {
		json_t *all = describe_all();

		text = must_alloc(json_dumps(all, JSON_COMPACT));
		json_decref(all);
	}
	exchange_reply(x, 200, "application/json", text, strlen(text));
}
