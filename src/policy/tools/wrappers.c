/*
 * Programs that start the program that their arguments name. One table says where in the arguments it
 * stands; an option that the table does not know makes the command unclear.
 */
#include "policy/tools/shell_internal.h"

enum inner_kind {
	INNER_WORDS, /* the words behind the options are a command */
	INNER_LINE,  /* they are joined, and a shell reads them */
	INNER_SHELL, /* -c LINE, or a file, or standard input */
	INNER_FIND,  /* -exec WORDS ; */
	INNER_FIRST, /* the first word is a line for the shell */
	INNER_FILE,  /* the first word is a file that the shell reads */
};

struct wrapper {
	const char *name;
	enum inner_kind kind;
	const char *flags, *with_value; /* short options: without a value, with one */
	unsigned skip;			/* words between the options and the command */
	bool no_long;			/* a long option may hold a command */
};

#define SHELL_FLAGS "abefhiklmnprstuvxBCDEHPT"

static const struct wrapper wrappers[] = {
	{"env", INNER_WORDS, "i0v", "uC", 0, true},
	{"xargs", INNER_WORDS, "0rtpxo", "adEILnPs", 0, false},
	{"nohup", INNER_WORDS, "", "", 0, false},
	{"nice", INNER_WORDS, "", "n", 0, false},
	{"ionice", INNER_WORDS, "t", "cn", 0, false},
	{"chrt", INNER_WORDS, "abfior", "TPD", 1, false},
	{"taskset", INNER_WORDS, "ac", "", 1, false},
	{"timeout", INNER_WORDS, "v", "ks", 1, false},
	{"setsid", INNER_WORDS, "cfw", "", 0, false},
	{"stdbuf", INNER_WORDS, "", "ioe", 0, false},
	{"time", INNER_WORDS, "pvaq", "fo", 0, false},
	{"sudo", INNER_WORDS, "AbEHnPSisk", "CDghpRrTtUu", 0, false},
	{"doas", INNER_WORDS, "nsL", "uC", 0, false},
	{"command", INNER_WORDS, "pvV", "", 0, false},
	{"builtin", INNER_WORDS, "", "", 0, false},
	{"exec", INNER_WORDS, "cl", "a", 0, false},
	{"unshare", INNER_WORDS, "imnpuUCTfrc", "RwSG", 0, false},
	{"chroot", INNER_WORDS, "", "", 1, false},
	{"busybox", INNER_WORDS, "", "", 0, false},
	{"toybox", INNER_WORDS, "", "", 0, false},
	{"flock", INNER_WORDS, "snxuoF", "wE", 1, true},
	{"strace", INNER_WORDS, "fFqTtvcCdiknrwxyz", "aebEIoOpPsSuU", 0, false},
	{"ltrace", INNER_WORDS, "fcCirStT", "aAelnospux", 0, false},
	{"watch", INNER_LINE, "bcdegptwx", "nq", 0, false},
	{"eval", INNER_LINE, "", "", 0, false},
	{"trap", INNER_FIRST, "lp", "", 0, false},
	{".", INNER_FILE, "", "", 0, false},
	{"source", INNER_FILE, "", "", 0, false},
	{"setpriv", INNER_WORDS, "", "", 0, false},
	{"prlimit", INNER_WORDS, "", "", 0, false},
	{"fakeroot", INNER_WORDS, "u", "lsib", 0, false},
	{"ssh-agent", INNER_WORDS, "cdDs", "aEPt", 0, false},
	{"dbus-run-session", INNER_WORDS, "", "", 0, false},
	{"xvfb-run", INNER_WORDS, "al", "efnpsw", 0, false},
	{"find", INNER_FIND, "", "", 0, false},
	{"sh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"bash", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"dash", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"ash", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"ksh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"zsh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"lksh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"posh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"yash", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"mksh", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
	{"rbash", INNER_SHELL, SHELL_FLAGS, "oO", 0, true},
};

/* What these start is not in their arguments, or later words mean something else behind them. */
static const char *const hiders[] = {
	"su",	   "runuser",  "script", "parallel", "nsenter", "systemd-run", "at",
	"batch",   "crontab",  "alias",	 "enable",   "hash",	"fc",	       "bind",
	"compgen", "complete", "fish",	 "csh",	     "tcsh",	"pwsh",	       "nu",
	"elvish",  "xonsh",    "gdb",	 "expect",   "bwrap",	"proot",       "firejail"};

/* Builtins that evaluate their words: an index of an array may hold a substitution. */
static const char *const evaluators[] = {"let",	  "declare", "typeset", "local",     "export",
					 "unset", "test",    "[",	"[[",	     "printf",
					 "read",  "wait",    "mapfile", "readarray", "readonly"};

const char *shell_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	return slash ? slash + 1 : program;
}

