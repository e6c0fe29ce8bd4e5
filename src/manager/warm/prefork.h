/*
 * Starts and watches a prefork: a process of a sandbox that has loaded slow modules and makes copies of
 * itself (guest/exec/prefork.c). A prefork that fails costs time, nothing else.
 */
#pragma once

#include "base/loop.h"
#include "manager/manager.h"

#define PREFORK_CHANGED 3 /* its exit status: the modules have changed since it loaded them */

enum prefork_state { PREFORK_NONE, PREFORK_STARTING, PREFORK_READY };

struct prefork {
	enum prefork_state state;
	uint32_t eid;
	unsigned failures;
	/* The prefork is ready, or lost; may be NULL. */
	void (*changed)(void *arg);
	void *arg;
	/* ---- private ---- */
	struct exec *exec;
	struct loop *loop;
	struct loop_timer deadline;
	size_t printed;
};

struct prefork_program {
	struct exec_request request;
	const void *input; /* for its stdin; must live as long as the prefork; or NULL */
	size_t input_len;
};

void prefork_start(struct prefork *p, struct sandbox *s, const struct prefork_program *what);
/* Takes over a prefork that an earlier daemon has started. */
void prefork_adopt(struct prefork *p, struct sandbox *s, uint32_t eid);
/* Stops watching; the process itself is not touched. */
void prefork_drop(struct prefork *p);
/* Has the prefork failed too often to be started again? */
bool prefork_is_hopeless(const struct prefork *p);
