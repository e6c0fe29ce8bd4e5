/*
 * The probe: attacks a sandbox from inside, one case per row of a table.
 *
 *   cloche-probe --list                             the rows, one per line, tab-separated
 *   cloche-probe [NAME=VALUE...] [CASE...]          try them (all without CASE), one line each:
 *         name <TAB> refused|got-through|cannot-tell <TAB> detail
 *   cloche-probe --control [NAME=VALUE...] [CASE...]
 *         the same tries outside of any sandbox: each must get through, or its refusal proves nothing
 *   cloche-probe --plant TAG [DIR [RODIR [RWDIR]]]
 *         put down what the cases reach for, until stdin ends
 *   cloche-probe --act NAME TAG                     do something that is judged from outside
 *
 * NAME=VALUE tells the cases what the runner planted outside (its canaries). A case really tries
 * the effect and looks whether it came about; what it touches is a canary, or is put back as it
 * was, so that a sandbox that does not hold costs the host nothing.
 */
#pragma once

#include "model/layer.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum verdict { VERDICT_NONE, VERDICT_REFUSED, VERDICT_CANNOT_TELL, VERDICT_GOT_THROUGH };

enum case_flags {
	SAFE = 1,	    /* harmless on a user's host: part of `cloche selftest` */
	CONTAINER_ONLY = 2, /* makes no sense at level process */
	WEAK = 4,	 /* may get through where the record has one of its layers in `missing` */
	CONTROL_NS = 8,	 /* its control needs throwaway namespaces */
	NO_CONTROL = 16, /* cannot be tried outside without harm */
	KILL_OK = 32,	 /* being killed is a refusal */
	GAP = 64,	 /* a gap that SECURITY.md names: shown, not counted */
	OUTSIDE = 128,	 /* an act: the runner looks at the host afterwards */
	BY_HIT = 256,	 /* the effect is seen by the planted process only */
};

struct probe;

struct probe_case {
	const char *name;
	int attack; /* number in the list of attacks; 0: our own addition */
	const char *title;
	unsigned flags;
	layer_set layers; /* what refuses it: each of these alone, where the level has it */
	/* How the runner has to start it: NULL for the common sandbox, else words of run.py's
	 * table. */
	const char *setup;
	void (*run)(struct probe *p);
	const void *arg; /* for rows that share a function */
};

#define L(name) LAYER_BIT(LAYER_##name)

struct case_group {
	const struct probe_case *cases;
	size_t count;
};

extern const struct case_group group_files, group_readonly, group_setid, group_workspace,
	group_processes, group_calls, group_abi, group_exec, group_families, group_network,
	group_unix, group_leaks, group_writes, group_devices, group_limits, group_layers,
	group_shared, group_acts;

/* What a case knows, and what it found out. Lives in memory shared with the parent. */
struct probe {
	const struct probe_case *c;
	bool control;
	pid_t boss; /* who started the probe: the sandbox's supervisor */
	enum verdict verdict;
	char detail[300];
};

/*
 * Verdicts. A case may make several tries: the worst counts (got through, then cannot tell), and
 * the detail is that of the worst.
 */
void refused(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void got_through(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cannot_tell(struct probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Cannot tell because there is nothing of the kind here: runners count it as skipped. */
void not_here(struct probe *p, const char *what);

/* A list of error numbers, ended by 0. */
#define ERRS(...) ((const int[]){__VA_ARGS__, 0})
/* What a hidden or closed path may answer. */
#define HIDDEN ERRS(ENOENT, EACCES, EPERM, ENOTDIR, ELOOP)
#define READ_ONLY ERRS(EROFS, EACCES, EPERM)

/* True if err is in the list. */
bool among(int err, const int *errs);
const char *errno_name(int err);
/*
 * Judges one call by its return value and errno: success got through, an errno of the list is the
 * expected refusal, any other leaves it open.
 */
void judge(struct probe *p, const char *what, long rc, const int *errs);

/* A canary by name; NULL and "cannot tell" if the runner did not give it. */
const char *need(struct probe *p, const char *name);
/* The same without a verdict. */
const char *given(const char *name);
/* Takes "NAME=VALUE" in. */
void canary_add(char *text);

/* Paths in static storage, four calls deep. */
const char *fmt_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A new empty directory that the case may fill; NULL and "cannot tell" if none can be made. */
const char *scratch_dir(struct probe *p);
/* Up to size-1 bytes of a file, NUL-terminated; -1 with errno if it cannot be opened or read. */
ssize_t read_text(const char *path, char *buf, size_t size);
/* Makes a file with these bytes. */
int write_text(const char *path, const char *text);
/* Reads path and judges: the runner's token in it is got through. */
void try_read(struct probe *p, const char *path);
/* Runs a program, stdout captured; its wait status, or -1. */
int run_program(char *const argv[], char *out, size_t size);
/* Removes a tree that the case made. */
void remove_tree(const char *path);
void msleep(unsigned ms);

/* plant.c */
int plant_main(int argc, char **argv);
/* The key of the SysV objects of a tag. */
int plant_key(const char *tag);
/* control.c: moves this process into namespaces of its own with all power over them; 0 or -1. */
int control_enter(void);
/* case_acts.c */
int act_main(int argc, char **argv);
