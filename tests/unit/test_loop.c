/* base: the event loop and the buffer. */
#include "base/buf.h"
#include "base/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	struct loop *loop;
	struct loop_watch watch;
	struct loop_timer timers[8];
	struct loop_task tasks[4];
	int order[16];
	int count;
	int pipe[2];
};

static struct fixture *the; /* callbacks with a number as their argument note it here */

static void note(void *arg)
{
	the->order[the->count++] = (int)(intptr_t)arg;
}

static void finish(void *arg)
{
	note(arg);
	loop_stop(the->loop);
}

static int setup(void **state)
{
	the = calloc(1, sizeof(*the));
	the->loop = loop_new();
	*state = the;
	return pipe(the->pipe);
}

static int teardown(void **state)
{
	(void)state;
	close(the->pipe[0]);
	close(the->pipe[1]);
	loop_free(the->loop);
	free(the);
	return 0;
}

static void set_timer(int i, uint64_t ms, void (*call)(void *))
{
	the->timers[i].call = call;
	the->timers[i].arg = (void *)(intptr_t)i;
	loop_timer_set(the->loop, &the->timers[i], ms);
}

static void test_timers_in_order(void **state)
{
	(void)state;
	set_timer(0, 30, finish);
	set_timer(1, 10, note);
	set_timer(2, 20, note);
	set_timer(3, 1, note);
	set_timer(4, 5, note);
	loop_timer_stop(the->loop, &the->timers[4]);
	loop_timer_stop(the->loop, &the->timers[4]);
	set_timer(1, 25, note); /* moved */
	loop_run(the->loop);
	assert_int_equal(the->count, 4);
	assert_int_equal(the->order[0], 3);
	assert_int_equal(the->order[1], 2);
	assert_int_equal(the->order[2], 1);
	assert_int_equal(the->order[3], 0);
}

static void test_timers_many(void **state)
{
	static struct loop_timer many[500];
	int64_t last = 0;

	(void)state;
	for (int i = 0; i < 500; i++) {
		many[i] = (struct loop_timer){.call = note};
		loop_timer_set(the->loop, &many[i], (uint64_t)(i * 7919 % 1000));
	}
	for (int i = 0; i < 500; i += 3)
		loop_timer_stop(the->loop, &many[i]);
	/* Whatever is taken out of the middle, the earliest stays on top. */
	for (int left = 0; left < 500; left++) {
		struct loop_timer *least = NULL;

		for (int i = 0; i < 500; i++)
			if (many[i].place == 1)
				least = &many[i];
		if (!least)
			break;
		assert_true(least->at_ns >= last);
		last = least->at_ns;
		loop_timer_stop(the->loop, least);
	}
	for (int i = 0; i < 500; i++)
		assert_int_equal(many[i].place, 0);
}

static void on_pipe(void *arg, uint32_t events)
{
	char byte;

	assert_true(events & EPOLLIN);
	assert_int_equal(read(the->pipe[0], &byte, 1), 1);
	note(arg);
	loop_unwatch(the->loop, &the->watch);
	loop_unwatch(the->loop, &the->watch);
	loop_stop(the->loop);
}

static void test_watch(void **state)
{
	(void)state;
	the->watch = (struct loop_watch){
		.fd = the->pipe[0], .events = EPOLLIN, .call = on_pipe, .arg = (void *)7};
	assert_int_equal(loop_watch(the->loop, &the->watch), 0);
	assert_int_equal(write(the->pipe[1], "x", 1), 1);
	loop_run(the->loop);
	assert_int_equal(the->count, 1);
	assert_int_equal(the->order[0], 7);
	assert_false(the->watch.active);
}

static void add_another(void *arg)
{
	note(arg);
	loop_task_remove(the->loop, &the->tasks[2]);
	loop_task_add(the->loop, &the->tasks[3]);
}

static void test_tasks(void **state)
{
	static void (*const calls[])(void *) = {note, add_another, note, finish};

	(void)state;
	for (int i = 0; i < 4; i++)
		the->tasks[i] = (struct loop_task){.call = calls[i], .arg = (void *)(intptr_t)i};
	for (int i = 0; i < 3; i++)
		loop_task_add(the->loop, &the->tasks[i]);
	loop_task_add(the->loop, &the->tasks[0]); /* twice is once */
	loop_run(the->loop);
	assert_int_equal(the->count, 3);
	assert_int_equal(the->order[1], 1);
	assert_int_equal(the->order[2], 3);
	/* Taken out as the last one, the next still finds its place. */
	loop_task_add(the->loop, &the->tasks[0]);
	loop_task_add(the->loop, &the->tasks[2]);
	loop_task_remove(the->loop, &the->tasks[2]);
	loop_task_add(the->loop, &the->tasks[3]);
	loop_run(the->loop);
	assert_int_equal(the->count, 5);
	assert_int_equal(the->order[4], 3);
}

