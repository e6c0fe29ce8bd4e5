/*
 * Theory of operation. A recursive reader of shell text: a list has commands, a command has words, a word may
 * have lists in it. The reader keeps no tree: each command that it meets is added to one flat list, since
 * rules ask only which commands there are. Control flow (if, while, for) is skipped, for every branch
 * counts. What this reader does not know for certain is an error: case, functions, arithmetic commands,
 * aliases. Its caller then asks a person, or refuses.
 */
#include "policy/tools/shell_internal.h"

#include <stdarg.h>

static int read_list(struct shell_reader *r, char end);

/* ---- the list of commands ---- */

void shell_unclear(struct shell_line *l, const char *fmt, ...)
{
	va_list args;

	if (l->unclear[0])
		return;
	va_start(args, fmt);
	vsnprintf(l->unclear, sizeof(l->unclear), fmt, args);
	va_end(args);
}

struct shell_command *shell_add_command(struct shell_line *l)
{
	l->commands = array_room(l->commands, l->count, &l->room, sizeof(*l->commands));
	l->commands[l->count] = (struct shell_command){0};
	return &l->commands[l->count++];
}

struct shell_word *shell_add_word(struct shell_command *c)
{
	c->words = array_room(c->words, c->count, &c->room, sizeof(*c->words));
	c->words[c->count] = (struct shell_word){0};
	return &c->words[c->count++];
}

void shell_line_done(struct shell_line *l)
{
	for (size_t i = 0; i < l->count; i++) {
		for (size_t j = 0; j < l->commands[i].count; j++)
			free(l->commands[i].words[j].text);
		free(l->commands[i].words);
		list_done(&l->commands[i].files);
	}
	for (size_t i = 0; i < l->place_count; i++)
		free(l->places[i].text);
	free(l->places);
	free(l->commands);
	*l = (struct shell_line){0};
}

static int fail(struct shell_reader *r, const char *what)
{
	return err_set(r->e, ERR_INVALID, "the command cannot be read: %s", what);
}

/* ---- characters ---- */

static int peek(const struct shell_reader *r, size_t ahead)
{
	return r->at + ahead < r->len ? (unsigned char)r->text[r->at + ahead] : -1;
}

static bool is_at(const struct shell_reader *r, const char *what)
{
	size_t n = strlen(what);

	return r->len - r->at >= n && memcmp(r->text + r->at, what, n) == 0;
}

static bool ends_word(int c)
{
	return c < 0 || strchr(" \t\n;&|<>()", c);
}

/* A word as it is read. */
struct word_text {
	struct buf text;
	bool known, quoted, plain_brace;
};

static void add_char(struct word_text *w, int c)
{
	char byte = (char)c;

	buf_add(&w->text, &byte, 1);
}

static void add_unknown(struct word_text *w)
{
	add_char(w, '?');
	w->known = false;
}

/* ---- what begins with a dollar, and backticks ---- */

static int read_quoted(struct shell_reader *r, struct word_text *w);
static int read_dollar(struct shell_reader *r, struct word_text *w);
static int read_backtick(struct shell_reader *r, struct word_text *w);

/* A list in parentheses, in this very text; the opening one is behind us. */
static int read_nested(struct shell_reader *r)
{
	int rc;

	if (++r->depth > SHELL_DEPTH)
		return fail(r, "it is nested too deeply");
	rc = read_list(r, ')');
	r->depth--;
	return rc;
}

/*
 * $( ) and <( ): the shell ends here documents that begin inside with the parenthesis, whatever lines follow, and reads
 * those that began outside behind it.
 */
static int read_substitution(struct shell_reader *r)
{
	size_t waiting = r->here_count;
	int rc = read_nested(r);

	if (rc == 0 && (waiting || r->here_count))
		rc = fail(r, "a here document and a substitution are entangled");
	return rc;
}

