/* Cleanup by scope: `auto_close int fd = -1; auto_free char *s = NULL;`, handed over with take_*. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static inline void auto_close_fn(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void auto_free_fn(void *p)
{
	free(*(void **)p);
}

#define auto_close __attribute__((cleanup(auto_close_fn)))
#define auto_free __attribute__((cleanup(auto_free_fn)))

static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
