/* Watches are epoll entries, timers a binary heap, tasks a list that each round empties. */
#include "base/loop.h"

#define EVENTS 256

struct loop {
	int epoll;
	bool stopped;
	struct loop_timer **heap; /* the earliest first; from index 1 */
	size_t timers, room;
	struct task_list {
		struct loop_task *first, **end;
	} tasks, user_tasks;
	struct epoll_event events[EVENTS]; /* of the round that is going on */
	int event_count;
	int64_t turn_ns;     /* when the callback that runs now began */
	int64_t users_ns;    /* how much of this round the users have had */
	int64_t users_clock; /* used_ns of the user that is served now: a user cannot save up time */
};

struct loop *loop_new(void)
{
	struct loop *l = must_alloc(calloc(1, sizeof(*l)));

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return NULL;
	}
	l->tasks.end = &l->tasks.first;
	l->user_tasks.end = &l->user_tasks.first;
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	close(l->epoll);
	free(l->heap);
	free(l);
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
}

/* ---- fds ---- */

int loop_watch(struct loop *l, struct loop_watch *w)
{
	struct epoll_event event = {.events = w->events, .data.ptr = w};

	if (epoll_ctl(l->epoll, w->active ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &event) < 0)
		return -1;
	w->active = true;
	return 0;
}

int loop_change(struct loop *l, struct loop_watch *w, uint32_t events)
{
	if (w->active && w->events == events)
		return 0;
	w->events = events;
	return loop_watch(l, w);
}

void loop_unwatch(struct loop *l, struct loop_watch *w)
{
	if (!w->active)
		return;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	w->active = false;
	/* Forget events of this round that were not delivered yet. */
	for (int i = 0; i < l->event_count; i++)
		if (l->events[i].data.ptr == w)
			l->events[i].data.ptr = NULL;
}

/* ---- timers: a binary heap ---- */

static void put_timer(struct loop *l, size_t place, struct loop_timer *t)
{
	l->heap[place] = t;
	t->place = place;
}

static void sift_up(struct loop *l, size_t place)
{
	struct loop_timer *t = l->heap[place];

	for (; place > 1 && l->heap[place / 2]->at_ns > t->at_ns; place /= 2)
		put_timer(l, place, l->heap[place / 2]);
	put_timer(l, place, t);
}

static void sift_down(struct loop *l, size_t place)
{
	struct loop_timer *t = l->heap[place];

	for (;;) {
		size_t child = place * 2;

		if (child > l->timers)
			break;
		if (child < l->timers && l->heap[child + 1]->at_ns < l->heap[child]->at_ns)
			child++;
		if (l->heap[child]->at_ns >= t->at_ns)
			break;
		put_timer(l, place, l->heap[child]);
		place = child;
	}
	put_timer(l, place, t);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	size_t place = t->place;
	struct loop_timer *last;

	if (place == 0)
		return;
	last = l->heap[l->timers--];
	t->place = 0;
	if (last == t)
		return;
	put_timer(l, place, last);
	sift_up(l, place);
	sift_down(l, last->place);
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms)
{
	/* A century is enough, and cannot overflow. */
	const uint64_t most = 100ull * 365 * 86400 * 1000;

	loop_timer_stop(l, t);
	t->at_ns = now_ns() + (int64_t)(after_ms < most ? after_ms : most) * 1000000;
	if (l->timers + 2 > l->room) {
		l->room = l->room ? l->room * 2 : 64;
		l->heap = must_alloc(realloc(l->heap, l->room * sizeof(*l->heap)));
	}
	put_timer(l, ++l->timers, t);
	sift_up(l, l->timers);
}

static int next_timeout(const struct loop *l)
{
	int64_t left;

	if (l->tasks.first || l->user_tasks.first)
		return 0;
	if (l->timers == 0)
		return -1;
	left = l->heap[1]->at_ns - now_ns();
	if (left <= 0)
		return 0;
	left = left / 1000000 + 1;
	return left > INT_MAX ? INT_MAX : (int)left;
}

/* Runs the timers that are due now; a timer that is set meanwhile waits for the next round. */
static void run_timers(struct loop *l)
{
	int64_t now = now_ns();

	while (l->timers && l->heap[1]->at_ns <= now && !l->stopped) {
		struct loop_timer *t = l->heap[1];

		loop_timer_stop(l, t);
		t->call(t->arg);
	}
}

/* ---- tasks ---- */

static struct task_list *list_of(struct loop *l, const struct loop_task *t)
{
	return t->user ? &l->user_tasks : &l->tasks;
}