/* Up to `end`, with the substitutions in it: ${...} and $((...)). Its value is not known. */
static int skip_expansion(struct shell_reader *r, const char *end)
{
	struct word_text w = {.known = true};
	int rc = 0, deep = 0;

	if (++r->depth > SHELL_DEPTH)
		return fail(r, "it is nested too deeply");
	while (rc == 0 && (deep > 0 || !is_at(r, end))) {
		int c = peek(r, 0);

		if (c < 0) {
			rc = fail(r, "an expansion does not end");
			break;
		}
		r->at++;
		if (c == '\\')
			r->at += peek(r, 0) >= 0;
		else if (c == '"')
			rc = read_quoted(r, &w);
		else if (c == '$')
			rc = read_dollar(r, &w);
		else if (c == '`')
			rc = read_backtick(r, &w);
		else if (c == '\'' || c == '<' || c == '>')
			/* Quoting differs from shell to shell here; <( ) starts a command. */
			rc = fail(r, "an expansion has quotes or redirections in it");
		else if (*end == ')')
			deep += (c == '(') - (c == ')');
		/* $((a) b) is no arithmetic, but a list. */
		if (rc == 0 && deep < 0)
			rc = fail(r, "it is not known whether an expansion is arithmetic");
	}
	r->at += rc == 0 ? strlen(end) : 0;
	r->depth--;
	buf_done(&w.text);
	return rc;
}

/* $'...': the usual escapes are read, the rest is not known. */
static int read_ansi(struct shell_reader *r, struct word_text *w)
{
	static const char from[] = "abefnrtv\\'\"", to[] = "\a\b\033\f\n\r\t\v\\'\"";

	for (r->at++; peek(r, 0) != '\''; r->at++) {
		int c = peek(r, 0);
		const char *known;

		if (c < 0)
			return fail(r, "a quote is not closed");
		if (c != '\\') {
			add_char(w, c);
			continue;
		}
		r->at++;
		c = peek(r, 0);
		known = c > 0 ? strchr(from, c) : NULL;
		if (known)
			add_char(w, to[known - from]);
		else
			add_unknown(w);
	}
	r->at++;
	w->quoted = true;
	return 0;
}

/* Behind a dollar. */
static int read_dollar(struct shell_reader *r, struct word_text *w)
{
	int c = peek(r, 0);

	if (is_at(r, "((")) {
		add_unknown(w);
		r->at += 2;
		return skip_expansion(r, "))");
	}
	if (c == '(' || c == '{') {
		add_unknown(w);
		r->at++;
		return c == '(' ? read_substitution(r) : skip_expansion(r, "}");
	}
	if (c == '[')
		return fail(r, "$[ ] is arithmetic of old shells");
	if (c > 0 && (strchr("@*#?-$!_", c) || (c < 0x80 && strchr(STR_ALNUM, c)))) {
		add_unknown(w);
		do
			r->at++;
		while ((c = peek(r, 0)) > 0 && c < 0x80 && (c == '_' || strchr(STR_ALNUM, c)));
		return 0;
	}
	add_char(w, '$');
	return 0;
}

/* Behind a backtick: its text, with one level of backslashes taken away, is read by itself. */
static int read_backtick(struct shell_reader *r, struct word_text *w)
{
	auto_buf struct buf inner = {0};

	for (; peek(r, 0) != '`'; r->at++) {
		if (peek(r, 0) < 0)
			return fail(r, "a backtick is not closed");
		if (peek(r, 0) == '\\' && peek(r, 1) > 0 && strchr("`\\$\"", peek(r, 1)))
			r->at++;
		buf_add(&inner, r->text + r->at, 1);
	}
	r->at++;
	add_unknown(w);
	return shell_read_inner(r, inner.len ? buf_head(&inner) : "", inner.len);
}

