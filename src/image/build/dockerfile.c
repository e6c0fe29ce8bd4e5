/*
 * Parses Dockerfiles, as Docker's reference describes them. Words keep their quotes and variables, which build.c
 * replaces when the step's turn comes (expand.h). What is not known is an error with its line: a step that is left
 * out without a word would make another image.
 */
#include "image/build/build.h"

#include "base/jsonr.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>

#define TEXT_MAX (1u << 20)
#define STEPS_MAX 1000
#define WORDS_MAX 1000

struct reader {
	const char *at, *end;
	unsigned line; /* of `at` */
	unsigned from; /* where the step begins */
	struct build_steps *steps;
};

static int wrong(const struct reader *r, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int wrong(const struct reader *r, struct err *e, const char *fmt, ...)
{
	char text[300];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return err_field(e, ERR_INVALID, "dockerfile", "line %u: %s", r->from, text);
}

/* ---- lines ---- */

/* The line at r->at without its end. */
static size_t line_length(const struct reader *r)
{
	const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));

	return (size_t)((newline ? newline : r->end) - r->at);
}

static void next_line(struct reader *r, size_t len)
{
	r->at += len;
	if (r->at < r->end) {
		r->at++;
		r->line++;
	}
}

static size_t trimmed(const char *s, size_t len)
{
	while (len > 0 && isspace((unsigned char)s[len - 1]))
		len--;
	return len;
}

static size_t indent(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && isspace((unsigned char)s[n]))
		n++;
	return n;
}

/*
 * A step with its continued lines, of which comments and empty lines are left out. False: there are no more.
 */
static bool read_step(struct reader *r, struct buf *ret)
{
	bool goes_on = false;

	while (r->at < r->end) {
		size_t len = line_length(r), left = indent(r->at, len), right = trimmed(r->at, len);
		const char *line = r->at;
		unsigned number = r->line;

		next_line(r, len);
		if (right <= left || line[left] == '#')
			continue;
		if (!goes_on) {
			r->from = number;
			line += left;
			right -= left;
		}
		goes_on = line[right - 1] == '\\';
		buf_add(ret, line, right - goes_on);
		if (!goes_on)
			break;
	}
	buf_add(ret, "", 1);
	return ret->len > 1;
}

/* ---- words ---- */

/* The end of a word: quotes hold blanks together. NULL: a quote is not closed. */
static const char *word_end(const char *s)
{
	char quote = 0;

	for (; *s && (quote || !isspace((unsigned char)*s)); s++) {
		if (*s == '\\' && quote != '\'' && s[1])
			s++;
		else if (quote ? *s == quote : *s == '"' || *s == '\'')
			quote = quote ? 0 : *s;
	}
	return quote ? NULL : s;
}

static int split_words(const struct reader *r, const char *s, struct list *ret, struct err *e)
{
	for (;;) {
		const char *end;

		s += strspn(s, " \t\n\r\v\f");
		if (!*s)
			return 0;
		end = word_end(s);
		if (!end)
			return wrong(r, e, "a quote is not closed");
		if (ret->count == WORDS_MAX)
			return wrong(r, e, "too many words");
		list_take(ret, must_alloc(strndup(s, (size_t)(end - s))));
		s = end;
	}
}

/* An array of strings in JSON; false if it is none, and then it is text. */
static bool read_array(const char *s, struct list *ret)
{
	auto_free char *wrapped = str_format("{\"a\":%s}", s);
	struct list words = {0};
	struct jsonr array, item;
	const char *at = NULL;

	if (*s != '[' || !jsonr_member(wrapped, strlen(wrapped), "a", &array) || array.at[0] != '[')
		return false;
	/* Nothing may follow it. */
	if (array.at + array.len != wrapped + strlen(wrapped) - 1)
		return false;
	while (jsonr_item(&array, &at, &item)) {
		size_t len;
		char *word = jsonr_string(&item, &len);

		if (!word || strlen(word) != len || words.count == WORDS_MAX) {
			free(word);
			list_done(&words);
			return false;
		}
		list_take(&words, word);
	}
	*ret = words;
	return true;
}

/* "--name=value" in front of the arguments. */
static int take_flags(const struct reader *r, struct build_step *s, const char **rest,
		      struct err *e)
{
	while (str_starts(*rest, "--")) {
		const char *end = word_end(*rest);

		if (!end)
			return wrong(r, e, "a quote is not closed");
		list_take(&s->flags, must_alloc(strndup(*rest + 2, (size_t)(end - *rest - 2))));
		*rest = end + strspn(end, " \t");
	}
	return 0;
}

