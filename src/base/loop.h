/*
 * The event loop of every role: file descriptors, timers, and work put off to the end of a round.
 * One thread; a callback may add, change and remove anything, itself included.
 *
 *   struct loop *l = loop_new();
 *   struct loop_watch w = {.fd = fd, .events = EPOLLIN, .call = on_ready, .arg = x};
 *   loop_watch(l, &w);
 *   loop_run(l);            until loop_stop
 *
 * Watches, timers and tasks are embedded in structs of their owner, which removes them before it frees them.
 *
 * Fairness. A watch or task may name the user that it works for (a tenant). The callbacks of users get
 * LOOP_TURN_NS of each round together, those of the user that has used least of the loop's time first;
 * what is left over stays ready for the next round. So 1000 busy descriptors of one user delay another
 * user's only one by a turn each round. Callbacks without a user are always made. A callback with much to
 * do stops when loop_turn_is_over and goes on from a task of the same user. A watch with a user must be
 * level-triggered.
 */
#pragma once

#include "base/base.h"

#include <sys/epoll.h>

struct loop;

#define LOOP_TURN_NS 50000

/* Whose work a callback is. */
struct loop_user {
	int64_t used_ns; /* kept by the loop: time of its callbacks, on a clock that all users share */
};

struct loop_watch {
	int fd;
	uint32_t events; /* EPOLL*; level-triggered */
	void (*call)(void *arg, uint32_t events);
	void *arg;
	struct loop_user *user; /* or NULL; must stay valid while it is watched */
	bool active;		/* kept by the loop */
};

struct loop_timer {
	void (*call)(void *arg);
	void *arg;
	int64_t at_ns; /* kept by the loop */
	size_t place;  /* in its heap, from 1; 0: not set */
};

struct loop_task {
	void (*call)(void *arg);
	void *arg;
	struct loop_user *user;		/* or NULL; not to be changed while the task waits */
	struct loop_task *next, **back; /* kept by the loop */
};

struct loop *loop_new(void);
void loop_free(struct loop *l);
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* 0, or -1 with errno. Watching again changes the events. */
int loop_watch(struct loop *l, struct loop_watch *w);
int loop_change(struct loop *l, struct loop_watch *w, uint32_t events);
/* Before the fd is closed; also if it was never watched. */
void loop_unwatch(struct loop *l, struct loop_watch *w);

/* Once, after so many milliseconds; setting it again moves it. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

/* Once, when the callbacks of this round are done. */
void loop_task_add(struct loop *l, struct loop_task *t);
void loop_task_remove(struct loop *l, struct loop_task *t);

/* The callback that runs now has used up a turn: the rest of its work belongs into a task. */
bool loop_turn_is_over(const struct loop *l);
