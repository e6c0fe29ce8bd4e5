/*
 * What the MCP conformance suite expects of a server besides its transport: tools, resources and
 * prompts with fixed names. Linked only into build/cloched-conformance, never into cloched.
 */
#include "api/mcp/mcp_internal.h"
#include "base/auto.h"
#include "base/str.h"

#include <string.h>

#define PNG                                                                                        \
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+"                            \
	"M9QDwADhgGAWjR9awAAAABJRU5ErkJg"                                                          \
	"gg=="
#define WAV "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

static json_t *text_item(const char *text)
{
	return json_pack("{s:s, s:s}", "type", "text", "text", text);
}

static json_t *image_item(void)
{
	return json_pack("{s:s, s:s, s:s}", "type", "image", "data", PNG, "mimeType", "image/png");
}

static json_t *resource_item(const char *uri, const char *text)
{
	return json_pack("{s:s, s:{s:s, s:s, s:s}}", "type", "resource", "resource", "uri", uri,
			 "mimeType", "text/plain", "text", text);
}

static void done(struct mcp_call *c, json_t *content, bool is_error)
{
	json_t *result = json_pack("{s:o}", "content", content);

	if (is_error)
		json_object_set_new(result, "isError", json_true());
	mcp_call_result(c, result);
}

/* ---- tools that answer at once ---- */

static void simple_text(struct mcp_call *c)
{
	done(c, json_pack("[o]", text_item("This is a simple text response for testing.")), false);
}

static void image(struct mcp_call *c)
{
	done(c, json_pack("[o]", image_item()), false);
}

static void audio(struct mcp_call *c)
{
	done(c,
	     json_pack("[{s:s, s:s, s:s}]", "type", "audio", "data", WAV, "mimeType", "audio/wav"),
	     false);
}

static void embedded(struct mcp_call *c)
{
	done(c,
	     json_pack("[o]", resource_item("test://embedded-resource",
					    "This is an embedded resource content.")),
	     false);
}

static void mixed(struct mcp_call *c)
{
	done(c,
	     json_pack("[o, o, o]", text_item("Multiple content types test:"), image_item(),
		       resource_item("test://mixed-content-resource", "{\"test\":\"data\"}")),
	     false);
}

static void fails(struct mcp_call *c)
{
	done(c, json_pack("[o]", text_item("This tool intentionally returns an error for testing")),
	     true);
}

/* ---- tools that take their time ---- */

struct steps {
	struct loop_timer timer;
	struct mcp_call *c;
	int step;
	void (*at)(struct mcp_call *c, int step);
};

static void next_step(void *arg)
{
	struct steps *s = arg;

	s->at(s->c, s->step);
	if (++s->step < 3) {
		loop_timer_set(s->c->session->state->api->loop, &s->timer, 50);
		return;
	}
	s->c->stop = NULL;
	done(s->c, json_pack("[o]", text_item("done")), false);
}

static void stop_steps(struct mcp_call *c)
{
	struct steps *s = c->work;

	loop_timer_stop(c->session->state->api->loop, &s->timer);
}

static void start_steps(struct mcp_call *c, void (*at)(struct mcp_call *c, int step))
{
	struct steps *s = must_alloc(calloc(1, sizeof(*s)));

	*s = (struct steps){.timer = {.call = next_step, .arg = s}, .c = c, .at = at};
	c->work = s;
	c->stop = stop_steps;
	next_step(s);
}

static void log_step(struct mcp_call *c, int step)
{
	static const char *const texts[] = {"Tool execution started", "Tool processing data",
					    "Tool execution completed"};

	c->level = 0;
	mcp_call_log(c, 1, texts[step]);
}

static void progress_step(struct mcp_call *c, int step)
{
	mcp_call_progress(c, step * 50, 100, NULL);
}

static void log_if_asked(struct mcp_call *c, int step)
{
	mcp_call_log(c, 1, step ? "working" : "started");
}

static void logging_tool(struct mcp_call *c)
{
	start_steps(c, log_if_asked);
}

static void with_logging(struct mcp_call *c)
{
	start_steps(c, log_step);
}

static void with_progress(struct mcp_call *c)
{
	start_steps(c, progress_step);
}

/* ---- tools that ask the client ---- */

static void on_sampled(struct mcp_call *c, const json_t *result)
{
	const json_t *content = json_object_get(result, "content");
	const char *text = json_string_value(json_object_get(content, "text"));
	auto_free char *said = str_format("LLM response: %s", text ? text : "");

	done(c, json_pack("[o]", text_item(said)), false);
}

static void sampling(struct mcp_call *c)
{
	const char *prompt = json_string_value(json_object_get(c->args, "prompt"));

	mcp_call_ask(c, "sampling/createMessage",
		     json_pack("{s:[{s:s, s:o}], s:i}", "messages", "role", "user", "content",
			       text_item(prompt ? prompt : ""), "maxTokens", 100),
		     on_sampled);
}

