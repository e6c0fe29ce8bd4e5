#include "model/language.h"

/* The first one is the default. */
const struct language languages[] = {
	{"python", ".py", {"python3"}, " python3 py "},
	{"bash", ".sh", {"bash"}, " "},
	{"sh", ".sh", {"sh"}, " shell "},
	{"node", ".js", {"node"}, " javascript js nodejs "},
	{"typescript", ".ts", {"node", "--experimental-strip-types"}, " ts "},
	{"perl", ".pl", {"perl"}, " pl "},
	{"ruby", ".rb", {"ruby"}, " rb "},
	{"php", ".php", {"php"}, " "},
	{"lua", ".lua", {"lua"}, " "},
	{"r", ".r", {"Rscript"}, " R rscript "},
	{"julia", ".jl", {"julia"}, " jl "},
	{"awk", ".awk", {"awk", "-f"}, " "},
	{"tcl", ".tcl", {"tclsh"}, " tclsh "},
};
const size_t language_count = ARRAY_LEN(languages);

const struct language *language_find(const char *name, const char *field, struct err *e)
{
	char word[32], all[256] = "";

	snprintf(word, sizeof(word), " %.28s ", name);
	for (size_t i = 0; i < language_count; i++)
		if (str_equal(name, languages[i].name) ||
		    (!strchr(name, ' ') && strstr(languages[i].aliases, word)))
			return &languages[i];
	for (size_t i = 0; i < language_count; i++)
		str_append(all, sizeof(all), ", ", "%s", languages[i].name);
	err_field(e, ERR_INVALID, field, "%s: '%.40s' is not known; there are %s", field, name,
		  all);
	return NULL;
}

const struct language *language_of_ending(const char *ending)
{
	for (size_t i = 0; i < language_count; i++)
		if (str_equal(ending, languages[i].ending))
			return &languages[i];
	return NULL;
}

void language_command(const struct language *l, const char *file, struct list *argv)
{
	for (size_t i = 0; i < ARRAY_LEN(l->program) && l->program[i]; i++)
		list_add(argv, l->program[i]);
	list_add(argv, file);
}

const char *language_note(const struct language *l, int status)
{
	if (str_equal(l->name, "typescript") && status == 9)
		return "Node.js ends with status 9 if it does not know an option: TypeScript needs "
		       "22.6 or later.";
	return NULL;
}
