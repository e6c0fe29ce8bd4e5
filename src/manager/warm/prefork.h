/*
 * A parked process of a sandbox, which has loaded what takes long and makes copies of itself
 * (guest/exec/prefork.h): started, watched, lost. One that does not work is a loss of time, nothing else.
 */
#pragma once

#include "base/loop.h"
#include "manager/manager.h"

#define PARK_CHANGED 3 /* its exit status: it would load other modules today */

enum park_state { PARK_NONE, PARK_STARTING, PARK_READY };

struct park {
	enum park_state state;
	uint32_t eid;
	unsigned failures;
	/* It is ready, or lost. */
	void (*changed)(void *arg);
	void *arg;
	/* ---- its own ---- */
	struct exec *exec;
	struct loop *loop;
	struct loop_timer deadline;
	struct exec_source source;
	size_t printed;
};

struct park_program {
	struct exec_request request;
	const void *input; /* for its stdin; lives as long as the park; or NULL */
	size_t input_len;
};

void park_start(struct park *p, struct sandbox *s, const struct park_program *what);
/* One that an earlier daemon has started. */
void park_adopt(struct park *p, struct sandbox *s, uint32_t eid);
/* Not looked after any more. */
void park_drop(struct park *p);
/* It has failed too often. */
bool park_is_hopeless(const struct park *p);
