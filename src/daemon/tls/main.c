/*
 * cloche-tls: the program that holds the key of the daemon's TLS certificate. It is a program of its own, so
 * that no other part of the daemon contains OpenSSL.
 *
 *   cloche-tls role tls DIR UID GID ROOTLESS   the role: decrypts connections of the daemon's TCP ports
 *   cloche-tls files CERT KEY                  checks the two and prints them as one PEM text
 *   cloche-tls own DIR NAME...                 the same for a certificate made by a CA in DIR
 *   cloche-tls renew DIR                       makes a new CA in DIR
 *
 * The role. Runs as: an unprivileged user without a capability, in an empty directory as root, in a network
 * namespace without interfaces. Holds: the certificate's key, listening TCP sockets. May: accept, make Unix
 * socket pairs. Must not: open a file, a socket or a connection, or say who a client is but by its address.
 */
#include "base/log.h"
#include "daemon/tls/tls_internal.h"
#include "kern/confine.h"
#include "wire/role_fds.h"

#include <openssl/conf.h>
#include <openssl/err.h>
#include <sys/prctl.h>

#define PEM_MAX (4 << 20)
#define SLOW 64 /* connections that wait for the broker */

struct tls_role {
	struct loop *loop;
	struct ipc_channel broker;
	struct door *door;
};

static void on_open(void *arg, int fd, const char *address)
{
	struct ipc m = {.type = IPC_PEER};
	struct tls_role *r = arg;

	snprintf(m.peer.address, sizeof(m.peer.address), "%s", address);
	/* Closed without a word, as a full backlog would. */
	if (r->broker.waiting < SLOW)
		ipc_channel_send(&r->broker, &m, fd);
	close(fd);
}

static void take_keys(struct tls_role *r, int fd)
{
	auto_free char *pem = NULL;
	struct err e = {0};
	SSL_CTX *ctx;
	size_t len;

	if (lseek(fd, 0, SEEK_SET) < 0 || io_read_whole(fd, PEM_MAX, &pem, &len) < 0) {
		log_error("certificate is left as it was", "error", "it cannot be read");
		return;
	}
	ctx = certificates_context(pem, len, &e);
	explicit_bzero(pem, len);
	if (!ctx)
		log_error("certificate is left as it was", "error", e.msg);
	else
		door_set_context(r->door, ctx);
}

static void on_message(void *arg, const struct ipc *m, int fd)
{
	struct ipc pong = {.type = IPC_PONG};
	struct tls_role *r = arg;
	struct err e = {0};

	if (m->type == IPC_PING)
		ipc_channel_send(&r->broker, &pong, -1);
	else if (m->type == IPC_TLS_KEYS && fd >= 0)
		take_keys(r, fd);
	else if (m->type == IPC_LISTENER && door_listen(r->door, take_fd(&fd), &e) < 0)
		log_error("cannot listen", "error", e.msg);
	close_fd(&fd);
}

static void on_broken(void *arg, int errnum)
{
	_exit(1);
}

static int run_role(int argc, char **argv)
{
	static const int ignored[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};
	static struct tls_role r;
	struct role_confinement c = {.root = argv[3],
				     .uid = (uid_t)strtoul(argv[4], NULL, 10),
				     .gid = (gid_t)strtoul(argv[5], NULL, 10),
				     .rootless = argv[6][0] == '1',
				     .open_files = 1 << 18,
				     .profile = &seccomp_profile_tls};
	struct err e = {0};

	log_init("tls");
	prctl(PR_SET_NAME, "cloche-tls", 0, 0, 0);
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	/* The library reads its settings and random numbers now, while there are files. */
	OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, NULL);
	r.loop = loop_new();
	if (!r.loop || confine_to_broker(ROLE_FD_BROKER, &e) < 0 || confine(&c, &e) < 0) {
		log_error("role cannot start", "role", "tls", "error", e.msg);
		return 125;
	}
	r.door = door_new(r.loop, on_open, &r);
	r.broker = (struct ipc_channel){
		.loop = r.loop, .on_message = on_message, .on_broken = on_broken, .arg = &r};
	ipc_channel_open(&r.broker, ROLE_FD_BROKER);
	loop_run(r.loop);
	return 0;
}

static int print_text(char *text, const struct err *e)
{
	int rc = text && io_write_all(STDOUT_FILENO, text, strlen(text)) == 0 ? 0 : 125;

	if (!text)
		fprintf(stderr, "%s\n", e->msg);
	else
		OPENSSL_clear_free(text, strlen(text));
	return rc;
}

int main(int argc, char **argv)
{
	struct err e = {0};

	if (argc == 7 && str_equal(argv[1], "role") && str_equal(argv[2], "tls"))
		return run_role(argc, argv);
	if (argc == 4 && str_equal(argv[1], "files"))
		return print_text(certificates_from_files(argv[2], argv[3], &e), &e);
	if (argc >= 4 && str_equal(argv[1], "own"))
		return print_text(certificates_own(argv[2], argv + 3, &e), &e);
	if (argc == 3 && str_equal(argv[1], "renew")) {
		if (certificates_renew(argv[2], &e) == 0)
			return 0;
		fprintf(stderr, "%s\n", e.msg);
		return 125;
	}
	fputs("cloche-tls: it is started by `cloche serve` and `cloche ca` only\n", stderr);
	return 125;
}
