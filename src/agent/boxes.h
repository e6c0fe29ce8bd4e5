/*
 * What waits in each mailbox, and what each sender has sent within the last hour: the bounds of both. Counted here, so that
 * nothing has to be counted in the database for each message.
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "wire/ids.h"

#define BOX_MESSAGES 1024
#define BOX_BYTES (8u << 20)
#define OWNER_BYTES (64u << 20) /* of all mailboxes of an owner */
#define SENT_MOST 65536		/* within an hour: so many are remembered */
#define SENDING_MOST 64		/* at a time */
#define WAITING_MOST 16

struct mail_wait;

struct mailbox {
	char uid[IPC_ID], owner[IPC_ID]; /* uid behind a "<": what this agent has verified */
	uint64_t count, bytes;		 /* with those that are being sent */
	uint64_t sent, sending;
	struct mail_wait *waits;
	unsigned waiting;
	struct mailbox *next;
};

struct mailboxes;

struct mailboxes *mailboxes_new(void);
void mailboxes_free(struct mailboxes *b);
/* Makes it if there is none. owner NULL: not known yet. */
struct mailbox *mailbox_find(struct mailboxes *b, const char *uid, const char *owner);
/* Nearly full: the rest of the room is for senders that have less than BOX_FEW messages in it. */
#define BOX_FEW 32
bool mailbox_is_tight(const struct mailbox *b);
/* Room for one more message? ERR_LIMIT says what is full. It is counted until it is given back. */
int mailbox_reserve(struct mailboxes *b, struct mailbox *from, struct mailbox *to, size_t len,
		    struct err *e);
void mailbox_unreserve(struct mailbox *from, struct mailbox *to, size_t len);
/* So much was read, or has become too old. */
void mailbox_forget(struct mailbox *b, uint64_t count, uint64_t bytes);