static const struct wrapper *find_wrapper(const char *program)
{
	for (size_t i = 0; i < ARRAY_LEN(wrappers); i++)
		if (str_equal(shell_name(program), wrappers[i].name))
			return &wrappers[i];
	return NULL;
}

bool shell_is_shell(const char *program)
{
	const struct wrapper *w = find_wrapper(program);

	return w && w->kind == INNER_SHELL;
}

/* ---- options ---- */

struct options_read {
	size_t at;	 /* behind the options */
	bool has_c;	 /* of a shell: a line follows */
	bool from_input; /* of a shell: -s */
};

static bool is_harmless_long(const char *option)
{
	return str_equal(option, "--norc") || str_equal(option, "--noprofile") ||
	       str_equal(option, "--login") || str_equal(option, "--posix");
}

/* One word of options; false: one of them is not known. */
static bool read_option(const struct wrapper *w, const struct shell_command *c,
			struct options_read *o)
{
	const char *text = c->words[o->at].text;

	/* --name=VALUE has its value with it. Of others nobody knows whether a value follows. */
	if (text[1] == '-') {
		o->at++;
		return !w->no_long ? strchr(text, '=') != NULL
				   : w->kind == INNER_SHELL && is_harmless_long(text);
	}
	for (const char *p = text + 1; *p; p++) {
		if (w->kind == INNER_SHELL && *p == 'c') {
			o->has_c = true;
		} else if (strchr(w->with_value, *p)) {
			o->at += p[1] ? 0 : 1;
			break;
		} else if (!strchr(w->flags, *p) && !(*p >= '0' && *p <= '9')) {
			return false;
		}
		o->from_input |= *p == 's';
	}
	o->at++;
	return true;
}

/* env A=B program */
static bool takes_variables(const struct wrapper *w)
{
	return str_equal(w->name, "env") || str_equal(w->name, "sudo") ||
	       str_equal(w->name, "doas");
}

/* False: it is not known where the command begins. */
static bool read_options(const struct wrapper *w, const struct shell_command *c,
			 struct options_read *o)
{
	*o = (struct options_read){.at = 1};
	while (o->at < c->count) {
		const struct shell_word *word = &c->words[o->at];
		bool is_shell = w->kind == INNER_SHELL;

		if (!word->known)
			return is_shell && o->has_c;
		if (str_equal(word->text, "--")) {
			o->at++;
			break;
		}
		if ((word->text[0] != '-' && !(is_shell && word->text[0] == '+')) || !word->text[1])
			break;
		if (!read_option(w, c, o))
			return false;
	}
	while (takes_variables(w) && o->at < c->count && strchr(c->words[o->at].text, '='))
		o->at++;
	o->at += w->skip;
	return true;
}

/* ---- commands inside ---- */

/* Adds words [from, to) as a command of its own, and follows that. */
static int follow_words(struct shell_reader *r, size_t index, size_t from, size_t to, bool more,
			unsigned depth)
{
	size_t added = r->line->count;
	struct shell_command *c = shell_add_command(r->line);

	/* `time` is a reserved word, too: time { a; } and time ! a. */
	while (from < to && shell_is_passed_over(r->line->commands[index].words[from].text))
		from++;
	if (from < to && shell_is_refused(r->line->commands[index].words[from].text))
		shell_unclear(r->line, "it has case or a function in it");
	for (size_t i = from; i < to; i++) {
		const struct shell_word *word = &r->line->commands[index].words[i];

		*shell_add_word(c) =
			(struct shell_word){.text = str_copy(word->text), .known = word->known};
	}
	if (more)
		*shell_add_word(c) = (struct shell_word){.text = str_copy("?")};
	if (c->count && c->words[0].text[0] == '-')
		shell_unclear(r->line, "it is not known what an option starts");
	return c->count ? shell_follow(r, added, depth + 1) : 0;
}

