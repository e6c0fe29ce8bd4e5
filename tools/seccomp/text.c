/*
 * Reads a profile. A statement is a line; lines that begin with white space go on with it; '#' at
 * the start of a word begins a comment.
 *
 *	statement = "include" FILE | "define" NAME VALUE... | "default" action | "forget" CALL... | "narrows"
 *	          | action CALL... ["if" test {"and" test}] ["--" REASON]
 *	action    = "allow" | "errno" E | "report" E | "notify" | "kill"
 *	test      = "arg"N":int"|"arg"N":long" ["&" VALUE] ( "==" VALUE | "!=" VALUE
 *	          | ["not"] "in" "{" VALUE... "}" )
 *	VALUE     = ["~"] (NUMBER | NAME) {"|" (NUMBER | NAME)}, without blanks; ~ inverts all of it
 */
#include "compile.h"

#include "kern/seccomp.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 256, MAX_DEFINES = 64, MAX_DEPTH = 4 };

struct reader {
	struct profile *profile;
	const char *path;
	unsigned line; /* where the statement began */
	unsigned depth;
	char *words[MAX_WORDS + 1]; /* ends in NULL */
	unsigned at;		    /* the next word */
	const char *reason;
	struct {
		char *name;
		uint64_t value;
	} defines[MAX_DEFINES];
	unsigned define_count;
	struct sha256 digest;
};

#define FAIL(r, fmt, ...) fail("%s:%u: " fmt, (r)->path, (r)->line, ##__VA_ARGS__)

static char *copy(const char *s)
{
	return strcpy(allocate(strlen(s) + 1), s);
}

static bool is(const char *word, const char *what)
{
	return word && strcmp(word, what) == 0;
}

static const char *next(struct reader *r, const char *expected)
{
	if (!r->words[r->at])
		FAIL(r, "%s expected at the end of the statement", expected);
	return r->words[r->at++];
}

static bool skip(struct reader *r, const char *word)
{
	if (!is(r->words[r->at], word))
		return false;
	r->at++;
	return true;
}

/* ---- values and tests ---- */

static uint64_t read_term(struct reader *r, const char *s)
{
	uint64_t value = 0;
	char *end;

	if (isdigit((unsigned char)*s)) {
		value = strtoull(s, &end, 0);
		if (*end)
			FAIL(r, "'%s' is not a number", s);
		return value;
	}
	for (unsigned i = 0; i < r->define_count; i++)
		if (is(s, r->defines[i].name))
			return r->defines[i].value;
	if (!name_constant(s, &value))
		FAIL(r, "unknown constant '%s'; use its number or `define` it", s);
	return value;
}

static uint64_t read_value(struct reader *r, const char *word)
{
	char *p = copy(word[0] == '~' ? word + 1 : word);
	uint64_t value = 0;

	for (char *term; (term = strsep(&p, "|"));)
		value |= read_term(r, term);
	return word[0] == '~' ? ~value : value;
}

static void add_value(struct reader *r, struct test *t, const char *word)
{
	uint64_t value = read_value(r, word);

	if (t->value_count == MAX_VALUES)
		FAIL(r, "too many values");
	if (value & ~t->mask)
		FAIL(r, "'%s' has bits outside of the argument or its mask: it can never match",
		     word);
	t->values[t->value_count++] = value;
}

static void read_set(struct reader *r, struct test *t)
{
	if (!skip(r, "{"))
		FAIL(r, "'{' expected");
	while (!skip(r, "}"))
		add_value(r, t, next(r, "'}'"));
	if (t->value_count == 0)
		FAIL(r, "an empty set never matches");
}

static void read_test(struct reader *r, struct test *t)
{
	const char *word = next(r, "a test");
	char width[8];

	if (sscanf(word, "arg%u:%7s", &t->arg, width) != 2 || t->arg > 5 ||
	    (!is(width, "int") && !is(width, "long")))
		FAIL(r, "'%s': a test begins with arg0:int ... arg5:int, or :long", word);
	t->wide = is(width, "long");
	t->mask = t->wide ? UINT64_MAX : UINT32_MAX;
	if (skip(r, "&")) {
		t->mask &= read_value(r, next(r, "a mask"));
		if (t->mask == 0)
			FAIL(r, "a mask of 0 says nothing");
	}
	word = next(r, "==, != or in");
	t->negate = is(word, "!=") || is(word, "not");
	if (is(word, "not"))
		word = next(r, "in");
	if (is(word, "in"))
		read_set(r, t);
	else if (is(word, "==") || is(word, "!="))
		add_value(r, t, next(r, "a value"));
	else
		FAIL(r, "'%s': ==, != or in expected", word);
}

