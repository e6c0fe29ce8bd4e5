/*
 * Theory of operation
 *
 * The last close of a file runs in the process that closes it, and an exit waits for that. A kernel thread
 * can do it instead: the files are put into a message in the queue of a Unix socket, and that socket is
 * put into the same message. No process can ever receive the message then. The kernel's garbage collector
 * of such cycles closes the files; each close of a Unix socket starts it while fds are in flight (unix(7)).
 */
#include "kern/close_async.h"

#include "base/fd_message.h"
#include "kern/sys.h"

#include <sys/socket.h>

void close_async(int *fds, size_t count)
{
	int pair[2] = {-1, -1}, all[CLOSE_ASYNC_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < count && n < CLOSE_ASYNC_MAX; i++)
		if (fds[i] >= 0)
			all[n++] = fds[i];
	/* If that fails, the files are closed as usual. */
	if (n > 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0) {
		all[n++] = pair[1];
		(void)!fd_message_send(pair[0], "", 1, all, n, MSG_DONTWAIT);
	}
	for (size_t i = 0; i < count; i++)
		close_fd(&fds[i]);
	/*
	 * The last close starts the collector, at once and on this very processor. If this process
	 * still had one of the files by then, it would do the last close itself.
	 */
	close_fd(&pair[1]);
	close_fd(&pair[0]);
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void close_async_others(int first, const int *keep, size_t count)
{
	int sorted[16];

	if (count > ARRAY_LEN(sorted))
		return;
	memcpy(sorted, keep, count * sizeof(*keep));
	qsort(sorted, count, sizeof(*sorted), compare);
	for (size_t i = 0; i < count; i++) {
		if (sorted[i] > first)
			sys_close_range((unsigned)first, (unsigned)sorted[i] - 1, 0);
		if (sorted[i] >= first)
			first = sorted[i] + 1;
	}
	sys_close_range((unsigned)first, ~0u, 0);
}