/* The word is read by a shell. */
static int follow_line(struct shell_reader *r, const struct shell_word *word)
{
	auto_free char *text = NULL;

	if (!word->known) {
		shell_unclear(r->line, "a shell is given a line that is not known");
		return 0;
	}
	text = str_copy(word->text);
	return shell_read_inner(r, text, strlen(text));
}

static bool has_here_document(const struct shell_reader *r, size_t index)
{
	for (size_t i = 0; i < r->here_count; i++)
		if (r->here[i].command == index)
			return true;
	return false;
}

/* A file that a shell reads: not one that another command writes meanwhile. */
static void judge_script(struct shell_reader *r, const struct shell_word *file)
{
	if (!file->known || str_starts(file->text, "/dev/") || str_starts(file->text, "/proc/"))
		shell_unclear(r->line, "a shell reads commands that another command writes");
}

static int follow_shell(struct shell_reader *r, size_t index, const struct options_read *o)
{
	const struct shell_command *c = &r->line->commands[index];
	bool has_script = o->at < c->count && !o->from_input;

	if (o->has_c)
		return o->at < c->count ? follow_line(r, &c->words[o->at]) : 0;
	if (has_script)
		judge_script(r, &c->words[o->at]);
	if (!has_script && (c->files.count || !has_here_document(r, index)))
		shell_unclear(r->line, "a shell reads commands from its input");
	return 0;
}

static int follow_find(struct shell_reader *r, size_t index, unsigned depth)
{
	for (size_t i = 1; i < r->line->commands[index].count; i++) {
		const struct shell_command *c = &r->line->commands[index];
		const char *text = c->words[i].text;
		size_t end = i + 1;

		if (!str_equal(text, "-exec") && !str_equal(text, "-execdir") &&
		    !str_equal(text, "-ok") && !str_equal(text, "-okdir"))
			continue;
		while (end < c->count && !str_equal(c->words[end].text, ";") &&
		       !str_equal(c->words[end].text, "+"))
			end++;
		/* {} stands for names that are found. */
		for (size_t j = i + 1; j < end; j++)
			if (strstr(c->words[j].text, "{}"))
				c->words[j].known = false;
		if (follow_words(r, index, i + 1, end, false, depth) < 0)
			return -1;
		i = end;
	}
	return 0;
}

static int follow_joined(struct shell_reader *r, size_t index, size_t from)
{
	const struct shell_command *c = &r->line->commands[index];
	auto_buf struct buf b = {0};
	struct shell_word joined = {.known = true};

	for (size_t i = from; i < c->count; i++) {
		joined.known = joined.known && c->words[i].known;
		buf_add(&b, c->words[i].text, strlen(c->words[i].text));
		buf_add(&b, " ", 1);
	}
	if (!b.len)
		return 0;
	buf_add(&b, "", 1);
	joined.text = buf_head(&b);
	return follow_line(r, &joined);
}

/* The text that xargs replaces by what it reads, or NULL. */
static const char *replaced_by_xargs(const struct shell_command *c, size_t end)
{
	for (size_t i = 1; i < end && i < c->count; i++) {
		const char *text = c->words[i].text, *at;

		if (str_starts(text, "--replace="))
			return text + strlen("--replace=");
		at = text[0] == '-' && text[1] != '-' ? strchr(text, 'I') : NULL;
		if (at)
			return at[1] ? at + 1 : i + 1 < c->count ? c->words[i + 1].text : NULL;
	}
	return NULL;
}

static void forget_replaced(struct shell_command *c, size_t from)
{
	const char *name = replaced_by_xargs(c, from);

	for (size_t i = from; name && i < c->count; i++)
		if (strstr(c->words[i].text, name))
			c->words[i].known = false;
}