void loop_task_add(struct loop *l, struct loop_task *t)
{
	struct task_list *list = list_of(l, t);

	if (t->back)
		return;
	t->next = NULL;
	t->back = list->end;
	*list->end = t;
	list->end = &t->next;
}

void loop_task_remove(struct loop *l, struct loop_task *t)
{
	if (!t->back)
		return;
	*t->back = t->next;
	if (t->next)
		t->next->back = t->back;
	else
		list_of(l, t)->end = t->back;
	t->back = NULL;
}

/* ---- users ---- */

bool loop_turn_is_over(const struct loop *l)
{
	return now_ns() - l->turn_ns >= LOOP_TURN_NS;
}

/* The first callback of a round is always made, so that there is progress. */
static bool may_begin(const struct loop *l)
{
	return l->users_ns < LOOP_TURN_NS;
}

static void turn_begin(struct loop *l, struct loop_user *u)
{
	l->turn_ns = now_ns();
	if (!u)
		return;
	if (u->used_ns < l->users_clock)
		u->used_ns = l->users_clock;
	l->users_clock = u->used_ns;
}

static void turn_end(struct loop *l, struct loop_user *u)
{
	int64_t took;

	if (!u)
		return;
	took = now_ns() - l->turn_ns;
	u->used_ns += took;
	l->users_ns += took;
}

static int64_t used_by(const struct loop_watch *w)
{
	return w->user ? w->user->used_ns : INT64_MIN;
}

/* Of the events that are left, the one whose user has used least; NULL: the users' time is over. */
static struct epoll_event *next_event(struct loop *l)
{
	const struct loop_watch *w = NULL, *other;
	struct epoll_event *best = NULL;

	for (int i = 0; i < l->event_count && may_begin(l); i++) {
		other = l->events[i].data.ptr;
		if (other && (!w || used_by(other) < used_by(w))) {
			best = &l->events[i];
			w = other;
		}
	}
	return best;
}

static void run_watch(struct loop *l, struct epoll_event *event)
{
	struct loop_watch *w = event->data.ptr;
	struct loop_user *u = w->user;

	event->data.ptr = NULL;
	turn_begin(l, u);
	w->call(w->arg, event->events);
	turn_end(l, u);
}

/* Events that are left out are reported again: watches are level-triggered. */
static void run_watches(struct loop *l)
{
	struct epoll_event *event;

	for (int i = 0; i < l->event_count && !l->stopped; i++) {
		const struct loop_watch *w = l->events[i].data.ptr;

		if (w && !w->user)
			run_watch(l, &l->events[i]);
	}
	while (!l->stopped && (event = next_event(l)))
		run_watch(l, event);
	l->event_count = 0;
}

static void run_task(struct loop *l, struct loop_task *t)
{
	struct loop_user *u = t->user;

	loop_task_remove(l, t);
	turn_begin(l, u);
	t->call(t->arg);
	turn_end(l, u);
}

static struct loop_task *next_user_task(struct loop *l, const struct loop_task *stop)
{
	struct loop_task *best = NULL;

	for (struct loop_task *t = l->user_tasks.first; t != stop && may_begin(l); t = t->next)
		if (!best || t->user->used_ns < best->user->used_ns)
			best = t;
	return best;
}

/* Tasks that are added meanwhile run in the next round. */
static void run_tasks(struct loop *l)
{
	struct loop_user nobody = {0};
	struct loop_task stop = {0}, user_stop = {.user = &nobody}, *t;

	loop_task_add(l, &stop);
	loop_task_add(l, &user_stop);
	while (l->tasks.first != &stop)
		run_task(l, l->tasks.first);
	while ((t = next_user_task(l, &user_stop)))
		run_task(l, t);
	loop_task_remove(l, &stop);
	loop_task_remove(l, &user_stop);
}

/*
 * Lets a process that waits for this processor run as soon as the time slice is over. The kernel notices by itself at
 * its next tick only, up to 4 ms later: so long would a guest wait for a loop that had just given it work and went on
 * with other work, even beside an idle processor. Whoever asks for the time that it has used makes the kernel count.
 */
static void let_others_run(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
}

void loop_run(struct loop *l)
{
	l->stopped = false;
	while (!l->stopped) {
		l->event_count = epoll_wait(l->epoll, l->events, EVENTS, next_timeout(l));
		let_others_run();
		l->users_ns = 0;
		run_watches(l);
		run_timers(l);
		run_tasks(l);
	}
}
