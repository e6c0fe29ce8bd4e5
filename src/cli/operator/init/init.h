/*
 * `cloche init`: a policy for the project, and settings of the coding agents that are used in it.
 *
 *   look      which languages, which agents                      project.c, clients.c
 *   propose   the text of each file as it is to be                project.c, clients.c
 *   try       does a run with the policy work, do the hooks       init_cmd.c
 *   show      the differences                                     init_cmd.c
 *   write     once somebody has said yes                          init_cmd.c
 */
#pragma once

#include "base/base.h"

/*
 * The file of the project's policy: the caller's own, below ~/.config. What is in the project may come from strangers, and is
 * changed by whoever commits. NULL: it cannot be named. The caller frees it.
 */
char *project_policy_path(const char *dir, struct err *e);
/* The text of a policy for the project in this directory, with the reasons. The caller frees it. */
char *project_policy(const char *dir);

/* A coding agent whose settings are JSON. */
struct agent_client {
	const char *name;
	const char *marker;   /* a directory of the project or of HOME that says it is used */
	const char *file;     /* its settings: in the project, or with ~/ in HOME */
	const char *settings; /* what is to be in them; COMMAND stands for the hook's command */
	const char *command;  /* before the policy; NULL: the settings name `cloche mcp` */
	const char *
		event; /* what the agent sends before a shell command, without a directory; NULL as well */
};

/* NULL behind the last. */
const struct agent_client *client_at(size_t i);
const struct agent_client *client_find_name(const char *name);
bool client_is_used(const struct agent_client *c, const char *dir);
/* The caller frees it. */
char *client_path_of(const struct agent_client *c, const char *dir);
/* The settings with ours in them. old: their text, or NULL if there are none. The caller frees the answer. */
char *client_merge(const struct agent_client *c, const char *old, const char *policy,
		   struct err *e);
/* What the agent runs, with this policy. The caller frees it. */
char *client_command(const struct agent_client *c, const char *policy);
