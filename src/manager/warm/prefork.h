/*
 * A parked process of a sandbox, which has loaded what takes long and makes copies of itself
 * (guest/exec/prefork.h): started, watched, lost. One that does not work is a loss of time, nothing else.
 */
#pragma once

#include "base/loop.h"
#include "manager/manager.h"

#define PREFORK_CHANGED 3 /* its exit status: it would load other modules today */

enum prefork_state { PREFORK_NONE, PREFORK_STARTING, PREFORK_READY };

struct prefork {
	enum prefork_state state;
	uint32_t eid;
	unsigned failures;
	/* It is ready, or lost; may be NULL. */
	void (*changed)(void *arg);
	void *arg;
	/* ---- its own ---- */
	struct exec *exec;
	struct loop *loop;
	struct loop_timer deadline;
	size_t printed;
};

struct prefork_program {
	struct exec_request request;
	const void *input; /* for its stdin; lives as long as the prefork; or NULL */
	size_t input_len;
};

void prefork_start(struct prefork *p, struct sandbox *s, const struct prefork_program *what);
/* One that an earlier daemon has started. */
void prefork_adopt(struct prefork *p, struct sandbox *s, uint32_t eid);
/* Not looked after any more. */
void prefork_drop(struct prefork *p);
/* It has failed too often. */
bool prefork_is_hopeless(const struct prefork *p);
