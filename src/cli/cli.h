/* The launcher's commands: one file each, one row each in the table of cloche.c. */
#pragma once

#include "base/base.h"
#include "model/spec.h"

#define CLOCHE_VERSION "0.2.0"

/* Exit status when cloche itself could not do its work. */
#define EXIT_CLOCHE 125

int cmd_run(int argc, char **argv);
int cmd_code(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_help(int argc, char **argv);
/* All verbs, for those who named none. */
void cli_print_overview(FILE *to);
/* Executes cloched in our place for a verb that is its; argv from the program's name on. */
int cli_run_helper(char **argv);

/* Prints "cloche: MESSAGE" to stderr and returns EXIT_CLOCHE. */
int cli_fail(const struct err *e);
/* The same, and {"error":{...}} to stdout, where the record would be; the second only with --json. */
int cli_fail_json(const struct err *e);
int cli_fail_spec(const struct sandbox_spec *s, const struct err *e);
/* The name of a field as an option: with dashes. */
void cli_option_name(const char *field, char *ret, size_t size);
/* One line of help. letter, metavar: 0 and NULL if there is none; name with dashes. */
struct option_help {
	char letter;
	const char *name, *metavar, *help;
};
void cli_print_option(const struct option_help *o, int width);
/* Path of another of our programs: beside our own executable, else where each is installed. */
int cli_find_helper(const char *name, char *ret, size_t size);
bool cli_is_one_of(const char *word, const char *const *words, size_t count);
/* Removes a directory of ours and what is in it, as far as that can be; follows no link, enters no mount. */
void cli_remove_tree(const char *path);

/*
 * Options into a spec. Stops at the first argument that is no option, or after "--"; returns its
 * index, or -1. With for_code, "-e" is not an option of the spec but returned through it.
 */
struct options {
	const char *verb; /* whose help has them */
	const char *code; /* `cloche code -e CODE` */
	const char *lang; /* `cloche code --lang L` */
	bool for_code;
	bool help;
	bool no_daemon; /* do it here, even if a daemon could do it at once */
};
int options_parse(struct sandbox_spec *s, int argc, char **argv, struct options *o, struct err *e);

/* Runs the finished spec and reports; the exit status of the program. */
struct sandbox_request;
struct result;
struct language;
int run_and_report(const struct sandbox_request *request, const struct language *language,
		   bool no_daemon);
/* For people: what they would otherwise wonder about, on stderr. */
void run_report(const struct result *r, const struct sandbox_spec *s);
/* In a sandbox that this user's daemon has ready; false: not like that, and nothing was printed. */
bool daemon_run(const struct sandbox_request *r, int *ret_status);
