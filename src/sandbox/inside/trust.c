/* Writes the bundles that make programs trust the sandbox's CA, and shows them in their places. */
#include "sandbox/inside/trust.h"

#include "wire/guest.h"

#include "base/base64.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "model/variables.h"
#include "sandbox/inside/skeleton.h"

#include <arpa/inet.h>
#include <endian.h>

#define BUNDLE_MAX (8u << 20)
#define BUNDLE "ca-certificates.crt"
#define JAVA_STORE "java.jks"

/* Where distributions keep the system's bundle; the first is Debian's. */
static const char *const bundles[] = {"etc/ssl/certs/ca-certificates.crt",
				      "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem",
				      "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
				      "etc/ssl/cert.pem"};

/* Those that replace the bundle get the whole one; Node's adds to its own. */
static const struct {
	const char *name, *file;
} variables[] = {
	{"SSL_CERT_FILE", BUNDLE},
	{"CURL_CA_BUNDLE", BUNDLE},
	{"REQUESTS_CA_BUNDLE", BUNDLE},
	{"GIT_SSL_CAINFO", BUNDLE},
	{"NODE_EXTRA_CA_CERTS", "ca.crt"},
	{"PIP_CERT", BUNDLE},
	{"CARGO_HTTP_CAINFO", BUNDLE},
	{"BUNDLE_SSL_CA_CERT", BUNDLE},
	{"AWS_CA_BUNDLE", BUNDLE},
	{"DENO_CERT", "ca.crt"},
	{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", BUNDLE},
};

static int open_inside(int root, const char *path, int flags)
{
	return sys_openat2(root, path, flags | O_CLOEXEC, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

/* ---- Java ---- */

static void add_number(struct buf *b, uint32_t n)
{
	uint32_t big = htonl(n);

	buf_add(b, &big, sizeof(big));
}

static void add_text(struct buf *b, const char *text)
{
	uint16_t len = htons((uint16_t)strlen(text));

	buf_add(b, &len, sizeof(len));
	buf_add(b, text, strlen(text));
}

/* One trusted certificate of a JKS store. */
static void add_certificate(struct buf *b, unsigned number, const char *der, size_t len)
{
	const uint64_t time = 0;
	char alias[24];

	snprintf(alias, sizeof(alias), "ca%u", number);
	add_number(b, 2);
	add_text(b, alias);
	buf_add(b, &time, sizeof(time));
	add_text(b, "X.509");
	add_number(b, (uint32_t)len);
	buf_add(b, der, len);
}

/* The base64 between two marks, without its line ends; returns what is behind it, NULL: no more. */
static const char *next_certificate(const char *at, struct buf *ret_der)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----",
			  end[] = "-----END CERTIFICATE-----";
	const char *from = strstr(at, begin), *to = from ? strstr(from, end) : NULL;
	struct buf text = {0};
	size_t len = 0;
	char *room;

	if (!to)
		return NULL;
	for (from += strlen(begin); from < to; from++)
		if (*from > ' ')
			buf_add(&text, from, 1);
	room = buf_reserve(ret_der, text.len + 4);
	if (text.len && base64_decode(room, buf_head(&text), text.len, &len) == 0)
		buf_added(ret_der, len);
	buf_done(&text);
	return to + strlen(end);
}

/* Without a password Java does not look at the digest at the end. */
static void make_java_store(const char *pem, struct buf *ret)
{
	static const char no_digest[20];
	struct buf rows = {0};
	unsigned count = 0;

	for (const char *at = pem;;) {
		struct buf der = {0};

		at = next_certificate(at, &der);
		if (at && der.len)
			add_certificate(&rows, count++, buf_head(&der), der.len);
		buf_done(&der);
		if (!at)
			break;
	}
	add_number(ret, 0xfeedfeed);
	add_number(ret, 2);
	add_number(ret, count);
	if (rows.len)
		buf_add(ret, buf_head(&rows), rows.len);
	buf_add(ret, no_digest, sizeof(no_digest));
	buf_done(&rows);
}

static bool has_java(int root)
{
	static const char *const places[] = {"usr/bin/java", "usr/lib/jvm", "opt/java"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		auto_close int fd = open_inside(root, places[i], O_PATH);

		if (fd >= 0)
			return true;
	}
	return false;
}

static void add_variables(struct list *env, bool with_java)
{
	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		variables_take(env, str_format("%s=" TRUST_DIR "/%s", variables[i].name,
					       variables[i].file));
	if (with_java)
		variables_set(env, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStoreType=JKS "
				   "-Djavax.net.ssl.trustStore=" TRUST_DIR "/" JAVA_STORE);
}

void trust_variables(int root, struct list *env)
{
	add_variables(env, has_java(root));
}

void trust_variables_if_shown(struct list *env)
{
	if (access(TRUST_DIR "/ca.crt", F_OK) == 0)
		add_variables(env, access(TRUST_DIR "/" JAVA_STORE, F_OK) == 0);
}

/* ---- the files ---- */

/* The system's bundle in this root; "" if it has none. */
static char *read_bundle(int root)
{
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++) {
		auto_close int fd = open_inside(root, bundles[i], O_RDONLY | O_NONBLOCK | O_NOCTTY);
		char *text = NULL;
		size_t len;

		if (fd >= 0 && io_read_whole(fd, BUNDLE_MAX, &text, &len) == 0)
			return text;
	}
	return str_copy("");
}

void trust_read(int root, struct trust_base *ret)
{
	*ret = (struct trust_base){read_bundle(root), has_java(root)};
}

void trust_base_done(struct trust_base *b)
{
	free(b->bundle);
}

int trust_write(int dir, const struct trust_base *base, const char *pem, size_t len, struct err *e)
{
	auto_free char *both = str_format("%s\n%.*s", base->bundle, (int)len, pem);
	auto_buf struct buf java = {0};

	if (skeleton_file(dir, "ca.crt", pem, len, 0444, e) < 0 ||
	    skeleton_file(dir, BUNDLE, both, strlen(both), 0444, e) < 0)
		return -1;
	if (!base->has_java)
		return 0;
	make_java_store(both, &java);
	return skeleton_file(dir, JAVA_STORE, buf_head(&java), java.len, 0444, e);
}

/* In place: the file is shown elsewhere, too. */
static int rewrite(int dir, const char *name, const char *bytes, size_t len, struct err *e)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || io_write_all(fd, bytes, len) < 0 || ftruncate(fd, (off_t)len) < 0)
		return err_sys(e, "cannot write %s in the sandbox", name);
	return 0;
}

