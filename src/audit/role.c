/*
 * The audit role.
 *
 * Runs as: the broker's user, or one that owns the audit directory.
 * Holds: that directory's fd, the file in it, the chain's key, a socket to each client.
 * May: append to, rotate and read these files; send receipts.
 * Must not: do anything else for its clients. It trusts none of them: an entry becomes one well-formed
 * line, whatever its bytes are.
 *
 * Entries that wait at the same time are written together: one write (and one fdatasync) pays for
 * all of them, and no receipt leaves before that.
 */
#include "audit/chain.h"
#include "audit/log.h"

#include "base/log.h"
#include "base/loop.h"
#include "policy/config.h"

#include <poll.h>
#include <sodium.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#define BATCH 256
#define CLIENT_WAIT_MS 1000

struct receipt_due {
	int sock;
	uint32_t serial;
};

struct audit_client {
	struct audit_role *role;
	struct loop_watch watch;
};

struct audit_role {
	struct loop *loop;
	struct audit_log *log;
	struct audit_log_settings settings;
	struct err open_error; /* log is NULL: why */
	char name[CONFIG_PATH];
	struct audit_client *clients;
	int client_count, clients_left;
	struct loop_watch signals;
	size_t count;
	struct audit_entry entries[BATCH];
	struct receipt_due waiting[BATCH];
};

/* ---- replies ---- */

static void send_reply(int sock, const struct ipc *m, int fd)
{
	/*
	 * A client that leaves megabytes of receipts unread is stuck. It must not block the others: its
	 * socket is shut, so that it learns of the loss when it reads again.
	 */
	while (ipc_send(sock, m, fd) < 0) {
		struct pollfd p = {.fd = sock, .events = POLLOUT};

		if (errno == EAGAIN && poll(&p, 1, CLIENT_WAIT_MS) > 0)
			continue;
		shutdown(sock, SHUT_RDWR);
		return;
	}
}

/* ---- requests ---- */

/* Opens the log if that failed before: a disk may have been mounted or emptied since. */
static int want_log(struct audit_role *r, struct err *e)
{
	if (!r->log)
		r->log = audit_log_open(&r->settings, &r->open_error);
	if (r->log)
		return 0;
	*e = r->open_error;
	return -1;
}

static void flush_batch(struct audit_role *r)
{
	struct ipc answer = {.type = IPC_AUDIT_DONE};

	if (r->count == 0)
		return;
	if (want_log(r, &answer.err) < 0 ||
	    audit_log_append(r->log, r->entries, r->count, &answer.err) < 0)
		log_error("audit: refused", "error", answer.err.msg);
	for (size_t i = 0; i < r->count; i++) {
		struct err failed = answer.err;

		/* Beside entries that must not use the reserve; by itself this one may. */
		if (failed.kind && r->log && r->count > 1 && r->entries[i].uses_reserve &&
		    audit_log_append(r->log, &r->entries[i], 1, &answer.err) == 0)
			answer.err = (struct err){0};
		answer.serial = r->waiting[i].serial;
		send_reply(r->waiting[i].sock, &answer, -1);
		answer.err = failed;
	}
	r->count = 0;
}

/* A query, or a ping. Receipts keep the order of the requests. */
static void answer_query(struct audit_role *r, int sock, const struct ipc *m)
{
	struct ipc answer = {.type = IPC_AUDIT_DONE, .serial = m->serial};
	auto_close int fd = -1;

	flush_batch(r);
	if (m->type == IPC_AUDIT_QUERY && want_log(r, &answer.err) == 0)
		fd = audit_log_query(r->log, &m->query, &answer.page.next_seq, &answer.err);
	send_reply(sock, &answer, fd);
}

