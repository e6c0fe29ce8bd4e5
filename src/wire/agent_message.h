/*
 * A message between agents, and the bytes that its signature is made over. Every field is in them, each with its
 * length in front: no two messages have the same bytes. Of the content they have the length and the BLAKE2b-256.
 *
 *   "cloche message 1" 0 | sender | sender's registration | recipient | recipient's registration | id | reply_to
 *   | kind | trust | depth | epoch | time | size | digest        texts: u32 length, bytes; numbers: u64
 *
 * All numbers are little-endian. docs/agents.md has them for those who verify by themselves.
 */
#pragma once

#include "base/base.h"
#include "wire/ids.h"

#define AGENT_MESSAGE_ID 64 /* of the sender's choice: letters, digits, '.', '_', '-' */
#define AGENT_MESSAGE_CONTENT 65536
#define AGENT_MESSAGE_DIGEST 32
#define AGENT_MESSAGE_SIGNATURE 64
#define AGENT_PUBLIC_KEY 32
/* A message is made and verified by its time within these; it waits in a mailbox, and its key is good, for a day. */
#define AGENT_MESSAGE_PAST_MS (5 * 60 * 1000)
#define AGENT_MESSAGE_FUTURE_MS (60 * 1000)
#define AGENT_MESSAGE_LIFE_MS (24 * 3600 * 1000)

enum agent_message_kind { AGENT_NOTE, AGENT_TASK, AGENT_REPLY, AGENT_MESSAGE_KINDS };

struct agent_message {
	char from[IPC_NAME], from_uid[IPC_ID];
	char to[IPC_NAME], to_uid[IPC_ID];
	char id[AGENT_MESSAGE_ID];
	char reply_to
		[AGENT_MESSAGE_ID]; /* AGENT_REPLY: the task's id, which is its sender's; else "" */
	uint64_t time_ms;	    /* unix */
	uint32_t epoch;		    /* of the sender's key */
	uint32_t size;
	uint8_t kind, trust; /* trust: the sender's level */
	uint8_t depth;	     /* AGENT_TASK: of the chain of delegations */
	unsigned char digest[AGENT_MESSAGE_DIGEST];
	unsigned char signature[AGENT_MESSAGE_SIGNATURE];
};

void agent_message_encode(const struct agent_message *m, struct buf *ret);
/* Are its texts and its kind such as can be? Signature and time are not judged. */
bool agent_message_is_sane(const struct agent_message *m);
