/* Sending mail; see mail.h. A message is counted, signed, stored, and only then acknowledged. */
#include "agent/mail_internal.h"

#include "auth/trust.h"
#include "base/id.h"

#include <sodium.h>

#define EXPIRY_MS 60000
#define EXPIRY_MORE_MS 50

/* ---- what all share ---- */

struct later {
	struct loop_task task;
	json_done done;
	void *arg;
	json_t *value;
	struct err err;
};

static void give_answer(void *arg)
{
	struct later *l = arg;

	l->done(l->arg, l->value, l->err.kind ? &l->err : NULL);
	free(l);
}

void mail_answer_later(struct mail *m, json_done done, void *arg, json_t *value,
		       const struct err *e)
{
	struct later *l = must_alloc(calloc(1, sizeof(*l)));

	*l = (struct later){.done = done, .arg = arg, .value = value};
	if (e)
		l->err = *e;
	l->task = (struct loop_task){.call = give_answer, .arg = l};
	loop_task_add(m->p.loop, &l->task);
}

const struct ipc_agent *mail_agent(const struct mail *m, const char *name, struct err *e)
{
	const struct ipc_agent *a = agents_find(m->p.agents, name);

	if (!a)
		err_set(e, ERR_NOT_FOUND, "there is no agent %.60s", name);
	return a;
}

static void count_waiting(void *arg, const char *who, uint64_t count, uint64_t bytes)
{
	struct mailbox *b = mailbox_find(((struct mail *)arg)->boxes, who, NULL);

	b->count = count;
	b->bytes = bytes;
}

static void count_sent(void *arg, const char *who, uint64_t count, uint64_t bytes)
{
	mailbox_find(((struct mail *)arg)->boxes, who, NULL)->sent = count;
}

static void count_gone(void *arg, const char *who, uint64_t count, uint64_t bytes)
{
	mailbox_forget(mailbox_find(((struct mail *)arg)->boxes, who, NULL), count, bytes);
}

static void count_forgotten(void *arg, const char *who, uint64_t count, uint64_t bytes)
{
	struct mailbox *b = mailbox_find(((struct mail *)arg)->boxes, who, NULL);

	b->sent -= b->sent < count ? b->sent : count;
}

static void count_nothing(void *arg, const char *who, uint64_t count, uint64_t bytes)
{
}

/* Old mail goes, some at a time. */
static void on_expiry(void *arg)
{
	static store_mail_count *const calls[] = {[STORED_MAIL] = count_gone,
						  [STORED_SEEN] = count_forgotten,
						  [STORED_TASKS] = count_nothing};
	struct mail *m = arg;
	bool has_more = false;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(calls); i++)
		has_more |= store_mail_expire(m->p.store, (enum store_mail_kind)i, unix_ms(),
					      calls[i], m, &e) > 0;
	loop_timer_set(m->p.loop, &m->expiry, has_more ? EXPIRY_MORE_MS : EXPIRY_MS);
}

struct mail *mail_new(const struct mail_parts *parts)
{
	struct mail *m = must_alloc(calloc(1, sizeof(*m)));
	struct err e;

	if (sodium_init() < 0)
		abort();
	m->p = *parts;
	m->boxes = mailboxes_new();
	m->expiry = (struct loop_timer){.call = on_expiry, .arg = m};
	(void)!store_mail_counts(m->p.store, STORED_MAIL, count_waiting, m, &e);
	(void)!store_mail_counts(m->p.store, STORED_SEEN, count_sent, m, &e);
	on_expiry(m);
	return m;
}

void mail_free(struct mail *m)
{
	if (!m)
		return;
	loop_timer_stop(m->p.loop, &m->expiry);
	mailboxes_free(m->boxes);
	free(m);
}

/* ---- sending ---- */

struct sending {
	struct mail *m;
	struct agent_message msg;
	char *content;
	struct mailbox *from, *to;
	json_done done;
	void *arg;
};

static void sending_end(struct sending *s, json_t *value, const struct err *e)
{
	s->from->sending--;
	if (e)
		mailbox_unreserve(s->from, s->to, s->msg.size);
	s->done(s->arg, value, e);
	free(s->content);
	free(s);
}

static void on_signed(void *arg, const struct ipc *reply, int fd)
{
	struct sending *s = arg;
	struct err e = reply->err;

	close_fd(&fd);
	if (!e.kind && reply->type != IPC_MESSAGE_IS)
		err_set(&e, ERR_SYSTEM, "the message was not signed");
	if (!e.kind) {
		s->msg = reply->message;
		/* Of an agent that was registered again meanwhile: the mailbox is another one. */
		if (!str_equal(s->msg.to_uid, s->to->uid) ||
		    !str_equal(s->msg.from_uid, s->from->uid))
			err_set(&e, ERR_CONFLICT, "the agents have changed; try again");
		else
			(void)!store_mail_put(s->m->p.store, &s->msg, s->content, unix_ms(), &e);
	}
	if (e.kind) {
		sending_end(s, NULL, &e);
		return;
	}
	mail_wake(s->to);
	sending_end(s,
		    json_pack("{s:s,s:s,s:s,s:o}", "id", s->msg.id, "from", s->msg.from, "to",
			      s->msg.to, "time", time_json(s->msg.time_ms)),
		    NULL);
}

