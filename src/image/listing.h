/*
 * What is in a store, as bytes: the broker sends them to the front, which finds images by name and knows their
 * records without a question.
 */
#pragma once

#include "image/image.h"

struct image_known {
	char hex[IMAGE_HEX + 1];
	struct image_record record;
};

struct image_listing {
	struct image_refs refs; /* of all owners */
	struct image_known *images;
	size_t count, room;
};

int image_listing_write(const struct image_store *s, struct buf *ret, struct err *e);
int image_listing_read(const char *bytes, size_t len, struct image_listing *ret, struct err *e);
void image_listing_done(struct image_listing *l);
/* NULL: there is none, or it is damaged. */
const struct image_record *image_listing_find(const struct image_listing *l, const char *hex);
