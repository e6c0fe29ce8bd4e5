/*
 * cloche-guest init [--memory BYTES] [--pids N]   pid 1; fds as wire/guest.h says
 * cloche-guest pack                               see guest.h
 * cloche-guest check
 */
#include "base/parse.h"
#include "base/str.h"
#include "guest/guest.h"
#include "wire/guest.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int usage(void)
{
	fprintf(stderr, "cloche-guest: it is started by cloched\n");
	return 125;
}

static int open_or_none(int fd)
{
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -1 : fd;
}

/* The command line can be read by anybody inside: nothing to see there. */
static int init(int argc, char **argv)
{
	struct guest_options o = {0};
	struct err e;

	for (int i = 2; i + 1 < argc; i += 2) {
		uint64_t *value = str_equal(argv[i], "--memory") ? &o.memory_bytes
				  : str_equal(argv[i], "--pids") ? &o.pids
								 : NULL;

		if (!value || parse_count(argv[i + 1], value, &e) < 0)
			return usage();
	}
	o.listener = open_or_none(GUEST_FD_LISTENER);
	o.notify = open_or_none(GUEST_FD_NOTIFY);
	o.dns = open_or_none(GUEST_FD_DNS);
	o.scratch = open_or_none(GUEST_FD_SCRATCH);
	if (o.listener < 0)
		return usage();
	for (int i = 1; i < argc; i++)
		memset(argv[i], 0, strlen(argv[i]));
	return guest_serve(&o);
}

int main(int argc, char **argv)
{
	if (argc >= 2 && argc % 2 == 0 && str_equal(argv[1], "init"))
		return init(argc, argv);
	if (argc == 2 && str_equal(argv[1], "pack"))
		return guest_pack();
	if (argc == 2 && str_equal(argv[1], "check"))
		return guest_check();
	return usage();
}
