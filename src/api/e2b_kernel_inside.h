/* What the files of the kernels share; e2b_kernel.h is for everybody else. */
#pragma once

#include "api/e2b_kernel.h"
#include "manager/park.h"

#define KERNEL_TAG E2B_HIDDEN_TAG "kernel:" /* then ID:LANGUAGE */
#define KERNEL_PIECE (32u << 10)

#define KERNEL_PARK_TAG E2B_HIDDEN_TAG "park"
#define KERNEL_DIR "/tmp/.cloche"

enum kernel_state { IDLE, PLACING, WAITING, STARTING, READY };

struct execution {
	struct execution *next;
	struct context *context;
	uint64_t id;
	json_t *request;
	const struct execution_ops *ops; /* NULL: abandoned */
	void *arg;
};

struct readiness {
	struct readiness *next;
	kernel_ready done;
	void *arg;
};

struct context {
	struct context *next;
	struct box *box;
	char id[40];
	const char *language;
	char *cwd;
	enum kernel_state state;
	bool active, doomed, restarting;
	bool is_copy, was_refused; /* of the parked process; by it */
	struct exec *exec;
	uint32_t eid;
	struct buf line, input; /* from it, and for it */
	size_t owed;
	uint64_t next_id;
	struct execution *queue;
	struct readiness *awaited;
	struct loop_timer patience;
};

struct box {
	struct box *next;
	struct api *api;
	char id[IPC_ID];
	struct waiter *wait;
	struct context *contexts;
	bool known; /* what runs inside was looked at */
	struct opening *openings;
	bool placed;
	struct call *placing;
	size_t file; /* being placed */
	struct park park;
	bool is_park_wanted; /* as soon as its files are there */
};

struct opening {
	struct opening *next;
	void (*done)(void *arg);
	void *arg;
};

/* ---- executions (e2b_kernel_run.c) ---- */
void kernel_execution_free(struct execution *r);
/* Takes the first one out of the queue and ends it. */
void kernel_end_first(struct context *c, bool cut);
void kernel_fail_first(struct context *c, const char *name, const char *value);
void kernel_tell_ready(struct context *c, const struct err *e);
/* It cannot work: everybody who waits for it is told. */
void kernel_failed(struct context *c, const struct err *e);
/* Takes what the kernel has said so far, line by line. */
void kernel_read_lines(struct context *c);
/* Hands the first of the queue to the kernel, if that is free. */
void kernel_next(struct context *c);

/* ---- its process (e2b_kernel_process.c) ---- */
extern const struct exec_ops kernel_process_ops;
/* NULL: it is not running. */
struct sandbox *kernel_sandbox(const struct box *b);
void kernel_ignore(void *arg, json_t *value, const struct err *e);
void kernel_kill(struct context *c);
void kernel_credit(struct context *c);
void kernel_feed(void *arg);
void kernel_on_patience(void *arg);
/* Starts it, if it is not there. */
void kernel_go(struct context *c);

void kernel_launch(struct context *c);
void kernel_process_reset(struct context *c);
/* What every kernel finds in its environment. */
void kernel_env(const struct box *b, const struct sandbox *s, struct list *ret);
/* The files that kernels are made of; they are there when after is called. */
void kernel_place(struct box *b);

/* ---- copies instead of new processes (e2b_kernel_park.c) ---- */
/* True: a copy was asked for, or will be; else it has to be started as a process. */
bool kernel_park_takes(struct context *c, struct sandbox *s);
/* The copy could not be had: is it to be started as a process instead? */
bool kernel_park_refused(struct context *c, const struct err *e);
/* The files are there. */
void kernel_park_placed(struct box *b);
void kernel_park_init(struct box *b);

/* ---- contexts (e2b_kernel.c) ---- */
void kernel_context_free(struct context *c);
/* Nobody listens any more. The one that is with the kernel goes on in silence. */
void kernel_context_cut(struct context *c);
