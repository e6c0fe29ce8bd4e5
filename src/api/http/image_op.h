/*
 * Work on the store of images for an exchange. Archives are passed between the client and the process that reads or
 * writes them, never kept here; the body of an import (BODY_STREAM) and the answer of an export need nothing from the
 * door. The work is given up if the client goes away, and freed with the exchange.
 */
#pragma once

#include "api/http/http.h"
#include "image/make/job.h"
#include "manager/manager.h"

struct image_op;

struct image_op_ops {
	/* Notes, progress, images that were made. May be NULL. */
	void (*said)(void *arg, const struct image_said *s);
	/* Answer; not called once an export has begun. */
	void (*end)(void *arg, const struct err *e);
};

struct image_op *image_op_start(struct exchange *x, const struct image_wish *wish,
				const struct image_op_ops *ops, void *arg);
