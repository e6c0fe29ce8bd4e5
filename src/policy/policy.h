/*
 * Policy files: a whole sandbox_spec as YAML, by the same field table as the command line.
 *
 *   struct policy p;
 *   policy_load("strict", &p, &e);      a file, or the bare name of a shipped policy
 *   policy_judge(&p, &e);               would its mount sources be refused on this host?
 *   policy_explain(&p, stdout);         or hand p.names[i], p.values[i] to spec_set
 *   policy_done(&p);
 *
 * An unknown key or value is refused, with FILE:LINE in front of the message. Relative host
 * paths are relative to the directory of the file, so that a policy means the same from anywhere.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"

struct policy {
	char *file; /* its name in messages */
	char *dir;  /* absolute; relative paths begin here */
	char *description;
	struct sandbox_spec spec;  /* finished */
	struct list names, values; /* the arguments of spec_set, in the order of the file */
	unsigned *lines;	   /* of each of them in the file */
};

/* Opens, reads and checks a file. */
int policy_load(const char *file_or_name, struct policy *ret, struct err *e);
/* The same for text in memory. */
struct policy_text {
	const char *file; /* for messages */
	const char *dir;
	const char *text;
	size_t len;
};
int policy_parse(const struct policy_text *from, struct policy *ret, struct err *e);
void policy_done(struct policy *p);

/* Refuses host paths that are forbidden on this host; paths that do not exist pass. */
int policy_judge(const struct policy *p, struct err *e);
/* Prints the steps of a run under this policy, in order. */
void policy_explain(const struct policy *p, FILE *to);

/* The path of a shipped policy NAME.yaml; NULL if there is none. The caller frees it. */
char *policy_find_shipped(const char *name);
/* The same for what else is shipped beside policies: a directory. */
char *policy_find_shipped_directory(const char *name);
