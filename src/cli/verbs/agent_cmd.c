/* `cloche agent`: one row for each part. Registering and trust are here. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/agent_run.h"
#include "cli/verbs/client_verb.h"

static char *agent_path(const char *name)
{
	char encoded[1024];

	http_encode(encoded, sizeof(encoded), name, false);
	return str_format("/v1/agents/%s", encoded);
}

static int read_level(const char *text, json_t *body, struct err *e)
{
	if (strlen(text) != 1 || text[0] < '0' || text[0] > '5')
		return err_field(e, ERR_INVALID, "trust",
				 "trust: '%.40s' is not a level from 0 to 5", text);
	json_object_set_new(body, "trust", json_integer(text[0] - '0'));
	return 0;
}

static int agent_register(struct verb_call *v, struct err *e)
{
	json_t *body = json_object(), *made = NULL;

	if (read_level(verb_text(v, "trust"), body, e) < 0) {
		json_decref(body);
		return -1;
	}
	json_object_set_new(body, "id", json_string(v->args[0]));
	if (verb_text(v, "owner"))
		json_object_set_new(body, "owner", json_string(verb_text(v, "owner")));
	if (verb_text(v, "outside"))
		json_object_set_new(body, "outside", json_true());
	if (client_call(&v->client, "POST", "/v1/agents", body, &made, e) < 0)
		return -1;
	return verb_show_id(v, made);
}

static int agent_unregister(struct verb_call *v, struct err *e)
{
	int status = 0;

	for (char **name = v->args; *name; name++) {
		auto_free char *path = agent_path(*name);

		if (client_call(&v->client, "DELETE", path, NULL, NULL, e) < 0)
			status = cli_fail(e);
	}
	return status;
}

static int show_rule(struct verb_call *v, struct err *e)
{
	char from[512], to[512];
	auto_free char *path = NULL;
	json_t *answer = NULL;
	const json_t *rule;

	http_encode(from, sizeof(from), v->args[0], false);
	http_encode(to, sizeof(to), v->args[1], false);
	path = str_format("/v1/trust?from=%s&to=%s", from, to);
	if (client_call(&v->client, "GET", path, NULL, &answer, e) < 0)
		return -1;
	if (v->json)
		return print_json(answer);
	rule = json_object_get(answer, "rule");
	printf("%s (level %d) may %stalk to %s (level %d), and may %sdelegate to it\n", v->args[0],
	       (int)json_integer_value(json_object_get(rule, "from_trust")),
	       json_is_true(json_object_get(rule, "may_talk")) ? "" : "not ", v->args[1],
	       (int)json_integer_value(json_object_get(rule, "to_trust")),
	       json_is_true(json_object_get(rule, "may_delegate")) ? "" : "not ");
	json_decref(answer);
	return finish_stdout(0);
}

static int set_level(struct verb_call *v, struct err *e)
{
	auto_free char *path = agent_path(v->args[0]);
	json_t *body = json_object(), *changed = NULL;

	if (read_level(v->args[1], body, e) < 0) {
		json_decref(body);
		return -1;
	}
	if (client_call(&v->client, "PATCH", path, body, &changed, e) < 0)
		return -1;
	return v->json ? print_json(changed) : (json_decref(changed), 0);
}

/* No agent's name begins with a digit, so a digit is a level. */
static int agent_trust(struct verb_call *v, struct err *e)
{
	if (v->count == 0)
		return verb_list(v, e);
	if (v->count == 1)
		return verb_misused(v, e);
	return v->args[1][0] >= '0' && v->args[1][0] <= '9' ? set_level(v, e) : show_rule(v, e);
}

static const struct column agent_columns[] = {
	{"AGENT", "id", COLUMN_TEXT},
	{"TRUST", "trust", COLUMN_TEXT},
	{"NOW", "effective_trust", COLUMN_TEXT},
	{"LEVEL", "level", COLUMN_TEXT},
	{"OWNER", "owner", COLUMN_TEXT},
	{"REGISTERED", "created_at", COLUMN_AGE},
};

static const struct verb_option register_options[] = {
	{"trust", 0, "LEVEL", "from 0 (untrusted) to 5 (admin) (1)", "1"},
	{"owner", 0, "ID", "a token's id, or @TENANT (the caller's own)", NULL},
	{"outside", 0, NULL, "it has no sandbox: its owner's token speaks for it", NULL},
	{"json", 0, NULL, "print the agent", NULL},
};
static const struct verb_option json_option[] = {{"json", 0, NULL, "print JSON", NULL}};

static char *run_path(const char *id)
{
	char encoded[256];

	http_encode(encoded, sizeof(encoded), id, false);
	return str_format("/v1/agent-runs/%s", encoded);
}

static int agent_logs(struct verb_call *v, struct err *e)
{
	auto_free char *path = run_path(v->args[0]);
	json_t *answer = NULL;
	const json_t *text;

	if (client_call(&v->client, "GET", path, NULL, &answer, e) < 0)
		return -1;
	if (v->json)
		return print_json(answer);
	text = json_object_get(answer, "output");
	fwrite(json_string_value(text), 1, json_string_length(text), stdout);
	json_decref(answer);
	return finish_stdout(0);
}

