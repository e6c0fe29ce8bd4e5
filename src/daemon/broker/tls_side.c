/*
 * The broker's side of TLS: it has the program cloche-tls read or make the certificate, hands it to the role tls with
 * the listening sockets, and passes the role's connections on to the front. Of what the role says about a client only
 * the address is used: a connection that comes from the role is never the operator's.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <arpa/inet.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PEM_MAX (4u << 20)
#define RENEWAL_MS (12 * 3600 * 1000)
#define RETRY_MS 20

/* ---- the certificate ---- */

/* Runs cloche-tls to its end. Its output becomes ret (a memfd), or the error. */
static int run_program(char **argv, int ret, struct err *e)
{
	auto_close int program = open_program("cloche-tls", NULL, e);
	auto_close int said = memfd_create("said", MFD_CLOEXEC);
	posix_spawn_file_actions_t actions;
	char path[64], why[400];
	int status = -1, rc;
	ssize_t n;
	pid_t pid;

	if (program < 0 || said < 0)
		return program < 0 ? -1 : err_sys(e, "cannot create memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ret, 1);
	posix_spawn_file_actions_adddup2(&actions, said, 2);
	rc = posix_spawn(&pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0 || waitpid(pid, &status, 0) < 0)
		return err_set(e, ERR_SYSTEM, "tls: cannot run cloche-tls");
	if (status == 0)
		return 0;
	n = pread(said, why, sizeof(why) - 1, 0);
	why[n > 0 ? n : 0] = '\0';
	why[strcspn(why, "\n")] = '\0';
	return err_set(e, ERR_INVALID, "%s", why[0] ? why : "tls: cloche-tls failed");
}

/* Every name by which clients may know this daemon. */
static void list_hosts(const struct config *c, struct list *ret)
{
	static const char *const always[] = {"localhost", "*.localhost", "127.0.0.1", "::1", NULL};
	char host[256] = "";

	list_add_all(ret, always);
	if (gethostname(host, sizeof(host) - 1) == 0 && host[0] && !str_equal(host, "localhost"))
		list_add(ret, host);
	/* The domain and what is below it are among them. */
	for (uint32_t i = 0; i < c->host_count; i++) {
		snprintf(host, sizeof(host), "%.*s", (int)strcspn(c->hosts[i], ":"), c->hosts[i]);
		if (host[0] && host[0] != '[' && !str_equal(host, "*"))
			list_add(ret, host);
	}
	for (uint32_t i = 0; i < c->listen_count; i++) {
		const char *text = c->listen[i], *colon = strrchr(text, ':');
		bool six = text[0] == '[';
		unsigned char address[16];

		if (!colon || str_starts(text, "unix:"))
			continue;
		snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - (six ? 2 : 0),
			 text + six);
		if (inet_pton(six ? AF_INET6 : AF_INET, host, address) == 1)
			list_add(ret, host);
	}
}

static void send_keys(struct daemon *d)
{
	struct ipc m = {.type = IPC_TLS_KEYS};

	if (d->tls.channel.watch.fd >= 0)
		ipc_channel_send(&d->tls.channel, &m, d->tls.keys);
}

int tls_load(struct daemon *d, const struct config *c, struct err *e)
{
	auto_close int keys = memfd_create("tls", MFD_CLOEXEC);
	auto_list struct list argv = {0};

	if (!config_has_tls(c))
		return 0;
	if (keys < 0)
		return err_sys(e, "cannot create memory");
	list_add(&argv, "cloche-tls");
	list_add(&argv, c->tls.own ? "own" : "files");
	list_add(&argv, c->tls.own ? c->state_dir : c->tls.cert);
	if (c->tls.own)
		list_hosts(c, &argv);
	else
		list_add(&argv, c->tls.key);
	if (run_program(argv.items, keys, e) < 0)
		return -1;
	close_fd(&d->tls.keys);
	d->tls.keys = take_fd(&keys);
	send_keys(d);
	return 0;
}

void tls_renew(struct daemon *d)
{
	struct err e = {0};

	if (!d->config->tls.own)
		return;
	loop_timer_set(d->loop, &d->tls.renewal, RENEWAL_MS);
	if (tls_load(d, d->config, &e) < 0)
		log_error("certificate is left as it was", "error", e.msg);
}

