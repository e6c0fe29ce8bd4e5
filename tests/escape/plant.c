/*
 * The canaries: things that code in a sandbox must not reach, put down by a process outside (or in
 * another sandbox). What is reached answers with its tag, so that the case knows whose it was, and
 * says "hit NAME" on stdout, so that the runner knows, too.
 *
 * Everything is best effort: "has=..." lists what could be put down. Ends when stdin does, and
 * takes away what it made.
 */
#include "probe.h"

#include "base/auto.h"

#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	POLL_STDIN,
	POLL_TCP,
	POLL_TCP6,
	POLL_UDP,
	POLL_ABSTRACT,
	POLL_ABSTRACT_DGRAM,
	POLL_STREAM,
	POLL_DGRAM,
	POLL_RO_STREAM,
	POLL_RO_DGRAM,
	POLL_RO_FIFO,
	POLL_RW_STREAM,
	POLL_COUNT
};

struct plant {
	const char *tag, *dir, *ro_dir, *rw_dir;
	struct pollfd polls[POLL_COUNT];
	char has[200];
	int shm, sem, msg;
};

/* Which case a thing belongs to that was reached. */
static const char *const hit_names[POLL_COUNT] = {
	[POLL_TCP] = "host-tcp",
	[POLL_TCP6] = "host-tcp6",
	[POLL_UDP] = "host-udp",
	[POLL_ABSTRACT] = "host-abstract",
	[POLL_ABSTRACT_DGRAM] = "host-abstract-dgram",
	[POLL_STREAM] = "host-socket",
	[POLL_DGRAM] = "host-socket-dgram",
	[POLL_RO_STREAM] = "ro-socket",
	[POLL_RO_DGRAM] = "ro-socket-dgram",
	[POLL_RO_FIFO] = "ro-fifo",
	[POLL_RW_STREAM] = "rw-socket",
};

static const struct {
	int sig;
	const char *hit;
} signals[] = {
	{SIGUSR1, "signal-host"},
	{SIGUSR2, "sigio-host"},
	{SIGURG, "kill-group"},
	{SIGCHLD, "kill-all"},
};

static volatile sig_atomic_t caught[ARRAY_LEN(signals)];
static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock"};

int plant_key(const char *tag)
{
	unsigned h = 5381;

	for (; *tag; tag++)
		h = h * 33 + (unsigned char)*tag;
	return (int)(h & 0x7fffffff) | 1;
}

static void on_signal(int sig)
{
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (signals[i].sig == sig)
			caught[i] = 1;
}

static void mark(struct plant *pl, const char *what)
{
	size_t len = strlen(pl->has);

	snprintf(pl->has + len, sizeof(pl->has) - len, "%s%s", len ? "," : "", what);
}

static int listen_inet(int family, int type, const char *name)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a = {.any.sa_family = (sa_family_t)family};
	socklen_t len = family == AF_INET ? sizeof(a.v4) : sizeof(a.v6);
	int one = 1, fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, &a.any, len) < 0 || (type == SOCK_STREAM && listen(fd, 8) < 0) ||
	    getsockname(fd, &a.any, &len) < 0) {
		close(fd);
		return -1;
	}
	printf("%s=%d\n", name, ntohs(family == AF_INET ? a.v4.sin_port : a.v6.sin6_port));
	return fd;
}

/* A name that starts with '@' is an abstract one. */
static int listen_unix(int type, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
	int fd;

	if (strlen(name) >= sizeof(a.sun_path))
		return -1;
	memcpy(a.sun_path, name, strlen(name));
	if (name[0] == '@')
		a.sun_path[0] = '\0';
	else
		len++;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&a, len) < 0 ||
	    (type == SOCK_STREAM && listen(fd, 8) < 0)) {
		close(fd);
		return -1;
	}
	/* Open to everybody: it is the sandbox that has to keep people away, not the mode. */
	if (name[0] != '@')
		chmod(name, 0777);
	return fd;
}