/* 1: a request was taken; 0: none waits; -1: the client is gone or broke the protocol. */
static int take_request(struct audit_role *r, int sock)
{
	struct ipc m;
	int fd = -1, rc = ipc_receive(sock, &m, &fd);

	close_fd(&fd);
	if (rc < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (rc == 0 ||
	    (m.type != IPC_AUDIT_WRITE && m.type != IPC_AUDIT_QUERY && m.type != IPC_PING))
		return -1;
	if (m.type != IPC_AUDIT_WRITE) {
		answer_query(r, sock, &m);
		return 1;
	}
	r->entries[r->count] = m.entry;
	r->waiting[r->count++] = (struct receipt_due){sock, m.serial};
	return 1;
}

static void drop_client(struct audit_client *c)
{
	loop_unwatch(c->role->loop, &c->watch);
	close_fd(&c->watch.fd);
	if (--c->role->clients_left == 0)
		loop_stop(c->role->loop);
}

static void on_client_request(void *arg, uint32_t events)
{
	struct audit_client *first = arg;
	struct audit_role *r = first->role;
	int state = 1;

	while (r->count < BATCH && (state = take_request(r, first->watch.fd)) > 0)
		;
	/* Entries of other clients that wait now share the write. */
	for (int i = 0; i < r->client_count; i++)
		while (&r->clients[i] != first && r->clients[i].watch.fd >= 0 && r->count < BATCH &&
		       take_request(r, r->clients[i].watch.fd) > 0)
			;
	flush_batch(r);
	if (state < 0)
		drop_client(first);
}

static void on_signal(void *arg, uint32_t events)
{
	struct audit_role *r = arg;

	loop_stop(r->loop);
}

/* ---- life ---- */

void audit_role_free(struct audit_role *r)
{
	audit_log_close(r->log);
	loop_free(r->loop);
	for (int i = 0; i < r->client_count; i++)
		close_fd(&r->clients[i].watch.fd);
	free(r->clients);
	close_fd(&r->signals.fd);
	sodium_memzero(&r->settings.key, sizeof(r->settings.key));
	free(r);
}

struct audit_role *audit_role_new(int dir_fd, const struct config *c, struct err *e)
{
	const char *slash = strrchr(c->audit.file, '/');
	struct audit_role *r;

	if (sodium_init() < 0) {
		err_set(e, ERR_SYSTEM, "libsodium does not start");
		return NULL;
	}
	r = must_alloc(calloc(1, sizeof(*r)));
	r->loop = must_alloc(loop_new());
	r->signals.fd = -1;
	snprintf(r->name, sizeof(r->name), "%s", slash ? slash + 1 : c->audit.file);
	r->settings = (struct audit_log_settings){.dir = dir_fd,
						  .name = r->name,
						  .max_bytes = c->audit.max_bytes,
						  .keep = c->audit.keep,
						  .sync = c->audit.sync};
	if (*c->audit.key_file && chain_key_load(c->audit.key_file, &r->settings.key, e) < 0) {
		audit_role_free(r);
		return NULL;
	}
	return r;
}

static int watch_signals(struct audit_role *r)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* At the file size limit write must fail; the signal must not kill the role. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	r->signals = (struct loop_watch){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
					 .events = EPOLLIN,
					 .call = on_signal,
					 .arg = r};
	return r->signals.fd < 0 ? -1 : loop_watch(r->loop, &r->signals);
}

int audit_role_run(struct audit_role *r, const int *socks, int nsocks)
{
	struct err e = {0};
	int rc = watch_signals(r);

	r->clients = must_alloc(calloc((size_t)nsocks + 1, sizeof(*r->clients)));
	r->client_count = r->clients_left = nsocks;
	for (int i = 0; i < nsocks; i++) {
		struct audit_client *c = &r->clients[i];

		c->role = r;
		c->watch = (struct loop_watch){
			.fd = socks[i], .events = EPOLLIN, .call = on_client_request, .arg = c};
		fcntl(socks[i], F_SETFD, FD_CLOEXEC);
		fcntl(socks[i], F_SETFL, fcntl(socks[i], F_GETFL) | O_NONBLOCK);
		if (rc == 0)
			rc = loop_watch(r->loop, &c->watch);
	}
	/* A broken log is reported now, not at the first request. */
	if (want_log(r, &e) < 0)
		log_error("audit: cannot open the file", "error", e.msg);
	if (rc == 0 && nsocks > 0)
		loop_run(r->loop);
	audit_role_free(r);
	return rc == 0 ? 0 : 125;
}
