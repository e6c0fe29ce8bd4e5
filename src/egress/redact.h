/*
 * Replaces texts in a stream, also where a text is split over pieces. Bytes are held back only while they may be
 * the beginning of such a text, so that a stream of small events is not delayed.
 */
#pragma once

#include "base/base.h"

struct redact_needle {
	const char *find, *put;
	size_t find_len, put_len;
};

/* The texts of needles belong to the caller. Zero-initialised: nothing to find. */
struct redact {
	struct redact_needle *needles;
	size_t count, room;
	bool keeps_length; /* what is put in is cut, or filled with '*', to the length of what was there */
	struct buf held;
};

void redact_add(struct redact *r, const char *find, size_t find_len, const char *put,
		size_t put_len);
/* Adds to out what is known; the number of replacements. */
size_t redact_feed(struct redact *r, const char *bytes, size_t len, struct buf *out);
/* The stream is complete: what was held back is no needle. */
void redact_end(struct redact *r, struct buf *out);
void redact_done(struct redact *r);
/* A whole text: NULL if nothing was to be replaced, else a new one. */
char *redact_text(const struct redact *r, const char *text);
