/*
 * Theory of operation
 *
 * Every word counts, in strings and comments as well: no string has to be told from code, and text that becomes
 * code later (a type hint, a format string) is judged, too. What a program can reach is bounded by the words that
 * name it: a builtin, a module, an attribute. So it is enough to refuse words that lead out of computing: builtins
 * that open or execute, modules that are loaded along with the permitted ones (an attribute of that name is one of
 * them), and names with an underscore in front, which lead to everything else.
 */
#include "model/standalone.h"

#define CODE_MAX (64u << 10)
#define WORD_MAX 32

/* Modules that only compute. */
static const char computing[] = " abc array base64 binascii bisect calendar cmath collections "
				"contextlib copy dataclasses datetime decimal "
				"difflib enum fractions functools hashlib heapq itertools json "
				"math numbers operator pprint random re "
				"statistics string struct textwrap time typing unicodedata zlib ";

/* Modules that are loaded with those or at the start. */
static const char loaded[] = " annotationlib ast atexit builtins bz2 certifi codecs contextvars "
			     "copyreg dis encodings errno fnmatch "
			     "genericpath importlib inspect io ipaddress keyword linecache locale "
			     "logging lzma marshal nt ntpath opcode "
			     "os pathlib posix posixpath reprlib runpy shutil signal site "
			     "sitecustomize stat subprocess sys sysconfig "
			     "tempfile threading token tokenize traceback types urllib "
			     "usercustomize warnings weakref zipfile "
			     "zipimport ";

static const char leading_out[] =
	" breakpoint chdir compile copyright credits cr_frame detach dir eval exc_info exec "
	"f_back f_builtins f_globals f_locals ag_frame attrgetter getattr gi_frame "
	"globals help license locals methodcaller open raw tb_frame vars ";

static const char usual[] =
	" _ __add__ __bool__ __call__ __contains__ __enter__ __eq__ __exit__ __float__ __ge__ "
	"__getitem__ __gt__ "
	"__hash__ __init__ __int__ __iter__ __le__ __len__ __lt__ __main__ __mul__ __name__ __ne__ "
	"__neg__ "
	"__next__ __post_init__ __repr__ __reversed__ __setitem__ __str__ __sub__ __truediv__ ";

static const char of_sys[] =
	" argv byteorder exit float_info getsizeof hexversion int_info maxsize maxunicode "
	"platform stderr stdin stdout version version_info ";

struct words {
	const char *at, *end;
	char word[WORD_MAX + 1];
};

static bool is_in(const char *list, const char *word)
{
	char spaced[WORD_MAX + 3];

	snprintf(spaced, sizeof(spaced), " %s ", word);
	return strstr(list, spaced) != NULL;
}

static bool is_word_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_';
}

/* Text that cannot be read word by word: letters that Python takes for others, and escapes. */
static bool is_plain(const char *code, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)code[i] >= 0x80 || code[i] == '\0')
			return false;
		if (code[i] == '\\' && i + 1 < len && strchr("xuUN01234567", code[i + 1]))
			return false;
	}
	return true;
}

static void skip_space(struct words *w)
{
	while (w->at < w->end && strchr(" \t\f\r\n\\", *w->at))
		w->at++;
}

/* The word that begins here; false: none does. One that is too long is cut, and then in no list. */
static bool take_word(struct words *w)
{
	size_t n = 0;

	while (w->at < w->end && is_word_byte(*w->at)) {
		if (n < WORD_MAX)
			w->word[n++] = *w->at;
		w->at++;
	}
	w->word[n] = '\0';
	return n > 0;
}

static bool take_byte(struct words *w, char c)
{
	skip_space(w);
	if (w->at == w->end || *w->at != c)
		return false;
	w->at++;
	return true;
}

static bool word_suits(struct words *w)
{
	if (w->word[0] == '_')
		return is_in(usual, w->word);
	return !is_in(loaded, w->word) && !is_in(leading_out, w->word);
}

/* sys, in the code: only with an attribute that does not lead further. */
static bool sys_suits(struct words *w)
{
	if (!take_byte(w, '.'))
		return false;
	skip_space(w);
	return take_word(w) && is_in(of_sys, w->word);
}

/* Behind `from`: a module, and what is behind `import` are words like others. */
static bool from_suits(struct words *w)
{
	skip_space(w);
	if (!take_word(w) || !is_in(computing, w->word))
		return false;
	while (take_byte(w, '.')) {
		skip_space(w);
		if (!take_word(w) || !word_suits(w))
			return false;
	}
	skip_space(w);
	return take_word(w) && str_equal(w->word, "import");
}

/* Behind `import`: modules, each perhaps with a name of its own. */
static bool import_suits(struct words *w)
{
	do {
		bool is_sys;

		skip_space(w);
		if (!take_word(w))
			return false;
		is_sys = str_equal(w->word, "sys");
		if (!is_sys && !is_in(computing, w->word))
			return false;
		while (take_byte(w, '.')) {
			skip_space(w);
			if (is_sys || !take_word(w) || !word_suits(w))
				return false;
		}
		skip_space(w);
		if (w->end - w->at > 2 && str_starts(w->at, "as") && !is_word_byte(w->at[2])) {
			w->at += 2;
			skip_space(w);
			if (is_sys || !take_word(w) || !word_suits(w))
				return false;
		}
	} while (take_byte(w, ','));
	return true;
}

bool standalone_code(const char *code, size_t len)
{
	struct words w = {.at = code, .end = code + len};

	if (len > CODE_MAX || !is_plain(code, len))
		return false;
	while (w.at < w.end) {
		if (!take_word(&w))
			w.at++;
		else if (str_equal(w.word, "import") ? !import_suits(&w)
			 : str_equal(w.word, "from") ? !from_suits(&w)
			 : str_equal(w.word, "sys")  ? !sys_suits(&w)
						     : !word_suits(&w))
			return false;
	}
	return true;
}

bool standalone_is_shadow(const char *name)
{
	size_t len = strcspn(name, ".");
	char word[WORD_MAX + 1];

	if (len == 0 || len > WORD_MAX || (name[0] == '_' && name[1] == '_'))
		return false;
	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	return name[0] == '_' || is_in(computing, word) || is_in(loaded, word);
}