static void on_elicited(struct mcp_call *c, const json_t *result)
{
	auto_free char *text = json_dumps(json_object_get(result, "content"), JSON_ENCODE_ANY);
	const char *action = json_string_value(json_object_get(result, "action"));
	auto_free char *said = str_format("User response: action=%s, content=%s",
					  action ? action : "?", text ? text : "{}");

	done(c, json_pack("[o]", text_item(said)), false);
}

static void elicit(struct mcp_call *c, const char *message, const char *schema)
{
	json_t *parsed = json_loads(schema, 0, NULL);

	mcp_call_ask(c, "elicitation/create",
		     json_pack("{s:s, s:o}", "message", message, "requestedSchema", parsed),
		     on_elicited);
}

static void elicitation(struct mcp_call *c)
{
	const char *message = json_string_value(json_object_get(c->args, "message"));

	elicit(c, message ? message : "",
	       "{\"type\":\"object\",\"properties\":{\"username\":{\"type\":\"string\","
	       "\"description\":"
	       "\"User's response\"},\"email\":{\"type\":\"string\",\"description\":\"User's email "
	       "address\"}},\"required\":[\"username\",\"email\"]}");
}

static void elicitation_defaults(struct mcp_call *c)
{
	elicit(c, "Please review and update the form fields with defaults",
	       "{\"type\":\"object\",\"properties\":{"
	       "\"name\":{\"type\":\"string\",\"default\":\"John Doe\"},"
	       "\"age\":{\"type\":\"integer\",\"default\":30},"
	       "\"score\":{\"type\":\"number\",\"default\":95.5},"
	       "\"status\":{\"type\":\"string\",\"enum\":[\"active\",\"inactive\",\"pending\"],"
	       "\"default\":\"active\"},"
	       "\"verified\":{\"type\":\"boolean\",\"default\":true}},\"required\":[]}");
}

static void elicitation_enums(struct mcp_call *c)
{
#define TITLED                                                                                     \
	"[{\"const\":\"value1\",\"title\":\"First Option\"},{\"const\":\"value2\",\"title\":"      \
	"\"Second Option\"},{\"const\":\"value3\",\"title\":\"Third Option\"}]"
	elicit(c, "Please select options from the enum fields",
	       "{\"type\":\"object\",\"properties\":{"
	       "\"untitledSingle\":{\"type\":\"string\",\"enum\":[\"option1\",\"option2\","
	       "\"option3\"]},"
	       "\"titledSingle\":{\"type\":\"string\",\"oneOf\":" TITLED "},"
	       "\"legacyEnum\":{\"type\":\"string\",\"enum\":[\"opt1\",\"opt2\",\"opt3\"],"
	       "\"enumNames\":[\"Option One\",\"Option Two\",\"Option Three\"]},"
	       "\"untitledMulti\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"enum\":["
	       "\"option1\",\"option2\",\"option3\"]}},"
	       "\"titledMulti\":{\"type\":\"array\",\"items\":{\"anyOf\":" TITLED
	       "}}},\"required\":[]}");
}

/* ---- modern: tools that answer with what they want to know ---- */

#define ELICIT(key, message, member, type)                                                         \
	"\"" key "\":{\"method\":\"elicitation/create\",\"params\":{\"message\":\"" message        \
	"\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"" member                    \
	"\":{\"type\":\"" type "\"}},\"required\":[\"" member "\"]}}}"
#define SAMPLE(key, text)                                                                          \
	"\"" key "\":{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[{"           \
	"\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"" text                        \
	"\"}}],\"maxTokens\":100}}"
#define ROOTS "\"client_roots\":{\"method\":\"roots/list\",\"params\":{}}"
#define NAME ELICIT("user_name", "What is your name?", "name", "string")

static const struct wish {
	const char *tool;
	bool has_state;
	const char *rounds[2]; /* what is asked in each; the answer comes after the last */
} wishes[] = {
	{"test_input_required_result_elicitation", false, {"{" NAME "}", NULL}},
	{"test_streaming_elicitation", false, {"{" NAME "}", NULL}},
	{"test_input_required_result_sampling",
	 false,
	 {"{" SAMPLE("capital_question", "What is the capital of France?") "}", NULL}},
	{"test_input_required_result_list_roots", false, {"{" ROOTS "}", NULL}},
	{"test_input_required_result_request_state",
	 true,
	 {"{" ELICIT("confirm", "Please confirm", "ok", "boolean") "}", NULL}},
	{"test_input_required_result_tampered_state",
	 true,
	 {"{" ELICIT("confirm", "Please confirm", "ok", "boolean") "}", NULL}},
	{"test_input_required_result_multiple_inputs",
	 true,
	 {"{" NAME "," SAMPLE("greeting", "Generate a greeting") "," ROOTS "}", NULL}},
	{"test_input_required_result_multi_round",
	 true,
	 {"{" ELICIT("step1", "Step 1: What is your name?", "name", "string") "}",
	  "{" ELICIT("step2", "Step 2: What is your favorite color?", "color", "string") "}"}},
	{"test_input_required_result_capabilities",
	 false,
	 {"{" NAME "," SAMPLE("greeting", "Generate a greeting") "," ROOTS "}", NULL}},
};

