/* Writes the bundles that make programs trust the sandbox's CA, and shows them in their places. */
#include "sandbox/inside/trust.h"

#include "base/base64.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "sandbox/inside/skeleton.h"

#include <arpa/inet.h>
#include <endian.h>

#define BUNDLE_MAX (8u << 20)

/* Where distributions keep the system's bundle; the first is Debian's. */
static const char *const bundles[] = {"etc/ssl/certs/ca-certificates.crt",
				      "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem",
				      "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
				      "etc/ssl/cert.pem"};

/* Those that replace the bundle get the whole one; Node's adds to its own. */
static const struct {
	const char *name, *file;
} variables[] = {
	{"SSL_CERT_FILE", "ca-certificates.crt"},
	{"CURL_CA_BUNDLE", "ca-certificates.crt"},
	{"REQUESTS_CA_BUNDLE", "ca-certificates.crt"},
	{"GIT_SSL_CAINFO", "ca-certificates.crt"},
	{"NODE_EXTRA_CA_CERTS", "ca.crt"},
	{"PIP_CERT", "ca-certificates.crt"},
	{"CARGO_HTTP_CAINFO", "ca-certificates.crt"},
	{"BUNDLE_SSL_CA_CERT", "ca-certificates.crt"},
	{"AWS_CA_BUNDLE", "ca-certificates.crt"},
	{"DENO_CERT", "ca.crt"},
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

void trust_variables(int root, struct list *env)
{
	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		list_take(env,
			  str_format("%s=" TRUST_DIR "/%s", variables[i].name, variables[i].file));
	if (has_java(root))
		list_add(env, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStoreType=JKS "
			      "-Djavax.net.ssl.trustStore=" TRUST_DIR "/java.jks");
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

static int write_files(const struct plan *p, int dir, int root, struct err *e)
{
	auto_free char *system = read_bundle(root);
	auto_free char *both = str_format("%s\n%.*s", system, (int)p->ca.len, p->ca.pem);
	auto_buf struct buf java = {0};

	if (skeleton_file(dir, "ca.crt", p->ca.pem, p->ca.len, 0444, e) < 0 ||
	    skeleton_file(dir, "ca-certificates.crt", both, strlen(both), 0444, e) < 0)
		return -1;
	if (!has_java(root))
		return 0;
	make_java_store(both, &java);
	return skeleton_file(dir, "java.jks", buf_head(&java), java.len, 0444, e);
}

/* Over every bundle that this root has. */
static int cover_bundles(int dir, int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++) {
		auto_close int at = open_inside(root, bundles[i], O_PATH);
		struct stat st;
		int fd;

		if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		fd = mount_clone(dir, "ca-certificates.crt", MOUNT_READ_ONLY | MOUNT_NO_EXEC, e);
		if (fd < 0 || mount_attach(fd, at, "", e) < 0)
			return err_wrap(e, "cannot show the CA at /%s", bundles[i]);
	}
	return 0;
}

int trust_show(const struct plan *p, int root, struct err *e)
{
	auto_close int dir = -1, at = -1;
	int fd;

	if (mkdir("trust", 0755) < 0)
		return err_sys(e, "cannot create the place for the CA");
	dir = open("trust", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "cannot open the place for the CA");
	if (write_files(p, dir, root, e) < 0)
		return -1;
	at = skeleton_dir(root, "run/cloche", e);
	fd = at < 0 ? -1 : mount_clone(dir, "", MOUNT_READ_ONLY | MOUNT_NO_EXEC, e);
	if (fd < 0 || mount_attach(fd, at, "", e) < 0)
		return -1;
	return cover_bundles(dir, root, e);
}
