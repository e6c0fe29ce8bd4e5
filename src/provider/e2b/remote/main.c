/*
 * cloche-remote role remote DIR UID GID ROOTLESS: runs sandboxes at another service, by libcurl. It is a
 * program of its own, so that no other part of the daemon contains libcurl, TLS and their parsers. The broker
 * starts it with a network and nearly nothing else.
 */
#include "base/log.h"
#include "kern/confine.h"
#include "wire/role_fds.h"
#include "provider/e2b/remote/remote_internal.h"

#include <curl/curl.h>
#include <sys/prctl.h>

/* Files that name resolution and the check of certificates need. */
static const char *const readable[] = {
	"/etc/resolv.conf",
	"/etc/hosts",
	"/etc/nsswitch.conf",
	"/etc/host.conf",
	"/etc/gai.conf",
	"/etc/services",
	"/etc/ssl",
	"/etc/pki/tls",
	"/etc/ca-certificates",
	"/usr/share/ca-certificates",
	"/usr/lib/ssl",
	"/etc/localtime",
	"/dev/urandom",
	NULL,
};

static int read_key(char *ret, size_t size, struct err *e)
{
	ssize_t n = pread(ROLE_FD_KEY, ret, size - 1, 0);

	if (n <= 0 || (size_t)n == size - 1)
		return err_set(e, ERR_INVALID, "e2b.key_file: has no key in it");
	ret[n] = '\0';
	return 0;
}

static int start_remote_role(const struct role_confinement *c, struct service *s, struct loop **ret,
			     struct err *e)
{
	struct config *config = must_alloc(calloc(1, sizeof(*config)));
	struct stat st;

	if (config_read(ROLE_FD_CONFIG, config, e) < 0 || read_key(s->key, sizeof(s->key), e) < 0)
		return -1;
	s->settings = config->e2b;
	free(config);
	s->guest = ROLE_FD_GUEST;
	if (fstat(s->guest, &st) < 0)
		return err_sys(e, "cannot look at the guest program");
	s->guest_size = (size_t)st.st_size;
	/* Its libraries read files when they start, so this comes before the confinement. */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, ERR_SYSTEM, "cannot start libcurl");
	*ret = must_alloc(loop_new());
	s->http = http_new(*ret, e);
	return s->http ? confine(c, e) : -1;
}

int main(int argc, char **argv)
{
	static struct service service;
	struct err e = {0};
	struct loop *loop = NULL;

	if (argc != 7 || !str_equal(argv[1], "role") || !str_equal(argv[2], "remote")) {
		fputs("cloche-remote: it is started by `cloche serve` only\n", stderr);
		return 125;
	}
	struct role_confinement c = {.readable = readable,
				     .uid = (uid_t)strtoul(argv[4], NULL, 10),
				     .gid = (gid_t)strtoul(argv[5], NULL, 10),
				     .rootless = argv[6][0] == '1',
				     .open_files = 65536,
				     .profile = &seccomp_profile_remote};

	log_init("remote");
	prctl(PR_SET_NAME, "cloche-remote", 0, 0, 0);
	if (confine_to_broker(ROLE_FD_BROKER, &e) < 0 ||
	    start_remote_role(&c, &service, &loop, &e) < 0) {
		log_error("role cannot start", "role", "remote", "error", e.msg);
		return 125;
	}
	return remote_role_run(loop, ROLE_FD_BROKER, &service);
}
