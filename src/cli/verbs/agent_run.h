/* `cloche agent run`: a row of agent_cmd.c. */
#pragma once

#include "cli/verbs/client_verb.h"

int agent_run(struct verb_call *v, struct err *e);
