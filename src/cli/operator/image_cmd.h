/* What the files of `cloche image` share. */
#pragma once

#include "cli/verbs/client_verb.h"
#include "image/make/make.h"

struct image_programs {
	char worker[PATH_MAX], guest[PATH_MAX];
};

/* Call image_maker_close in any case. */
int image_cmd_open(struct image_maker *m, struct image_programs *p, struct err *e);

/* ---- image_build_cmd.c ---- */

/* Passed on to each RUN. */
#define IMAGE_RUN_OPTIONS                                                                          \
	{"net", 0, "MODE", "the network of each RUN: as for run", "none"},                         \
		{"allow", 0, "RULE", "what RUN may reach; repeatable", NULL},                      \
		{"deny", 0, "RULE", "what it may not; repeatable", NULL},                          \
		{"memory", 'm', "BYTES", "memory of each RUN", "4G"},                              \
		{"disk", 0, "BYTES", "what each RUN may write, in memory", "memory"},              \
		{"cpus", 0, "N", "processors of each RUN", NULL},                                  \
		{"pids", 0, "N", "processes of each RUN", NULL},                                   \
	{                                                                                          \
		"timeout", 0, "TIME", "of each RUN", "1800s"                                       \
	}

int image_cmd_build(struct verb_call *v, struct err *e);
int image_cmd_make(struct verb_call *v, struct err *e);
int image_cmd_refresh(struct verb_call *v, struct err *e);