static int read_own(int dir, const char *name, char **ret, size_t *ret_len, struct err *e)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || io_read_whole(fd, BUNDLE_MAX + TRUST_PEM_MAX, ret, ret_len) < 0)
		return err_sys(e, "cannot read %s of the sandbox", name);
	return 0;
}

int trust_replace(int dir, const char *pem, size_t len, struct err *e)
{
	auto_free char *old = NULL, *both = NULL, *fresh = NULL;
	auto_buf struct buf java = {0};
	size_t old_len, both_len;

	if (read_own(dir, "ca.crt", &old, &old_len, e) < 0 ||
	    read_own(dir, BUNDLE, &both, &both_len, e) < 0)
		return -1;
	if (both_len < old_len || memcmp(both + both_len - old_len, old, old_len) != 0)
		return err_set(e, ERR_SYSTEM, "the bundle of the sandbox does not end with its CA");
	fresh = str_format("%.*s%.*s", (int)(both_len - old_len), both, (int)len, pem);
	if (rewrite(dir, BUNDLE, fresh, strlen(fresh), e) < 0 ||
	    rewrite(dir, "ca.crt", pem, len, e) < 0)
		return -1;
	if (faccessat(dir, JAVA_STORE, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	make_java_store(fresh, &java);
	return rewrite(dir, JAVA_STORE, buf_head(&java), java.len, e);
}

int trust_link_agent(int dir, struct err *e)
{
	if (symlinkat(GUEST_AGENT_SOCKET, dir, "agent.sock") < 0 && errno != EEXIST)
		return err_sys(e, "cannot create the link to the agent's socket");
	return 0;
}

int trust_cover(int dir, int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++) {
		auto_close int at = open_inside(root, bundles[i], O_PATH);
		struct stat st;
		int fd;

		if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		fd = mount_clone(dir, BUNDLE, MOUNT_READ_ONLY | MOUNT_NO_EXEC, e);
		if (fd < 0 || mount_attach(fd, at, "", e) < 0)
			return err_wrap(e, "cannot show the CA at /%s", bundles[i]);
	}
	return 0;
}

int trust_show(const struct plan *p, int root, struct err *e)
{
	auto_close int dir = -1, at = -1;
	struct trust_base base;
	int fd;

	if (mkdir("trust", 0755) < 0)
		return err_sys(e, "cannot create the place for the CA");
	dir = open("trust", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "cannot open the place for the CA");
	trust_read(root, &base);
	fd = trust_write(dir, &base, p->ca.pem, p->ca.len, e);
	trust_base_done(&base);
	if (fd < 0)
		return -1;
	at = skeleton_dir(root, &TRUST_DIR[1], e);
	fd = at < 0 ? -1 : mount_clone(dir, "", MOUNT_READ_ONLY | MOUNT_NO_EXEC, e);
	if (fd < 0 || mount_attach(fd, at, "", e) < 0)
		return -1;
	return trust_cover(dir, root, e);
}
