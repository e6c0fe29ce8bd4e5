/*
 * What each operation answers, for /openapi.json: a name for generated clients, statuses and schemas. The
 * tests hold every answer of the daemon against these tables.
 *
 * Members of a schema: "name:type", with blanks between. A type is string, integer, number, boolean, object,
 * any, or another schema (with a capital letter). [type] is an array, type? may be null, A|B is either. name? may
 * be missing.
 */
#include "api/rest/rest.h"

#define EXEC_MEMBERS                                                                               \
	"id:integer pid:integer running:boolean tty:boolean background:boolean shell:boolean "     \
	"tag:string? session:string cwd:string cmd:[string] started_at:string status:string "      \
	"exit_code:integer? signal:integer? duration_ms:number? cpu_ms:number? "                   \
	"max_rss_bytes:integer? oldest_seq:integer next_seq:integer"
#define STATS_MEMBERS                                                                              \
	"memory_bytes:integer? cpu_ms:number? cpu_percent:number? pids:integer? "                  \
	"disk_bytes:integer? net_rx_bytes:integer? net_tx_bytes:integer? io_read_bytes:integer? "  \
	"io_write_bytes:integer?"
#define STATS_LIMITS                                                                               \
	" memory_limit_bytes:integer? memory_peak_bytes:integer? disk_limit_bytes:integer?"
#define FILE_MEMBERS                                                                               \
	"path:string name:string type:string mode:string size:integer mtime:string uid:integer "   \
	"gid:integer owner:string group:string target?:string"

