/*
 * Theory of operation. A call is taken apart into units: each command that a shell would start is one, and a
 * call without a shell is one by itself. For each unit the first rule that fits decides. A rule may fit
 * certainly, or perhaps: the command has a variable where the rule has a word. Perhaps counts as `ask` for
 * rules that refuse, and as "does not fit" for rules that allow. A line that cannot be read is a unit of which
 * nothing is known.
 */
#include "policy/tools/rules.h"

#include "base/glob.h"
#include "policy/tools/shell.h"

#include <ctype.h>
#include <strings.h>

#define PATTERN_WORDS 32
#define WORD_PATHS 16 /* that one word may name */

enum fit { FIT_NOT, FIT_PERHAPS, FIT_YES };

struct rule {
	enum tool_verdict verdict;
	char tool[128], key[32];
	char pattern[256];
	char reason[128];
};

/* What a rule is compared with. */
struct unit {
	const struct tool_question *q;
	const struct tool_question *moved;   /* the same where `cd` led; NULL: there was none */
	const struct shell_command *command; /* NULL: not one of a shell */
	bool hidden;			     /* a shell's, and nobody knows which */
};

const char *tool_verdict_name(enum tool_verdict v)
{
	static const char *const names[] = {
		[TOOL_ALLOW] = "allow", [TOOL_ASK] = "ask", [TOOL_DENY] = "deny"};

	return names[v];
}

/* ---- reading rules ---- */

static int bad_rule(const char *text, const char *what, struct err *e)
{
	return err_field(e, ERR_INVALID, "tool_rule", "tool_rule: '%.100s' %s", text, what);
}

static int take_verdict(const char **at, struct rule *r)
{
	size_t n = strcspn(*at, " ");

	for (int v = TOOL_ALLOW; v <= TOOL_DENY; v++) {
		const char *name = tool_verdict_name((enum tool_verdict)v);

		if (n != strlen(name) || strncmp(*at, name, n) != 0)
			continue;
		r->verdict = (enum tool_verdict)v;
		*at += n + strspn(*at + n, " ");
		return 0;
	}
	return -1;
}

/* Copies up to `end`, without blanks at its end. */
static bool copy_part(char *to, size_t size, const char *from, size_t len)
{
	while (len && from[len - 1] == ' ')
		len--;
	if (len >= size)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

static int read_rule(const char *text, struct rule *r, struct err *e)
{
	static const char because[] = " because ";
	const char *at = text, *reason = strstr(text, because);
	const char *end = reason ? reason : text + strlen(text);
	size_t n;

	*r = (struct rule){0};
	if (!str_is_printable(text))
		return bad_rule("", "has control characters in it", e);
	if (take_verdict(&at, r) < 0)
		return bad_rule(text, "must begin with allow, ask or deny", e);
	n = strcspn(at, " ");
	if (n == 0 || at >= end || !copy_part(r->tool, sizeof(r->tool), at, n))
		return bad_rule(text, "names no tool; * is any", e);
	at += n + strspn(at + n, " ");
	if (reason) {
		reason += sizeof(because) - 1;
		if (!copy_part(r->reason, sizeof(r->reason), reason, strlen(reason)))
			return bad_rule(text, "has a reason of more than 127 bytes", e);
	}
	if (at >= end)
		return 0;
	n = strspn(at, STR_ALNUM "_-");
	if (n == 0 || at[n] != '=' || !copy_part(r->key, sizeof(r->key), at, n))
		return bad_rule(text, "wants KEY=PATTERN behind the tool, as command=git push", e);
	at += n + 1;
	if (at >= end || !copy_part(r->pattern, sizeof(r->pattern), at, (size_t)(end - at)) ||
	    !r->pattern[0])
		return bad_rule(text, "has an empty pattern, or one of more than 255 bytes", e);
	if (str_equal(r->key, "path") && r->pattern[0] != '/' && r->pattern[0] != '~' &&
	    r->pattern[0] != '*' && strchr(r->pattern, '/'))
		return bad_rule(text, "has a relative path; begin it with / or ~ or **", e);
	return 0;
}

int tool_rule_check(const char *rule, struct err *e)
{
	struct rule r;

	return read_rule(rule, &r, e);
}

int tool_rules_check(const struct list *rules, struct err *e)
{
	for (size_t i = 0; i < rules->count; i++)
		if (tool_rule_check(rules->items[i], e) < 0)
			return -1;
	return 0;
}

/* ---- texts ---- */

/* `*` stands for any bytes, slashes too. */
static bool is_like(const char *pattern, const char *text, bool nocase)
{
	const char *star = NULL, *back = NULL;

	while (*text) {
		int p = nocase ? tolower((unsigned char)*pattern) : *pattern;
		int t = nocase ? tolower((unsigned char)*text) : *text;

		if (*pattern == '*') {
			star = pattern++;
			back = text;
		} else if (p == t) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++back;
		} else {
			return false;
		}
	}
	return pattern[strspn(pattern, "*")] == '\0';
}

