/*
 * The tools that a model may call: one const table. Input and output schemas, checking of arguments
 * and the manual all come from it. Nothing in it makes a sandbox wider: what a sandbox may do is set
 * by who starts the server (rule 5), so limits, network, mounts and images are no arguments, and an
 * argument that is not listed is refused.
 */
#pragma once

#include "api/http/fields.h"

struct mcp_call;

enum mcp_hints {
	MCP_READ_ONLY = 1,
	MCP_DESTRUCTIVE = 2,
	MCP_IDEMPOTENT = 4,
};

struct mcp_tool {
	const char *name, *title, *description;
	unsigned hints, scope; /* scope: of auth.h */
	const struct body_table *in, *out;
	void (*run)(struct mcp_call *c); /* the call has its arguments checked */
	bool no_sandbox;		 /* run needs none that is awake */
};

extern const struct mcp_tool mcp_tools[];
extern const size_t mcp_tool_count;

const struct mcp_tool *mcp_tool_find(const char *name);
/* As tools/list shows it. */
json_t *mcp_tool_describe(const struct mcp_tool *t);
/* Says in words for a model what is wrong with the arguments (NULL: none were sent). */
int mcp_tool_check(const struct mcp_tool *t, const json_t *args, struct err *e);

/* Prompts. */
json_t *mcp_prompts(void);
/* NULL: unknown name, or arguments that are missing (e says which). */
json_t *mcp_prompt_get(const char *name, const json_t *args, struct err *e);
