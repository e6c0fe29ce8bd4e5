/* What two sandboxes, or a sandbox and the host, might share without wanting to. */
#include "probe.h"

#include "base/auto.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ABSENT ERRS(ENOENT, EPERM, EACCES, ENOSYS)

/*
 * The tag of the planted process that the row is about ("host" or "peer"); outside there is only
 * the host's. NULL with "cannot tell" if it did not manage to plant this kind.
 */
static const char *planted(struct probe *p, const char *kind)
{
	const char *who = p->control ? "host" : p->c->arg;
	const char *tag = need(p, who), *has;

	if (!tag)
		return NULL;
	has = given(fmt_path("%s-has", who));
	if (has && !strstr(has, kind)) {
		refused(p, "could not even be made there");
		return NULL;
	}
	return tag;
}

static void shared_files(struct probe *p)
{
	static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock"};
	const char *tag = planted(p, "files"), *home = getenv("HOME");
	char buf[256];

	if (!tag)
		return;
	for (size_t i = 0; i <= ARRAY_LEN(places); i++) {
		const char *dir = i < ARRAY_LEN(places) ? places[i] : home ? home : "/";
		const char *path = fmt_path("%s/cloche-%s", dir, tag);

		if (read_text(path, buf, sizeof(buf)) > 0 && strstr(buf, tag))
			got_through(p, "read %s", path);
		else if (access(path, F_OK) == 0)
			got_through(p, "sees %s", path);
	}
	refused(p, "no file of the other is in sight");
}

static void shared_shm(struct probe *p)
{
	const char *tag = planted(p, "shm");
	int id = tag ? shmget(plant_key(tag), 0, 0) : -1;

	if (tag)
		judge(p, "shmget", id, ABSENT);
}

static void shared_sem(struct probe *p)
{
	const char *tag = planted(p, "sem");

	if (tag)
		judge(p, "semget", semget(plant_key(tag), 0, 0), ABSENT);
}

static void shared_msg(struct probe *p)
{
	const char *tag = planted(p, "msg");

	if (tag)
		judge(p, "msgget", msgget(plant_key(tag), 0), ABSENT);
}

static void shared_mq(struct probe *p)
{
	const char *tag = planted(p, "mq");
	mqd_t mq;

	if (!tag)
		return;
	mq = mq_open(fmt_path("/cloche-%s", tag), O_RDWR);
	judge(p, "mq_open", mq == (mqd_t)-1 ? -1 : 0, ABSENT);
}

static void shared_abstract(struct probe *p)
{
	const char *tag = planted(p, "abstract");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	auto_close int fd = -1;
	int n;

	if (!tag)
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
		return;
	}
	n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "cloche-%s", tag);
	judge(p, "connect",
	      connect(fd, (struct sockaddr *)&a,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
	      ERRS(ECONNREFUSED, EPERM, EACCES));
}

static void shared_tcp(struct probe *p)
{
	const char *port = given(p->control ? "tcp" : "peer-tcp"), *tag = need(p, "peer");
	struct sockaddr_in to = {.sin_family = AF_INET};
	auto_close int fd = -1;
	char buf[128] = "";

	if (p->control)
		tag = need(p, "host");
	if (!tag)
		return;
	if (!port) {
		refused(p, "the other could not even listen");
		return;
	}
	to.sin_port = htons((uint16_t)atoi(port));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
	else if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		judge(p, "connect", -1, ERRS(ECONNREFUSED, ENETUNREACH, EPERM, EACCES));
	else if (recv(fd, buf, sizeof(buf) - 1, 0) > 0 && strstr(buf, tag))
		got_through(p, "the other's listener answered");
	else
		refused(p, "somebody else listens there");
}

#define IPC L(IPC_NS)

static const struct probe_case cases[] = {
	{"peer-files", 17, "find files of another sandbox", SAFE | WEAK, L(ROOT) | L(MOUNT_NS), 0,
	 shared_files, "peer"},
	{"peer-shm", 17, "reach System V memory of another sandbox", SAFE | WEAK, IPC, 0,
	 shared_shm, "peer"},
	{"peer-sem", 17, "reach semaphores of another sandbox", SAFE | WEAK, IPC, 0, shared_sem,
	 "peer"},
	{"peer-msg", 17, "reach message queues of another sandbox", SAFE | WEAK, IPC, 0, shared_msg,
	 "peer"},
	{"peer-mq", 17, "reach POSIX queues of another sandbox", SAFE | WEAK, IPC, 0, shared_mq,
	 "peer"},
	{"peer-abstract", 43, "connect to an abstract socket of another sandbox", SAFE,
	 L(NET_NS) | L(LANDLOCK), 0, shared_abstract, "peer"},
	{"peer-tcp", 59, "connect to a port of another sandbox", SAFE, L(NET_NS) | L(SECCOMP), 0,
	 shared_tcp, "peer"},
	{"host-files", 17, "find files of the host in /tmp, /run, /dev/shm", SAFE | WEAK,
	 L(ROOT) | L(LANDLOCK), 0, shared_files, "host"},
	{"host-shm", 17, "reach System V memory of the host", SAFE | WEAK, IPC, 0, shared_shm,
	 "host"},
	{"host-sem", 17, "reach semaphores of the host", SAFE | WEAK, IPC, 0, shared_sem, "host"},
	{"host-msg", 17, "reach message queues of the host", SAFE | WEAK, IPC, 0, shared_msg,
	 "host"},
	{"host-mq", 17, "reach POSIX queues of the host", SAFE | WEAK, IPC, 0, shared_mq, "host"},
};
const struct case_group group_shared = {cases, ARRAY_LEN(cases)};