static bool names_tool(const char *pattern, const char *tool)
{
	if (strchr(pattern, '*'))
		return is_like(pattern, tool, false) ||
		       is_like(pattern, tool_common_name(tool), false);
	return str_equal(pattern, tool) ||
	       str_equal(tool_common_name(pattern), tool_common_name(tool));
}

bool tool_is_named(const char *pattern, const char *agent, const char *tool)
{
	const char *slash = strchr(pattern, '/');
	auto_free char *name =
		slash ? must_alloc(strndup(pattern, (size_t)(slash - pattern))) : NULL;

	return (!name || (agent && is_like(name, agent, false))) &&
	       names_tool(slash ? slash + 1 : pattern, tool);
}

bool tool_rule_has_agent(const char *rule)
{
	struct err e;
	struct rule r;

	return read_rule(rule, &r, &e) == 0 && strchr(r.tool, '/');
}

/* ---- commands ---- */

/* A program is compared by its last part, unless the rule has a path. */
static enum fit fit_word(const char *pattern, const struct shell_word *w, bool is_program)
{
	const char *text = w->text, *slash = strrchr(text, '/');

	if (!w->known)
		return FIT_PERHAPS;
	if (is_program && slash && !strchr(pattern, '/'))
		text = slash + 1;
	return is_like(pattern, text, false) ? FIT_YES : FIT_NOT;
}

static size_t split_words(char *text, const char **ret)
{
	size_t count = 0;
	char *save = NULL;

	for (char *w = strtok_r(text, " ", &save); w && count < PATTERN_WORDS;
	     w = strtok_r(NULL, " ", &save))
		ret[count++] = w;
	return count;
}

/* One word of the pattern: from how the words before fit, to how those with it do. */
static void fit_next(const char *pattern, const struct shell_command *c, const char *before,
		     char *after)
{
	char best = FIT_NOT;

	for (size_t j = 0; j <= c->count; j++) {
		if (str_equal(pattern, "**")) {
			best = before[j] > best ? before[j] : best;
			after[j] = best;
			continue;
		}
		after[j] = FIT_NOT;
		if (j > 0 && before[j - 1] != FIT_NOT) {
			char here = (char)fit_word(pattern, &c->words[j - 1], j == 1);

			after[j] = here < before[j - 1] ? here : before[j - 1];
		}
	}
}

/*
 * Further words may follow those of the pattern. A word that is not known may be several words, or none: where
 * one is reached before the pattern's end, the command fits perhaps.
 */
static enum fit fit_command(const char *pattern, const struct shell_command *c)
{
	const char *words[PATTERN_WORDS];
	auto_free char *copy = str_copy(pattern);
	auto_free char *before = must_alloc(calloc(c->count + 1, 1));
	auto_free char *after = must_alloc(calloc(c->count + 1, 1));
	size_t count = split_words(copy, words);
	enum fit best = FIT_NOT;
	bool perhaps = false;