/* ---- heredocs ---- */

struct heredoc {
	char name[64];
	bool is_stripped; /* <<-: leading tabs do not count */
	bool is_quoted;	  /* variables in it are left alone */
};

/* Does this word open one? */
static bool opens_heredoc(const char *word, struct heredoc *ret)
{
	size_t len;

	word += strspn(word, STR_DIGITS);
	if (!str_starts(word, "<<") || word[2] == '<')
		return false;
	word += 2;
	*ret = (struct heredoc){.is_stripped = *word == '-'};
	word += *word == '-';
	ret->is_quoted = *word == '"' || *word == '\'';
	len = strcspn(word + ret->is_quoted, "\"'");
	if (len == 0 || len >= sizeof(ret->name))
		return false;
	snprintf(ret->name, sizeof(ret->name), "%.*s", (int)len, word + ret->is_quoted);
	return true;
}

/* With `raw` as the shell reads it: all lines as they are, and the one that ends it. */
static int read_heredoc(struct reader *r, const struct heredoc *h, bool raw, struct buf *ret,
			struct err *e)
{
	while (r->at < r->end) {
		size_t len = line_length(r), tabs = 0;
		const char *line = r->at;
		bool ends;

		next_line(r, len);
		while (h->is_stripped && tabs < len && line[tabs] == '\t')
			tabs++;
		ends = len - tabs == strlen(h->name) &&
		       memcmp(line + tabs, h->name, len - tabs) == 0;
		if (raw)
			buf_add(ret, line, len);
		else if (!ends)
			buf_add(ret, line + tabs, len - tabs);
		if (!ends)
			buf_add(ret, "\n", 1);
		if (ends)
			return 0;
	}
	return wrong(r, e, "the heredoc '%s' has no end", h->name);
}

/* The shell reads heredocs itself; one that stands alone is the script. */
static int run_text(struct reader *r, struct build_step *s, const char *command, struct err *e)
{
	auto_list struct list words = {0};
	auto_buf struct buf all = {0};
	struct err ignored;
	struct heredoc h;
	bool is_alone;

	/* A quote that is not closed is the shell's business. */
	if (split_words(r, command, &words, &ignored) < 0)
		words.count = 0;
	is_alone = words.count == 1 && opens_heredoc(words.items[0], &h);
	if (!is_alone)
		buf_add(&all, command, strlen(command));
	for (size_t i = 0; i < words.count; i++) {
		if (!opens_heredoc(words.items[i], &h))
			continue;
		if (!is_alone)
			buf_add(&all, "\n", 1);
		if (read_heredoc(r, &h, !is_alone, &all, e) < 0)
			return -1;
	}
	if (all.len == 0)
		return wrong(r, e, "RUN without a command");
	buf_add(&all, "", 1);
	list_add(&s->args, buf_head(&all));
	return 0;
}

static int copy_heredocs(struct reader *r, struct build_step *s, struct err *e)
{
	for (size_t i = 0; i + 1 < s->args.count; i++) {
		auto_buf struct buf text = {0};
		struct heredoc h;

		if (!opens_heredoc(s->args.items[i], &h)) {
			if (str_starts(s->args.items[i], "<<"))
				return wrong(r, e, "'%.40s' is no heredoc", s->args.items[i]);
			continue;
		}
		if (read_heredoc(r, &h, false, &text, e) < 0)
			return -1;
		buf_add(&text, "", 1);
		if (strlen(buf_head(&text)) + 1 != text.len)
			return wrong(r, e, "the heredoc has a NUL");
		list_take(&s->docs, str_format("%s%s", h.is_quoted ? "'" : "", h.name));
		list_add(&s->docs, buf_head(&text));
		/* The word stands for this heredoc from now on. */
		free(s->args.items[i]);
		s->args.items[i] = str_format("<<%zu", s->docs.count / 2 - 1);
	}
	return 0;
}

/* ---- one parser for each form of arguments ---- */

typedef int form(struct reader *r, struct build_step *s, const char *rest, struct err *e);

static int form_words(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	return split_words(r, rest, &s->args, e);
}

static int form_whole(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	if (*rest)
		list_add(&s->args, rest);
	return 0;
}

