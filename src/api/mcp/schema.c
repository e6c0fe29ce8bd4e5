/* Describes tools to a model and checks their arguments, by the tables of tools.c; and the prompts. */
#include "api/mcp/mcp_internal.h"

json_t *mcp_tool_describe(const struct mcp_tool *t)
{
	json_t *hints = json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", t->title, "readOnlyHint",
				  !!(t->hints & MCP_READ_ONLY), "destructiveHint",
				  !!(t->hints & MCP_DESTRUCTIVE), "idempotentHint",
				  !!(t->hints & MCP_IDEMPOTENT), "openWorldHint", 0);

	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", t->name, "title", t->title,
			 "description", t->description, "inputSchema", body_schema(t->in),
			 "outputSchema", body_schema(t->out), "annotations", hints);
}

/* ---- arguments ---- */

static int check_argument(const struct body_field *f, const json_t *v, struct err *e)
{
	double n = json_number_value(v);
	char all[256] = "";

	if (!body_has_type(v, f->type))
		return f->type == BODY_TEXT && json_is_string(v)
			       ? err_field(e, ERR_INVALID, f->name, "%s must not hold a zero byte",
					   f->name)
			       : err_field(e, ERR_INVALID, f->name, "%s must be of type %s (%s)",
					   f->name, body_type_name(f->type), f->help);
	if (f->min < f->max && (n < f->min || n > f->max))
		return err_field(e, ERR_INVALID, f->name, "%s must be between %g and %g", f->name,
				 f->min, f->max);
	for (size_t i = 0; f->values && f->values[i]; i++) {
		if (str_equal(json_string_value(v), f->values[i]))
			return 0;
		str_append(all, sizeof(all), ", ", "%s", f->values[i]);
	}
	if (f->values)
		return err_field(e, ERR_INVALID, f->name, "%s must be one of %s", f->name, all);
	return 0;
}

/* Options of sandboxes get a message of their own: models try to set them. */
static int unknown_argument(const struct mcp_tool *t, const char *name, struct err *e)
{
	const struct field *option = spec_field_find(name);
	char known[256] = "";

	if (option || str_equal(name, "network") || str_equal(name, "mounts"))
		return err_field(e, ERR_DENIED, name,
				 "%s: '%.32s' cannot be set from here. What the sandbox may do was "
				 "decided by who started this server; leave it out, and if the "
				 "task cannot be done without it, tell the user",
				 t->name, name);
	for (size_t i = 0; i < t->in->count; i++)
		str_append(known, sizeof(known), ", ", "%s", t->in->fields[i].name);
	return err_field(e, ERR_INVALID, name, "%s has no argument '%.32s'; it takes: %s", t->name,
			 name, known[0] ? known : "none");
}

int mcp_tool_check(const struct mcp_tool *t, const json_t *args, struct err *e)
{
	const char *name;
	json_t *value;

	if (args && !json_is_object(args))
		return err_set(e, ERR_INVALID, "arguments must be an object");
	json_object_foreach ((json_t *)args, name, value) {
		const struct body_field *f = body_field_find(t->in, name);

		if (!f)
			return unknown_argument(t, name, e);
		if (check_argument(f, value, e) < 0)
			return err_wrap(e, "%s", t->name);
	}
	for (size_t i = 0; i < t->in->count; i++) {
		const struct body_field *f = &t->in->fields[i];

		if ((f->flags & BODY_REQUIRED) && !json_object_get(args, f->name))
			return err_field(e, ERR_INVALID, f->name, "%s needs the argument %s (%s)",
					 t->name, f->name, f->help);
	}
	return 0;
}

/* ---- prompts ---- */

struct prompt {
	const char *name, *title, *description, *argument, *argument_help;
	const char *before, *after; /* of the argument */
};

static const struct prompt prompts[] = {
	{"solve_with_code", "Solve with code", "Work out an answer by writing and running code",
	 "task", "What is to be found out or made",
	 "Solve this task by writing code and running it in the sandbox with run_code:\n\n",
	 "\n\nLook at what each run prints before you go on, check the result in a second way, and "
	 "then give the answer with the code that produced it."},
	{"fix_failing_command", "Fix a failing command",
	 "Find out why a command fails, and mend it", "command", "The command line",
	 "This command fails in the sandbox:\n\n",
	 "\n\nRun it with run_command, read the error and the files that it names, change one "
	 "thing at a time with write_file, and run it again until it succeeds. If the sandbox "
	 "refused something (denials), say what and why it is needed instead of working around "
	 "it."},
};

json_t *mcp_prompts(void)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
		const struct prompt *p = &prompts[i];

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:[{s:s, s:s, s:b}]}", "name",
						p->name, "title", p->title, "description",
						p->description, "arguments", "name", p->argument,
						"description", p->argument_help, "required", 1));
	}
	return list;
}

json_t *mcp_prompt_get(const char *name, const json_t *args, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
		const struct prompt *p = &prompts[i];
		const char *value = json_string_value(json_object_get(args, p->argument));
		auto_free char *text = NULL;

		if (!str_equal(name, p->name))
			continue;
		if (!value) {
			err_field(e, ERR_INVALID, p->argument, "prompt %s needs the argument %s",
				  name, p->argument);
			return NULL;
		}
		text = str_format("%s%s%s", p->before, value, p->after);
		return json_pack("{s:s, s:[{s:s, s:{s:s, s:s}}]}", "description", p->description,
				 "messages", "role", "user", "content", "type", "text", "text",
				 text);
	}
	err_set(e, ERR_NOT_FOUND, "Unknown prompt: %.64s", name);
	return NULL;
}