/* Behind an opening double quote. */
static int read_quoted(struct shell_reader *r, struct word_text *w)
{
	int rc = 0, c;

	w->quoted = true;
	while (rc == 0 && (c = peek(r, 0)) != '"') {
		if (c < 0)
			return fail(r, "a quote is not closed");
		r->at++;
		if (c == '\\' && peek(r, 0) == '\n')
			r->at++;
		else if (c == '\\' && peek(r, 0) > 0 && strchr("$`\"\\", peek(r, 0)))
			add_char(w, r->text[r->at++]);
		else if (c == '$')
			rc = read_dollar(r, w);
		else if (c == '`')
			rc = read_backtick(r, w);
		else
			add_char(w, c);
	}
	r->at += rc == 0;
	return rc;
}

static int read_single(struct shell_reader *r, struct word_text *w)
{
	const char *end = memchr(r->text + r->at, '\'', r->len - r->at);

	if (!end)
		return fail(r, "a quote is not closed");
	buf_add(&w->text, r->text + r->at, (size_t)(end - r->text) - r->at);
	r->at = (size_t)(end - r->text) + 1;
	w->quoted = true;
	return 0;
}

/* ---- words ---- */

/* One step of a word, of which the first character is c. */
static int read_part(struct shell_reader *r, struct word_text *w, int c)
{
	r->at++;
	switch (c) {
	case '\\':
		c = peek(r, 0);
		if (c < 0)
			return fail(r, "it ends with a backslash");
		r->at++;
		if (c != '\n') {
			add_char(w, c);
			w->quoted = true;
		}
		return 0;
	case '\'':
		return read_single(r, w);
	case '"':
		return read_quoted(r, w);
	case '`':
		return read_backtick(r, w);
	case '$':
		if (peek(r, 0) == '\'')
			return read_ansi(r, w);
		if (peek(r, 0) == '"')
			return 0;
		return read_dollar(r, w);
	case '*':
	case '?':
	case '[':
		w->known = false; /* may become other words, or several */
		break;
	case '{':
		w->plain_brace = true;
		break;
	case ',':
	case '.':
		w->known = w->known && !w->plain_brace; /* {a,b} and {1..3} */
		break;
	default:
		break;
	}
	add_char(w, c);
	return 0;
}

/* Reads one word, which begins here. The caller frees w->text. */
static int read_word(struct shell_reader *r, struct word_text *w)
{
	int c;

	if (++*r->word_count > SHELL_WORDS)
		return fail(r, "it has too many words");
	while (!ends_word(c = peek(r, 0)))
		if (read_part(r, w, c) < 0)
			return -1;
	if (w->text.len && memchr(buf_head(&w->text), '\0', w->text.len))
		return fail(r, "it has a NUL in it");
	return 0;
}

static char *take_text(struct word_text *w)
{
	char *text = must_alloc(strndup(w->text.len ? buf_head(&w->text) : "", w->text.len));

	buf_done(&w->text);
	return text;
}

/* ---- redirections ---- */

static void drop_here(struct shell_reader *r)
{
	for (size_t i = 0; i < r->here_count; i++)
		free(r->here[i].delimiter);
	r->here_count = 0;
}

/* Variables in it are nobody's business here, but its substitutions are commands. */
static int read_substitutions(struct shell_reader *outer, const char *body, size_t len)
{
	struct shell_reader r = *outer;
	struct word_text w = {.known = true};
	int rc = 0;

	r.text = body;
	r.len = len;
	r.at = 0;
	r.here_count = 0;
	r.depth++; /* its words are not in the line */
	while (rc == 0 && r.at < len) {
		unsigned char c = (unsigned char)body[r.at++];

		if (c == '\\')
			r.at += r.at < len;
		else if (c == '$')
			rc = read_dollar(&r, &w);
		else if (c == '`')
			rc = read_backtick(&r, &w);
	}
	drop_here(&r);
	buf_done(&w.text);
	return rc;
}

/* The body of a here document is a shell's commands, or a program's input. */
static int read_here_body(struct shell_reader *r, const struct shell_here *h, const char *body,
			  size_t len)
{
	const struct shell_command *c = &r->line->commands[h->command];
	bool changes = memchr(body, '$', len) || memchr(body, '`', len) || memchr(body, '\\', len);

	if (c->count && shell_is_shell(c->words[0].text)) {
		if (!h->quoted && changes)
			shell_unclear(r->line, "a shell reads a here document that is expanded");
		return shell_read_inner(r, body, len);
	}
	return h->quoted ? 0 : read_substitutions(r, body, len);
}