static int form_command(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	s->is_exec = read_array(rest, &s->args);
	return s->is_exec ? 0 : form_whole(r, s, rest, e);
}

static int form_run(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	s->is_exec = read_array(rest, &s->args);
	return s->is_exec ? 0 : run_text(r, s, rest, e);
}

static int form_copy(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	if (!read_array(rest, &s->args) && split_words(r, rest, &s->args, e) < 0)
		return -1;
	if (s->args.count < 2)
		return wrong(r, e, "%s needs a source and a destination", build_kind_name(s->kind));
	return copy_heredocs(r, s, e);
}

static int form_list(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	return read_array(rest, &s->args) ? 0 : split_words(r, rest, &s->args, e);
}

static int form_array(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	s->is_exec = read_array(rest, &s->args);
	return s->is_exec && s->args.count ? 0 : wrong(r, e, "SHELL needs an array in JSON");
}

/* "K=V K=V", or in the old form "K V..." */
static int form_pairs(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	size_t key = strcspn(rest, "= \t");

	if (rest[key] == ' ' || rest[key] == '\t') {
		list_take(&s->args, str_format("%.*s=%s", (int)key, rest,
					       rest + key + strspn(rest + key, " \t")));
		return 0;
	}
	if (split_words(r, rest, &s->args, e) < 0)
		return -1;
	for (size_t i = 0; i < s->args.count; i++)
		if (!strchr(s->args.items[i], '=') || s->args.items[i][0] == '=')
			return wrong(r, e, "%s: '%.100s' is not NAME=VALUE",
				     build_kind_name(s->kind), s->args.items[i]);
	return 0;
}

static int form_health(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	if (strcasecmp(rest, "NONE") == 0)
		return form_whole(r, s, "NONE", e);
	if (strncasecmp(rest, "CMD", 3) != 0 || !isspace((unsigned char)rest[3]))
		return wrong(r, e, "HEALTHCHECK needs CMD or NONE");
	return form_command(r, s, rest + 3 + strspn(rest + 3, " \t"), e);
}

/* What a trigger may be is judged when it is parsed itself, in the image that is made from this one. */
static int form_trigger(struct reader *r, struct build_step *s, const char *rest, struct err *e)
{
	static const char *const refused[] = {"ONBUILD", "FROM"};

	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (strncasecmp(rest, refused[i], strlen(refused[i])) == 0)
			return wrong(r, e, "ONBUILD %s is not possible", refused[i]);
	return form_whole(r, s, rest, e);
}

static const struct {
	form *parse;
	size_t least, most;
	const char *const flags[6];
} forms[] = {
	[BUILD_FROM] = {form_words, 1, 3, {"platform"}},
	[BUILD_RUN] = {form_run, 1, WORDS_MAX, {"mount", "network"}},
	[BUILD_COPY] = {form_copy, 2, WORDS_MAX, {"from", "chown", "chmod", "link"}},
	[BUILD_ADD] = {form_copy, 2, WORDS_MAX, {"chown", "chmod", "link"}},
	[BUILD_ENV] = {form_pairs, 1, WORDS_MAX, {NULL}},
	[BUILD_ARG] = {form_words, 1, WORDS_MAX, {NULL}},
	[BUILD_WORKDIR] = {form_whole, 1, 1, {NULL}},
	[BUILD_USER] = {form_words, 1, 1, {NULL}},
	[BUILD_LABEL] = {form_pairs, 1, WORDS_MAX, {NULL}},
	[BUILD_EXPOSE] = {form_words, 1, WORDS_MAX, {NULL}},
	[BUILD_VOLUME] = {form_list, 1, WORDS_MAX, {NULL}},
	[BUILD_CMD] = {form_command, 0, WORDS_MAX, {NULL}},
	[BUILD_ENTRYPOINT] = {form_command, 0, WORDS_MAX, {NULL}},
	[BUILD_SHELL] = {form_array, 1, WORDS_MAX, {NULL}},
	[BUILD_ONBUILD] = {form_trigger, 1, 1, {NULL}},
	[BUILD_STOPSIGNAL] = {form_words, 1, 1, {NULL}},
	[BUILD_HEALTHCHECK] = {form_health,
			       1,
			       WORDS_MAX,
			       {"interval", "timeout", "start-period", "start-interval",
				"retries"}},
};
static_assert(ARRAY_LEN(forms) == BUILD_INSTRUCTIONS, "one form for each kind");

