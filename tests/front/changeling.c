/*
 * A guest in somebody else's hands, for tests of the broker (CLOCHE_GUEST): once it has a link it puts
 * another directory in the place of the sandbox's files, and says no more.
 */
#include "wire/guest.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	struct pollfd caller = {GUEST_FD_LISTENER, POLLIN, 0};
	int other = open("/usr", O_PATH | O_DIRECTORY);

	if (other < 0 || poll(&caller, 1, -1) < 1 || accept(GUEST_FD_LISTENER, NULL, NULL) < 0 ||
	    dup2(other, GUEST_FD_SCRATCH) < 0)
		return 1;
	for (;;)
		pause();
}