	before[0] = FIT_YES;
	for (size_t i = 0; i < count; i++) {
		char *swap = before;

		for (size_t j = 0; j < c->count; j++)
			perhaps |= before[j] != FIT_NOT && !c->words[j].known;
		fit_next(words[i], c, before, after);
		before = after;
		after = swap;
	}
	for (size_t j = 0; j <= c->count; j++)
		if (before[j] > (char)best)
			best = (enum fit)before[j];
	return best == FIT_NOT && perhaps ? FIT_PERHAPS : best;
}

/* ---- paths ---- */

static bool path_is_like(const char *pattern, const char *path)
{
	size_t n = strlen(pattern);

	/* DIR/ ** is the directory as well. */
	if (n > 3 && str_equal(pattern + n - 3, "/**") && strlen(path) == n - 3 &&
	    strncmp(pattern, path, n - 3) == 0)
		return true;
	return glob_match(pattern, path, false);
}

/* On either side of the table of paths, and with ~ written out. */
static bool fits_path(const char *pattern, const struct tool_question *q, const char *path)
{
	auto_free char *clean = tool_path_clean(q->cwd, path);
	auto_free char *inside = tool_path_inside(q->paths, clean);
	auto_free char *outside = tool_path_outside(q->paths, clean);
	const char *home = getenv("HOME");
	auto_free char *written = NULL, *short_one = NULL;

	if (clean[0] == '~' && home && (clean[1] == '/' || !clean[1]))
		written = str_format("%s%s", home, clean + 1);
	else if (home && home[0] == '/' && home[1] && path_below(clean, home))
		short_one = str_format("~%s", clean + strlen(home));
	return path_is_like(pattern, clean) || (inside && path_is_like(pattern, inside)) ||
	       (outside && path_is_like(pattern, outside)) ||
	       (written && path_is_like(pattern, written)) ||
	       (short_one && path_is_like(pattern, short_one));
}

/* A relative path begins where the line began, or where its last cd led. */
static bool fits_from_anywhere(const char *pattern, const struct unit *u, const char *path)
{
	return fits_path(pattern, u->q, path) || (u->moved && fits_path(pattern, u->moved, path));
}

/* SRC:DST, and lists of them. */
static bool fits_up_to_colon(const char *pattern, const struct unit *u, const char *text)
{
	size_t n = strcspn(text, ":,");
	auto_free char *part = n && text[n] ? must_alloc(strndup(text, n)) : NULL;

	return part && fits_from_anywhere(pattern, u, part);
}

/* Where in a word a path may begin: if=PATH, --option=PATH, @PATH, host:PATH, -fPATH. */
static bool begins_path(const char *word, const char *at)
{
	if (at == word)
		return true;
	if (*at != '/' && *at != '~')
		return at[-1] == '=';
	return strchr("=@:,", at[-1]) || (word[0] == '-' && at == word + 2);
}

/* Of words that are not known only what looks like a path counts. */
static enum fit fit_path_word(const char *pattern, const struct unit *u, const struct shell_word *w)
{
	const char *value = w->text[0] == '-' ? strchr(w->text, '=') : NULL;
	size_t len = strlen(w->text), tries = 0;

	if (!w->known)
		return strchr(w->text, '/') || (value ? value[1] : w->text[0]) == '.' ? FIT_PERHAPS
										      : FIT_NOT;
	for (size_t i = 0; i < len; i++) {
		/* What is longer is no path. */
		if (len - i >= PATH_MAX || !begins_path(w->text, w->text + i))
			continue;
		if (++tries > WORD_PATHS)
			return FIT_PERHAPS;
		if (fits_from_anywhere(pattern, u, w->text + i) ||
		    fits_up_to_colon(pattern, u, w->text + i))
			return FIT_YES;
	}
	return FIT_NOT;
}

static enum fit fit_paths_of_command(const char *pattern, const struct unit *u)
{
	const struct shell_command *c = u->command;
	enum fit best = FIT_NOT;

	for (size_t i = 0; i < c->count; i++) {
		enum fit fit = fit_path_word(pattern, u, &c->words[i]);

		best = fit > best ? fit : best;
	}
	for (size_t i = 0; i < c->files.count; i++)
		if (fits_from_anywhere(pattern, u, c->files.items[i]))
			best = FIT_YES;
	return best;
}

