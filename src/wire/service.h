/*
 * The answers of an E2B-compatible service to our requests: a sandbox that was made, an error, and the events
 * of a process. None of it is trusted: lengths are bounded, names checked, everything else refused.
 */
#pragma once

#include "base/base.h"
#include "wire/ipc.h"

#define SERVICE_TOKEN 256
#define SERVICE_ANSWER (256u << 10)    /* the longest answer that is read */
#define SERVICE_ENVELOPE (1024u << 10) /* and the longest message of a stream */

struct service_sandbox {
	char name[REMOTE_ID];
	char token[SERVICE_TOKEN]; /* for its envd, or "" */
};

/* Of create, connect and resume. */
int service_sandbox_parse(const char *text, size_t len, struct service_sandbox *ret, struct err *e);

/* The first sandbox of a list that is ours by its metadata; 0: none, 1: *ret is set, -1: not a list. */
int service_list_parse(const char *text, size_t len, const char *id, char ret[REMOTE_ID],
		       struct err *e);

/* Explains a refused request; what names the request. Always sets e and returns -1. */
int service_refusal(const char *what, long status, const char *text, size_t len, struct err *e);

enum service_event_kind {
	SERVICE_NOTHING, /* a keepalive, or an unknown event */
	SERVICE_START,	 /* pid */
	SERVICE_OUT,	 /* bytes were added to out */
	SERVICE_ERR,	 /* bytes of stderr were added to out */
	SERVICE_EXIT,	 /* text says how */
	SERVICE_END,	 /* the stream is over; text says why, or "" */
};

struct service_event {
	enum service_event_kind kind;
	uint32_t pid;
	char text[200];
};

/*
 * Takes one message of the stream from in; what a process wrote goes to out. 1: *ret is set; 0: more
 * bytes are needed; -1: not what a service says.
 */
int service_event_next(struct buf *in, struct buf *out, struct service_event *ret, struct err *e);