/* Nothing is named: some start a shell then, which reads its input. */
static int follow_nothing(struct shell_reader *r, const struct wrapper *w)
{
	static const char *const names[] = {"sudo", "doas", "unshare", "chroot", "fakeroot"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(w->name, names[i]))
			shell_unclear(r->line, "%s may start a shell that reads its input",
				      names[i]);
	return 0;
}

static int follow_inner(struct shell_reader *r, size_t index, const struct wrapper *w,
			unsigned depth)
{
	const struct shell_command *c = &r->line->commands[index];
	struct options_read o;

	if (w->kind == INNER_FIND)
		return follow_find(r, index, depth);
	if (!read_options(w, c, &o)) {
		shell_unclear(r->line, "it is not known what %s starts", w->name);
		return 0;
	}
	if (w->kind == INNER_SHELL)
		return follow_shell(r, index, &o);
	for (size_t i = 1; takes_variables(w) && i < o.at && i < c->count; i++)
		if (shell_variable_is_read(c->words[i].text))
			shell_unclear(r->line, "a variable may start another program");
	if (o.at >= c->count)
		return follow_nothing(r, w);
	if (w->kind == INNER_FILE)
		judge_script(r, &c->words[o.at]);
	if (w->kind == INNER_FILE)
		return 0;
	if (str_equal(w->name, "xargs"))
		forget_replaced(&r->line->commands[index], o.at);
	if (w->kind == INNER_LINE)
		return follow_joined(r, index, o.at);
	if (w->kind == INNER_FIRST)
		return follow_line(r, &c->words[o.at]);
	return follow_words(r, index, o.at, c->count, str_equal(w->name, "xargs"), depth);
}

static bool is_one_of(const char *program, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(shell_name(program), names[i]))
			return true;
	return false;
}

/* Words that a builtin evaluates, and callbacks of mapfile. */
static bool evaluates(const struct shell_command *c)
{
	bool maps =
		str_equal(c->words[0].text, "mapfile") || str_equal(c->words[0].text, "readarray");

	for (size_t i = 1; i < c->count; i++)
		if (shell_has_quoted_command(c->words[i].text) ||
		    (maps && c->words[i].text[0] == '-' && strchr(c->words[i].text, 'C')))
			return true;
	return false;
}

/* git starts what its configuration and some of its commands say. */
static bool git_starts_others(const struct shell_command *c)
{
	static const char *const options[] = {"--exec", "--upload-pack", "--receive-pack",
					      "--config-env", "--extcmd"};
	static const char *const commands[] = {"foreach", "filter-branch", "bisect"};

	for (size_t i = 1; i < c->count; i++) {
		const char *text = c->words[i].text;
		const char *value = i + 1 < c->count ? c->words[i + 1].text : "";

		for (size_t j = 0; j < ARRAY_LEN(options); j++)
			if (str_starts(text, options[j]))
				return true;
		if (str_equal(text, "-c") && strchr(value, '=') && !str_starts(value, "user.") &&
		    !str_starts(value, "color."))
			return true;
		if (is_one_of(text, commands, ARRAY_LEN(commands)))
			return true;
	}
	return false;
}

int shell_follow(struct shell_reader *r, size_t index, unsigned depth)
{
	const struct shell_command *c = &r->line->commands[index];
	const struct shell_word *program = &c->words[0];
	const struct wrapper *w;

	if (!program->known) {
		shell_unclear(r->line, "the name of a program is not known");
		return 0;
	}
	if (is_one_of(program->text, hiders, ARRAY_LEN(hiders)))
		shell_unclear(r->line, "it is not known what %s starts", shell_name(program->text));
	if (is_one_of(program->text, evaluators, ARRAY_LEN(evaluators)) && evaluates(c))
		shell_unclear(r->line, "a builtin may run what is quoted");
	if (str_equal(shell_name(program->text), "git") && git_starts_others(c))
		shell_unclear(r->line, "git may start another program");
	w = find_wrapper(program->text);
	if (!w)
		return 0;
	if (depth > SHELL_DEPTH)
		return err_set(r->e, ERR_INVALID,
			       "the command cannot be read: it is nested too deeply");
	return follow_inner(r, index, w, depth);
}