/* Leaves out the requests that the client has not declared. */
static void keep_declared(struct mcp_call *c, json_t *requests)
{
	const json_t *meta = json_object_get(c->params, "_meta");
	const json_t *can = json_object_get(meta, MCP_META "clientCapabilities");
	const char *key;
	json_t *request;
	void *next;

	json_object_foreach_safe(requests, next, key, request)
	{
		const char *method = json_string_value(json_object_get(request, "method"));
		auto_free char *name = str_format("%.*s", (int)strcspn(method, "/"), method);

		if (!json_object_get(can, name))
			json_object_del(requests, key);
	}
}

static bool has_all(const json_t *responses, const json_t *requests)
{
	const char *key;
	json_t *request;

	json_object_foreach ((json_t *)requests, key, request)
		if (!json_object_get(responses, key))
			return false;
	return responses != NULL;
}

static void ask_round(struct mcp_call *c, const struct wish *w, unsigned round)
{
	auto_free char *state = w->has_state ? str_format("round-%u", round) : NULL;
	json_t *requests = json_loads(w->rounds[round], 0, NULL);

	keep_declared(c, requests);
	mcp_call_result(c, json_pack("{s:s, s:o, s:s*}", "resultType", "input_required",
				     "inputRequests", requests, "requestState", state));
}

static bool is_answered(struct mcp_call *c, const struct wish *w, unsigned round)
{
	json_auto_t *asked = json_loads(w->rounds[round], 0, NULL);

	keep_declared(c, asked);
	return has_all(json_object_get(c->params, "inputResponses"), asked);
}

/* Which round a call answers; -1: its requestState is none of ours. */
static int round_of(const struct mcp_call *c, const struct wish *w)
{
	const char *state = json_string_value(json_object_get(c->params, "requestState"));

	if (!w->has_state || !json_object_get(c->params, "inputResponses"))
		return 0;
	if (str_equal(state, "round-0"))
		return 0;
	return w->rounds[1] && str_equal(state, "round-1") ? 1 : -1;
}

static void wish_tool(struct mcp_call *c, const struct wish *w)
{
	auto_free char *said = json_dumps(c->params, 0), *text = NULL;
	int round = round_of(c, w);

	if (round < 0) {
		mcp_call_fault(c, JSONRPC_PARAMS, "requestState was changed", NULL);
	} else if (!is_answered(c, w, (unsigned)round)) {
		ask_round(c, w, (unsigned)round);
	} else if (round == 0 && w->rounds[1]) {
		ask_round(c, w, 1);
	} else {
		text = str_format("state-ok, got %s", said);
		done(c, json_pack("[o]", text_item(text)), false);
	}
}

/* ---- the tables ---- */

struct fixture {
	const char *name;
	void (*run)(struct mcp_call *c);
	const char *schema;
};

#define NONE "{\"type\":\"object\",\"properties\":{}}"
#define ONE(name)                                                                                  \
	"{\"type\":\"object\",\"properties\":{\"" name                                             \
	"\":{\"type\":\"string\"}},\"required\":[\"" name "\"]}"

static const struct fixture fixtures[] = {
	{"test_simple_text", simple_text, NONE},
	{"test_image_content", image, NONE},
	{"test_audio_content", audio, NONE},
	{"test_embedded_resource", embedded, NONE},
	{"test_multiple_content_types", mixed, NONE},
	{"test_error_handling", fails, NONE},
	{"test_tool_with_logging", with_logging, NONE},
	{"test_tool_with_progress", with_progress, NONE},
	{"test_sampling", sampling, ONE("prompt")},
	{"test_elicitation", elicitation, ONE("message")},
	{"test_elicitation_sep1034_defaults", elicitation_defaults, NONE},
	{"test_elicitation_sep1330_enums", elicitation_enums, NONE},
	{"test_logging_tool", logging_tool, NONE},
	{"json_schema_2020_12_tool", simple_text,
	 "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\","
	 "\"$defs\":{\"address\":{\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":{"
	 "\"street\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"}}}},"
	 "\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/"
	 "address\"},"
	 "\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},"
	 "\"phone\":{\"type\":\"string\"},\"email\":{\"type\":\"string\"}},"
	 "\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\"email\"]}]}],"
	 "\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},"
	 "\"required\":[\"contactMethod\"]},\"then\":{\"required\":[\"phone\"]},"
	 "\"else\":{\"required\":[\"email\"]},\"additionalProperties\":false}"},
};

