/*
 * Small files in and out of a sandbox, whole and from memory; large ones are streamed by v1_files.c.
 * Callbacks come once, never from within; none after file_drop, which NULL survives.
 */
#pragma once

#include "base/err.h"
#include "manager/manager.h"

#include <stddef.h>
#include <stdint.h>

struct file_call;

struct file_where {
	struct loop *loop;
	struct sandbox *sandbox;
	const char *path;
};

struct file_what {
	uint32_t mode;
	const char *bytes; /* must live until done */
	size_t len;
};

typedef void (*file_was_put)(void *arg, const struct err *e);
struct file_call *file_put(const struct file_where *w, const struct file_what *what,
			   file_was_put done, void *arg);

/* bytes are valid during the call only; real_size may be more than len. e: it could not be read. */
typedef void (*file_got)(void *arg, const char *bytes, size_t len, uint64_t real_size,
			 const struct err *e);
struct file_call *file_get(const struct file_where *w, size_t max, file_got done, void *arg);

/* The paths below w->path that match the glob, at most max of them. */
typedef void (*file_found)(void *arg, const struct list *paths, const struct err *e);
struct file_call *file_find(const struct file_where *w, const char *glob, uint32_t max,
			    file_found done, void *arg);

void file_drop(struct file_call *f);