/* Is a line continued by the next one? Only where the body is expanded. */
static bool is_continued(const struct shell_here *h, const char *line, size_t n)
{
	size_t slashes = 0;

	while (slashes < n && line[n - 1 - slashes] == '\\')
		slashes++;
	return !h->quoted && slashes % 2;
}

/* Adds the line that begins here to b, with those that continue it; false: there is none. */
static bool read_here_line(struct shell_reader *r, const struct shell_here *h, struct buf *b)
{
	bool more = true;

	if (r->at >= r->len)
		return false;
	while (more && r->at < r->len) {
		const char *line = r->text + r->at, *eol = memchr(line, '\n', r->len - r->at);
		size_t n = eol ? (size_t)(eol - line) : r->len - r->at;

		r->at += n + (eol != NULL);
		more = eol && is_continued(h, line, n);
		buf_add(b, line, n - more);
	}
	return true;
}

static bool is_delimiter(const struct shell_here *h, const struct buf *line)
{
	size_t n = strlen(h->delimiter), tabs = 0;

	while (h->tabs && tabs < line->len && buf_head(line)[tabs] == '\t')
		tabs++;
	return line->len - tabs == n && (!n || memcmp(buf_head(line) + tabs, h->delimiter, n) == 0);
}

/* At the beginning of a line: reads the bodies that are due. */
static int read_here_documents(struct shell_reader *r)
{
	for (size_t i = 0; i < r->here_count; i++) {
		struct shell_here *h = &r->here[i];
		size_t begin = r->at, end = r->at;
		bool found = false, more = true;

		while (!found && more) {
			auto_buf struct buf line = {0};

			end = r->at;
			more = read_here_line(r, h, &line);
			found = more && is_delimiter(h, &line);
		}
		if (!found)
			return fail(r, "a here document does not end");
		if (read_here_body(r, h, r->text + begin, end - begin) < 0)
			return -1;
		free(take_ptr(h->delimiter));
	}
	r->here_count = 0;
	return 0;
}

static void skip_blanks(struct shell_reader *r)
{
	for (;;) {
		if (is_at(r, "\\\n"))
			r->at += 2;
		else if (peek(r, 0) == ' ' || peek(r, 0) == '\t')
			r->at++;
		else
			break;
	}
}

/* Behind << or <<-. */
static int begin_here(struct shell_reader *r, size_t command, bool tabs)
{
	struct word_text w = {.known = true};

	skip_blanks(r);
	if (r->here_count == ARRAY_LEN(r->here) || read_word(r, &w) < 0 || !w.text.len ||
	    !w.known) {
		buf_done(&w.text);
		return r->e->kind ? -1 : fail(r, "a here document without an end");
	}
	r->here[r->here_count++] = (struct shell_here){
		.quoted = w.quoted, .tabs = tabs, .command = command, .delimiter = take_text(&w)};
	return 0;
}

static void note_place(const struct shell_reader *r, const char *text, size_t at)
{
	struct shell_line *l = r->line;

	if (r->depth > 0)
		return;
	l->places = array_room(l->places, l->place_count, &l->place_room, sizeof(*l->places));
	l->places[l->place_count++] =
		(struct shell_place){.text = str_copy(text), .at = at, .len = r->at - at};
}