static const struct {
	const char *name, *members;
} schemas[] = {
	{"Error", "error:ErrorBody"},
	{"ErrorBody", "kind:string message:string field:string? retryable?:boolean fault?:string "
		      "position?:integer"},
	{"Health", "status:string version:string"},
	{"Ready", "status:string silent:[string]"},
	{"Sandbox",
	 "id:string name:string? state:string image:string? level:string provider:string "
	 "metadata:object created_at:string started_at:string? expires_at:string? limits:Limits "
	 "network:string? root:string? disk_type:string layers:object? exit_code:integer? "
	 "idle_timeout:number? "
	 "on_timeout:string auto_resume:boolean publish:[string] secrets:[string] "
	 "agent:string? reason:string? image_id?:string "
	 "notes?:[string] services?:[string]"},
	{"Limits", "memory:integer? cpus:number? pids:integer? disk:integer? timeout:number? "
		   "cpu_time:number? open_files:integer? file_size:integer? output_limit:integer?"},
	{"Sandboxes", "sandboxes:[Sandbox] cursor:string?"},
	{"Destroyed", "destroyed:integer"},
	{"Result",
	 "id:string status:string exit_code:integer? signal:integer? success:boolean "
	 "timed_out:boolean oom_killed:boolean limits_hit:[string] stdout:string stderr:string "
	 "stdout_truncated:boolean stderr_truncated:boolean encoding:string duration_ms:number "
	 "setup_ms:number? cpu_ms:number? max_rss_bytes:integer? pids_peak:integer? "
	 "disk_bytes:integer? net_tx_bytes:integer? net_rx_bytes:integer? files:[CapturedFile] "
	 "changes:[Change] changes_truncated?:boolean changes_incomplete?:boolean denials:[Denial] "
	 "layers:object "
	 "notes?:[string] guard?:string fault?:string?"},
	{"CapturedFile", "path:string size:integer content_base64:string?"},
	{"Change", "path:string kind:string"},
	{"Diff", "from:string to:string changes:[Change] truncated:boolean"},
	{"Denial", "what:string target:string? rule:string? count:integer explain:string?"},
	{"BatchItem", "result?:Result error?:ErrorBody"},
	{"Exec", EXEC_MEMBERS},
	{"StartedExec", "id:integer pid:integer running:boolean tag:string?"},
	{"Log", EXEC_MEMBERS " text:string truncated:boolean"},
	{"Logs", "logs:[Log]"},
	{"File", FILE_MEMBERS},
	{"Directory", "entries:[File] truncated:boolean"},
	{"Written", "path:string size:integer"},
	{"Made", "created:boolean"},
	{"Unpacked", "entries:integer"},
	{"Match", "path:string line?:integer text?:string"},
	{"Matches", "results:[Match] truncated:boolean"},
	{"HealthOfSandbox", "healthy:boolean state:string reason?:string? latency_ms?:number?"},
	{"Network", "mode:string requested:string allow:[string] deny:[string] layer:string "
		    "secrets:[string] "
		    "tx_bytes:integer rx_bytes:integer connections:integer open:integer "
		    "denied:integer attempts:[Attempt] questions:[Question]"},
	{"Question", "question:integer target:string port:integer remedy:string"},
	{"Attempt",
	 "seq:integer time:string? event:string verdict:string connection:integer name:string? "
	 "address:string? port:integer protocol:string rule:string? why:string? remedy:string? "
	 "secret:string? inspected:boolean tx_bytes:integer rx_bytes:integer duration_ms:number "
	 "count:integer"},
	{"StatsSample", "time:string " STATS_MEMBERS},
	{"Stats", STATS_MEMBERS STATS_LIMITS " history:[StatsSample]"},
	{"StatsRow", "id:string name:string? state:string " STATS_MEMBERS STATS_LIMITS},
	{"Totals", "tenant:string connections:integer bodies:integer output:integer "
		   "uploads:integer snapshots:integer jobs:integer sandboxes:integer "
		   "memory:integer disk:integer sessions:integer"},
	{"AllStats", "sandboxes:[StatsRow] tenants:[Totals]"},
	{"Snapshot", "id:string name:string? digest:string size_bytes:integer excluded:[string] "
		     "kind:string shared?:boolean frozen_ms?:integer "
		     "created_at:string sandbox:string? image?:string?"},
	{"Snapshots", "snapshots:[Snapshot]"},
	{"Secret", "id?:string name:string hosts:[string] header:string uses:integer? "
		   "configured:boolean version:integer metadata:object created_at:string? "
		   "updated_at:string?"},
	{"Secrets", "secrets:[Secret]"},
	{"Fork", "sandbox?:Sandbox error?:ErrorBody"},
	{"Forks", "sandboxes:[Fork]"},
	{"Token",
	 "id:string name:string scopes:string tenant:string? trust:integer max_sandboxes:integer "
	 "memory_total:integer disk_total:integer "
	 "rate_per_minute:integer ceiling:object expires_at:string? created_at:string?"},
	{"Agents", "agents:[Agent]"},
	{"Agent", "id:string owner:string trust:integer effective_trust:integer level:string "
		  "outside:boolean epoch:integer created_at:string rotated_at:string?"},
	{"SentMessage", "id:string from:string to:string time:string"},
	{"Messages", "messages:[Message] refused:integer"},
	{"Message", "seq:integer id:string from:string from_uid:string to:string to_uid:string "
		    "kind:string reply_to:string? content:string time_ms:integer time:string "
		    "trust:integer depth:integer epoch:integer signature:string"},
	{"Verdict", "valid:boolean why:string?"},
	{"AgentKeys", "keys:[AgentKey]"},
	{"AgentKey", "epoch:integer public_key:string"},
	{"Trust", "levels:[TrustLevel] rule:TrustRule?"},
	{"TrustLevel", "trust:integer level:string talks_to:[integer] network:string "
		       "sandbox:string elsewhere:boolean"},
	{"TrustRule", "from:string to:string from_trust:integer to_trust:integer "
		      "may_talk:boolean may_delegate:boolean"},
	{"AgentTypes", "types:[AgentType]"},
	{"AgentType", "type:string description:string? task:string? output:string? image:string? "
		      "net:string? needs:[string]? hint:string? capture:[string]? memory:string? "
		      "timeout:string? trust:integer?"},
	{"AgentRuns", "runs:[AgentRun]"},
	{"AgentRun", "id:string type:string name:string? state:string exit_code:integer? "
		     "created_at:string duration_ms:integer output?:string"},
	{"AgentAnswer", "agent:string kind:string output:any record:Result cleaned?:object"},
	{"ToolVerdict", "verdict:string reason:string rule:string call?:object"},
	{"ToolResult", "result:object"},
	{"Tokens", "tokens:[Token]"},
	{"AuditRecord", "seq:integer time:string who:string what:string target:string "
			"verdict:string why:string from?:string prev:string hash:string"},
	{"AuditRecords", "records:[AuditRecord] next:integer?"},
	{"Named", "name:string"},
	{"Policies", "policies:[Named]"},
	{"Image", "name:string id?:string digest?:string? added_at?:string? size_bytes?:integer? "
		  "layers?:integer? owner?:string"},
	{"Images", "images:[Image]"},
	{"ImageInfo", "id:string layers:[string] env?:[string] entrypoint?:[string] cmd?:[string] "
		      "workdir?:string? user?:string? platform?:string? created?:string? "
		      "size_bytes?:integer"},
	{"MadeImage", "id:string name:string"},
	{"MadeImages", "images:[MadeImage] notes:[string]"},
	{"RemovedImages", "images:integer layers:integer bytes:integer"},
	{"VolumeUse", "sandbox:string path:string writable:boolean"},
	{"Volume", "name:string kind:string read_only:boolean id?:string size_bytes?:integer "
		   "encrypted?:boolean created_at?:string from?:string shared?:boolean "
		   "sandboxes?:[VolumeUse]"},
	{"Volumes", "volumes:[Volume]"},
};

