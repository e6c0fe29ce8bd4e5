/*
 * Tool calls of any agent, as calls of the tools that this daemon has (api/mcp/tools.c): names and arguments are
 * translated by a table, paths by the caller's table of host paths and paths inside, both ways.
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

/* paths: {"host path": "path inside"}, or NULL. ret_tool is static. -1: no tool of ours does this. */
int tool_call_translate(const char *tool, const json_t *args, const json_t *paths,
			const char **ret_tool, json_t **ret_args, struct err *e);
/* Members of a result that are paths become those of the host. */
void tool_result_outside(json_t *result, const json_t *paths);