static int fill_texts(struct agent_message *msg, const struct mail_draft *d, struct err *e)
{
	const struct {
		const char *text, *field;
		char *to;
		size_t size;
	} texts[] = {
		{d->from, "from", msg->from, sizeof(msg->from)},
		{d->to, "to", msg->to, sizeof(msg->to)},
		{d->id ? d->id : "", "id", msg->id, sizeof(msg->id)},
		{d->reply_to ? d->reply_to : "", "reply_to", msg->reply_to, sizeof(msg->reply_to)},
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if ((size_t)snprintf(texts[i].to, texts[i].size, "%s", texts[i].text) >=
		    texts[i].size)
			return err_field(e, ERR_INVALID, texts[i].field,
					 "%s: longer than %zu bytes", texts[i].field,
					 texts[i].size - 1);
	if (!d->id && id_letters(msg->id, ID_LETTERS) < 0)
		return err_sys(e, "cannot get random numbers");
	if (!str_only(msg->id, STR_ALNUM "._-", 1, AGENT_MESSAGE_ID - 1))
		return err_field(e, ERR_INVALID, "id", "id: letters, digits, '.', '_', '-'");
	if (d->len > AGENT_MESSAGE_CONTENT) {
		err_field(e, ERR_LIMIT, "content", "content: longer than %d bytes",
			  AGENT_MESSAGE_CONTENT);
		e->errnum = EFBIG;
		return -1;
	}
	return 0;
}

static int check_task(struct mail *m, const struct ipc_agent *from, const struct ipc_agent *to,
		      struct agent_message *msg, struct err *e)
{
	uint64_t now = unix_ms();
	int depth = store_task_depth(m->p.store, from->uid, now);

	if (depth >= MAIL_DEPTH)
		return err_field(e, ERR_LIMIT, "to", "to: a chain of tasks has at most %d links",
				 MAIL_DEPTH);
	if (store_task_waits(m->p.store, from->uid, to->uid, now))
		return err_field(e, ERR_CONFLICT, "to", "to: %s waits for %s", to->name,
				 from->name);
	msg->depth = (uint8_t)(depth + 1);
	return 0;
}

/* The rules; those of trust levels, owners and registration the broker checks again. */
static int check(struct mail *m, struct agent_message *msg, const struct ipc_agent **ret_from,
		 const struct ipc_agent **ret_to, struct err *e)
{
	const struct ipc_agent *from = mail_agent(m, msg->from, e),
			       *to = agents_find(m->p.agents, msg->to);

	if (!from)
		return -1;
	if (!to || !str_equal(from->owner, to->owner))
		return err_field(e, ERR_NOT_FOUND, "to", "to: there is no agent %.60s", msg->to);
	if (msg->kind == AGENT_TASK && !trust_may_delegate(from->effective, to->effective))
		return err_field(e, ERR_DENIED, "to", "to: level %d may not delegate to level %d",
				 from->effective, to->effective);
	if (msg->kind == AGENT_NOTE && !trust_may_talk(from->effective, to->effective))
		return err_field(e, ERR_DENIED, "to", "to: level %d may not talk to level %d",
				 from->effective, to->effective);
	if (msg->kind == AGENT_REPLY &&
	    !store_task_is_open(m->p.store, to->uid, msg->reply_to, from->uid, unix_ms()))
		return err_field(e, ERR_NOT_FOUND, "reply_to",
				 "reply_to: %s has no open task of this id from %s", from->name,
				 to->name);
	*ret_from = from;
	*ret_to = to;
	return msg->kind == AGENT_TASK ? check_task(m, from, to, msg, e) : 0;
}

/* Nobody fills a mailbox for all others. An answer that was asked for comes through. */
static int check_share(struct mail *m, const struct mailbox *box, const struct agent_message *msg,
		       const struct ipc_agent *from, struct err *e)
{
	if (msg->kind == AGENT_REPLY || !mailbox_is_tight(box) ||
	    store_mail_from(m->p.store, box->uid, from->uid) < BOX_FEW)
		return 0;
	return err_field(e, ERR_LIMIT, "to",
			 "to: its mailbox is nearly full, and has %d messages of %s", BOX_FEW,
			 from->name);
}

void mail_send(struct mail *m, const struct mail_draft *d, json_done done, void *arg)
{
	struct ipc ask = {.type = IPC_MESSAGE_SIGN};
	struct agent_message *msg = &ask.message;
	const struct ipc_agent *from = NULL, *to = NULL;
	struct mailbox *sender = NULL, *box = NULL;
	struct sending *s;
	struct err e = {0};

	msg->kind = (uint8_t)d->kind;
	msg->time_ms = unix_ms();
	if (fill_texts(msg, d, &e) == 0 && check(m, msg, &from, &to, &e) == 0) {
		sender = mailbox_find(m->boxes, from->uid, from->owner);
		box = mailbox_find(m->boxes, to->uid, to->owner);
		if (check_share(m, box, msg, from, &e) == 0)
			(void)!mailbox_reserve(m->boxes, sender, box, d->len, &e);
	}
	if (e.kind) {
		mail_answer_later(m, done, arg, NULL, &e);
		return;
	}
	message_digest(msg, d->content, d->len);
	s = must_alloc(malloc(sizeof(*s)));
	*s = (struct sending){m, *msg, must_alloc(malloc(d->len + 1)), sender, box, done, arg};
	memcpy(s->content, d->content, d->len);
	broker_ask(m->p.broker, &ask, -1, on_signed, s);
}
