/* Reading mail; see mail.h. What comes out of the database is verified before anybody reads it. */
#include "agent/mail_internal.h"

#include "base/log.h"

#define PAGE_BYTES (256u << 10) /* of content; one message may be longer than what is left */

/* ---- a page of messages, each verified ---- */

struct page {
	struct mail *m;
	char name[IPC_NAME], uid[IPC_ID];
	struct mail_ask ask;
	json_done done;
	void *arg;
	struct page_item {
		struct page *page;
		struct stored_mail mail;
		json_t *json; /* NULL: refused */
	} items[MAIL_PAGE];
	size_t count, open, bytes;
	bool is_full; /* the answer would become too large */
	uint64_t refused;
	struct err err; /* nothing can be verified now */
};

static void read_page(struct page *p);

static void page_end(struct page *p, const struct err *e)
{
	json_t *all = json_array(), *value;

	for (size_t i = 0; i < p->count; i++)
		if (p->items[i].json)
			json_array_append_new(all, p->items[i].json);
	value = json_pack("{s:o,s:I}", "messages", all, "refused", (json_int_t)p->refused);
	if (e)
		json_decref(value);
	p->done(p->arg, e ? NULL : value, e);
	free(p);
}

/* One that does not verify is nobody's message: it goes, so that it does not stand in the way. */
static void refuse_item(struct page_item *item, const struct err *why)
{
	struct page *p = item->page;
	struct err e;

	log_warn("a message is refused", "from", item->mail.m.from, "to", item->mail.m.to, "error",
		 why->msg);
	p->refused++;
	if (store_mail_drop_one(p->m->p.store, item->mail.seq, &e) == 0)
		mailbox_forget(mailbox_find(p->m->boxes, p->uid, NULL), 1, item->mail.m.size);
	json_decref(take_ptr(item->json));
}

static void on_verified(void *arg, const struct ipc *reply, int fd)
{
	struct page_item *item = arg;
	struct page *p = item->page;
	enum err_kind kind = reply->err.kind;

	close_fd(&fd);
	if (kind == ERR_SYSTEM || kind == ERR_UNSUPPORTED || kind == ERR_LIMIT)
		p->err = reply->err;
	else if (kind)
		refuse_item(item, &reply->err);
	if (--p->open > 0)
		return;
	for (size_t i = 0; p->err.kind && i < p->count; i++)
		json_decref(take_ptr(p->items[i].json));
	if (p->err.kind)
		page_end(p, &p->err);
	else if (p->refused && p->refused == p->count)
		read_page(p);
	else
		page_end(p, NULL);
}

static void add_item(void *arg, const struct stored_mail *mail)
{
	struct page *p = arg;
	struct page_item *item = &p->items[p->count];

	p->is_full = p->is_full || (p->count && p->bytes + mail->m.size > PAGE_BYTES);
	if (p->is_full)
		return;
	p->count++;
	p->bytes += mail->m.size;
	*item = (struct page_item){.page = p, .mail = *mail};
	message_digest(&item->mail.m, mail->content, mail->m.size);
	item->json = message_to_json(mail->seq, &mail->m, mail->content);
}

static void read_page(struct page *p)
{
	struct err e = {0};

	p->count = p->bytes = 0;
	p->is_full = false;
	p->refused = 0;
	if (store_mail_read(p->m->p.store, p->uid, p->ask.after, p->ask.limit, unix_ms(), add_item,
			    p, &e) < 0) {
		for (size_t i = 0; i < p->count; i++)
			json_decref(take_ptr(p->items[i].json));
		page_end(p, &e);
		return;
	}
	p->open = p->count;
	if (!p->count)
		page_end(p, NULL);
	for (size_t i = 0, n = p->open; i < n; i++) {
		struct ipc ask = {.type = IPC_MESSAGE_VERIFY, .message = p->items[i].mail.m};

		broker_ask(p->m->p.broker, &ask, -1, on_verified, &p->items[i]);
	}
}

/* ---- waiting ---- */

struct mail_wait {
	struct page *page;
	struct mailbox *box;
	struct loop_timer timer;
	struct loop_task task;
	struct mail_wait *next, **back;
};

static void wait_over(void *arg)
{
	struct mail_wait *w = arg;
	struct page *p = w->page;

	loop_timer_stop(p->m->p.loop, &w->timer);
	loop_task_remove(p->m->p.loop, &w->task);
	*w->back = w->next;
	if (w->next)
		w->next->back = w->back;
	w->box->waiting--;
	free(w);
	read_page(p);
}

