/* Methods that need no sandbox: versions, envelopes, lists. No state, no I/O. */
#include "api/mcp/mcp_internal.h"

#include <stdarg.h>

static const char *const legacy_versions[] = {"2024-11-05", "2025-03-26", "2025-06-18",
					      MCP_NEWEST_LEGACY};

static const char instructions[] =
	"cloche runs code and commands in an isolated sandbox on the user's machine. The sandbox "
	"is made at the first call and kept: files below /workspace stay between calls, also after "
	"a pause. It has no network, unless the user allowed destinations, and sees nothing of the "
	"user's "
	"files unless the user shared a "
	"workspace. Results list denials: what the sandbox refused, why, and what to do instead; "
	"do not try to work around them, tell the user. Jobs of more than a minute and servers "
	"belong to process_start and process_poll.";

int mcp_fault_set(struct mcp_fault *f, int status, int code, const char *fmt, ...)
{
	va_list args;

	f->status = status;
	f->code = code;
	va_start(args, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, args);
	va_end(args);
	return -1;
}

bool mcp_is_legacy_version(const char *version)
{
	for (size_t i = 0; i < ARRAY_LEN(legacy_versions); i++)
		if (str_equal(version, legacy_versions[i]))
			return true;
	return false;
}

enum mcp_era mcp_era_of(const struct jsonrpc *m)
{
	const json_t *meta = json_object_get(m->params, "_meta");

	return json_object_get(meta, MCP_META "protocolVersion") ? MCP_MODERN : MCP_LEGACY;
}

int mcp_check_envelope(const struct jsonrpc *m, struct mcp_fault *f)
{
	const json_t *meta = json_object_get(m->params, "_meta");
	const json_t *version = json_object_get(meta, MCP_META "protocolVersion");

	if (!json_is_string(version))
		return mcp_fault_set(f, 400, JSONRPC_PARAMS,
				     "_meta must have the string " MCP_META "protocolVersion");
	if (!json_is_object(json_object_get(meta, MCP_META "clientCapabilities")))
		return mcp_fault_set(f, 400, JSONRPC_PARAMS,
				     "_meta must have the object " MCP_META "clientCapabilities");
	return 0;
}

/* ---- methods ---- */

static json_t *capabilities(void)
{
	return json_pack("{s:{}, s:{}, s:{}, s:{}, s:{}}", "tools", "resources", "prompts",
			 "logging", "completions");
}

static json_t *server_info(void)
{
	return json_pack("{s:s, s:s, s:s}", "name", "cloche", "title", "cloche sandbox", "version",
			 CLOCHE_VERSION);
}

static json_t *refuse_params(struct mcp_fault *f, int status, const char *why)
{
	mcp_fault_set(f, status, JSONRPC_PARAMS, "%s", why);
	return NULL;
}

static json_t *answer_initialize(const struct jsonrpc *m, struct mcp_fault *f)
{
	const char *asked = body_text(m->params, "protocolVersion");

	if (!asked)
		return refuse_params(f, 400, "initialize needs protocolVersion");
	return json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion",
			 mcp_is_legacy_version(asked) ? asked : MCP_NEWEST_LEGACY, "capabilities",
			 capabilities(), "serverInfo", server_info(), "instructions", instructions);
}

static json_t *answer_discover(const struct jsonrpc *m, struct mcp_fault *f)
{
	return json_pack("{s:[s], s:o, s:s}", "supportedVersions", MCP_MODERN_VERSION,
			 "capabilities", capabilities(), "instructions", instructions);
}

static json_t *answer_ping(const struct jsonrpc *m, struct mcp_fault *f)
{
	return json_object();
}

/* All lists have one page, so any cursor is unknown. */
static json_t *answer_list(const struct jsonrpc *m, const char *name, json_t *list,
			   struct mcp_fault *f)
{
	if (!json_object_get(m->params, "cursor"))
		return json_pack("{s:o}", name, list);
	json_decref(list);
	return refuse_params(f, 200, "unknown cursor");
}

static json_t *list_tools(const struct jsonrpc *m, struct mcp_fault *f)
{
	json_t *list = json_array();

	for (size_t i = 0; i < mcp_tool_count; i++)
		json_array_append_new(list, mcp_tool_describe(&mcp_tools[i]));
	if (&mcp_extra)
		mcp_extra.add_tools(list);
	return answer_list(m, "tools", list, f);
}

static json_t *list_prompts(const struct jsonrpc *m, struct mcp_fault *f)
{
	json_t *list = mcp_prompts();

	if (&mcp_extra)
		mcp_extra.add_prompts(list);
	return answer_list(m, "prompts", list, f);
}

