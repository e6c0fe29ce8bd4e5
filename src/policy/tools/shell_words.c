/* What single words mean to a shell. */
#include "policy/tools/shell_internal.h"

/* Words that change nothing about the command behind them, and words that end what others began. */
bool shell_is_passed_over(const char *word)
{
	static const char *const words[] = {"if",    "then", "elif", "else", "fi", "while",
					    "until", "do",   "done", "{",    "}",  "!"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal(word, words[i]))
			return true;
	return false;
}

/* Words behind which this reader does not know its way. */
bool shell_is_refused(const char *word)
{
	static const char *const words[] = {"case", "esac", "select", "function", "coproc"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal(word, words[i]))
			return true;
	return false;
}

/* The name must stand there without quotes. */
bool shell_is_assignment(const char *raw, size_t len)
{
	size_t n = 0;

	while (n < len && (raw[n] == '_' || strchr(STR_ALNUM, raw[n])))
		n++;
	if (n == 0 || n == len || (raw[0] >= '0' && raw[0] <= '9'))
		return false;
	return raw[n] == '=' || (raw[n] == '+' && n + 1 < len && raw[n + 1] == '=');
}

/* Variables that make a program start another one. */
bool shell_variable_is_read(const char *assignment)
{
	static const char *const names[] = {"LD_",     "PATH=",	       "BASH_ENV=",	 "ENV=",
					    "IFS=",    "GIT_",	       "PYTHONPATH",	 "PERL5",
					    "PAGER=",  "NODE_OPTIONS", "PROMPT_COMMAND", "EDITOR=",
					    "VISUAL=", "SHELLOPTS",    "BASH_FUNC",	 "PS"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_starts(assignment, names[i]))
			return true;
	return false;
}

/* A substitution that was quoted: what evaluates the text later runs it. */
bool shell_has_quoted_command(const char *text)
{
	return strstr(text, "$(") || strchr(text, '`');
}