static void plant_sockets(struct plant *pl)
{
	const struct {
		int at, type;
		const char *dir, *name;
	} rows[] = {
		{POLL_STREAM, SOCK_STREAM, pl->dir, "stream.sock"},
		{POLL_DGRAM, SOCK_DGRAM, pl->dir, "dgram.sock"},
		{POLL_RO_STREAM, SOCK_STREAM, pl->ro_dir, "stream.sock"},
		{POLL_RO_DGRAM, SOCK_DGRAM, pl->ro_dir, "dgram.sock"},
		{POLL_RW_STREAM, SOCK_STREAM, pl->rw_dir, "stream.sock"},
	};

	pl->polls[POLL_TCP].fd = listen_inet(AF_INET, SOCK_STREAM, "tcp");
	pl->polls[POLL_TCP6].fd = listen_inet(AF_INET6, SOCK_STREAM, "tcp6");
	pl->polls[POLL_UDP].fd = listen_inet(AF_INET, SOCK_DGRAM, "udp");
	pl->polls[POLL_ABSTRACT].fd = listen_unix(SOCK_STREAM, fmt_path("@cloche-%s", pl->tag));
	pl->polls[POLL_ABSTRACT_DGRAM].fd =
		listen_unix(SOCK_DGRAM, fmt_path("@cloche-%s-dgram", pl->tag));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].dir)
			pl->polls[rows[i].at].fd = listen_unix(
				rows[i].type, fmt_path("%s/%s", rows[i].dir, rows[i].name));
	if (pl->polls[POLL_ABSTRACT].fd >= 0)
		mark(pl, "abstract");
}

static void plant_fifo(struct plant *pl)
{
	const char *path = pl->ro_dir ? fmt_path("%s/fifo", pl->ro_dir) : NULL;

	if (!path || mkfifo(path, 0666) < 0)
		return;
	chmod(path, 0666);
	pl->polls[POLL_RO_FIFO].fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

static void plant_ipc(struct plant *pl)
{
	struct {
		long type;
		char text[64];
	} message = {.type = 1};
	struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 64};
	int key = plant_key(pl->tag);
	mqd_t mq;

	snprintf(message.text, sizeof(message.text), "%s", pl->tag);
	pl->shm = shmget(key, 4096, IPC_CREAT | 0666);
	if (pl->shm >= 0) {
		char *at = shmat(pl->shm, NULL, 0);

		if (at != (char *)-1) {
			strcpy(at, message.text);
			shmdt(at);
			mark(pl, "shm");
		}
	}
	pl->sem = semget(key, 1, IPC_CREAT | 0666);
	if (pl->sem >= 0)
		mark(pl, "sem");
	pl->msg = msgget(key, IPC_CREAT | 0666);
	if (pl->msg >= 0 && msgsnd(pl->msg, &message, sizeof(message.text), IPC_NOWAIT) == 0)
		mark(pl, "msg");
	mq = mq_open(fmt_path("/cloche-%s", pl->tag), O_CREAT | O_RDWR, 0666, &attr);
	if (mq != (mqd_t)-1) {
		mq_send(mq, message.text, sizeof(message.text), 1);
		mq_close(mq);
		mark(pl, "mq");
	}
}

static void plant_files(struct plant *pl)
{
	const char *home = getenv("HOME");
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		any |= write_text(fmt_path("%s/cloche-%s", places[i], pl->tag), pl->tag) == 0;
	if (home)
		any |= write_text(fmt_path("%s/cloche-%s", home, pl->tag), pl->tag) == 0;
	if (any)
		mark(pl, "files");
}

