/*
 * Kernels of the code interpreter: one process inside the sandbox for each context, which keeps the
 * state of what was executed (the protocol: guest/python/kernel.py). Executions of a context are
 * queued, one runs at a time. All of it lives and dies with its sandbox; it is found again by id.
 *
 *   kernel_open(api, sandbox, then, arg);         once, before the rest
 *   struct context *c = kernel_default(api, sandbox, "python", &e);
 *   kernel_execute(c, &request, &ops, arg);       lines of the answer, then the end, exactly once
 */
#pragma once

#include "api/e2b.h"

struct context;
struct execution;

struct execution_ops {
	/* One object of the answer, without a line end: for the client as it is. */
	void (*on_line)(void *arg, const char *text, size_t len);
	/* The last callback. cut: the sandbox was paused or is gone. */
	void (*on_end)(void *arg, bool cut);
	/* Room for more? Output waits in the guest meanwhile. */
	bool (*has_room)(void *arg);
};

/* "python" for NULL and "py", "javascript" for "js" ...; NULL: none that we have. */
const char *kernel_language(const char *name);

/*
 * Before anything else: finds the kernels that an earlier daemon left running. done comes at once if
 * that is known, else later; the sandbox may have gone meanwhile.
 */
void kernel_open(struct api *api, struct sandbox *s, void (*done)(void *arg), void *arg);

/* A new sandbox that is going to have kernels: they will be there at once. */
void kernel_expect(struct api *api, struct sandbox *s);

/* The context of a language that is always there. */
struct context *kernel_default(struct api *api, struct sandbox *s, const char *language);
struct context *kernel_find(struct api *api, struct sandbox *s, const char *id);
/* A new one. NULL: too many. */
struct context *kernel_new(struct api *api, struct sandbox *s, const char *language,
			   const char *cwd, struct err *e);
/* Every context, the default ones of python and javascript first. */
json_t *kernel_list(struct api *api, struct sandbox *s);
json_t *kernel_describe(const struct context *c);
/* Ends the process, what is queued, and the context. */
void kernel_remove(struct context *c);

/* Calls done when it is ready to execute: e NULL; or it cannot be. restart: with fresh state. */
typedef void (*kernel_ready)(void *arg, const struct err *e);
void kernel_start(struct context *c, bool restart, kernel_ready done, void *arg);

/* env may be NULL; nothing is kept of the arguments. NULL: too many are waiting. */
struct execution *kernel_execute(struct context *c, const char *code, json_t *env,
				 const struct execution_ops *ops, void *arg);
/* Nobody listens any more: it is interrupted. No more callbacks. */
void kernel_abandon(struct execution *r);
/* has_room may say yes again. */
void kernel_room(struct execution *r);
