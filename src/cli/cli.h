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
/* A RUN of an image that is built; cloche itself starts it (image/build/run.c). */
int cmd_image_step(int argc, char **argv);
int cmd_help(int argc, char **argv);
/* Prints the list of all verbs. */
void cli_print_overview(FILE *to);
/* Executes cloched in place of the launcher. argv begins with the program's name. */
int cli_run_helper(char **argv);

/* Prints "cloche: MESSAGE" to stderr and returns EXIT_CLOCHE. */
int cli_fail(const struct err *e);
/*
 * The same, and prints {"error":{...}} to stdout in place of the record. The second does so only
 * with --json.
 */
int cli_fail_json(const struct err *e);
int cli_fail_spec(const struct sandbox_spec *s, const struct err *e);
/* The name of a field as an option has it, with dashes. */
void cli_option_name(const char *field, char *ret, size_t size);
/* One line of help. letter, metavar: 0 and NULL if there is none; name with dashes. */
struct option_help {
	char letter;
	const char *name, *metavar, *help;
};
void cli_print_option(const struct option_help *o, int width);
/* The path of another program of cloche: beside our own executable, else in its installed place. */
int cli_find_helper(const char *name, char *ret, size_t size);
bool cli_is_one_of(const char *word, const char *const *words, size_t count);
/* Removes a directory and all in it, as far as possible. Follows no link, enters no mount. */
void cli_remove_tree(const char *path);

/*
 * Parses options into a spec. Stops at the first argument that is not an option, or after "--";
 * returns its index, or -1. With for_code, "-e" sets code instead of a field of the spec.
 */
struct options {
	const char *verb; /* the verb whose help lists the options */
	const char *code; /* `cloche code -e CODE` */
	const char *lang; /* `cloche code --lang L` */
	bool for_code;
	bool help;
	bool no_daemon; /* run here, even if a daemon has a sandbox ready */
};
int options_parse(struct sandbox_spec *s, int argc, char **argv, struct options *o, struct err *e);

/* Runs the finished spec and reports. Returns the exit status of cloche. */
struct sandbox_request;
struct result;
struct language;
int run_and_report(struct sandbox_request *request, const struct language *language,
		   bool no_daemon);
/*
 * What an image of the store says, before spec_finish: its command, and root inside if that is its user and no other
 * was given.
 */
int run_take_image(struct sandbox_spec *s, bool needs_command, struct err *e);
/* Tells people on stderr how the run ended, and what was refused or discarded. */
void run_report(const struct result *r, const struct sandbox_spec *s);
/*
 * Runs in a sandbox that this user's daemon has ready. False: not possible, and nothing was
 * printed.
 */
bool daemon_run(struct sandbox_request *r, int *ret_status);
