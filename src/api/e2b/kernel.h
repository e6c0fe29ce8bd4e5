/*
 * Kernels of the code interpreter: one process inside the sandbox for each context, which keeps the
 * variables of the code it ran (the protocol: guest/python/kernel.py). Executions of a context are
 * queued; one runs at a time. Contexts end with their sandbox and are found by id.
 *
 *   kernel_open(q, s);                            once, before the rest
 *   struct context *c = kernel_default(api, sandbox, language);
 *   kernel_execute(c, code, env, &ops, arg);      lines of the answer, then the end, exactly once
 */
#pragma once

#include "api/e2b/e2b_internal.h"

struct context;
struct execution;
struct kernel_language;

enum execution_end {
	EXECUTION_DONE,
	EXECUTION_FAILED, /* the kernel did not execute it, or not to its end; why says the reason */
	EXECUTION_CUT,	  /* the sandbox was paused or is gone */
};

struct execution_ops {
	/* One object of the answer, without a line end: for the client as it is. May be NULL. */
	void (*on_line)(void *arg, const char *text, size_t len);
	/* The last callback. The context may be removed from within. */
	void (*on_end)(void *arg, enum execution_end how, const char *why);
	/* Room for more; 0: output waits in the guest meanwhile. */
	size_t (*room)(void *arg);
};

/* Python for NULL and "py", JavaScript for "js" ...; NULL: not supported. */
const struct kernel_language *kernel_language(const char *name);

/*
 * Before anything else: finds the kernels that an earlier daemon left running, then calls the method
 * of the request, or answers that the sandbox has gone.
 */
void kernel_open(struct e2b_request *q, struct sandbox *s);

/* A new sandbox that is going to have kernels: prepares them, so that they start at once. */
void kernel_expect(struct api *api, struct sandbox *s);

/* The default context of a language. */
struct context *kernel_default(struct api *api, struct sandbox *s,
			       const struct kernel_language *language);
struct context *kernel_find(struct api *api, struct sandbox *s, const char *id);
/* A new one. NULL: too many. */
struct context *kernel_new(struct api *api, struct sandbox *s,
			   const struct kernel_language *language, const char *cwd, struct err *e);
/* Every context, the default ones of python and javascript first. */
json_t *kernel_list(struct api *api, struct sandbox *s);
json_t *kernel_describe(const struct context *c);
/* Ends the process, the queued executions, and the context. */
void kernel_remove(struct context *c);

/* env may be NULL; the arguments are copied. NULL: too many are waiting. */
struct execution *kernel_execute(struct context *c, const char *code, json_t *env,
				 const struct execution_ops *ops, void *arg);
/* An execution of nothing: done when the kernel is ready. restart: with fresh state. */
void kernel_start(struct context *c, bool restart, const struct execution_ops *ops, void *arg);
/* The client has gone: interrupts the execution. No more callbacks. */
void kernel_abandon(struct execution *r);
/* There may be room again. */
void kernel_room(struct execution *r);
