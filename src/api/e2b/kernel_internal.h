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
#include "base/json_scan.h"
#include "manager/warm/prefork.h"

#define KERNEL_TAG E2B_HIDDEN_TAG "kernel:" /* then ID:LANGUAGE */
#define KERNEL_PREFORK_TAG E2B_HIDDEN_TAG "park"

enum execution_end {
	EXECUTION_DONE,
	EXECUTION_FAILED, /* the kernel did not run it to its end; why gives the reason */
	EXECUTION_CUT,	  /* the sandbox was paused or is gone */
};

struct execution_ops {
	/* One JSON object for the client, without a line end. May be NULL. */
	void (*on_line)(void *arg, const char *text, size_t len);
	/* The last callback. The context may be removed from within. */
	void (*on_end)(void *arg, enum execution_end how, const char *why);
	/* Bytes that the client can take; 0: output waits in the guest meanwhile. */
	size_t (*room)(void *arg);
};

struct kernel_language {
	const char *name, *alias, *program, *file;
};

/* WAITING: for the kernels' files, or for the prefork. */
enum kernel_state { IDLE, WAITING, STARTING, READY };

struct execution {
	struct execution *next;
	struct context *context;
	uint64_t id;
	json_t *request;		 /* NULL: waits until the kernel is ready */
	const struct execution_ops *ops; /* NULL: abandoned */
	void *arg;
};

struct context {
	struct context *next;
	struct kernel_set *set;
	char id[40];
	const struct kernel_language *language;
	char *cwd;
	enum kernel_state state;
	bool active;	 /* the first of the queue is with the kernel */
	bool doomed;	 /* removed; freed when its process has ended */
	bool is_telling; /* executions are being ended: must not be freed now */
	bool restarting;
	bool is_copy, was_refused; /* of the prefork; by the prefork */
	struct exec *exec;
	uint32_t eid;
	struct buf line, input; /* bytes from the process, and for it */
	size_t scanned;		/* of line: checked by scan; there is no line end in it */
	struct json_scan scan;
	size_t counted;		  /* of line, in the owner's share of output */
	size_t unmoved;		  /* of line: not yet reported to the pump */
	struct loop_task reading; /* goes on with lines that one turn was too short for */
	char *ended;		  /* why the process ended; told after its last lines */
	struct pump pump;
	uint64_t next_id;
	struct execution *queue;
	struct loop_timer overdue;
};

/* The kernels of one sandbox. */
struct kernel_set {
	struct kernel_set *next;
	struct api *api;
	char id[IPC_ID];
	struct waiter *wait;
	struct context *contexts;
	bool known; /* kernels of an earlier daemon were searched for */
	bool placed;
	struct call *placing;
	size_t file; /* being placed */
	struct prefork prefork;
	bool is_prefork_wanted; /* as soon as its files are in place */
	struct loop_user *user; /* the owner of the sandbox, */
	struct budget *output;	/* and the owner's share */
};

/* ---- for the doors ---- */
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

/* ---- executions (kernel_run.c) ---- */
/* Takes the first one out of the queue and ends it with an error. */
void kernel_fail_first(struct context *c, const char *name, const char *value);
/* All of them; false: the context was removed meanwhile, and is freed. */
bool kernel_fail_all(struct context *c, const char *name, const char *value);
/*
 * Ends all with EXECUTION_CUT; false as above. The running one goes on without a client, unless the
 * kernel is lost.
 */
bool kernel_cut_all(struct context *c, bool is_lost);
/* The kernel has sent bytes. Handles the complete lines, as many as a turn has time for. */
void kernel_take_bytes(struct context *c, const char *bytes, size_t len);
void kernel_read_lines(void *context);
void kernel_forget_bytes(struct context *c);
/* Hands the first of the queue to the kernel, if the kernel is free. */
void kernel_next(struct context *c);

/* ---- the process of a context (kernel_process.c) ---- */
extern const struct exec_ops kernel_process_ops;
/* The process of the context from now on; NULL: none. */
void kernel_watch(struct context *c, struct exec *exec);
/* NULL: the sandbox is not running. */
struct sandbox *kernel_sandbox(const struct kernel_set *k);
void kernel_signal(struct context *c, int sig, bool tree);
void kernel_feed(void *arg);
void kernel_on_overdue(void *arg);
/* The process has ended, was killed, or could not be started. */
void kernel_process_over(struct context *c, const char *why);
/* Starts the process unless there is one. */
void kernel_go(struct context *c);
/* Writes the files of the kernels into the sandbox; contexts that wait for them go on. */
void kernel_place(struct kernel_set *k);
/* The prefork has changed: contexts that wait for it go on. */
void kernel_on_prefork(void *arg);

/* ---- contexts (kernel.c) ---- */
void kernel_context_free(struct context *c);