void mail_wake(struct mailbox *b)
{
	for (struct mail_wait *w = b->waits; w; w = w->next)
		loop_task_add(w->page->m->p.loop, &w->task);
}

void mail_stop_waiting(struct mail_wait *w)
{
	loop_task_add(w->page->m->p.loop, &w->task);
}

static void set_has_one(void *arg, const struct stored_mail *mail)
{
	*(bool *)arg = true;
}

static bool has_mail(struct page *p)
{
	struct err e;
	bool has_one = false;

	return store_mail_read(p->m->p.store, p->uid, p->ask.after, 1, unix_ms(), set_has_one,
			       &has_one, &e) < 0 ||
	       has_one;
}

static struct mail_wait *wait_new(struct page *p, struct mailbox *b)
{
	struct mail_wait *w = must_alloc(calloc(1, sizeof(*w)));

	*w = (struct mail_wait){.page = p, .box = b, .next = b->waits, .back = &b->waits};
	if (w->next)
		w->next->back = &w->next;
	b->waits = w;
	b->waiting++;
	w->timer = (struct loop_timer){.call = wait_over, .arg = w};
	w->task = (struct loop_task){.call = wait_over, .arg = w};
	return w;
}

int mail_ack(struct mail *m, const char *name, uint64_t through, struct err *e)
{
	const struct ipc_agent *a = mail_agent(m, name, e);
	uint64_t count = 0, bytes = 0;

	if (!a || store_mail_drop(m->p.store, a->uid, through, &count, &bytes, e) < 0)
		return -1;
	mailbox_forget(mailbox_find(m->boxes, a->uid, a->owner), count, bytes);
	return 0;
}

struct mail_wait *mail_receive(struct mail *m, const char *name, const struct mail_ask *ask,
			       json_done done, void *arg)
{
	struct err e = {0};
	const struct ipc_agent *a = mail_agent(m, name, &e);
	struct mail_wait *w;
	struct mailbox *b;
	struct page *p;

	if (!a || (ask->acks && ask->after && mail_ack(m, name, ask->after, &e) < 0)) {
		mail_answer_later(m, done, arg, NULL, &e);
		return NULL;
	}
	b = mailbox_find(m->boxes, a->uid, a->owner);
	if (b->waiting >= WAITING_MOST) {
		err_set(&e, ERR_LIMIT, "more than %d wait for this mailbox", WAITING_MOST);
		mail_answer_later(m, done, arg, NULL, &e);
		return NULL;
	}
	p = must_alloc(calloc(1, sizeof(*p)));
	p->m = m;
	p->ask = *ask;
	p->done = done;
	p->arg = arg;
	memcpy(p->name, a->name, sizeof(p->name));
	memcpy(p->uid, a->uid, sizeof(p->uid));
	if (p->ask.limit == 0 || p->ask.limit > MAIL_PAGE)
		p->ask.limit = MAIL_PAGE;
	w = wait_new(p, b);
	if (ask->wait_ms && !has_mail(p))
		loop_timer_set(m->p.loop, &w->timer,
			       ask->wait_ms < MAIL_WAIT_MS ? ask->wait_ms : MAIL_WAIT_MS);
	else
		loop_task_add(m->p.loop, &w->task);
	return w;
}

/* ---- messages that came another way ---- */

struct verifying {
	struct mail *m;
	struct agent_message msg;
	char who[IPC_ID + 2]; /* keeps the recipient's memory apart from what it has sent */
	struct mailbox *memory;
	json_done done;
	void *arg;
};

static json_t *verdict(const char *why)
{
	return json_pack("{s:b,s:s?}", "valid", why == NULL, "why", why);
}

/* Remembered for as long as its time would let it pass once more. */
static void on_checked(void *arg, const struct ipc *reply, int fd)
{
	struct verifying *v = arg;
	char id[IPC_ID + AGENT_MESSAGE_ID + 1];
	struct err e = reply->err;

	close_fd(&fd);
	snprintf(id, sizeof(id), "%s/%s", v->msg.from_uid, v->msg.id);
	if (!e.kind)
		(void)!store_mail_see(
			v->m->p.store, v->who, id,
			v->msg.time_ms + AGENT_MESSAGE_PAST_MS + AGENT_MESSAGE_FUTURE_MS, &e);
	if (e.kind)
		v->memory->sent--;
	if (e.kind == ERR_SYSTEM || e.kind == ERR_UNSUPPORTED)
		v->done(v->arg, NULL, &e);
	else
		v->done(v->arg,
			verdict(e.kind == ERR_CONFLICT ? "it was seen before"
				: e.kind	       ? e.msg
						       : NULL),
			NULL);
	free(v);
}