#define BOX "/v1/sandboxes/{id}"
#define EXEC BOX "/execs/{eid}"

/* answers: statuses with a schema, a media type, or nothing; blanks between. */
static const struct {
	const char *operation, *id, *answers;
} operations[] = {
	{"GET /healthz", "health", "200:Health"},
	{"GET /readyz", "ready", "200:Ready 503:Ready"},
	{"GET /metrics", "metrics", "200:text/plain"},
	{"GET /openapi.json", "openapi", "200:object"},
	{"POST /v1/run", "run", "200:Result"},
	{"POST /v1/run/batch", "runBatch",
	 "200:[BatchItem] 200:application/x-ndjson 200:text/event-stream"},
	{"POST /v1/sandboxes", "createSandbox", "201:Sandbox"},
	{"GET /v1/sandboxes", "listSandboxes", "200:Sandboxes"},
	{"DELETE /v1/sandboxes", "destroySandboxes", "200:Destroyed"},
	{"GET /v1/stats", "allStats", "200:AllStats"},
	{"GET " BOX, "getSandbox", "200:Sandbox"},
	{"PATCH " BOX, "changeSandbox", "200:Sandbox"},
	{"DELETE " BOX, "destroySandbox", "204"},
	{"POST " BOX "/exec", "exec", "200:Result 200:text/event-stream 201:StartedExec"},
	{"GET " BOX "/execs", "listExecs", "200:[Exec]"},
	{"GET " EXEC, "getExec", "200:Exec"},
	{"DELETE " EXEC, "killExec", "204"},
	{"GET " EXEC "/stream", "streamExec", "200:text/event-stream"},
	{"GET " EXEC "/ws", "terminalOfExec", "101"},
	{"POST " EXEC "/stdin", "sendStdin", "204"},
	{"PUT " EXEC "/stdin", "streamStdin", "204"},
	{"POST " EXEC "/close_stdin", "closeStdin", "204"},
	{"POST " EXEC "/signal", "signalExec", "204"},
	{"POST " EXEC "/resize", "resizeExec", "204"},
	{"GET " BOX "/files", "readFile",
	 "200:application/octet-stream 200:Directory|File 206:application/octet-stream"},
	{"PUT " BOX "/files", "writeFile", "200:Written"},
	{"DELETE " BOX "/files", "removeFile", "204"},
	{"POST " BOX "/files/mkdir", "makeDirectory", "200:Made 201:Made"},
	{"POST " BOX "/files/move", "moveFile", "200:File"},
	{"POST " BOX "/files/chmod", "changeMode", "204"},
	{"POST " BOX "/files/search", "searchFiles", "200:Matches"},
	{"GET " BOX "/files/tar", "readTar", "200:application/x-tar"},
	{"PUT " BOX "/files/tar", "writeTar", "200:Unpacked"},
	{"GET " BOX "/files/watch", "watchFiles", "200:text/event-stream"},
	{"GET " BOX "/network", "getNetwork", "200:Network 200:text/event-stream"},
	{"PUT " BOX "/network", "setNetwork", "200:Network"},
	{"POST " BOX "/network/answer", "answerQuestion", "204"},
	{"POST " BOX "/start", "startSandbox", "200:Sandbox"},
	{"POST " BOX "/stop", "stopSandbox", "200:Sandbox"},
	{"POST " BOX "/restart", "restartSandbox", "200:Sandbox"},
	{"POST " BOX "/pause", "pauseSandbox", "200:Sandbox"},
	{"POST " BOX "/resume", "resumeSandbox", "200:Sandbox"},
	{"POST " BOX "/snapshot", "snapshotSandbox", "201:Snapshot"},
	{"POST " BOX "/fork", "forkSandbox", "201:Forks"},
	{"POST " BOX "/timeout", "setTimeout", "200:Sandbox"},
	{"GET " BOX "/wait", "waitForSandbox", "200:Sandbox"},
	{"GET " BOX "/stats", "sandboxStats", "200:Stats"},
	{"GET " BOX "/health", "sandboxHealth", "200:HealthOfSandbox"},
	{"GET " BOX "/logs", "sandboxLogs", "200:Logs"},
	{"GET /v1/events", "events", "200:text/event-stream"},
	{"GET /v1/secrets", "listSecrets", "200:Secrets"},
	{"POST /v1/secrets", "createSecret", "201:Secret"},
	{"GET /v1/secrets/{name}", "getSecret", "200:Secret"},
	{"PUT /v1/secrets/{name}", "putSecret", "200:Secret"},
	{"DELETE /v1/secrets/{name}", "deleteSecret", "204"},
	{"GET /v1/agents", "listAgents", "200:Agents"},
	{"POST /v1/agents", "registerAgent", "201:Agent"},
	{"GET /v1/agents/{id}", "getAgent", "200:Agent"},
	{"PATCH /v1/agents/{id}", "changeAgent", "200:Agent"},
	{"DELETE /v1/agents/{id}", "unregisterAgent", "204"},
	{"POST /v1/agents/{id}/messages", "sendMessage", "201:SentMessage"},
	{"GET /v1/agents/{id}/messages", "readMessages", "200:Messages"},
	{"DELETE /v1/agents/{id}/messages", "acknowledgeMessages", "204"},
	{"POST /v1/agents/{id}/verify", "verifyMessage", "200:Verdict"},
	{"GET /v1/agents/{id}/keys", "getAgentKeys", "200:AgentKeys"},
	{"GET /v1/trust", "getTrust", "200:Trust"},
	{"GET /v1/agent-types", "listAgentTypes", "200:AgentTypes"},
	{"GET /v1/agent-runs", "listAgentRuns", "200:AgentRuns"},
	{"GET /v1/agent-runs/{id}", "getAgentRun", "200:AgentRun"},
	{"DELETE /v1/agent-runs/{id}", "killAgentRun", "204"},
	{"POST /mcp/agents/{type}", "runAgent", "200:AgentAnswer"},
	{"POST /v1/tools/check", "checkToolCall", "200:ToolVerdict"},
	{"POST /v1/tools/call", "callTool", "200:ToolResult"},
	{"GET /v1/snapshots", "listSnapshots", "200:Snapshots"},
	{"GET /v1/diff", "diff", "200:Diff"},
	{"DELETE /v1/snapshots/{id}", "deleteSnapshot", "204"},
	{"GET /v1/snapshots/{id}/tar", "exportSnapshot", "200:application/x-tar"},
	{"PUT /v1/snapshots/{id}/tar", "importSnapshot", "201:Snapshot"},
	{"ANY " BOX "/ports/{port}/{rest}", "port", "200:*/*"},
	{"ANY " BOX "/ports/{port}", "portRoot", "200:*/*"},
	{"GET /v1/tokens", "listTokens", "200:Tokens"},
	{"POST /v1/tokens", "createToken", ""},
	{"DELETE /v1/tokens/{id}", "revokeToken", ""},
	{"GET /v1/audit", "audit", "200:AuditRecords 200:application/x-ndjson"},
	{"GET /v1/policies", "listPolicies", "200:Policies"},
	{"GET /v1/images", "listImages", "200:Images"},
	{"DELETE /v1/images", "removeImage", "200:RemovedImages"},
	{"PUT /v1/images", "importImage", "201:MadeImages"},
	{"GET /v1/images/inspect", "inspectImage", "200:ImageInfo"},
	{"GET /v1/images/tar", "exportImage", "200:application/x-tar"},
	{"POST /v1/images/pull", "pullImage", "201:MadeImages 200:text/event-stream"},
	{"POST /v1/images/tag", "tagImage", "201:MadeImages"},
	{"POST /v1/images/prune", "pruneImages", "200:RemovedImages"},
	{"GET /v1/volumes", "listVolumes", "200:Volumes"},
	{"POST /v1/volumes", "createVolume", "201:Volume"},
	{"GET /v1/volumes/{name}", "getVolume", "200:Volume"},
	{"DELETE /v1/volumes/{name}", "deleteVolume", "204"},
};

