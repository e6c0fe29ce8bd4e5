/*
 * Options of `cloche mcp` become options of a session. Those that make no sense there are refused.
 */
#include "cli/operator/mcp_internal.h"

#include "cli/cli.h"
#include "cli/verbs/client.h"
#include "cli/operator/mcp_daemon_cmd.h"

/*
 * Options that make no sense for sandboxes that outlive a command, or that a client must not set.
 */
static const char *const refused[] = {
	"apply",    "apply_also", "diff",     "tty",	  "json",	  "file",	 "capture",
	"tools",    "audit",	  "provider", "guard",	  "mount_read",	  "mount_write", "forbid",
	"use_case", "empty",	  "no_git",   "encoding", "keep_control", "cwd_file",
};

static int refuse_options(const struct sandbox_spec *s, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (spec_is_set(s, refused[i]) && !(str_equal(refused[i], "tools") && s->policy))
			return err_field(e, ERR_UNSUPPORTED, refused[i],
					 "--%s is not for cloche mcp; see `cloche mcp --help`",
					 refused[i]);
	return 0;
}

/* The options that were given, by the names that a session of the daemon uses as well. */
static json_t *session_options(const struct sandbox_spec *s, struct err *e)
{
	static const char *const own[] = {"policy", "workspace", "mount", "tools"};
	json_auto_t *options = json_object(), *volumes = ephemeral_daemon_volumes(s);
	char text[4096];

	for (size_t i = 0; i < spec_field_count; i++) {
		const struct field *f = &spec_fields[i];

		if (!spec_is_set(s, f->name) || cli_is_one_of(f->name, own, ARRAY_LEN(own)))
			continue;
		if (f->type == FIELD_LIST) {
			const struct list *l = (const void *)((const char *)s + f->offset);

			if (client_put(options, f->name, client_list(l), e) < 0)
				return NULL;
		} else if (spec_format(s, f, text, sizeof(text)) &&
			   client_put(options, f->name, json_string(text), e) < 0) {
			return NULL;
		}
	}
	if (json_array_size(volumes))
		json_object_set(options, "volumes", volumes);
	return json_incref(options);
}

/* `--env NAME` takes the value from our environment. */
static void resolve_env(struct sandbox_spec *s)
{
	struct list env = {0};

	for (size_t i = 0; i < s->env.count; i++) {
		const char *item = s->env.items[i], *value = getenv(item);

		if (strchr(item, '='))
			list_add(&env, item);
		else if (value)
			list_take(&env, str_format("%s=%s", item, value));
	}
	list_done(&s->env);
	s->env = env;
}

const char mcp_usage[] =
	"usage: cloche mcp [--private] [OPTIONS]\n"
	"       cloche mcp --server NAME [OPTIONS of cloche run] -- COMMAND [ARG...]\n\n"
	"An MCP server on standard input and output: tools with which a model runs code and "
	"commands\n"
	"in a sandbox of this client. Uses the daemon that runs (CLOCHE_URL, CLOCHE_TOKEN, or its\n"
	"socket), else one of its own that ends with it. What the model may do is set here, and "
	"only\n"
	"here; it cannot ask for more.\n\n"
	"  --server NAME           run this MCP server (stdio) in a sandbox, and pass its messages "
	"on\n"
	"  --tool-rule RULE        what a tool call may be; docs/agents.md\n"
	"  --private               a daemon of its own in any case\n"
	"  -w, --workspace DIR     show DIR as /workspace; writes go to it (implies --private)\n"
	"  -v, --mount SRC:DST[:rw]   show a file or directory (implies --private)\n"
	"  -m, --memory SIZE  --cpus N  --pids N  --disk SIZE  --open-files N  --file-size SIZE\n"
	"  -t, --timeout TIME      the most that one command may take (10m)\n"
	"      --output-limit SIZE what a result shows of each output (128K, at most 256K)\n"
	"      --net none|allow|public  --allow RULE  --deny RULE  --net-tx SIZE ...\n"
	"                          what sandboxes may reach (nothing); docs/network.md\n"
	"      --env K[=V]  --workdir DIR  --hostname NAME  --require LAYER  --policy FILE\n\n"
	"Claude Code:  claude mcp add cloche -- cloche mcp\n"
	"More: docs/mcp.md\n";

int mcp_options_read(struct mcp_options *ret, int argc, char **argv, struct err *e)
{
	struct options o = {.verb = "mcp"};
	auto_list struct list rest = {0};
	int i, end;

	*ret = (struct mcp_options){0};
	spec_init(&ret->spec);
	for (i = 0; i < argc; i++) {
		if (str_equal(argv[i], "--private"))
			ret->ephemeral_only = true;
		else
			list_add(&rest, argv[i]);
	}
	end = options_parse(&ret->spec, (int)rest.count, rest.items, &o, e);
	if (end >= 0 && (size_t)end < rest.count)
		end = err_set(e, ERR_INVALID, "'%s' is no option; see `cloche mcp --help`",
			      rest.items[end]);
	if (end < 0)
		return -1;
	if (o.help)
		return 1;
	resolve_env(&ret->spec);
	if (refuse_options(&ret->spec, e) < 0 || ephemeral_daemon_check(&ret->spec, e) < 0)
		return -1;
	if (ret->spec.workspace || ret->spec.mounts.count)
		ret->ephemeral_only = true;
	ret->session = session_options(&ret->spec, e);
	return ret->session ? 0 : -1;
}

void mcp_options_done(struct mcp_options *o)
{
	json_decref(o->session);
	spec_done(&o->spec);
}