static char *join(char *const *words)
{
	size_t size = 1;
	char *text;

	for (unsigned i = 0; words[i]; i++)
		size += strlen(words[i]) + 1;
	text = allocate(size);
	for (unsigned i = 0; words[i]; i++)
		strcat(strcat(text, i ? " " : ""), words[i]);
	return text;
}

/* ---- statements ---- */

static const char *const action_names[] = {
	[ALLOW] = "allow",   [ERRNO] = "errno", [REPORT] = "report",
	[NOTIFY] = "notify", [KILL] = "kill",
};

static struct rule *read_action(struct reader *r, const char *word)
{
	struct rule *rule = allocate(sizeof(*rule));
	unsigned i = 0;

	while (i <= KILL && !is(word, action_names[i]))
		i++;
	if (i > KILL)
		FAIL(r, "'%s' is no statement", word);
	rule->action = (enum action)i;
	if (r->profile->is_callers && (rule->action == REPORT || rule->action == NOTIFY))
		FAIL(r, "'%s' is for the built-in profiles; use errno", word);
	if (rule->action == ERRNO || rule->action == REPORT) {
		rule->errname = next(r, "an errno name");
		if (!name_errno(rule->errname, &rule->errnum))
			FAIL(r, "unknown errno '%s'", rule->errname);
	}
	return rule;
}

static struct call *find_call(struct reader *r, const char *name, bool add)
{
	struct profile *p = r->profile;
	struct call *c;

	for (unsigned i = 0; i < p->call_count; i++)
		if (is(name, p->calls[i].name))
			return &p->calls[i];
	if (!add)
		FAIL(r, "'%s' has no rule yet", name);
	if (p->call_count == MAX_CALLS)
		FAIL(r, "too many system calls");
	c = &p->calls[p->call_count];
	if (!name_call(name, c->nr))
		FAIL(r, "unknown system call '%s'", name);
	for (unsigned a = 0; a < ARCH_COUNT; a++)
		if (c->nr[a] >= NR_END)
			FAIL(r, "'%s': number %d is out of range", name, c->nr[a]);
	c->name = copy(name);
	p->call_count++;
	return c;
}

static void add_rule(struct reader *r, const char *name, const struct rule *rule)
{
	struct call *c = find_call(r, name, true);

	if (c->rule_count && c->rules[c->rule_count - 1]->test_count == 0)
		FAIL(r, "'%s' is decided already; `forget` it first", name);
	if (c->rule_count == MAX_RULES)
		FAIL(r, "'%s' has too many rules", name);
	c->rules[c->rule_count++] = rule;
}

static void read_rule(struct reader *r, const char *word)
{
	struct rule *rule = read_action(r, word);
	unsigned first = r->at, last;

	while (r->words[r->at] && !is(r->words[r->at], "if"))
		r->at++;
	last = r->at;
	if (first == last)
		FAIL(r, "no system call is named");
	if (skip(r, "if")) {
		rule->condition = join(r->words + r->at);
		do {
			if (rule->test_count == MAX_TESTS)
				FAIL(r, "too many tests in one rule");
			read_test(r, &rule->tests[rule->test_count++]);
		} while (skip(r, "and"));
	}
	if (r->words[r->at])
		FAIL(r, "'%s' was not expected here", r->words[r->at]);
	if ((rule->action == REPORT) != (r->reason != NULL))
		FAIL(r, "%s",
		     r->reason ? "only `report` has a reason" : "`report` needs a reason: -- ...");
	rule->reason = r->reason;
	for (unsigned i = first; i < last; i++)
		add_rule(r, r->words[i], rule);
}

static void read_file(struct reader *r, const char *path);

static void read_include(struct reader *r, const char *name)
{
	struct reader inner = *r;
	const char *slash = strrchr(r->path, '/');
	size_t dir = slash ? (size_t)(slash - r->path) + 1 : 0;
	char *path = allocate(dir + strlen(name) + 1);

	if (++inner.depth > MAX_DEPTH)
		FAIL(r, "too many includes");
	memcpy(path, r->path, dir);
	strcpy(path + dir, name);
	read_file(&inner, path);
	memcpy(r->defines, inner.defines, sizeof(r->defines));
	r->define_count = inner.define_count;
	r->digest = inner.digest;
}

static void read_define(struct reader *r)
{
	if (r->define_count == MAX_DEFINES)
		FAIL(r, "too many definitions");
	r->defines[r->define_count].name = copy(next(r, "a name"));
	do
		r->defines[r->define_count].value |= read_value(r, next(r, "a value"));
	while (r->words[r->at]);
	r->define_count++;
}

