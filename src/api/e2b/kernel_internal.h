/* What the files of the kernels share; e2b_kernel.h is for everybody else. */
#pragma once

#include "api/e2b/kernel.h"
#include "calls/pump.h"
#include "manager/warm/prefork.h"

#define KERNEL_TAG E2B_HIDDEN_TAG "kernel:" /* then ID:LANGUAGE */
#define KERNEL_PREFORK_TAG E2B_HIDDEN_TAG "park"

struct kernel_language {
	const char *name, *alias, *program, *file;
};

/* WAITING: for the kernels' files, or for the parked process. */
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
	bool is_telling; /* executions are being ended: not to be freed now */
	bool restarting;
	bool is_copy, was_refused; /* of the parked process; by it */
	struct exec *exec;
	uint32_t eid;
	struct buf line, input; /* from it, and for it */
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
	bool known; /* kernels of an earlier daemon were looked for */
	bool placed;
	struct call *placing;
	size_t file; /* being placed */
	struct prefork prefork;
	bool is_prefork_wanted; /* as soon as its files are there */
};

/* ---- executions (e2b_kernel_run.c) ---- */
/* Takes the first one out of the queue and ends it. */
void kernel_end_first(struct context *c, enum execution_end how, const char *why);
void kernel_fail_first(struct context *c, const char *name, const char *value);
/* All of them; false: the context was removed meanwhile, and is freed. */
bool kernel_fail_all(struct context *c, const char *name, const char *value);
/*
 * Ends all with EXECUTION_CUT; false as above. The one that runs goes on unheard, unless the kernel is
 * lost.
 */
bool kernel_cut_all(struct context *c, bool is_lost);
/* Takes what the kernel has said so far, line by line. */
void kernel_read_lines(struct context *c);
/* Hands the first of the queue to the kernel, if that is free. */
void kernel_next(struct context *c);

/* ---- its process (e2b_kernel_process.c) ---- */
extern const struct exec_ops kernel_process_ops;
/* The process of the context from now on; NULL: none. */
void kernel_watch(struct context *c, struct exec *exec);
/* NULL: it is not running. */
struct sandbox *kernel_sandbox(const struct kernel_set *k);
void kernel_signal(struct context *c, int sig, bool tree);
void kernel_feed(void *arg);
void kernel_on_overdue(void *arg);
/* Starts it, if it is not there. */
void kernel_go(struct context *c);
/* The files that kernels are made of; contexts that wait for them go on. */
void kernel_place(struct kernel_set *k);
/* The parked process has changed: contexts that wait for it go on. */
void kernel_on_prefork(void *arg);

/* ---- contexts (e2b_kernel.c) ---- */
void kernel_context_free(struct context *c);