static int agent_kill(struct verb_call *v, struct err *e)
{
	int status = 0;

	for (char **id = v->args; *id; id++) {
		auto_free char *path = run_path(*id);

		if (client_call(&v->client, "DELETE", path, NULL, NULL, e) < 0)
			status = cli_fail(e);
	}
	return status;
}

static const struct column agent_run_columns[] = {
	{"ID", "id", COLUMN_TEXT},	    {"TYPE", "type", COLUMN_TEXT},
	{"NAME", "name", COLUMN_TEXT},	    {"STATE", "state", COLUMN_TEXT},
	{"EXIT", "exit_code", COLUMN_TEXT}, {"STARTED", "created_at", COLUMN_AGE},
	{"MS", "duration_ms", COLUMN_TEXT},
};

static const struct column type_columns[] = {
	{"TYPE", "type", COLUMN_TEXT},	   {"TASK", "task", COLUMN_TEXT},
	{"OUTPUT", "output", COLUMN_TEXT}, {"NETWORK", "net", COLUMN_TEXT},
	{"NEEDS", "needs", COLUMN_TEXT},   {"WHAT", "description", COLUMN_TEXT},
};

static const struct verb_option run_options[] = {
	{"name", 0, "NAME", "what this one is called", NULL},
	{"system", 0, "TEXT", "what it is to be: its system prompt", NULL},
	{"env", 'e', "K[=V]", "a variable for it", NULL},
	{"capture", 0, "GLOB", "put matching files into the record", NULL},
	{"memory", 'm', "SIZE", "less memory than its type has", NULL},
	{"cpus", 0, "N", "fewer processors", NULL},
	{"timeout", 't', "TIME", "less time", NULL},
	{"tasks", 0, "FILE",
	 "a task in each line, as a JSON string or an object with task; -: stdin", NULL},
	{"parallel", 'p', "N", "of --tasks: at most so many at one time (4)", "4"},
	{"journal", 0, "FILE", "of --tasks: results go there, and what it has is not run again",
	 NULL},
	{"budget", 0, "KEY=VALUE",
	 "of --tasks: cpu, memory_seconds, net_tx or tasks of each 500 together; with name=NAME of "
	 "all "
	 "that name it",
	 NULL},
	{"json", 0, NULL, "print the whole answer", NULL},
};

static const struct verb parts[] = {
	{.name = "run",
	 .line = "cloche agent run [OPTIONS] TYPE [TASK|-]",
	 .about =
		 "Gives a task to an agent in a sandbox of its own. With --tasks: a file of tasks.",
	 .run = agent_run,
	 ARGS(1, 2),
	 OPTIONS(run_options)},
	{.name = "ls",
	 .line = "cloche agent ls [--json]",
	 .about = "Lists agent types.",
	 .run = verb_list,
	 .request = "GET /v1/agent-types",
	 .member = "types",
	 COLUMNS(type_columns),
	 ARGS(0, 0),
	 OPTIONS(json_option)},
	{.name = "ps",
	 .line = "cloche agent ps [--json]",
	 .about = "Lists agents that run, and the last ones that have ended.",
	 .run = verb_list,
	 .request = "GET /v1/agent-runs",
	 .member = "runs",
	 COLUMNS(agent_run_columns),
	 ARGS(0, 0),
	 OPTIONS(json_option)},
	{.name = "logs",
	 .line = "cloche agent logs [--json] ID",
	 .about = "Prints the end of what an agent has printed, also while it runs.",
	 .run = agent_logs,
	 ARGS(1, 1),
	 OPTIONS(json_option)},
	{.name = "kill",
	 .line = "cloche agent kill ID...",
	 .about = "Ends agents. Who waits for them gets an error.",
	 .run = agent_kill,
	 ARGS(1, VERB_MANY)},
	{.name = "register",
	 .line = "cloche agent register [OPTIONS] NAME",
	 .about = "Registers an agent. Only admins may.",
	 .run = agent_register,
	 ARGS(1, 1),
	 OPTIONS(register_options)},
	{.name = "unregister",
	 .line = "cloche agent unregister NAME...",
	 .about = "Forgets agents. From then on they have trust level 0.",
	 .run = agent_unregister,
	 ARGS(1, VERB_MANY)},
	{.name = "trust",
	 .line = "cloche agent trust [--json] [NAME LEVEL | FROM TO]",
	 .about =
		 "Lists registered agents; changes the level of one; says what FROM may ask of TO.",
	 .run = agent_trust,
	 .request = "GET /v1/agents",
	 .member = "agents",
	 COLUMNS(agent_columns),
	 ARGS(0, 2),
	 OPTIONS(json_option)},
};

const struct verb verb_agent = {
	.about =
		"usage: cloche agent run [OPTIONS] TYPE [TASK|-]      give an agent a task\n"
		"       cloche agent run --tasks FILE TYPE           many tasks\n"
		"       cloche agent ls                              agent types\n"
		"       cloche agent ps | logs ID | kill ID...       agents that run\n"
		"       cloche agent register [OPTIONS] NAME         give an agent a trust level\n"
		"       cloche agent unregister NAME...              forget agents\n"
		"       cloche agent trust [NAME LEVEL | FROM TO]    levels, and what they allow\n",
	PARTS(parts),
};
