/* Unix sockets: delegated authority on the host, reachable by path or by abstract name. */
#include "probe.h"

#include "base/auto.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NO_SOCKET ERRS(ENOENT, ECONNREFUSED, EPERM, EACCES, EAFNOSUPPORT, ENOTDIR)

/* Fills in a path, or an abstract name if it starts with '@'. */
static socklen_t unix_address(struct sockaddr_un *a, const char *name)
{
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	strncpy(a->sun_path, name, sizeof(a->sun_path) - 1);
	if (name[0] == '@')
		a->sun_path[0] = '\0';
	else
		len++;
	return len;
}

/* Takes what the planted process sends; a directory of the host comes with it. */
static void take(struct probe *p, int fd, const char *name)
{
	char buf[128] = "", control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {buf, sizeof(buf) - 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	struct cmsghdr *c;

	if (poll(&poll_fd, 1, 1000) != 1 || recvmsg(fd, &m, 0) <= 0) {
		got_through(p, "connected to %s", name);
		return;
	}
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS) {
		int dir;
		char got[256];
		auto_close int file = -1;

		memcpy(&dir, CMSG_DATA(c), sizeof(dir));
		file = openat(dir, "secret", O_RDONLY | O_CLOEXEC);
		if (file >= 0 && read(file, got, sizeof(got)) > 0)
			got_through(p, "was handed a directory of the host and read from it");
	}
	got_through(p, "connected to %s and was answered", name);
}

static void connect_to(struct probe *p, const char *name)
{
	struct sockaddr_un a;
	socklen_t len = unix_address(&a, name);
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
	else if (connect(fd, (struct sockaddr *)&a, len) < 0)
		judge(p, "connect", -1, NO_SOCKET);
	else
		take(p, fd, name);
}

/* A datagram needs no connect, and a socketpair no socket(). */
static void send_to(struct probe *p, const char *name)
{
	struct sockaddr_un a;
	socklen_t len = unix_address(&a, name);
	struct msghdr m = {.msg_name = &a, .msg_namelen = len};
	auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int pair[2];

	if (fd < 0)
		judge(p, "socket", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
	else
		judge(p, "sendto", sendto(fd, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&a, len),
		      NO_SOCKET);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0) {
		judge(p, "socketpair", -1, ERRS(EPERM, EACCES, EAFNOSUPPORT));
		return;
	}
	judge(p, "sendto on a pair",
	      sendto(pair[0], "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&a, len), NO_SOCKET);
	judge(p, "sendmsg on a pair", sendmsg(pair[0], &m, MSG_NOSIGNAL), NO_SOCKET);
	judge(p, "connect on a pair", connect(pair[1], (struct sockaddr *)&a, len), NO_SOCKET);
	close(pair[0]);
	close(pair[1]);
}

static void host_socket(struct probe *p)
{
	const char *outside = need(p, "outside");

	if (outside)
		connect_to(p, fmt_path("%s/stream.sock", outside));
}

static void host_socket_dgram(struct probe *p)
{
	const char *outside = need(p, "outside");

	if (outside)
		send_to(p, fmt_path("%s/dgram.sock", outside));
}

static void host_abstract(struct probe *p)
{
	const char *tag = need(p, "host");

	if (tag)
		connect_to(p, fmt_path("@cloche-%s", tag));
}

static void host_abstract_dgram(struct probe *p)
{
	const char *tag = need(p, "host");

	if (tag)
		send_to(p, fmt_path("@cloche-%s-dgram", tag));
}

/* A socket inside a directory that is shown read-only: neither the mount nor Landlock minds. */
static void ro_socket(struct probe *p)
{
	const char *ro = need(p, "ro");

	if (ro)
		connect_to(p, fmt_path("%s/stream.sock", ro));
}

static void ro_socket_dgram(struct probe *p)
{
	const char *ro = need(p, "ro");

	if (ro)
		send_to(p, fmt_path("%s/dgram.sock", ro));
}

/* Nothing between a program and a socket that it may write to: a gap, and named as such. */
static void rw_socket(struct probe *p)
{
	const char *rw = need(p, "rw");

	if (rw)
		connect_to(p, fmt_path("%s/stream.sock", rw));
}

static void known_sockets(struct probe *p)
{
	static const char *const paths[] = {
		"/var/run/docker.sock",
		"/run/docker.sock",
		"/run/containerd/containerd.sock",
		"/run/podman/podman.sock",
		"/run/crio/crio.sock",
		"/run/dbus/system_bus_socket",
		"/run/systemd/private",
		"/run/systemd/journal/socket",
		"/run/systemd/notify",
		"/run/systemd/io.system.ManagedOOM",
		"/run/snapd.socket",
		"/run/acpid.socket",
		"/run/nscd/socket",
		"/run/libvirt/libvirt-sock",
		"/dev/log",
		"/tmp/.X11-unix/X0",
		"@/tmp/.X11-unix/X0",
		"@/tmp/.ICE-unix/0",
	};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		connect_to(p, paths[i]);
}

/* Whatever lies in the run directories of a user: bus, gpg, ssh, wayland, pipewire. */
static void user_sockets(struct probe *p)
{
	static const char *const dirs[] = {"/run", "/run/user", "/var/run", "/tmp"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		DIR *dir = opendir(dirs[i]);
		struct dirent *d;

		while (dir && (d = readdir(dir)))
			if (d->d_type == DT_SOCK)
				connect_to(p, fmt_path("%s/%s", dirs[i], d->d_name));
		if (dir)
			closedir(dir);
	}
	refused(p, "no socket is in sight");
}

#define UNSEEN (L(ROOT) | L(SECCOMP))

static const struct probe_case cases[] = {
	{"host-socket", 41, "connect to a unix socket of the host", SAFE, UNSEEN, 0, host_socket,
	 0},
	{"host-socket-dgram", 41, "send to a unix socket of the host, by a pair too", SAFE, UNSEEN,
	 0, host_socket_dgram, 0},
	{"host-abstract", 43, "connect to an abstract socket of the host", SAFE,
	 L(NET_NS) | L(LANDLOCK), 0, host_abstract, 0},
	{"host-abstract-dgram", 43, "send to an abstract socket of the host", SAFE,
	 L(NET_NS) | L(LANDLOCK), 0, host_abstract_dgram, 0},
	{"ro-socket", 41, "connect to a socket in a directory shown read-only", SAFE, L(SECCOMP), 0,
	 ro_socket, 0},
	{"ro-socket-dgram", 41, "send to a socket in a directory shown read-only", SAFE, L(SECCOMP),
	 0, ro_socket_dgram, 0},
	{"rw-socket", 41, "connect to a socket in a directory shown writable",
	 SAFE | GAP | CONTAINER_ONLY, L(SECCOMP), "writable", rw_socket, 0},
	{"known-sockets", 41, "connect to docker, dbus, systemd, X11 and the like", NO_CONTROL,
	 UNSEEN, 0, known_sockets, 0},
	{"user-sockets", 41, "connect to any socket in /run and /tmp", NO_CONTROL, UNSEEN, 0,
	 user_sockets, 0},
};
const struct case_group group_unix = {cases, ARRAY_LEN(cases)};