static bool any_path_fits(const struct rule *r, const struct tool_question *q, const json_t *value,
			  bool *ret_all)
{
	const json_t *item;
	bool any = false;
	size_t i;

	if (json_is_string(value)) {
		any = fits_path(r->pattern, q, json_string_value(value));
		*ret_all = *ret_all && any;
	}
	json_array_foreach ((json_t *)value, i, item)
		any |= any_path_fits(r, q, item, ret_all);
	return any;
}

/* A rule that refuses fits if one path does; a rule that allows only if all do. */
static enum fit fit_paths_of_call(const struct rule *r, const struct tool_question *q)
{
	bool any = false, all = true;
	const char *name;

	for (size_t i = 0; (name = tool_path_member(i)); i++)
		any |= any_path_fits(r, q, json_object_get(q->args, name), &all);
	return any && (all || r->verdict != TOOL_ALLOW) ? FIT_YES : FIT_NOT;
}

static enum fit fit_path(const struct rule *r, const struct unit *u)
{
	if (!u->command)
		return fit_paths_of_call(r, u->q);
	/* What a command does with a path is not known, so no path allows a command. */
	return r->verdict == TOOL_ALLOW ? FIT_NOT : fit_paths_of_command(r->pattern, u);
}

/* ---- addresses and other arguments ---- */

/* The host of an address, in small letters; false: it is not certain which it is. */
static bool host_of(const char *url, char *ret, size_t size)
{
	const char *begin = strstr(url, "://");
	size_t n;

	if (!begin)
		return false;
	begin += 3;
	n = strcspn(begin, "/?#:");
	if (n == 0 || n >= size || strcspn(begin, "@") < strcspn(begin, "/?#") ||
	    strpbrk(url, "\\\t\r\n"))
		return false;
	for (size_t i = 0; i < n; i++)
		ret[i] = (char)tolower((unsigned char)begin[i]);
	ret[n] = '\0';
	if (ret[n - 1] == '.')
		ret[n - 1] = '\0';
	return str_only(ret, STR_LOWER STR_DIGITS ".-_", 1, 253);
}

static enum fit fit_domain(const struct rule *r, const struct tool_question *q)
{
	const char *url = json_string_value(json_object_get(q->args, "url"));
	char host[254];

	if (!url)
		return FIT_NOT;
	if (!host_of(url, host, sizeof(host)))
		return FIT_PERHAPS;
	return is_like(r->pattern, host, true) ? FIT_YES : FIT_NOT;
}

static enum fit fit_argument(const struct rule *r, const struct tool_question *q)
{
	const json_t *value = json_object_get(q->args, r->key);
	auto_free char *text = NULL;

	if (!value)
		return FIT_NOT;
	text = json_is_string(value) ? str_copy(json_string_value(value))
				     : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	return text && is_like(r->pattern, text, false) ? FIT_YES : FIT_NOT;
}

/* ---- the decision ---- */

static enum fit fit_rule(const struct rule *r, const struct unit *u)
{
	bool is_command = str_equal(r->key, "command"), is_path = str_equal(r->key, "path");

	if (!tool_is_named(r->tool, u->q->agent, u->q->tool))
		return FIT_NOT;
	if (!r->key[0])
		return FIT_YES;
	if (u->hidden && (is_command || is_path))
		return FIT_PERHAPS;
	if (is_command)
		return u->command && u->command->count && !u->command->is_for
			       ? fit_command(r->pattern, u->command)
			       : FIT_NOT;
	if (is_path)
		return fit_path(r, u);
	return str_equal(r->key, "domain") ? fit_domain(r, u->q) : fit_argument(r, u->q);
}

/* The strictest verdict stays, with what was said for it first. */
static void decide(struct tool_judgement *j, enum tool_verdict verdict, const char *rule,
		   const char *before, const char *what)
{
	if (verdict < j->verdict || (j->rule[0] && verdict == j->verdict))
		return;
	j->verdict = verdict;
	snprintf(j->rule, sizeof(j->rule), "%s", rule);
	snprintf(j->reason, sizeof(j->reason), "%s%s", before, what);
}

