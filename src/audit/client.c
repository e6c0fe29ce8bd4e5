/* The client side of the audit log: sends entries to the role in order; receipts come back in order. */
#include "audit/audit.h"

#include "wire/ipc_channel.h"

/* The most entries that may wait for a receipt; beyond that the log is too slow, and entries fail. */
#define WAITING_MAX 65536

struct pending_entry {
	struct pending_entry *next;
	uint32_t serial;
	void (*wrote)(void *arg, const struct err *e);
	audit_found found;
	void *arg;
};

struct pending_queue {
	struct pending_entry *first, **end;
};

struct audit {
	struct loop *loop;
	struct ipc_channel channel;
	struct loop_task task; /* answers the failed entries */
	uint32_t serial;
	size_t count;
	struct pending_queue sent, failed; /* oldest first */
	struct err why;			   /* why they failed */
};

static void queue_put(struct pending_queue *q, struct pending_entry *p)
{
	p->next = NULL;
	*q->end = p;
	q->end = &p->next;
}

static struct pending_entry *queue_take(struct pending_queue *q)
{
	struct pending_entry *p = q->first;

	if (!p)
		return NULL;
	q->first = p->next;
	if (!q->first)
		q->end = &q->first;
	return p;
}

static void answer_pending(struct audit *a, struct pending_entry *p, int fd, uint64_t next_seq,
			   const struct err *e)
{
	a->count--;
	if (p->found)
		p->found(p->arg, fd, next_seq, e);
	else if (fd >= 0)
		close(fd);
	if (p->wrote)
		p->wrote(p->arg, e);
	free(p);
}

static void answer_failed(void *arg)
{
	struct audit *a = arg;
	struct pending_entry *p;

	while ((p = queue_take(&a->failed)))
		answer_pending(a, p, -1, 0, &a->why);
}

static void fail_pending(struct audit *a, struct pending_entry *p)
{
	err_set(&a->why, ERR_SYSTEM, "the audit log does not answer; nothing is done without it");
	queue_put(&a->failed, p);
	loop_task_add(a->loop, &a->task);
}

/* The role is gone or broke the protocol: no receipt will come. */
static void lose_role(void *arg, int errnum)
{
	struct audit *a = arg;
	struct pending_entry *p;

	ipc_channel_close(&a->channel);
	while ((p = queue_take(&a->sent)))
		fail_pending(a, p);
}

static void on_receipt(void *arg, const struct ipc *m, int fd)
{
	struct audit *a = arg;
	struct pending_entry *p = a->sent.first;

	/* Receipts come in the order of the entries. */
	if (!p || m->type != IPC_AUDIT_DONE || p->serial != m->serial) {
		close_fd(&fd);
		lose_role(a, 0);
		return;
	}
	queue_take(&a->sent);
	answer_pending(a, p, fd, m->page.next_seq, m->err.kind == ERR_NONE ? NULL : &m->err);
}

struct audit *audit_open(struct loop *l, int fd)
{
	struct audit *a = must_alloc(calloc(1, sizeof(*a)));

	a->loop = l;
	a->channel = (struct ipc_channel){.loop = l,
					  .on_message = on_receipt,
					  .on_broken = lose_role,
					  .arg = a,
					  .watch.fd = -1};
	a->task = (struct loop_task){.call = answer_failed, .arg = a};
	a->sent.end = &a->sent.first;
	a->failed.end = &a->failed.first;
	audit_reopen(a, fd);
	return a;
}

void audit_reopen(struct audit *a, int fd)
{
	lose_role(a, 0);
	if (fd >= 0)
		ipc_channel_open(&a->channel, fd);
}

void audit_close(struct audit *a)
{
	struct pending_entry *p;

	if (!a)
		return;
	loop_task_remove(a->loop, &a->task);
	ipc_channel_close(&a->channel);
	while ((p = queue_take(&a->sent)) || (p = queue_take(&a->failed)))
		free(p);
	free(a);
}

static void submit_pending(struct audit *a, struct ipc *m, const struct pending_entry *what)
{
	struct pending_entry *p = must_alloc(malloc(sizeof(*p)));

	*p = *what;
	m->serial = p->serial = ++a->serial;
	if (a->count++ >= WAITING_MAX || a->channel.watch.fd < 0) {
		fail_pending(a, p);
		return;
	}
	queue_put(&a->sent, p);
	ipc_channel_send(&a->channel, m, -1);
}

void audit_refuse(const struct err *why, struct err *ret)
{
	err_set(ret, ERR_SYSTEM, "the audit log cannot be written, so nothing is done: %.300s",
		why->msg);
	ret->errnum = EBUSY;
}

void audit_write(struct audit *a, const struct audit_entry *entry,
		 void (*done)(void *arg, const struct err *e), void *arg)
{
	struct ipc m = {.type = IPC_AUDIT_WRITE, .entry = *entry};

	submit_pending(a, &m, &(struct pending_entry){.wrote = done, .arg = arg});
}

void audit_ping(struct audit *a, void (*done)(void *arg, const struct err *e), void *arg)
{
	struct ipc m = {.type = IPC_PING};

	submit_pending(a, &m, &(struct pending_entry){.wrote = done, .arg = arg});
}

void audit_query(struct audit *a, const struct audit_query *q, audit_found done, void *arg)
{
	struct ipc m = {.type = IPC_AUDIT_QUERY, .query = *q};

	submit_pending(a, &m, &(struct pending_entry){.found = done, .arg = arg});
}
