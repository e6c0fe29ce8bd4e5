/*
 * An agent type says how a program is given a task: which image and command, how the task arrives, what it may use, and
 * how its answer is read. It is a YAML file of the operator (docs/agents.md); here it is JSON that was checked.
 *
 * The task is data. It becomes one argument, the input, a file or a variable; never a part of a script or a line
 * for a shell. The answer is parsed, never evaluated.
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

#define AGENT_TASK_FILE "/tmp/.cloche/task"

/*
 * The body of POST /v1/run (cmd, stdin, files, limits ...) for one task. call has task, and may have agent_name,
 * system_prompt, files, capture, env, and limits, which only narrow those of the type. NULL: e names the field.
 */
json_t *agent_type_body(const char *name, const json_t *type, const json_t *call, struct err *e);
/* Its standard output as the type says: text, one JSON value, or one in each line. NULL: it is no such thing. */
json_t *agent_type_answer(const json_t *type, const char *text, size_t len, struct err *e);
