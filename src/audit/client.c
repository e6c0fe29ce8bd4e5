#include "audit/audit.h"
#include "audit/message.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/fd_message.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* So many may wait for a receipt; more is an error, as the log cannot follow. */
#define WAITING_MAX 65536

struct pending {
	struct pending *next;
	struct audit_request request;
	void (*wrote)(void *arg, const struct err *e);
	void (*found)(void *arg, int fd, const struct err *e);
	void *arg;
};

struct queue {
	struct pending *first, **end;
};

struct audit {
	struct loop *loop;
	struct loop_watch watch;
	struct loop_task task; /* answers what could not be sent */
	uint32_t serial;
	size_t count;
	struct queue unsent, sent, failed; /* oldest first */
	struct err why;			   /* of those that failed */
};

static void queue_init(struct queue *q)
{
	*q = (struct queue){NULL, &q->first};
}

static void queue_put(struct queue *q, struct pending *p)
{
	p->next = NULL;
	*q->end = p;
	q->end = &p->next;
}

static struct pending *queue_take(struct queue *q)
{
	struct pending *p = q->first;

	if (!p)
		return NULL;
	q->first = p->next;
	if (!q->first)
		q->end = &q->first;
	return p;
}

static void finish(struct audit *a, struct pending *p, int fd, const struct err *e)
{
	a->count--;
	if (p->found)
		p->found(p->arg, fd, e);
	else if (fd >= 0)
		close(fd);
	if (p->wrote)
		p->wrote(p->arg, e);
	free(p);
}

static void answer_failed(void *arg)
{
	struct audit *a = arg;
	struct pending *p;

	while ((p = queue_take(&a->failed)))
		finish(a, p, -1, &a->why);
}

/* The role is gone: no receipt will come. */
static void lose(struct audit *a)
{
	struct pending *p;

	err_set(&a->why, ERR_SYSTEM, "the audit log does not answer; nothing is done without it");
	loop_unwatch(a->loop, &a->watch);
	close_fd(&a->watch.fd);
	while ((p = queue_take(&a->sent)))
		queue_put(&a->failed, p);
	while ((p = queue_take(&a->unsent)))
		queue_put(&a->failed, p);
	if (a->failed.first)
		loop_task_add(a->loop, &a->task);
}

static void flush(struct audit *a)
{
	while (a->unsent.first) {
		struct pending *p = a->unsent.first;
		size_t len = offsetof(struct audit_request, entry) +
			     (p->request.type == AUDIT_WRITE ? sizeof(p->request.entry)
							     : sizeof(p->request.query));

		if (send(a->watch.fd, &p->request, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN) {
				lose(a);
				return;
			}
			break;
		}
		queue_put(&a->sent, queue_take(&a->unsent));
	}
	loop_change(a->loop, &a->watch, EPOLLIN | (a->unsent.first ? EPOLLOUT : 0));
}

/* 1: one receipt; 0: none waits; -1: gone. */
static int receive(struct audit *a, struct audit_reply *ret, int *ret_fd)
{
	ssize_t n = fd_message_receive(a->watch.fd, ret, sizeof(*ret), ret_fd, 1, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (n == sizeof(*ret))
		return 1;
	close_fd(ret_fd);
	return -1;
}

static void on_ready(void *arg, uint32_t events)
{
	struct audit *a = arg;
	struct audit_reply answer;
	int state = 0, fd, budget = 256;

	if (events & EPOLLOUT)
		flush(a);
	while (a->watch.fd >= 0 && budget-- > 0 && (state = receive(a, &answer, &fd)) > 0) {
		struct pending *p = a->sent.first;

		/* Receipts come in the order of the entries. */
		if (!p || p->request.serial != answer.serial) {
			close_fd(&fd);
			state = -1;
			break;
		}
		answer.err.msg[sizeof(answer.err.msg) - 1] = '\0';
		answer.err.field[sizeof(answer.err.field) - 1] = '\0';
		queue_take(&a->sent);
		finish(a, p, fd, answer.err.kind == ERR_NONE ? NULL : &answer.err);
	}
	if (state < 0 && a->watch.fd >= 0)
		lose(a);
}

struct audit *audit_open(struct loop *l, int fd)
{
	struct audit *a = must_alloc(calloc(1, sizeof(*a)));

	a->loop = l;
	a->watch.fd = -1;
	a->task = (struct loop_task){.call = answer_failed, .arg = a};
	queue_init(&a->unsent);
	queue_init(&a->sent);
	queue_init(&a->failed);
	audit_reopen(a, fd);
	return a;
}

void audit_reopen(struct audit *a, int fd)
{
	if (a->watch.fd >= 0)
		lose(a);
	a->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_ready, .arg = a};
	if (fd >= 0 && loop_watch(a->loop, &a->watch) < 0)
		lose(a);
}

static void free_queue(struct queue *q)
{
	struct pending *p;

	while ((p = queue_take(q)))
		free(p);
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	loop_task_remove(a->loop, &a->task);
	loop_unwatch(a->loop, &a->watch);
	close_fd(&a->watch.fd);
	free_queue(&a->unsent);
	free_queue(&a->sent);
	free_queue(&a->failed);
	free(a);
}

static void submit(struct audit *a, struct pending *p)
{
	p->request.serial = ++a->serial;
	if (a->watch.fd >= 0 && a->count < WAITING_MAX) {
		a->count++;
		queue_put(&a->unsent, p);
		/* Behind others that wait for room it only queues up. */
		if (a->unsent.first == p)
			flush(a);
		return;
	}
	a->count++;
	err_set(&a->why, ERR_SYSTEM, "the audit log does not answer; nothing is done without it");
	queue_put(&a->failed, p);
	loop_task_add(a->loop, &a->task);
}

void audit_write(struct audit *a, const struct audit_entry *entry,
		 void (*done)(void *arg, const struct err *e), void *arg)
{
	struct pending *p = must_alloc(calloc(1, sizeof(*p)));

	p->request.type = AUDIT_WRITE;
	p->request.entry = *entry;
	p->wrote = done;
	p->arg = arg;
	submit(a, p);
}

void audit_query(struct audit *a, const struct audit_query *q,
		 void (*done)(void *arg, int fd, const struct err *e), void *arg)
{
	struct pending *p = must_alloc(calloc(1, sizeof(*p)));

	p->request.type = AUDIT_QUERY;
	p->request.query = *q;
	p->found = done;
	p->arg = arg;
	submit(a, p);
}
