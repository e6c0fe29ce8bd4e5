/*
 * One piece of work on the store of a daemon, in a process of its own that the broker starts. It speaks to the
 * front on a SOCK_SEQPACKET socket: struct image_said, one message each. Archives pass through a pipe, whose end
 * comes with the first message. When nobody listens any more, the work is given up.
 */
#pragma once

#include "image/make/make.h"
#include "wire/ipc.h"

enum image_said_kind {
	IMAGE_SAID_PIPE, /* with an fd: IMPORT writes to it, EXPORT reads from it */
	IMAGE_SAID_NOTE,
	IMAGE_SAID_PROGRESS,
	IMAGE_SAID_MADE,
	IMAGE_SAID_PRUNED,
	IMAGE_SAID_STEP, /* of a build: done is its origin (0: none), total the length of the text */
	IMAGE_SAID_CACHED, /* the same; it was done before */
	IMAGE_SAID_OUTPUT, /* of its command; total: how many bytes */
	IMAGE_SAID_DONE,   /* the last message, */
	IMAGE_SAID_FAILED, /* or this */
};

struct image_said {
	enum image_said_kind kind;
	uint64_t done, total; /* PROGRESS; PRUNED: images, layers */
	uint64_t bytes;	      /* PRUNED */
	char hex[IMAGE_HEX + 1];
	char name[IPC_IMAGE_NAME]; /* MADE: or "" */
	char text[1024];
	struct err err;
};

struct image_order {
	enum ipc_image_job job;
	const char *store, *owner, *name, *to;
	uint64_t room;
	const struct list *mirrors;
	const char *auth_file;
	bool is_plain;
	const char *worker, *guest; /* programs */
	/* BUILD: */
	int (*build)(struct image_maker *m, const struct image_order *o, struct err *e);
	const char *launcher;
	int recipe; /* file: image/build/recipe.h */
};

/* What comes along with BUILD, at most. */
#define IMAGE_PLAN_MAX (3u << 20)

/* The process ends with this status. */
int image_job_run(const struct image_order *o, int sock);
/* For work that is not done here. */
void image_job_say(const struct image_said *s);
void image_job_say_made(const char *hex, const char *name);