/* ---- from a type to its schema ---- */

static json_t *type_schema(const char *type, size_t len);

static json_t *either(const char *type, size_t len)
{
	json_t *all = json_array();

	for (size_t at = 0; at < len;) {
		const char *bar = memchr(type + at, '|', len - at);
		size_t n = bar ? (size_t)(bar - type) - at : len - at;

		json_array_append_new(all, type_schema(type + at, n));
		at += n + 1;
	}
	return json_pack("{s:o}", "anyOf", all);
}

static json_t *type_schema(const char *type, size_t len)
{
	char ref[64];

	if (type[len - 1] == '?') {
		json_t *s = type_schema(type, len - 1);

		/* Members beside a reference do not count in OpenAPI 3.0. */
		if (json_object_get(s, "$ref"))
			s = json_pack("{s:[o]}", "allOf", s);
		json_object_set_new(s, "nullable", json_true());
		return s;
	}
	if (*type == '[')
		return json_pack("{s:s, s:o}", "type", "array", "items",
				 type_schema(type + 1, len - 2));
	if (memchr(type, '|', len))
		return either(type, len);
	if (len == 3 && !memcmp(type, "any", len))
		return json_object();
	if (*type >= 'a')
		return json_pack("{s:s%}", "type", type, len);
	snprintf(ref, sizeof(ref), "#/components/schemas/%.*s", (int)len, type);
	return json_pack("{s:s}", "$ref", ref);
}