/* The word behind a redirection: a file, unless it is a descriptor. */
static int read_target(struct shell_reader *r, size_t command, bool is_text, bool may_be_fd)
{
	struct word_text w = {.known = true};
	bool known;
	size_t at;
	char *text;

	skip_blanks(r);
	if (is_at(r, "<(") || is_at(r, ">(")) {
		r->at += 2;
		return read_substitution(r);
	}
	if (ends_word(peek(r, 0)))
		return fail(r, "a redirection without a file");
	at = r->at;
	if (read_word(r, &w) < 0) {
		buf_done(&w.text);
		return -1;
	}
	known = w.known;
	text = take_text(&w);
	if (!known && !is_text)
		shell_unclear(r->line, "the name of a redirection's file is not known");
	if (known && !is_text)
		note_place(r, text, at);
	if (is_text || !known || (may_be_fd && str_only(text, STR_DIGITS "-", 1, 12)))
		free(text);
	else
		list_take(&r->line->commands[command].files, text);
	return 0;
}

/* At < or >, or at &>. */
static int read_redirection(struct shell_reader *r, size_t command)
{
	static const struct {
		const char *op;
		bool is_text, may_be_fd;
	} rows[] = {
		{"<<<", true, false},  {"<&", false, true},  {"<>", false, false},
		{">>", false, false},  {">&", false, true},  {">|", false, false},
		{"&>>", false, false}, {"&>", false, false}, {"<", false, false},
		{">", false, false},
	};

	if (is_at(r, "<<") && !is_at(r, "<<<")) {
		bool tabs = is_at(r, "<<-");

		r->at += tabs ? 3 : 2;
		return begin_here(r, command, tabs);
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (is_at(r, rows[i].op)) {
			r->at += strlen(rows[i].op);
			return read_target(r, command, rows[i].is_text, rows[i].may_be_fd);
		}
	return fail(r, "a redirection is not understood");
}

/* ---- commands ---- */

/* {NAME} right before < or > is a variable for a descriptor, no word. */
static bool is_descriptor_name(const struct shell_reader *r, const char *text)
{
	size_t n = strlen(text);

	return n > 2 && text[0] == '{' && text[n - 1] == '}' &&
	       strspn(text + 1, STR_ALNUM "_[]") == n - 2 &&
	       (peek(r, 0) == '<' || peek(r, 0) == '>');
}

/* A word of a command is read: keeps it. 1: it is not one of the command's words. */
static int take_word(struct shell_reader *r, size_t command, struct word_text *w, size_t at)
{
	struct shell_command *c = &r->line->commands[command];
	bool known = w->known, quoted = w->quoted;
	struct shell_word *word;
	char *text = take_text(w);

	if (c->count == 0 && known && !quoted && shell_is_refused(text)) {
		free(text);
		return fail(r, "it has case or a function in it");
	}
	if (c->count == 0 && shell_is_assignment(r->text + at, r->at - at)) {
		if (shell_variable_is_read(text) || shell_has_quoted_command(text))
			shell_unclear(r->line, "a variable may start another program");
		free(text);
		return 1;
	}
	if (!quoted && is_descriptor_name(r, text)) {
		free(text);
		return 1;
	}
	if (c->count == 0 && known && !quoted && shell_is_passed_over(text)) {
		free(text);
		return 1;
	}
	c->is_for = c->is_for || (c->count == 0 && !quoted && str_equal(text, "for"));
	/* Without a bracket that closes it, one that opens is no pattern. */
	known = known || str_equal(text, "[") || str_equal(text, "[[");
	word = shell_add_word(c);
	*word = (struct shell_word){.text = text, .known = known};
	if (known)
		note_place(r, text, at);
	return 0;
}

/* Something else than a word, inside a command. 0: go on; 1: the command ends here. */
static int read_operator(struct shell_reader *r, size_t command)
{
	int ch = peek(r, 0);

	if (is_at(r, "<(") || is_at(r, ">(")) {
		r->at += 2;
		if (read_substitution(r) < 0)
			return -1;
		*shell_add_word(&r->line->commands[command]) =
			(struct shell_word){.text = str_copy("?")};
		return 0;
	}
	if (ch == '<' || ch == '>' || is_at(r, "&>"))
		return read_redirection(r, command);
	if (ch == '(' && r->line->commands[command].count)
		return fail(r, "it has a function or a pattern in it");
	return 1;
}

/* A number right before < or > is a descriptor, no word. */
static bool skip_descriptor(struct shell_reader *r)
{
	size_t n = 0;

	while (peek(r, n) >= '0' && peek(r, n) <= '9')
		n++;
	if (n == 0 || (peek(r, n) != '<' && peek(r, n) != '>'))
		return false;
	r->at += n;
	return true;
}

/* The words of one command, to the operator that ends it. */
static int read_words(struct shell_reader *r, size_t command)
{
	for (;;) {
		struct word_text w = {.known = true};
		size_t at;
		int rc;

		skip_blanks(r);
		if (skip_descriptor(r))
			continue;
		if (peek(r, 0) == '#') {
			while (peek(r, 0) >= 0 && peek(r, 0) != '\n')
				r->at++;
			return 0;
		}
		if (ends_word(peek(r, 0))) {
			rc = peek(r, 0) < 0 ? 1 : read_operator(r, command);
			if (rc != 0)
				return rc < 0 ? -1 : 0;
			continue;
		}
		at = r->at;
		if (read_word(r, &w) < 0 || take_word(r, command, &w, at) < 0) {
			buf_done(&w.text);
			return -1;
		}
	}
}

static int read_command(struct shell_reader *r)
{
	size_t command = r->line->count;
	const struct shell_command *c;

	shell_add_command(r->line);
	if (read_words(r, command) < 0)
		return -1;
	c = &r->line->commands[command];
	if (c->count == 0 || c->is_for)
		return 0;
	return shell_follow(r, command, r->depth);
}

/* Commands and what is between them, up to `end` (')'), or the end of the text (0). */
static int read_list(struct shell_reader *r, char end)
{
	for (;;) {
		int c;

		skip_blanks(r);
		c = peek(r, 0);
		if (c < 0)
			return end ? fail(r, "a parenthesis is not closed") : 0;
		if (end && c == end) {
			r->at++;
			return 0;
		}
		if (c == ')')
			return fail(r, "a parenthesis is closed that was not opened");
		if (is_at(r, "(("))
			return fail(r, "it has arithmetic in it");
		if (c == '\n') {
			r->at++;
			if (read_here_documents(r) < 0)
				return -1;
		} else if (c == '(') {
			r->at++;
			if (read_nested(r) < 0)
				return -1;
		} else if (strchr(";&|", c) && !is_at(r, "&>")) {
			if (is_at(r, ";;"))
				return fail(r, "it has case in it");
			r->at += is_at(r, "||") || is_at(r, "&&") || is_at(r, "|&") ? 2 : 1;
		} else if (read_command(r) < 0) {
			return -1;
		}
	}
}

/* ---- texts ---- */

static int read_text(struct shell_reader *r)
{
	int rc = read_list(r, 0);

	if (rc == 0 && r->here_count)
		rc = fail(r, "a here document does not end");
	drop_here(r);
	return rc;
}

int shell_read_inner(struct shell_reader *r, const char *text, size_t len)
{
	struct shell_reader inner = {.text = text,
				     .len = len,
				     .depth = r->depth + 1,
				     .line = r->line,
				     .word_count = r->word_count,
				     .e = r->e};

	if (inner.depth > SHELL_DEPTH)
		return fail(r, "it is nested too deeply");
	return read_text(&inner);
}

int shell_read(const char *text, size_t len, struct shell_line *ret, struct err *e)
{
	size_t words = 0;
	struct err inner = {0};
	struct shell_line line = {0};
	struct shell_reader r = {
		.text = text, .len = len, .line = &line, .word_count = &words, .e = &inner};
	int rc = 0;

	if (len > SHELL_TEXT_MAX || memchr(text, '\0', len) || memchr(text, '\r', len))
		rc = fail(&r, "it is too long, or has a NUL or a carriage return in it");
	if (rc == 0)
		rc = read_text(&r);
	if (rc < 0) {
		*e = inner;
		shell_line_done(&line);
		return -1;
	}
	*ret = line;
	return 0;
}
