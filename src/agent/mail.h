/*
 * Mail between agents: signed (the signer's, by way of the broker), durable (store/mail.h), bounded (boxes.h).
 *
 *   mail_send(m, &draft, done, arg);              {"id","to","time"} once it is stored; ERR_CONFLICT: it was before
 *   mail_receive(m, name, &ask, done, arg);       {"messages":[...],"refused"}: what comes behind ask.after
 *   mail_verify(m, name, message, done, arg);     one that came another way: once, and while it is fresh
 *
 * A reader says what it has by `after`, the number of the last message that it has dealt with: with `acks` everything up
 * to there is removed. So a message is given until then, and a reader that remembers the number sees each once.
 *
 * A task opens a wait: its sender waits for a reply. Nobody may give a task to somebody who waits for it, directly or
 * over others, and a chain of tasks has at most MAIL_DEPTH links. Only the recipient of an open task may reply to it,
 * once, whatever the trust levels.
 *
 * No callback comes from within the function that it was given to.
 */
#pragma once

#include "agent/registry.h"
#include "base/loop.h"
#include "manager/broker.h"
#include "wire/agent_message.h"

#define MAIL_DEPTH 8
#define MAIL_WAIT_MS 60000
#define MAIL_PAGE 100

struct store;

/* All of them outlive it. audit may be NULL. */
struct mail_parts {
	struct loop *loop;
	struct store *store;
	struct broker *broker;
	const struct agents *agents;
};

struct mail;

struct mail *mail_new(const struct mail_parts *parts);
void mail_free(struct mail *m);

struct mail_draft {
	const char *from, *to, *content;
	size_t len;
	const char *id;	      /* NULL: one is made */
	const char *reply_to; /* AGENT_REPLY: of the task */
	enum agent_message_kind kind;
};
/* Everything is copied. */
void mail_send(struct mail *m, const struct mail_draft *draft, json_done done, void *arg);

struct mail_ask {
	uint64_t after;
	uint32_t limit;	  /* 0: MAIL_PAGE */
	uint64_t wait_ms; /* if there is nothing yet */
	bool acks;
};
struct mail_wait;
/* The wait, until done is called; NULL: done will be called soon. */
struct mail_wait *mail_receive(struct mail *m, const char *name, const struct mail_ask *ask,
			       json_done done, void *arg);
/* Ends it as if its time were over. */
void mail_stop_waiting(struct mail_wait *w);

/* Removes what is up to `through`. */
int mail_ack(struct mail *m, const char *name, uint64_t through, struct err *e);
void mail_verify(struct mail *m, const char *name, const json_t *message, json_done done,
		 void *arg);
/* The present key and, while it counts, the one before it: {"keys":[{"epoch","public_key"}]}. */
void mail_keys(struct mail *m, const char *name, json_done done, void *arg);

/* ---- messages as JSON (message_json.c) ---- */
json_t *message_to_json(uint64_t seq, const struct agent_message *m, const void *content);
/* As message_to_json writes it, other members aside; fills in size and digest. */
int message_from_json(const json_t *o, struct agent_message *ret, struct err *e);
void message_digest(struct agent_message *m, const void *content, size_t len);