static void on_renewal(void *arg)
{
	tls_renew(arg);
}

/* ---- connections ---- */

static void pass_on(struct daemon *d, const struct ipc_peer *peer, int fd)
{
	struct ipc m = {.type = IPC_PEER};

	/* Nothing else that the role could claim: it parses what strangers send. */
	snprintf(m.peer.address, sizeof(m.peer.address), "%s", peer->address);
	front_news(d, &m, fd);
}

static void pass_waiting(void *arg)
{
	struct daemon *d = arg;
	struct tls_side *t = &d->tls;
	size_t done = 0;

	for (; done < t->waiting_count && !front_is_slow(d); done++) {
		pass_on(d, &t->waiting[done].peer, t->waiting[done].fd);
		close(t->waiting[done].fd);
	}
	t->waiting_count -= done;
	memmove(t->waiting, t->waiting + done, t->waiting_count * sizeof(t->waiting[0]));
	if (t->waiting_count)
		loop_timer_set(d->loop, &t->again, RETRY_MS);
}

/* While a front starts, clients wait as they would in the backlog of a socket. */
static void take_connection(struct daemon *d, const struct ipc_peer *peer, int fd)
{
	struct tls_side *t = &d->tls;

	if (!t->waiting_count && !front_is_slow(d)) {
		pass_on(d, peer, fd);
		close(fd);
		return;
	}
	if (t->waiting_count == TLS_WAITING) {
		close(fd);
		return;
	}
	t->waiting[t->waiting_count].peer = *peer;
	t->waiting[t->waiting_count++].fd = fd;
	loop_timer_set(d->loop, &t->again, RETRY_MS);
}

/* The plain side of a connection must be one end of a Unix socket pair, and the address one in digits. */
static bool is_connection(const struct ipc_peer *peer, int fd)
{
	unsigned char address[16];
	socklen_t len = sizeof(int);
	int domain = -1, type = -1;

	return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && domain == AF_UNIX &&
	       type == SOCK_STREAM &&
	       (inet_pton(AF_INET, peer->address, address) == 1 ||
		inet_pton(AF_INET6, peer->address, address) == 1);
}

static void on_broken(void *arg, int errnum)
{
	if (errnum == EBADMSG)
		roles_end(arg, ROLE_TLS, "it does not keep to the protocol");
}

static void on_message(void *arg, const struct ipc *m, int fd)
{
	struct daemon *d = arg;

	if (m->type == IPC_PEER && is_connection(&m->peer, fd)) {
		take_connection(d, &m->peer, fd);
		return;
	}
	close_fd(&fd);
	if (m->type == IPC_PONG)
		roles_answered(d, ROLE_TLS);
	else
		on_broken(d, EBADMSG);
}

/* ---- life ---- */

void tls_ping(struct daemon *d)
{
	struct ipc m = {.type = IPC_PING};

	ipc_channel_send(&d->tls.channel, &m, -1);
}

void tls_attach(struct daemon *d, int sock)
{
	struct tls_side *t = &d->tls;

	if (!t->renewal.call) {
		t->again = (struct loop_timer){.call = pass_waiting, .arg = d};
		t->renewal = (struct loop_timer){.call = on_renewal, .arg = d};
		loop_timer_set(d->loop, &t->renewal, RENEWAL_MS);
	}
	t->channel = (struct ipc_channel){
		.loop = d->loop, .on_message = on_message, .on_broken = on_broken, .arg = d};
	ipc_channel_open(&t->channel, sock);
	send_keys(d);
	for (size_t i = 0; i < d->listener_count; i++) {
		struct ipc m = {.type = IPC_LISTENER};

		if (!d->listeners[i].is_unix)
			ipc_channel_send(&t->channel, &m, d->listeners[i].fd);
	}
}

void tls_detach(struct daemon *d)
{
	struct tls_side *t = &d->tls;

	if (t->channel.watch.fd < 0)
		return;
	ipc_channel_close(&t->channel);
	loop_timer_stop(d->loop, &t->again);
	for (size_t i = 0; i < t->waiting_count; i++)
		close(t->waiting[i].fd);
	t->waiting_count = 0;
}
