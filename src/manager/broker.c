#include "manager/broker.h"

#include "wire/ipc_channel.h"

#define BUCKETS 256
#define SWEEP_MS 10000

/* The time that an answer may take; a snapshot copies gigabytes. */
#define DEADLINE_MS 120000
#define DEADLINE_LONG_MS 1800000

struct broker_question {
	uint32_t serial, type;
	int64_t until_ns;
	broker_done done;
	void *arg;
	struct broker_question *next;
};

struct broker {
	struct loop *loop;
	struct ipc_channel channel;
	bool lost;
	uint32_t next_serial;
	struct broker_question *table[BUCKETS];
	struct loop_timer sweep;
	struct loop_task lost_task;
	struct err err;
	const struct broker_ops *ops;
	void *arg;
};

static void on_channel_broken(void *arg, int errnum)
{
	struct broker *b = arg;

	if (b->lost)
		return;
	b->lost = true;
	err_set(&b->err, ERR_SYSTEM, "the broker is gone: %s",
		errnum ? strerror(errnum) : "it closed the channel");
	loop_task_add(b->loop, &b->lost_task);
}

static void fail_question(struct broker_question *a, const char *why)
{
	struct ipc reply = {.type = IPC_DONE, .serial = a->serial};

	err_set(&reply.err, ERR_SYSTEM, "%s", why);
	if (a->done)
		a->done(a->arg, &reply, -1);
	free(a);
}

/* Fails all questions whose deadline has passed. */
static void fail_due(struct broker *b, int64_t now, const char *why)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct broker_question **at = &b->table[i], *a; (a = *at);) {
			if (a->until_ns > now) {
				at = &a->next;
				continue;
			}
			*at = a->next;
			fail_question(a, why);
			/* The callback may have added a question to this chain. */
			at = &b->table[i];
		}
}

static void report_broker_lost(void *arg)
{
	struct broker *b = arg;

	fail_due(b, INT64_MAX, b->err.msg);
	b->ops->on_lost(b->arg, &b->err);
}

/* ---- sending ---- */

static void add_question(struct broker *b, const struct ipc *m, broker_done done, void *arg)
{
	struct broker_question *a = must_alloc(calloc(1, sizeof(*a)));
	bool is_long = m->type == IPC_SNAPSHOT || m->type == IPC_SNAPSHOT_KEEP ||
		       m->type == IPC_SNAPSHOT_READ || m->type == IPC_DISK_READ ||
		       m->type == IPC_VOLUME_MAKE ||
		       (m->type == IPC_BOOT && m->boot.disk_type == DISK_IMAGE);

	*a = (struct broker_question){
		.serial = m->serial, .type = m->type, .done = done, .arg = arg};
	a->until_ns = now_ns() + (is_long ? DEADLINE_LONG_MS : DEADLINE_MS) * 1000000LL;
	a->next = b->table[m->serial % BUCKETS];
	b->table[m->serial % BUCKETS] = a;
}

void broker_ask(struct broker *b, const struct ipc *m, int fd, broker_done done, void *arg)
{
	struct ipc copy;

	memcpy(&copy, m, ipc_size(m->type));
	if (++b->next_serial == 0)
		b->next_serial = 1;
	copy.serial = b->next_serial;
	add_question(b, &copy, done, arg);
	if (b->lost)
		loop_task_add(b->loop, &b->lost_task);
	else
		ipc_channel_send(&b->channel, &copy, fd);
}

void broker_tell(struct broker *b, uint32_t type)
{
	struct ipc m = {.type = type};

	if (!b->lost)
		ipc_channel_send(&b->channel, &m, -1);
}

bool broker_is_lost(const struct broker *b)
{
	return b->lost;
}

void broker_ask_id(struct broker *b, uint32_t type, const char *id, broker_done done, void *arg)
{
	struct ipc m = {.type = type};

	snprintf(m.id, sizeof(m.id), "%s", id);
	broker_ask(b, &m, -1, done, arg);
}

/* ---- receiving ---- */

/* More answers to this question follow; IPC_DONE is the last. */
static bool is_one_of_list(const struct broker_question *a, const struct ipc *m)
{
	return (a->type == IPC_SNAPSHOT_LIST && m->type == IPC_SNAPSHOT_IS) ||
	       (a->type == IPC_SECRET_LIST && m->type == IPC_SECRET_IS) ||
	       (a->type == IPC_VOLUME_LIST && m->type == IPC_VOLUME_IS);
}

static struct broker_question *take_question(struct broker *b, const struct ipc *m)
{
	struct broker_question **at = &b->table[m->serial % BUCKETS], *a;

	while (*at && (*at)->serial != m->serial)
		at = &(*at)->next;
	a = *at;
	if (a && !is_one_of_list(a, m))
		*at = a->next;
	return a;
}

/* The question has timed out, so a sandbox that was booted for it must be destroyed. */
static void undo_boot(struct broker *b, const struct ipc *m)
{
	if (m->type == IPC_BOOTED && m->err.kind == ERR_NONE)
		broker_ask_id(b, IPC_DESTROY, m->booted.id, NULL, NULL);
}

static void take_reply(struct broker *b, const struct ipc *m, int fd)
{
	struct broker_question *a = take_question(b, m);
	bool again = a && is_one_of_list(a, m);

	if (a && a->done) {
		a->done(a->arg, m, fd);
	} else {
		close_fd(&fd);
		if (!a)
			undo_boot(b, m);
	}
	if (!again)
		free(a);
}

static void on_broker_message(void *arg, const struct ipc *m, int fd)
{
	struct broker *b = arg;

	if (m->serial == 0)
		b->ops->on_news(b->arg, m, fd);
	else
		take_reply(b, m, fd);
}

static void on_sweep_timer(void *arg)
{
	struct broker *b = arg;

	loop_timer_set(b->loop, &b->sweep, SWEEP_MS);
	fail_due(b, now_ns(), "the broker does not answer");
}

struct broker *broker_open(struct loop *l, int fd, const struct broker_ops *ops, void *arg)
{
	struct broker *b = must_alloc(calloc(1, sizeof(*b)));

	*b = (struct broker){.loop = l, .ops = ops, .arg = arg};
	b->channel = (struct ipc_channel){.loop = l,
					  .on_message = on_broker_message,
					  .on_broken = on_channel_broken,
					  .arg = b};
	b->sweep = (struct loop_timer){.call = on_sweep_timer, .arg = b};
	b->lost_task = (struct loop_task){.call = report_broker_lost, .arg = b};
	ipc_channel_open(&b->channel, fd);
	loop_timer_set(l, &b->sweep, SWEEP_MS);
	return b;
}

void broker_close(struct broker *b)
{
	if (!b)
		return;
	ipc_channel_close(&b->channel);
	loop_timer_stop(b->loop, &b->sweep);
	loop_task_remove(b->loop, &b->lost_task);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct broker_question *a = b->table[i], *next; a; a = next) {
			next = a->next;
			free(a);
		}
	free(b);
}
