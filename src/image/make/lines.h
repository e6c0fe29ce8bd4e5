/* Lines of cloche-image parse: KEY, and up to three words. */
#pragma once

#include "base/base.h"

struct line {
	char key[16], a[512], b[32], c[400];
};

/* The line at *at, which moves behind it; false at the end. */
bool lines_next(const struct buf *says, size_t *at, struct line *ret);
