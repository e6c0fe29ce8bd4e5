/* Reading and writing as a whole, small files as text, and pipes. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Writes everything, in pieces if it must be. -1 with errno. */
int io_write_all(int fd, const void *bytes, size_t len);
/* Reads until there are size bytes or the file ends. Returns how many; -1 with errno. */
ssize_t io_read_all(int fd, void *ret, size_t size);

/*
 * A whole regular file (or memfd) of at most max bytes, from its start and wherever its offset is; with
 * a NUL behind it. The caller frees it. -1 with errno, EINVAL if it is not regular, EFBIG if too large.
 */
int io_read_whole(int fd, size_t max, char **ret, size_t *ret_len);

/*
 * A small file, such as one of /proc, by one read: at most size - 1 bytes and a NUL. Returns the
 * length; -1 with errno, and an empty text. The second takes the path as printf does.
 */
ssize_t io_read_at(int dir, const char *name, char *ret, size_t size);
ssize_t io_read_path(char *ret, size_t size, const char *path_fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes text to a file that exists, by one write. -1 with errno. */
int io_write_at(int dir, const char *name, const char *text);

/* Opens the file behind fd anew, with other flags and an offset of its own. -1 with errno. */
int io_reopen(int fd, int flags);
/* Where the file behind fd is: at most size - 1 bytes. -1 with errno. */
int io_fd_path(int fd, char *ret, size_t size);
/* The path of a file beside the program that runs. -1 if there is no telling, or no room. */
int io_beside_program(const char *name, char *ret, size_t size);
/* Makes a memfd unchangeable for good. -1 with errno. */
int io_seal(int memfd);
/* A sealed memfd with all that the file behind fd holds. -1 with errno. */
int io_sealed_copy(int fd, const char *name);

/* A pipe for a process's standard stream 0, 1 or 2: theirs blocks, ours does not. -1 with errno. */
int io_open_stream(int which, int *ret_ours, int *ret_theirs);