static void test_buf(void **state)
{
	struct buf b = {0};
	unsigned next = 0, expect = 0;

	(void)state;
	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 37; i++)
			buf_add(&b, &(unsigned char){(unsigned char)next++}, 1);
		for (size_t i = 0; i < 31; i++)
			assert_int_equal((unsigned char)buf_head(&b)[i],
					 (unsigned char)(expect + i));
		buf_drop(&b, 31);
		expect += 31;
	}
	assert_int_equal(b.len, 200 * 6);
	buf_drop(&b, b.len);
	memset(buf_reserve(&b, 1u << 20), 1, 1u << 20);
	buf_added(&b, 1u << 20);
	buf_drop(&b, 1u << 20);
	assert_int_equal(b.room, 0);
	buf_done(&b);
}

/* ---- users ---- */

#define BUSY 50
#define ROUNDS 10

static struct loop_user users[2];
static struct loop_watch busy[BUSY], quiet;
static struct loop_task busy_tasks[BUSY], quiet_task;
static int busy_count, quiet_count;

static void spin(void)
{
	int64_t until = now_ns() + LOOP_TURN_NS / 5;

	while (now_ns() < until)
		continue;
	busy_count++;
}

static void on_busy(void *arg, uint32_t events)
{
	(void)arg, (void)events;
	spin();
}

static void on_quiet(void *arg, uint32_t events)
{
	(void)arg, (void)events;
	if (++quiet_count == ROUNDS)
		loop_stop(the->loop);
}

static void on_busy_task(void *arg)
{
	spin();
	loop_task_add(the->loop, arg);
}

static void on_quiet_task(void *arg)
{
	on_quiet(NULL, 0);
	loop_task_add(the->loop, arg);
}

/* One user's 50 busy descriptors have a turn of each round together, not 50. */
static void test_users_take_turns(void **state)
{
	(void)state;
	busy_count = quiet_count = 0;
	assert_int_equal(write(the->pipe[1], "x", 1), 1);
	for (int i = 0; i < BUSY; i++) {
		busy[i] = (struct loop_watch){.fd = dup(the->pipe[0]),
					      .events = EPOLLIN,
					      .call = on_busy,
					      .user = &users[0]};
		assert_int_equal(loop_watch(the->loop, &busy[i]), 0);
	}
	quiet = (struct loop_watch){
		.fd = the->pipe[0], .events = EPOLLIN, .call = on_quiet, .user = &users[1]};
	assert_int_equal(loop_watch(the->loop, &quiet), 0);
	loop_run(the->loop);
	assert_true(busy_count > 0);
	assert_true(busy_count < ROUNDS * BUSY / 4);
	for (int i = 0; i < BUSY; i++) {
		loop_unwatch(the->loop, &busy[i]);
		close(busy[i].fd);
	}
	loop_unwatch(the->loop, &quiet);
}

static void test_user_tasks_take_turns(void **state)
{
	(void)state;
	busy_count = quiet_count = 0;
	for (int i = 0; i < BUSY; i++) {
		busy_tasks[i] = (struct loop_task){
			.call = on_busy_task, .arg = &busy_tasks[i], .user = &users[0]};
		loop_task_add(the->loop, &busy_tasks[i]);
	}
	quiet_task =
		(struct loop_task){.call = on_quiet_task, .arg = &quiet_task, .user = &users[1]};
	loop_task_add(the->loop, &quiet_task);
	loop_run(the->loop);
	assert_true(busy_count > 0);
	assert_true(busy_count < ROUNDS * BUSY / 4);
	loop_task_remove(the->loop, &quiet_task);
	for (int i = 0; i < BUSY; i++)
		loop_task_remove(the->loop, &busy_tasks[i]);
}

/* Adding to a buffer that is emptied slowly does not move all of it each time. */
static void test_buf_moves_little(void **state)
{
	struct buf b = {0};
	int moves = 0;

	(void)state;
	for (int i = 0; i < 1000; i++)
		buf_add(&b, "0123456789", 10);
	for (int i = 0; i < 100000; i++) {
		size_t at;

		buf_drop(&b, 1);
		at = b.at;
		buf_add(&b, "x", 1);
		moves += b.at < at;
	}
	assert_int_equal(b.len, 10000);
	assert_true(moves < 100);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_users_take_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_user_tasks_take_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_buf_moves_little, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timers_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timers_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_watch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tasks, setup, teardown),
		cmocka_unit_test(test_buf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