static json_t *object_schema(const char *members)
{
	json_t *required = json_array(), *properties = json_object();
	json_t *s = json_pack("{s:s, s:o}", "type", "object", "properties", properties);

	for (const char *at = members; *at; at += *at == ' ') {
		size_t name = strcspn(at, ":"), len = strcspn(at + name + 1, " ");
		bool optional = at[name - 1] == '?';
		char text[32];

		snprintf(text, sizeof(text), "%.*s", (int)(name - optional), at);
		json_object_set_new(properties, text, type_schema(at + name + 1, len));
		if (!optional)
			json_array_append_new(required, json_string(text));
		at += name + 1 + len;
	}
	if (json_array_size(required))
		json_object_set_new(s, "required", required);
	else
		json_decref(required);
	return s;
}

/* The answer to anything that fails. */
json_t *answers_error(void)
{
	return json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", "an error", "content",
			 "application/json", "schema", "$ref", "#/components/schemas/Error");
}

json_t *answers_schemas(void)
{
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_LEN(schemas); i++)
		json_object_set_new(all, schemas[i].name, object_schema(schemas[i].members));
	return all;
}

/* ---- responses ---- */

static void add_content(json_t *response, const char *what, size_t len)
{
	bool is_media = memchr(what, '/', len);
	json_t *schema = is_media ? json_pack("{s:s, s:s}", "type", "string", "format", "binary")
				  : type_schema(what, len);
	json_t *content = json_object_get(response, "content");
	char media[64];

	if (!content)
		json_object_set_new(response, "content", content = json_object());
	snprintf(media, sizeof(media), "%.*s", (int)len, what);
	json_object_set_new(content, is_media ? media : "application/json",
			    json_pack("{s:o}", "schema", schema));
}

static json_t *describe_responses(const char *answers)
{
	static const char error[] = "#/components/responses/Error";
	json_t *all = json_pack("{s:{s:s}, s:{s:s}}", "4XX", "$ref", error, "5XX", "$ref", error);

	for (const char *at = answers; *at; at += *at == ' ') {
		size_t len = strcspn(at, " ");
		char status[4];
		json_t *response;

		snprintf(status, sizeof(status), "%.3s", at);
		response = json_object_get(all, status);
		if (!response)
			json_object_set_new(all, status,
					    response = json_pack("{s:s}", "description", "done"));
		if (len > 4)
			add_content(response, at + 4, len - 4);
		at += len;
	}
	return all;
}

void answers_describe(json_t *operation, const char *method, const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(operations); i++) {
		const char *blank = strchr(operations[i].operation, ' ');
		bool any = str_starts(operations[i].operation, "ANY ");
		char id[64];

		if (!str_equal(blank + 1, path) ||
		    (!any && strncmp(operations[i].operation, method, strlen(method)) != 0))
			continue;
		snprintf(id, sizeof(id), "%s%s", operations[i].id, any ? method : "");
		json_object_set_new(operation, "operationId", json_string(id));
		json_object_set_new(operation, "responses",
				    describe_responses(operations[i].answers));
	}
}