static int check_flags(const struct reader *r, const struct build_step *s, struct err *e)
{
	for (size_t i = 0; i < s->flags.count; i++) {
		const char *flag = s->flags.items[i];
		size_t len = strcspn(flag, "=");
		bool known = false;

		for (size_t k = 0; k < ARRAY_LEN(forms[0].flags) && forms[s->kind].flags[k]; k++)
			known = known || (strlen(forms[s->kind].flags[k]) == len &&
					  memcmp(forms[s->kind].flags[k], flag, len) == 0);
		if (!known)
			return wrong(r, e, "%s --%.*s is not known here", build_kind_name(s->kind),
				     (int)(len < 40 ? len : 40), flag);
	}
	return 0;
}

static int find_kind(const struct reader *r, const char *word, size_t len, struct err *e)
{
	for (int i = 0; i < BUILD_INSTRUCTIONS; i++)
		if (strlen(build_kind_name(i)) == len &&
		    strncasecmp(build_kind_name(i), word, len) == 0)
			return i;
	return wrong(r, e, "%.*s is no instruction that is known here", (int)(len < 40 ? len : 40),
		     word);
}

static int parse_step(struct reader *r, const char *text, struct err *e)
{
	size_t len = strcspn(text, " \t\n");
	const char *rest = text + len + strspn(text + len, " \t\n");
	int kind = find_kind(r, text, len, e);
	struct build_step *s;

	if (kind < 0)
		return -1;
	if (r->steps->count == STEPS_MAX)
		return wrong(r, e, "there are more than %d steps", STEPS_MAX);
	s = build_steps_add(r->steps, (enum build_kind)kind);
	s->line = r->from;
	s->text = str_copy(text);
	if ((forms[kind].flags[0] && take_flags(r, s, &rest, e) < 0) || check_flags(r, s, e) < 0 ||
	    forms[kind].parse(r, s, rest, e) < 0)
		return -1;
	if (s->args.count < forms[kind].least || s->args.count > forms[kind].most)
		return wrong(r, e, "%s has %s arguments", build_kind_name(s->kind),
			     s->args.count < forms[kind].least ? "too few" : "too many");
	return 0;
}

/* ---- directives: comments in front of all else, "# name=value" ---- */

static int check_directive(const struct reader *r, const char *name, const char *value,
			   struct err *e)
{
	static const char own[] = "docker/dockerfile";

	if (strcasecmp(name, "escape") == 0 && !str_equal(value, "\\"))
		return wrong(r, e, "another escape character than \\ is not known here");
	if (strcasecmp(name, "syntax") != 0)
		return 0;
	if (str_starts(value, "docker.io/"))
		value += strlen("docker.io/");
	if (str_starts(value, own) &&
	    (!value[sizeof(own) - 1] || str_starts(value + sizeof(own) - 1, ":1")))
		return 0;
	return wrong(r, e, "the frontend '%.100s' is another program, which is not run here",
		     value);
}

static int check_directives(struct reader r, struct err *e)
{
	char name[32], value[200];

	while (r.at < r.end) {
		size_t len = line_length(&r);
		auto_free char *line = must_alloc(strndup(r.at, len));

		r.from = r.line;
		if (sscanf(line, " # %31[a-zA-Z] = %199s", name, value) != 2)
			return 0;
		if (check_directive(&r, name, value, e) < 0)
			return -1;
		next_line(&r, len);
	}
	return 0;
}

int dockerfile_parse(const char *text, size_t len, struct build_steps *ret, struct err *e)
{
	struct build_steps steps = {0};
	struct reader r = {.at = text, .end = text + len, .line = 1, .from = 1, .steps = &steps};
	int rc = 0;

	if (len > TEXT_MAX)
		return wrong(&r, e, "a Dockerfile has at most 1 MB");
	if (memchr(text, '\0', len))
		return wrong(&r, e, "it has a NUL");
	if (str_starts(len >= 3 ? text : "", "\xef\xbb\xbf"))
		r.at += 3;
	rc = check_directives(r, e);
	while (rc == 0) {
		auto_buf struct buf step = {0};

		if (!read_step(&r, &step))
			break;
		rc = parse_step(&r, buf_head(&step), e);
	}
	if (rc == 0 && steps.count == 0)
		rc = wrong(&r, e, "there is no instruction");
	if (rc < 0) {
		build_steps_done(&steps);
		return -1;
	}
	*ret = steps;
	return 0;
}