/* NULL: it is for this agent, and of this time. */
static const char *why_not(struct mail *m, const struct ipc_agent *a,
			   const struct agent_message *msg)
{
	uint64_t now = unix_ms();

	if (!str_equal(msg->to, a->name) || !str_equal(msg->to_uid, a->uid))
		return "it is for somebody else";
	if (msg->time_ms + AGENT_MESSAGE_PAST_MS < now)
		return "it is too old";
	if (msg->time_ms > now + AGENT_MESSAGE_FUTURE_MS)
		return "it is of the future";
	if (msg->time_ms <= store_mail_floor(m->p.store))
		return "it is older than the memory of messages";
	return NULL;
}

void mail_verify(struct mail *m, const char *name, const json_t *message, json_done done, void *arg)
{
	struct ipc ask = {.type = IPC_MESSAGE_VERIFY};
	struct err e = {0};
	const struct ipc_agent *a = mail_agent(m, name, &e);
	struct verifying *v;
	const char *why;

	if (!a || message_from_json(message, &ask.message, &e) < 0) {
		mail_answer_later(m, done, arg, a ? verdict(e.msg) : NULL, a ? NULL : &e);
		return;
	}
	why = why_not(m, a, &ask.message);
	if (why) {
		mail_answer_later(m, done, arg, verdict(why), NULL);
		return;
	}
	v = must_alloc(malloc(sizeof(*v)));
	*v = (struct verifying){.m = m, .msg = ask.message, .done = done, .arg = arg};
	snprintf(v->who, sizeof(v->who), "<%s", a->uid);
	v->memory = mailbox_find(m->boxes, v->who, NULL);
	if (v->memory->sent >= SENT_MOST) {
		free(v);
		mail_answer_later(m, done, arg, verdict("too many messages are remembered"), NULL);
		return;
	}
	v->memory->sent++;
	broker_ask(m->p.broker, &ask, -1, on_checked, v);
}

/* ---- public keys ---- */

struct key_question {
	struct mail *m;
	struct ipc ask;
	json_t *all;
	bool has_older;
	json_done done;
	void *arg;
};

static void on_key(void *arg, const struct ipc *reply, int fd)
{
	struct key_question *q = arg;
	char hex[2 * AGENT_PUBLIC_KEY + 1];

	close_fd(&fd);
	if (!reply->err.kind && reply->type == IPC_AGENT_KEY_IS) {
		for (size_t i = 0; i < AGENT_PUBLIC_KEY; i++)
			snprintf(hex + 2 * i, 3, "%02x", reply->key.public_key[i]);
		json_array_append_new(q->all,
				      json_pack("{s:I,s:s}", "epoch", (json_int_t)reply->key.epoch,
						"public_key", hex));
	}
	/* That the key before counts no longer is no error. */
	if (reply->err.kind && json_array_size(q->all) == 0) {
		q->done(q->arg, NULL, &reply->err);
	} else if (!reply->err.kind && q->has_older) {
		q->has_older = false;
		q->ask.key.epoch--;
		broker_ask(q->m->p.broker, &q->ask, -1, on_key, q);
		return;
	} else {
		q->done(q->arg, json_pack("{s:O}", "keys", q->all), NULL);
	}
	json_decref(q->all);
	free(q);
}

void mail_keys(struct mail *m, const char *name, json_done done, void *arg)
{
	struct err e = {0};
	const struct ipc_agent *a = mail_agent(m, name, &e);
	struct key_question *q;

	if (!a) {
		mail_answer_later(m, done, arg, NULL, &e);
		return;
	}
	q = must_alloc(calloc(1, sizeof(*q)));
	*q = (struct key_question){m,  {.type = IPC_AGENT_KEY}, json_array(), a->epoch > 0, done,
				   arg};
	memcpy(q->ask.key.name, a->name, sizeof(a->name));
	q->ask.key.epoch = a->epoch;
	broker_ask(m->p.broker, &q->ask, -1, on_key, q);
}
