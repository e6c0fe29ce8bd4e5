/*
 * What an agent may have signed, and what still counts when it is delivered. The front is not believed: the sender
 * must be registered and live (or be outside of sandboxes), both must have one owner, and trust levels must allow it
 * now. What a signature says of the sender (registration, key, trust) is filled in here.
 */
#include "auth/trust.h"
#include "daemon/broker/broker_internal.h"

/* Does a sandbox of this agent live? One that is paused cannot have asked. */
static bool is_live(const struct daemon *d, const struct ipc_agent *a)
{
	if (a->is_outside)
		return true;
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (const struct box *b = d->boxes[i]; b; b = b->next)
			if (b->state == BOX_LIVE && !b->i.info.paused &&
			    str_equal(b->i.info.agent_uid, a->uid))
				return true;
	return false;
}

/* A reply goes back to who may delegate, whatever the way there: it was asked for. */
static bool may_send(const struct daemon *d, const struct ipc_agent *from,
		     const struct ipc_agent *to, uint8_t kind)
{
	int x = agent_level_now(d, from), y = agent_level_now(d, to);

	return kind == AGENT_TASK    ? trust_may_delegate(x, y)
	       : kind == AGENT_REPLY ? trust_may_talk(x, y) || trust_may_delegate(y, x)
				     : trust_may_talk(x, y);
}

/* Both ends, if they are registered, have one owner, and trust levels allow this kind of message. */
static int find_ends(const struct daemon *d, const struct agent_message *m,
		     const struct ipc_agent **ret_from, const struct ipc_agent **ret_to,
		     struct err *e)
{
	const struct ipc_agent *from = agent_find(d, m->from), *to = agent_find(d, m->to);

	if (!agent_message_is_sane(m))
		return err_set(e, ERR_INVALID, "that is no message");
	if (!from)
		return err_set(e, ERR_DENIED, "nobody registered the sender");
	if (!to || !str_equal(from->owner, to->owner))
		return err_field(e, ERR_NOT_FOUND, "to", "to: there is no agent %s", m->to);
	if (!may_send(d, from, to, m->kind))
		return err_field(e, ERR_DENIED, "to", "to: trust levels do not allow that");
	*ret_from = from;
	*ret_to = to;
	return 0;
}

void message_request_sign(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct ipc_agent *from, *to;
	struct ipc copy = *m;
	struct err e = {0};

	if (find_ends(d, &m->message, &from, &to, &e) == 0 && !is_live(d, from))
		err_set(&e, ERR_DENIED, "no sandbox of the sender runs");
	if (e.kind) {
		front_done(d, who, "", &e);
		return;
	}
	memcpy(copy.message.from_uid, from->uid, sizeof(from->uid));
	memcpy(copy.message.to_uid, to->uid, sizeof(to->uid));
	copy.message.epoch = from->epoch;
	copy.message.trust = (uint8_t)agent_level_now(d, from);
	daemon_note(d, "message.sign", m->message.from, "allow", m->message.to);
	signer_ask(d, who, &copy);
}

/* The present key, or the one before it for as long as a message lives. */
static bool epoch_counts(const struct ipc_agent *a, uint32_t epoch)
{
	return epoch == a->epoch ||
	       (epoch + 1 == a->epoch && unix_ms() < a->rotated_ms + AGENT_MESSAGE_LIFE_MS);
}

void message_request_verify(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct agent_message *a = &m->message;
	const struct ipc_agent *from, *to;
	struct ipc copy = *m;
	struct err e = {0};

	if (find_ends(d, a, &from, &to, &e) == 0 &&
	    (!str_equal(a->from_uid, from->uid) || !str_equal(a->to_uid, to->uid)))
		err_set(&e, ERR_DENIED, "it is of another agent of that name");
	else if (!e.kind && !epoch_counts(from, a->epoch))
		err_set(&e, ERR_DENIED, "its key counts no longer");
	if (e.kind)
		front_done(d, who, "", &e);
	else
		signer_ask(d, who, &copy);
}

void message_request_key(struct daemon *d, struct requester who, const struct ipc *m)
{
	const struct ipc_agent *a = agent_find(d, m->key.name);
	struct ipc copy = *m;
	struct err e = {0};

	if (!a || !epoch_counts(a, m->key.epoch)) {
		err_set(&e, ERR_NOT_FOUND, "there is no such key");
		front_done(d, who, "", &e);
		return;
	}
	memcpy(copy.key.uid, a->uid, sizeof(a->uid));
	signer_ask(d, who, &copy);
}