static json_t *get_prompt(const struct jsonrpc *m, struct mcp_fault *f)
{
	const char *name = body_text(m->params, "name");
	const json_t *args = json_object_get(m->params, "arguments");
	struct err e = {0};
	json_t *prompt = NULL;

	if (name && &mcp_extra)
		prompt = mcp_extra.get_prompt(name, args);
	if (name && !prompt)
		prompt = mcp_prompt_get(name, args, &e);
	if (!prompt)
		mcp_fault_set(f, 200, JSONRPC_PARAMS, "%.200s",
			      name ? e.msg : "prompts/get needs name");
	return prompt;
}

static json_t *list_templates(const struct jsonrpc *m, struct mcp_fault *f)
{
	json_t *list = json_pack("[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s}]", "uriTemplate",
				 MCP_URI "{sandbox_id}/files{+path}", "name", "file", "title",
				 "File of a sandbox", "description",
				 "Any file, by its absolute path; sandbox_id may be 'default'",
				 "uriTemplate", MCP_URI "{sandbox_id}/processes/{process_id}/log",
				 "name", "log", "title", "Output of a process", "description",
				 "What a process of process_start has printed");

	if (&mcp_extra)
		mcp_extra.add_templates(list);
	return answer_list(m, "resourceTemplates", list, f);
}

static json_t *answer_completion(const struct jsonrpc *m, struct mcp_fault *f)
{
	if (!json_is_object(json_object_get(m->params, "ref")) ||
	    !json_is_object(json_object_get(m->params, "argument")))
		return refuse_params(f, 200, "completion/complete needs ref and argument");
	return json_pack("{s:{s:[], s:i, s:b}}", "completion", "values", "total", 0, "hasMore", 0);
}

static const char *const levels[] = {"debug", "info",	  "notice", "warning",
				     "error", "critical", "alert",  "emergency"};

int mcp_level_find(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_LEN(levels); i++)
		if (str_equal(name, levels[i]))
			return (int)i;
	return -1;
}

const char *mcp_level_name(int level)
{
	return levels[level];
}

static json_t *set_level(const struct jsonrpc *m, struct mcp_fault *f)
{
	if (mcp_level_find(body_text(m->params, "level")) >= 0)
		return json_object();
	return refuse_params(f, 200,
			     "level must be debug, info, notice, warning, error, critical, alert "
			     "or emergency");
}

static json_t *subscribe(const struct jsonrpc *m, struct mcp_fault *f)
{
	if (json_is_string(json_object_get(m->params, "uri")))
		return json_object();
	return refuse_params(f, 200, "uri is missing");
}

#define BOTH (MCP_LEGACY | MCP_MODERN)
static const struct mcp_method methods[] = {
	{"initialize", MCP_LEGACY, answer_initialize, NULL, false},
	{"server/discover", MCP_MODERN, answer_discover, NULL, true},
	{"ping", MCP_LEGACY, answer_ping, NULL, false},
	{"tools/list", BOTH, list_tools, NULL, true},
	{"tools/call", BOTH, NULL, mcp_call_tool, false},
	{"prompts/list", BOTH, list_prompts, NULL, true},
	{"prompts/get", BOTH, get_prompt, NULL, false},
	{"resources/list", BOTH, NULL, mcp_resources_list, true},
	{"resources/templates/list", BOTH, list_templates, NULL, true},
	{"resources/read", BOTH, NULL, mcp_resources_read, true},
	{"resources/subscribe", MCP_LEGACY, subscribe, NULL, false},
	{"resources/unsubscribe", MCP_LEGACY, subscribe, NULL, false},
	{"completion/complete", BOTH, answer_completion, NULL, false},
	{"logging/setLevel", MCP_LEGACY, set_level, NULL, false},
	{"subscriptions/listen", MCP_MODERN, NULL, mcp_call_listen, false},
};

const struct mcp_method *mcp_method_find(const char *name, enum mcp_era era)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if ((methods[i].eras & era) && str_equal(name, methods[i].name))
			return &methods[i];
	return NULL;
}

json_t *mcp_finish(enum mcp_era era, const struct mcp_method *method, json_t *result)
{
	json_t *meta;

	if (era != MCP_MODERN)
		return result;
	if (!json_object_get(result, "resultType"))
		json_object_set_new(result, "resultType", json_string("complete"));
	if (method->cacheable) {
		json_object_set_new(result, "ttlMs", json_integer(0));
		json_object_set_new(result, "cacheScope", json_string("private"));
	}
	meta = json_object_get(result, "_meta");
	if (!meta)
		json_object_set_new(result, "_meta", meta = json_object());
	json_object_set_new(meta, MCP_META "serverInfo",
			    json_pack("{s:s, s:s}", "name", "cloche", "version", CLOCHE_VERSION));
	return result;
}