static void judge_unit(const struct list *rules, const struct unit *u, const char *why_hidden,
		       struct tool_judgement *j)
{
	struct err e = {0};
	struct rule r;

	for (size_t i = 0; i < rules->count; i++) {
		const char *text = rules->items[i];
		enum fit fit;

		if (read_rule(text, &r, &e) < 0) {
			decide(j, TOOL_DENY, text, "", "a rule cannot be read");
			return;
		}
		fit = fit_rule(&r, u);
		if (fit == FIT_YES) {
			decide(j, r.verdict, text, r.reason[0] ? "" : "the rule ",
			       r.reason[0] ? r.reason : text);
			return;
		}
		if (fit == FIT_PERHAPS && r.verdict != TOOL_ALLOW)
			decide(j, TOOL_ASK, text, "a rule may forbid this, and it cannot be told: ",
			       u->hidden ? why_hidden : "a part of it is not known before it runs");
	}
}

/* Follows cd and pushd to a directory that is known. */
static void follow_cd(const struct shell_command *c, struct tool_question *moved, char **cwd)
{
	const char *program = c->count ? c->words[0].text : "";
	const struct shell_word *to = c->count > 1 ? &c->words[c->count - 1] : NULL;
	char *next;

	if (!to || !to->known || (!str_equal(program, "cd") && !str_equal(program, "pushd")))
		return;
	next = tool_path_clean(moved->cwd, to->text);
	free(*cwd);
	moved->cwd = *cwd = next;
}

static void judge_line(const struct list *rules, const struct tool_question *q, const char *text,
		       size_t len, struct tool_judgement *j)
{
	struct tool_question moved = *q;
	struct unit u = {.q = q};
	struct shell_line line = {0};
	auto_free char *cwd = NULL;
	struct err e = {0};

	if (shell_read(text, len, &line, &e) < 0) {
		u.hidden = true;
		judge_unit(rules, &u, e.msg, j);
		return;
	}
	for (size_t i = 0; i < line.count; i++) {
		u.command = &line.commands[i];
		u.moved = cwd ? &moved : NULL;
		judge_unit(rules, &u, "", j);
		follow_cd(u.command, &moved, &cwd);
	}
	u.command = NULL;
	u.hidden = line.unclear[0];
	if (u.hidden || line.count == 0)
		judge_unit(rules, &u, line.unclear, j);
	shell_line_done(&line);
}

/* Each of the lines that a call brings; argv arrays are joined, so that rules see what they start. */
static void judge_commands(const struct list *rules, const struct tool_question *q,
			   struct tool_judgement *j)
{
	struct unit hidden = {.q = q, .hidden = true};
	const char *name;
	const json_t *item;
	bool any = false;
	size_t at;

	for (size_t i = 0; (name = tool_command_member(i)); i++) {
		const json_t *v = json_object_get(q->args, name);

		any |= v != NULL;
		if (json_is_string(v))
			judge_line(rules, q, json_string_value(v), json_string_length(v), j);
		else if (v && !json_is_array(v))
			judge_unit(rules, &hidden, "its command is no text", j);
		json_array_foreach (v, at, item)
			if (str_equal(name, "commands") && json_is_string(item))
				judge_line(rules, q, json_string_value(item),
					   json_string_length(item), j);
			else
				judge_unit(rules, &hidden, "its command is a list", j);
	}
	if (!any)
		judge_unit(rules, &hidden, "it has no command", j);
}

void tool_rules_judge(const struct list *rules, const struct tool_question *q,
		      struct tool_judgement *ret)
{
	const struct unit whole = {.q = q};

	*ret = (struct tool_judgement){.verdict = TOOL_ALLOW};
	if (tool_is_shell(q->tool) || tool_has_command(q->tool, q->args))
		judge_commands(rules, q, ret);
	else
		judge_unit(rules, &whole, "", ret);
}