static void add_tools(json_t *list)
{
	for (size_t i = 0; i < ARRAY_LEN(fixtures); i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o}", "name", fixtures[i].name, "description",
					"A fixture of the conformance suite", "inputSchema",
					json_loads(fixtures[i].schema, 0, NULL)));
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:o}", "name", wishes[i].tool,
						"description", "A fixture of the conformance suite",
						"inputSchema", json_loads(NONE, 0, NULL)));
}

static bool call_tool(struct mcp_call *c, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(fixtures); i++)
		if (str_equal(name, fixtures[i].name)) {
			fixtures[i].run(c);
			return true;
		}
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++)
		if (str_equal(name, wishes[i].tool)) {
			wish_tool(c, &wishes[i]);
			return true;
		}
	return false;
}

static void add_resources(json_t *list)
{
	static const char *const names[][2] = {{"test://static-text", "text/plain"},
					       {"test://static-binary", "image/png"},
					       {"test://watched-resource", "text/plain"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "uri", names[i][0],
						      "name", names[i][0] + 7, "description",
						      "A fixture", "mimeType", names[i][1]));
}

static void add_templates(json_t *list)
{
	json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "uriTemplate",
					      "test://template/{id}/data", "name", "template",
					      "description", "A fixture", "mimeType",
					      "application/json"));
}

static json_t *read_resource(const char *uri)
{
	unsigned id;

	if (str_equal(uri, "test://static-text") || str_equal(uri, "test://watched-resource"))
		return json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri, "mimeType",
				 "text/plain", "text",
				 "This is the content of the static text resource.");
	if (str_equal(uri, "test://static-binary"))
		return json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri, "mimeType",
				 "image/png", "blob", PNG);
	if (sscanf(uri, "test://template/%u/data", &id) == 1) {
		auto_free char *text = str_format("{\"id\":\"%u\",\"templateTest\":true,\"data\":"
						  "\"Data for ID: %u\"}",
						  id, id);

		return json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri, "mimeType",
				 "application/json", "text", text);
	}
	return NULL;
}

static void add_prompts(json_t *list)
{
	static const struct {
		const char *name, *first, *second;
	} rows[] = {
		{"test_simple_prompt", NULL, NULL},
		{"test_prompt_with_arguments", "arg1", "arg2"},
		{"test_prompt_with_embedded_resource", "resourceUri", NULL},
		{"test_prompt_with_image", NULL, NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *args = json_array();

		if (rows[i].first)
			json_array_append_new(args,
					      json_pack("{s:s, s:s, s:b}", "name", rows[i].first,
							"description", "A text", "required", 1));
		if (rows[i].second)
			json_array_append_new(args,
					      json_pack("{s:s, s:s, s:b}", "name", rows[i].second,
							"description", "A text", "required", 1));
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:o}", "name", rows[i].name,
						"description", "A fixture", "arguments", args));
	}
}

static json_t *message(json_t *content)
{
	return json_pack("{s:s, s:o}", "role", "user", "content", content);
}

static const char *arg_of(const json_t *args, const char *name)
{
	const char *s = json_string_value(json_object_get(args, name));

	return s ? s : "";
}

static json_t *get_prompt(const char *name, const json_t *args)
{
	json_t *list = json_array();
	auto_free char *text = str_format("Prompt with arguments: arg1='%s', arg2='%s'",
					  arg_of(args, "arg1"), arg_of(args, "arg2"));

	if (str_equal(name, "test_simple_prompt")) {
		json_array_append_new(list,
				      message(text_item("This is a simple prompt for testing.")));
	} else if (str_equal(name, "test_prompt_with_arguments")) {
		json_array_append_new(list, message(text_item(text)));
	} else if (str_equal(name, "test_prompt_with_embedded_resource")) {
		json_array_append_new(list, message(resource_item(arg_of(args, "resourceUri"),
								  "Embedded resource content.")));
		json_array_append_new(list,
				      message(text_item("Please process the resource above.")));
	} else if (str_equal(name, "test_prompt_with_image")) {
		json_array_append_new(list, message(image_item()));
		json_array_append_new(list, message(text_item("Please analyze the image above.")));
	} else {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:o}", "messages", list);
}

const struct mcp_extra mcp_extra = {
	.add_tools = add_tools,
	.add_prompts = add_prompts,
	.add_resources = add_resources,
	.add_templates = add_templates,
	.get_prompt = get_prompt,
	.read_resource = read_resource,
	.call_tool = call_tool,
};