static void take_away(struct plant *pl)
{
	const char *home = getenv("HOME");
	const char *const dirs[] = {pl->dir, pl->ro_dir, pl->rw_dir};
	const char *const made[] = {"stream.sock", "dgram.sock", "fifo"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		unlink(fmt_path("%s/cloche-%s", places[i], pl->tag));
	if (home)
		unlink(fmt_path("%s/cloche-%s", home, pl->tag));
	if (pl->shm >= 0)
		shmctl(pl->shm, IPC_RMID, NULL);
	if (pl->sem >= 0)
		semctl(pl->sem, 0, IPC_RMID);
	if (pl->msg >= 0)
		msgctl(pl->msg, IPC_RMID, NULL);
	mq_unlink(fmt_path("/cloche-%s", pl->tag));
	for (size_t d = 0; d < ARRAY_LEN(dirs); d++)
		for (size_t i = 0; dirs[d] && i < ARRAY_LEN(made); i++)
			unlink(fmt_path("%s/%s", dirs[d], made[i]));
}

/* The generous peer: hands out its tag and, over a unix socket, a directory of the host. */
static void answer_stream(struct plant *pl, int fd)
{
	auto_close int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	auto_close int dir = pl->dir ? open(pl->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {(void *)pl->tag, strlen(pl->tag)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (peer < 0)
		return;
	if (dir >= 0) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &dir, sizeof(dir));
	}
	if (sendmsg(peer, &m, MSG_NOSIGNAL) < 0)
		send(peer, pl->tag, strlen(pl->tag), MSG_NOSIGNAL);
}

static void answer_packet(struct plant *pl, int fd)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char buf[256];

	if (recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len) >= 0 && len > 0)
		sendto(fd, pl->tag, strlen(pl->tag), MSG_NOSIGNAL, (struct sockaddr *)&from, len);
}

static void serve(struct plant *pl, int at)
{
	char buf[256];
	int fd = pl->polls[at].fd;

	printf("hit %s\n", hit_names[at]);
	if (at == POLL_RO_FIFO) {
		if (read(fd, buf, sizeof(buf)) < 0)
			pl->polls[at].fd = -1;
	} else if (at == POLL_UDP || at == POLL_ABSTRACT_DGRAM || at == POLL_DGRAM ||
		   at == POLL_RO_DGRAM) {
		answer_packet(pl, fd);
	} else {
		answer_stream(pl, fd);
	}
}

static void report_signals(void)
{
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		if (caught[i])
			printf("hit %s\n", signals[i].hit);
		caught[i] = 0;
	}
}

static void watch(struct plant *pl)
{
	char buf[256];

	for (;;) {
		int n = poll(pl->polls, POLL_COUNT, -1);

		report_signals();
		for (int i = POLL_TCP; n > 0 && i < POLL_COUNT; i++)
			if (pl->polls[i].revents)
				serve(pl, i);
		/* A line on stdin is a question whether everything up to now has been told. */
		if (n > 0 && pl->polls[POLL_STDIN].revents) {
			if (read(0, buf, sizeof(buf)) <= 0)
				return;
			puts("sync");
		}
		fflush(stdout);
	}
}

int plant_main(int argc, char **argv)
{
	struct plant pl = {.shm = -1, .sem = -1, .msg = -1};
	struct sigaction sa = {.sa_handler = on_signal};

	if (argc < 1 || argc > 4)
		return 2;
	pl.tag = argv[0];
	pl.dir = argc > 1 ? argv[1] : NULL;
	pl.ro_dir = argc > 2 ? argv[2] : NULL;
	pl.rw_dir = argc > 3 ? argv[3] : NULL;
	for (int i = 0; i < POLL_COUNT; i++)
		pl.polls[i] = (struct pollfd){.fd = i == POLL_STDIN ? 0 : -1, .events = POLLIN};
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sigaction(signals[i].sig, &sa, NULL);
	umask(0);
	plant_sockets(&pl);
	plant_fifo(&pl);
	plant_ipc(&pl);
	plant_files(&pl);
	printf("pid=%d\nhas=%s\nplanted\n", (int)getpid(), pl.has);
	fflush(stdout);
	watch(&pl);
	take_away(&pl);
	return 0;
}
