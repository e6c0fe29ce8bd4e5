/*
 * Registered agents, as the front sees them: the broker keeps the list and sends it whole after each change
 * (IPC_AGENTS). An agent is a name with an owner and a trust level (auth/trust.h). It runs in a sandbox, or outside.
 * An agent that is not in the list has level 0.
 */
#pragma once

#include "base/base.h"
#include "auth/auth.h"
#include "manager/manager.h"

struct agents;

struct agents *agents_new(void);
void agents_free(struct agents *a);
/* Takes the list that the broker sent; a bad one changes nothing. */
int agents_take(struct agents *a, int fd, struct err *e);

/* NULL: nobody registered it. Valid until the next list. */
const struct ipc_agent *agents_find(const struct agents *a, const char *name);
/* The same for a caller, who sees its own; the operator and admins see all. ERR_NOT_FOUND. */
const struct ipc_agent *agents_see(const struct agents *a, const struct caller *who,
				   const char *name, struct err *e);
/* Unregistered: 0. */
int agents_level(const struct agents *a, const char *name);
/* {"agents":[...]}, those that the caller sees. */
json_t *agents_list(const struct agents *a, const struct caller *who);
json_t *agent_describe(const struct ipc_agent *a);
/* The others of the same owner, with what this one may ask of them. */
json_t *agents_around(const struct agents *a, const struct ipc_agent *self);
/* May this one talk to that one, and delegate to it? Both are names, registered or not. */
json_t *agents_judge(const struct agents *a, const char *from, const char *to);

/*
 * Fits a new sandbox to the trust level of the agent that it is for (name; "": of the caller): what was not asked for
 * gets the level's default, and a network beyond its ceiling is refused. The broker holds all that again.
 */
int agents_fit(const struct agents *a, const struct manager *m, const struct caller *who,
	       const char *name, struct create_options *o, struct err *e);
/* A network for a sandbox of this agent (or ""): is it within the level's ceiling? */
int agents_check_net(const struct agents *a, const char *name, const struct sandbox_spec *spec,
		     struct err *e);
