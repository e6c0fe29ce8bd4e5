/*
 * The agent's door: what an agent in a sandbox can ask over /run/cloche/agent.sock (api/http/agent_socket.c). Plain HTTP,
 * and MCP at /mcp. Who asks is known by the socket; no token counts here, and no other door can be reached.
 */
#pragma once

#include "agent/mail.h"
#include "api/rest/rest.h"

extern const struct door agent_door;

/* ---- for the files of this folder ---- */
/* The agent that asks; NULL: it is registered no more. */
const struct ipc_agent *agent_self(const struct exchange *x);
/* {"self","agents":[...]}: who it knows, and what it may ask of them. */
json_t *agent_list(const struct exchange *x, const struct ipc_agent *self);
void agent_mcp(struct exchange *x);
