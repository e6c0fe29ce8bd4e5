/*
 * multipart/form-data, read as it arrives: parts are handed on in pieces. Only the length of a
 * delimiter and the headers of a part are ever held back.
 *
 *   struct multipart m;
 *   multipart_init(&m, content_type, &e);
 *   multipart_add(&m, bytes, len);                     as they come
 *   switch (multipart_next(&m, &event, &e)) ...        1: one event; 0: more bytes needed; -1
 *           MULTIPART_DATA: use up to event.len bytes of event.data, then multipart_used(&m, n)
 *   multipart_done(&m);
 */
#pragma once

#include "base/base.h"

#define MULTIPART_BOUNDARY 70	      /* by RFC 2046 */
#define MULTIPART_HEADERS (16u << 10) /* of one part */

enum multipart_state {
	MULTIPART_BEFORE,  /* before the first delimiter */
	MULTIPART_BETWEEN, /* right behind a delimiter */
	MULTIPART_HEAD,
	MULTIPART_BODY,
	MULTIPART_AFTER,
};

struct multipart {
	char delimiter[MULTIPART_BOUNDARY + 5]; /* "\r\n--boundary" */
	size_t delimiter_len;
	enum multipart_state state;
	struct buf in;
	bool is_bare;	  /* no parts: the body is one file, as if it were a part named "file" */
	bool is_complete; /* nothing more will be added; set by the owner if is_bare */
};

enum multipart_kind { MULTIPART_PART, MULTIPART_DATA, MULTIPART_PART_END, MULTIPART_END };

struct multipart_event {
	enum multipart_kind kind;
	/* MULTIPART_PART: "" if the part has none. */
	char name[256];
	char filename[4097];
	/* MULTIPART_DATA */
	const char *data;
	size_t len;
};

/* Takes the boundary out of a Content-Type. */
int multipart_init(struct multipart *m, const char *content_type, struct err *e);
/* A body without parts, read by the same calls. */
void multipart_init_bare(struct multipart *m);
void multipart_done(struct multipart *m);
void multipart_add(struct multipart *m, const void *bytes, size_t len);
int multipart_next(struct multipart *m, struct multipart_event *ret, struct err *e);
void multipart_used(struct multipart *m, size_t len);
