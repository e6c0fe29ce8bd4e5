/*
 * `cloche hook`: one pipeline for the events of all coding agents.
 *
 *   read      one JSON event from stdin                                        hook_cmd.c
 *   dialect   whose event is it, which tool is called with which arguments      dialect.c
 *   judge     by the rules for tool calls, then by interceptors; is the tool a shell; where is the project
 *                                                policy/tools, intercept.c, hook_cmd.c, place.c
 *   verdict   leave alone, rewrite, ask, refuse                                 rewrite.c
 *   write     the verdict as that agent reads it                                dialect.c
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"
#include "policy/tools/rules.h"

#include <jansson.h>

/* A tool call, as the agent describes it. Members are borrowed from the event, `input` aside. */
struct tool_call {
	const char *tool;
	json_t *input;	     /* the arguments; an object; owned */
	const char *cwd;     /* the agent's current directory, or NULL */
	const char *session; /* or NULL */
};

struct dialect;
/* The first dialect that fits this event; NULL: none. */
const struct dialect *dialect_find(const json_t *event, struct err *e);
/* Reads the tool call from the event; the caller frees ret->input. */
int dialect_read(const struct dialect *d, const json_t *event, struct tool_call *ret,
		 struct err *e);
/* Refuses if this agent cannot be answered with a rewritten call. */
int dialect_check_rewrite(const struct dialect *d, struct err *e);
/* Refuses if this agent cannot be told to ask. why: what wants it. */
int dialect_check_ask(const struct dialect *d, const char *why, struct err *e);
/* Does a command start where the last one ended? */
bool dialect_keeps_cwd(const struct dialect *d);
/* Writes "run this instead"; input: the rewritten arguments; reason: for its user. */
int dialect_write_rewrite(const struct dialect *d, bool ask, const char *reason, json_t *input,
			  struct err *e);
/* d NULL: the agent is not known. Returns the exit status. */
int dialect_write_refusal(const struct dialect *d, const json_t *event, bool by_rule,
			  const struct err *e);

struct hook {
	struct sandbox_spec spec;
	struct list options; /* for `cloche run`, as given */
	struct list tools;   /* --tool: further shells */
	bool ask, session;
	bool check;	   /* --check: rules only, nothing is rewritten */
	uint64_t chain_ms; /* --interceptor-time: all of them together; 0: CHAIN_MS */
	const char *audit; /* --audit: where verdicts are noted, or NULL */
	bool by_rule;	   /* a rule refused the call */
	json_t *event;
	const struct dialect *dialect;
	struct tool_call call;
	/* place.c */
	char cwd[PATH_MAX]; /* where the command is to start */
	char project[PATH_MAX];
	char cwd_file[PATH_MAX]; /* keeps where it ends; "": nothing is kept */
};

/* Does the sandbox show the project? The operator's options may choose another workspace, or none. */
bool hook_uses_project(const struct hook *h);
/* Is this path in a directory that the agent calls its workspace, or that may become the project? */
bool hook_is_in_workspace(const struct hook *h, const char *path);
/* Finds the project and the directory of the agent, and nothing more. */
int hook_find_project(struct hook *h, struct err *e);
/*
 * Asks the interceptors, in their order, up to the first that denies; j gets stricter. -1: one cannot be asked, or a
 * verdict cannot be noted. (intercept.c)
 */
int hook_intercept(struct hook *h, struct tool_judgement *j, struct err *e);
/* Finds and judges the project and the directory in which the command starts. */
int hook_find_places(struct hook *h, struct err *e);
/* Replaces the commands in the call's arguments by `cloche run` of them. */
int hook_rewrite(struct hook *h, struct err *e);
