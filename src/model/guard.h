/*
 * The Python guard: how guest/python/guard.py is called, and what it reports.
 *
 * To run a snippet under the guard: put GUARD_FILES into GUARD_DIR and run the argv of guard_argv(). When
 * everything inside is dead, read the file GUARD_REPORT in the sandbox's /tmp and pass it to
 * guard_read_report().
 *
 * The report only informs: code inside can forge it. It is bounded, its texts are sanitised, and
 * the words of an explanation are ours. How the run ended still comes from the kernel.
 */
#pragma once

#include "base/base.h"
#include "model/guest_files.h"
#include "model/result.h"
#include "model/spec.h"

#define GUARD_DIR "/run/guard"
/* The files that have to be there under their own names. */
#define GUARD_FILES                                                                                \
	{                                                                                          \
		&guest_file_guard_py, &guest_file_guard_rules_py                                   \
	}
#define GUARD_PROGRAM GUARD_DIR "/guard.py"
/* A name in TMPDIR, or in /tmp. */
#define GUARD_REPORT ".cloche-guard"
/* Names in each of the lists. */
#define GUARD_NAMES 256
/* The rest of a longer report is ignored. */
#define GUARD_REPORT_BYTES (64u << 10)
/* Denials that one report can make. */
#define GUARD_DENIALS 32

struct guard_call {
	enum guard profile;
	const struct list *allow, *deny,
		*nodes;	     /* names of modules and of kinds of code, or NULL */
	const char *python;  /* NULL: python3 */
	const char *program; /* NULL: GUARD_PROGRAM */
	const char *report;  /* NULL: GUARD_REPORT */
	const char *snippet; /* its path inside */
};

const char *guard_name(enum guard profile);
/* Appends the command that runs the snippet; the snippet's own arguments follow. */
void guard_argv(const struct guard_call *call, struct list *argv);
/* For everything that is not a Python snippet: an error if the spec asks for a guard. */
int guard_refuse(const struct sandbox_spec *s, struct err *e);
/* Is this a module's or node's name? Lists of other things never reach the guard. */
bool guard_is_name(const char *name);

struct guard_report {
	struct denial denials[GUARD_DENIALS];
	size_t count;
	unsigned noted[4]; /* files, processes, sockets, ctypes: seen, not refused */
};
void guard_read_report(enum guard profile, const char *data, size_t size, struct guard_report *ret);
/* Adds denials and notes of a report to a record. */
void guard_add_report(enum guard profile, const char *data, size_t size, struct result *r);
/* Lists what was noted in one sentence; false if there is nothing. */
bool guard_format_notes(const struct guard_report *report, char *buf, size_t size);
