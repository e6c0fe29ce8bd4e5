/*
 * cloche-guest init [--memory BYTES] [--pids N] [--lives-on 1] [--root-inside KIND] [--own-seccomp 1]   pid 1; fds as wire/guest.h says
 * cloche-guest pack | pack-layer                  see guest.h
 * cloche-guest check
 * cloche-guest unpack | unpack-as-user | assemble
 * cloche-guest warm-host MODULE...                pid 1 of a warm host (warm/warm.h)
 * cloche-guest bridge DIRECTORY                   see bridge.h
 */
#include "guest/link/bridge.h"
#include "guest/guest.h"
#include "kern/seccomp.h"
#include "guest/warm/host.h"
#include "wire/guest.h"
#include "warm/preload/zygote.h"

static int usage(void)
{
	fprintf(stderr, "cloche-guest: it is started by cloched\n");
	return 125;
}

static int open_or_none(int fd)
{
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -1 : fd;
}

/* Code inside can read the command line, so it is wiped. */
static int init(int argc, char **argv)
{
	struct guest_options o = {0};
	uint64_t own_seccomp = 0;
	struct err e;

	for (int i = 2; i + 1 < argc; i += 2) {
		uint64_t *value = str_equal(argv[i], "--memory")	? &o.memory_bytes
				  : str_equal(argv[i], "--pids")	? &o.pids
				  : str_equal(argv[i], "--lives-on")	? &o.lives_on
				  : str_equal(argv[i], "--root-inside") ? &o.root_inside
				  : str_equal(argv[i], "--own-seccomp") ? &own_seccomp
									: NULL;

		if (!value || parse_count(argv[i + 1], value, &e) < 0)
			return usage();
	}
	for (int i = 0; i < 3; i++)
		if (fcntl(i, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDWR);
	if (own_seccomp && (seccomp_own_take(WARM_HOST_FD_SETTINGS, 0, &e) < 0 ||
			    close(WARM_HOST_FD_SETTINGS) < 0))
		return usage();
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

/*
 * A file that could not be opened is replaced by /dev/null, so that no other file gets its number.
 */
static void keep_place(int fd)
{
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
		return;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0 && null != fd) {
		dup3(null, fd, O_CLOEXEC);
		close(null);
	}
}

/* argv: warm-host MODULE...; the fds of its settings and of its lanes' cgroups are open. */
static int warm_host(int argc, char **argv)
{
	struct warm_host_settings settings;
	struct warm_host_options n = {.first_join = WARM_HOST_FD_JOINS};
	struct guest_options o = {.warm_host = &n, .notify = -1};
	struct list interpreter = {0}, environment = {0};
	struct err e;

	if (pread(WARM_HOST_FD_SETTINGS, &settings, sizeof(settings), 0) !=
	    (ssize_t)sizeof(settings))
		return usage();
	if (settings.has_own_seccomp &&
	    seccomp_own_take(WARM_HOST_FD_SETTINGS, sizeof(settings), &e) < 0)
		return usage();
	close(WARM_HOST_FD_SETTINGS);
	n.settings = settings.sandbox;
	memcpy(n.lanes, settings.lanes, sizeof(n.lanes));
	memcpy(n.first, settings.first, sizeof(n.first));
	for (int i = 0;
	     i < (int)(n.lanes[0] + n.lanes[1] + n.lanes[2]) * warm_file_count(&n.settings); i++)
		keep_place(WARM_HOST_FD_JOINS + i);
	list_add(&interpreter, "python3");
	list_add(&interpreter, "/run/cloche/zygote.py");
	for (int i = 2; i < argc; i++)
		list_add(&interpreter, argv[i]);
	for (char **e = environ; *e; e++)
		list_add(&environment, *e);
	list_add(&environment, "LD_PRELOAD=/run/cloche/zygote.so");
	/* A symbol that is resolved lazily would be resolved by each task. */
	list_add(&environment, "LD_BIND_NOW=1");
	list_add(&environment, ZYGOTE_ENV "=3");
	n.interpreter = interpreter.items;
	n.environment = environment.items;
	o.listener = open_or_none(GUEST_FD_LISTENER);
	o.dns = open_or_none(GUEST_FD_DNS);
	o.scratch = open_or_none(GUEST_FD_SCRATCH);
	return o.listener < 0 ? usage() : guest_serve(&o);
}

int main(int argc, char **argv)
{
	if (argc >= 2 && str_equal(argv[1], "warm-host"))
		return warm_host(argc, argv);
	if (argc >= 2 && argc % 2 == 0 && str_equal(argv[1], "init"))
		return init(argc, argv);
	if (argc == 2 && str_equal(argv[1], "pack-layer"))
		return guest_pack_layer();
	if (argc == 2 && str_equal(argv[1], "pack"))
		return guest_pack();
	if (argc == 2 && str_equal(argv[1], "pack-was"))
		return guest_pack_was();
	if (argc == 2 && str_equal(argv[1], "check"))
		return guest_check();
	if (argc == 2 && (str_equal(argv[1], "unpack") || str_equal(argv[1], "unpack-as-user")))
		return guest_unpack(str_equal(argv[1], "unpack"));
	if (argc == 2 && str_equal(argv[1], "assemble"))
		return guest_assemble();
	if (argc == 3 && str_equal(argv[1], "bridge"))
		return guest_bridge(argv[2]);
	return usage();
}