static void read_default(struct reader *r)
{
	r->profile->fallback = read_action(r, next(r, "an action"));
	if (r->profile->fallback->action == REPORT ||
	    (r->profile->fallback->action == ALLOW && !r->profile->narrows))
		FAIL(r,
		     "the default must be errno or kill: a profile is a list of what is allowed");
}

static void read_statement(struct reader *r)
{
	const char *word = next(r, "a statement");

	if (is(word, "include") && r->profile->is_callers)
		FAIL(r, "the profile is loaded on top of the default one, which needs no include");
	else if (is(word, "include"))
		read_include(r, next(r, "a file name"));
	else if (is(word, "define"))
		read_define(r);
	else if (is(word, "default"))
		read_default(r);
	else if (is(word, "narrows"))
		r->profile->narrows = true;
	else if (is(word, "forget"))
		while (r->words[r->at])
			find_call(r, r->words[r->at++], false)->rule_count = 0;
	else
		read_rule(r, word);
	if (r->words[r->at])
		FAIL(r, "'%s' was not expected here", r->words[r->at]);
}

/* ---- lines ---- */

static char *slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "r");
	char *text = allocate(1 << 20);

	if (!f)
		fail("%s: %m", path);
	*ret_len = fread(text, 1, (1 << 20) - 1, f);
	if (ferror(f) || !feof(f))
		fail("%s: cannot read it, or it is too long", path);
	fclose(f);
	if (strlen(text) != *ret_len)
		fail("%s: not a text", path);
	return text;
}

/* Adds the line's words to the statement; its reason, if it has one, is in words as well for now.
 */
static void split(struct reader *r, char *line, unsigned *count)
{
	char *word, *rest = line;

	while ((word = strsep(&rest, " \t\r"))) {
		if (*word == '#')
			break;
		if (*word == '\0')
			continue;
		if (*count == MAX_WORDS)
			FAIL(r, "the statement is too long");
		r->words[(*count)++] = word;
	}
	r->words[*count] = NULL;
}

static void finish(struct reader *r, unsigned *count)
{
	r->at = 0;
	r->reason = NULL;
	for (unsigned i = 0; i < *count; i++) {
		if (is(r->words[i], "--")) {
			r->reason = join(r->words + i + 1);
			r->words[i] = NULL;
			break;
		}
	}
	if (*count > 0)
		read_statement(r);
	*count = 0;
}

static void read_file(struct reader *r, const char *path)
{
	unsigned count = 0, number = 0;
	char *text, *line;
	size_t len;

	r->path = path;
	text = slurp(path, &len);
	sha256_add(&r->digest, text, len);
	while ((line = strsep(&text, "\n"))) {
		bool goes_on = *line == ' ' || *line == '\t';

		number++;
		if (!goes_on && *line != '#' && *line != '\0') {
			finish(r, &count);
			r->line = number;
		}
		split(r, line, &count);
	}
	finish(r, &count);
}

void profile_read(struct profile *p, const char *path)
{
	struct reader *r = allocate(sizeof(*r));

	r->profile = p;
	sha256_init(&r->digest);
	read_file(r, path);
	sha256_hex(&r->digest, p->digest);
	if (!p->fallback)
		fail("%s: no `default`", path);
	for (unsigned i = 0; i < p->call_count; i++) {
		const struct call *c = &p->calls[i];

		if (c->rule_count == 0)
			fail("%s: '%s' was forgotten and not decided anew", path, c->name);
		if (c->rules[c->rule_count - 1]->test_count)
			fail("%s: '%s' has conditions only; what if none holds?", path, c->name);
	}
}

void profile_add_canary(struct profile *p)
{
	struct rule *canary = allocate(sizeof(*canary));
	struct call *c = NULL;

	*canary = (struct rule){.action = ERRNO, .errnum = EXFULL, .errname = "EXFULL"};
	canary->test_count = 1;
	canary->tests[0] = (struct test){.mask = UINT32_MAX, .value_count = 1};
	canary->tests[0].values[0] = SECCOMP_NARROW_CANARY;
	canary->condition = "arg0:int is the canary";
	for (unsigned i = 0; i < p->call_count; i++)
		if (is("setns", p->calls[i].name))
			c = &p->calls[i];
	if (!c) {
		c = &p->calls[p->call_count++];
		if (p->call_count > MAX_CALLS || !name_call("setns", c->nr))
			fail("too many system calls");
		c->name = copy("setns");
		c->rules[c->rule_count++] = p->fallback;
	}
	if (c->rule_count == MAX_RULES)
		fail("'setns' has too many rules");
	memmove(c->rules + 1, c->rules, c->rule_count++ * sizeof(c->rules[0]));
	c->rules[0] = canary;
}
