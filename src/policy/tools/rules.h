/*
 * Rules for tool calls of agents, before they happen. `cloche hook`, /v1/tools/check and the tools of MCP
 * ask them. A rule is one line:
 *
 *   VERDICT TOOL [KEY=PATTERN] [because REASON]
 *
 *   deny Bash command=git ** push because people push
 *   deny Read path=/etc/shadow
 *   allow WebFetch domain=*.example.com
 *   ask Bash
 *   deny reviewer/Write
 *
 * VERDICT is allow, ask or deny. TOOL is a name, with * for any letters; all names of one tool are the same to
 * a rule (names.c). AGENT/TOOL is for calls of registered agents of this name, at the daemon. KEY is command, path, domain, or an argument of the tool. The first rule that fits
 * decides; a call with several commands gets the strictest of their verdicts. Without a rule a call is
 * allowed. What a rule cannot tell for certain is `ask`, never `allow`.
 *
 * Rules explain a refusal early. They read text, and text can be hidden; the sandbox is the wall.
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

/* From the mildest to the strictest. */
enum tool_verdict { TOOL_ALLOW, TOOL_ASK, TOOL_DENY };

/* A call, as an agent describes it. Borrowed. */
struct tool_question {
	const char *tool;
	const char *agent;   /* that makes it, or NULL */
	const json_t *args;  /* an object, or NULL */
	const char *cwd;     /* relative paths begin here; NULL: they stay relative */
	const json_t *paths; /* {"host path": "path inside"}, or NULL */
};

struct tool_judgement {
	enum tool_verdict verdict;
	char rule[256];	  /* that decided, or "" */
	char reason[384]; /* for the model and its user; "" if nothing decided */
	unsigned wait_s;  /* not 0: a limit is reached, for so long */
};

int tool_rule_check(const char *rule, struct err *e);
/* Checks all of them; the error names the field tool_rule. */
int tool_rules_check(const struct list *rules, struct err *e);
void tool_rules_judge(const struct list *rules, const struct tool_question *q,
		      struct tool_judgement *ret);
const char *tool_verdict_name(enum tool_verdict v);
/* The stricter one stays. */
void tool_take_stricter(struct tool_judgement *to, const struct tool_judgement *other);

/* Is a rule for an agent of this name only? Where nobody says which agent calls, such a rule would never hold. */
bool tool_rule_has_agent(const char *rule);
/* Does "[AGENT/]TOOL" name a call? */
bool tool_is_named(const char *pattern, const char *agent, const char *tool);

/* ---- limits.c: "60/1m Bash", "500/24h writer/Write" ---- */
#define TOOL_LIMIT_MOST 1000000
struct tool_limit {
	uint32_t count; /* calls at once, and again as the time passes */
	uint64_t window_ms;
	char tool[128]; /* [AGENT/]TOOL */
};
int tool_limit_read(const char *text, struct tool_limit *ret, struct err *e);

/* ---- verdict.c ---- */
#define TOOL_ANSWER_MAX (64u << 10)
/* What the interceptor of this name printed; len 0: nothing. Whatever is no clear answer is a denial. */
void tool_verdict_read(const char *name, const char *text, size_t len, struct tool_judgement *ret);

/* ---- names.c ---- */
/* The name that MCP's tools have for it, or the name itself. */
const char *tool_common_name(const char *name);
/* Does the tool give a line to a shell? */
bool tool_is_shell(const char *name);
/* Has the call a member that looks like a line for a shell? */
bool tool_has_command(const char *name, const json_t *args);
/* The members that hold such lines, one after the other; NULL at the end. */
const char *tool_command_member(size_t i);
/* The same for paths. */
const char *tool_path_member(size_t i);

/* ---- one table of paths, both ways ---- */
/* The path on the other side, by the longest prefix; NULL: it lies below none. The caller frees it. */
char *tool_path_inside(const json_t *paths, const char *host_path);
char *tool_path_outside(const json_t *paths, const char *inside_path);
/* Absolute and without "." and ".."; "~" stays at the front. The caller frees it. */
char *tool_path_clean(const char *cwd, const char *path);
