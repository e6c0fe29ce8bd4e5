/* Shared by the files of the kernels; kernel.h is for the rest. */
#pragma once

#include "api/e2b/kernel.h"
#include "calls/pump.h"
#include "manager/warm/prefork.h"

#define KERNEL_TAG E2B_HIDDEN_TAG "kernel:" /* then ID:LANGUAGE */
#define KERNEL_PREFORK_TAG E2B_HIDDEN_TAG "park"

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
};

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
/* Handles the complete lines that the kernel has sent. */
void kernel_read_lines(struct context *c);
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
/* Starts the process unless there is one. */
void kernel_go(struct context *c);
/* Writes the files of the kernels into the sandbox; contexts that wait for them go on. */
void kernel_place(struct kernel_set *k);
/* The prefork has changed: contexts that wait for it go on. */
void kernel_on_prefork(void *arg);

/* ---- contexts (kernel.c) ---- */
void kernel_context_free(struct context *c);
