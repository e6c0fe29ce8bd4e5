/*
 * Sandboxes: one command, isolated, limited, watched, explained.
 *
 * Theory of operation
 *
 *   keeper   this process, outside. Opens and judges the sources, makes the cgroup and the user
 *            namespaces, passes on signals, captures output, watches the clock, and in the end
 *            says what happened. (keeper.c, plan.c)
 *   pid 1    a fork of the keeper in new namespaces. Builds the root (root.c), gives up every
 *            privilege, then reaps and answers the notifications of the seccomp filter (init.c).
 *   command  pid 2: made by pid 1 after the last layer; tries each layer (verify.c), then execs.
 *
 * keeper and pid 1 work at the same time: while pid 1 makes a network namespace and mounts, the
 * keeper makes cgroups and user namespaces and sends their fds over a socket. What happened inside
 * comes back through a shared page (status_page.h). If the keeper dies, pid 1 dies with it, and with
 * pid 1 the kernel kills everything in its pid namespace.
 */
#pragma once

#include "model/result.h"
#include "sandbox/plan/plan.h"

struct sandbox_request {
	const struct sandbox_spec *spec;   /* finished by spec_finish */
	const struct injected_file *files; /* besides the spec's own */
	size_t file_count;
	const char *seccomp_compiler; /* the program for spec->seccomp, or NULL */
	const char *egress;	      /* the program for a network, or NULL */
	int net_rules; /* file: its rules, compiled, instead of those of the spec; 0: there is none */
	const struct root_saving *saving; /* or NULL */
	struct list extra_env;		  /* K=V, before the caller's */
	int early_signal;		  /* one that came before, to be passed on; 0: none */
	char **own_argv; /* of the launcher, or NULL: wiped in pid 1, so that /proc/1 does not show it */
};

/*
 * Runs spec->argv to its end. 0: ret is filled in (the command ran, or could not be found or
 * executed inside: exit code 127 or 126). -1: cloche could not do its work.
 */
int sandbox_run(const struct sandbox_request *request, struct result *ret, struct err *e);
/*
 * Maps the stack that sandbox_run needs by one call, instead of a page fault for each page. Call it
 * before sandbox_run, not from within.
 */
void sandbox_fault_stack_in(void);
/* Is the stack as large as sandbox_run needs? Checked there as well, but a small one may not reach that far. */
int sandbox_check_stack(struct err *e);
