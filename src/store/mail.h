/*
 * Mail of agents in the store: what waits for each mailbox, which messages were seen, and which tasks are open. A
 * mailbox is named by the registration (uid) of its agent.
 *
 * A message is stored together with what makes its repetition an error, in one transaction: what was acknowledged
 * is neither lost nor stored twice, whenever the process is killed.
 */
#pragma once

#include "store/store.h"
#include "wire/agent_message.h"

struct stored_mail {
	uint64_t seq;		/* grows, also over other mailboxes; never used again */
	struct agent_message m; /* without its digest */
	const void *content;	/* valid during the call only */
};

/* ERR_CONFLICT: this sender has sent a message of this id. A task is open from then on; a reply closes its task. */
int store_mail_put(struct store *s, const struct agent_message *m, const void *content,
		   uint64_t now_ms, struct err *e);
/* Each message of a mailbox behind `after`, at most so many. */
int store_mail_read(struct store *s, const char *box, uint64_t after, uint32_t limit,
		    uint64_t now_ms, void (*call)(void *arg, const struct stored_mail *mail),
		    void *arg, struct err *e);
/* Up to this one they have arrived. So many messages and bytes were removed. */
int store_mail_drop(struct store *s, const char *box, uint64_t through, uint64_t *ret_count,
		    uint64_t *ret_bytes, struct err *e);
int store_mail_drop_one(struct store *s, uint64_t seq, struct err *e);
/* Remembers a message that came another way. ERR_CONFLICT: it was seen. */
int store_mail_see(struct store *s, const char *who, const char *id, uint64_t until_ms,
		   struct err *e);
/* When the memory of messages began: what is older may have been seen. */
uint64_t store_mail_floor(struct store *s);
/* How many messages of this sender wait in a mailbox. */
uint64_t store_mail_from(struct store *s, const char *box, const char *sender_uid);
/* What is in the store, of one kind: so many, with so many bytes, of a mailbox or a sender. */
typedef void store_mail_count(void *arg, const char *who, uint64_t count, uint64_t bytes);
enum store_mail_kind { STORED_MAIL, STORED_SEEN, STORED_TASKS };
/* STORED_MAIL: what waits, for each mailbox; STORED_SEEN: what is remembered, for each sender. */
int store_mail_counts(struct store *s, enum store_mail_kind kind, store_mail_count *call, void *arg,
		      struct err *e);
/* Removes some of what is too old, and tells it. 1: there may be more; 0; -1. */
int store_mail_expire(struct store *s, enum store_mail_kind kind, uint64_t now_ms,
		      store_mail_count *call, void *arg, struct err *e);

/* ---- open tasks ---- */
/* The deepest task that this agent works on; 0: none. */
int store_task_depth(struct store *s, const char *who, uint64_t now_ms);
/* Does the other wait for this agent, directly or over others? An agent waits for itself, too. */
bool store_task_waits(struct store *s, const char *who, const char *other, uint64_t now_ms);
/* Is there a task of this id that the sender has given to this recipient, and nobody has answered? */
bool store_task_is_open(struct store *s, const char *sender, const char *id, const char *recipient,
			uint64_t now_ms);
