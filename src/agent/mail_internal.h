/* What sending and reading mail share. */
#pragma once

#include "agent/boxes.h"
#include "agent/mail.h"
#include "store/mail.h"

struct mail {
	struct mail_parts p;
	struct mailboxes *boxes;
	struct loop_timer expiry;
};

/* done from the loop: value, or e if it is not NULL. Takes value. */
void mail_answer_later(struct mail *m, json_done done, void *arg, json_t *value,
		       const struct err *e);
/* The agent of this name, or NULL and e. */
const struct ipc_agent *mail_agent(const struct mail *m, const char *name, struct err *e);

/* ---- receive.c ---- */
/* Something has come. */
void mail_wake(struct mailbox *b);
