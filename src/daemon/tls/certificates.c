/* Reads and checks the daemon's certificate, or makes one by a CA of its own (`--tls self`). */
#include "daemon/tls/tls_internal.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

#define DAY (24 * 3600L)
#define CA_DAYS 3650
#define LEAF_DAYS 397 /* clients refuse server certificates of more than 398 days */
#define RENEW_DAYS 30
#define FILE_MAX (1 << 20)

/* With the library's reason. */
static int fail(struct err *e, const char *what)
{
	char why[200] = "";
	unsigned long code = ERR_peek_last_error();

	if (code)
		ERR_error_string_n(code, why, sizeof(why));
	ERR_clear_error();
	return err_set(e, ERR_INVALID, "%s%s%s", what, why[0] ? ": " : "", why);
}

static BIO *read_file(const char *path, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	auto_free char *text = NULL;
	size_t len;
	BIO *b;

	if (fd < 0 || io_read_whole(fd, FILE_MAX, &text, &len) < 0) {
		err_sys(e, "tls: cannot read %s", path);
		return NULL;
	}
	b = BIO_new(BIO_s_mem());
	if (!b || BIO_write(b, text, (int)len) != (int)len)
		fail(e, "tls: out of memory");
	return b;
}

/* No question on a terminal: a key with a passphrase is refused. */
static int no_passphrase(char *ret, int size, int writes, void *arg)
{
	return 0;
}

static bool days_left(const X509 *cert, long days)
{
	time_t then = time(NULL) + days * DAY;

	return X509_cmp_time(X509_get0_notAfter(cert), &then) > 0;
}

SSL_CTX *certificates_context(const char *pem, size_t len, struct err *e)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	BIO *b = BIO_new_mem_buf(pem, (int)len);
	X509 *leaf = b ? PEM_read_bio_X509(b, NULL, no_passphrase, NULL) : NULL, *next;
	EVP_PKEY *key = NULL;
	bool good = ctx && leaf && SSL_CTX_use_certificate(ctx, leaf) == 1;

	while (good && (next = PEM_read_bio_X509(b, NULL, no_passphrase, NULL)))
		if (SSL_CTX_add0_chain_cert(ctx, next) != 1)
			X509_free(next);
	ERR_clear_error();
	BIO_free(b);
	b = BIO_new_mem_buf(pem, (int)len);
	key = good && b ? PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;
	if (!leaf)
		fail(e, "tls: there is no certificate");
	else if (!key)
		fail(e, "tls: there is no private key, or it has a passphrase");
	else if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
		fail(e, "tls: the key is not of this certificate");
	else if (!days_left(leaf, 0))
		fail(e, "tls: the certificate has expired");
	else
		e->kind = 0;
	good = good && key && !e->kind;
	BIO_free(b);
	X509_free(leaf);
	EVP_PKEY_free(key);
	if (good)
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

/* Copies the memory of a BIO, with an end, if a context can be made of it. */
static char *checked_text(BIO *b, struct err *e)
{
	char *data, *text;
	long len = BIO_get_mem_data(b, &data);
	SSL_CTX *ctx = certificates_context(data, (size_t)len, e);

	if (!ctx)
		return NULL;
	SSL_CTX_free(ctx);
	text = must_alloc(OPENSSL_malloc((size_t)len + 1));
	memcpy(text, data, (size_t)len);
	text[len] = '\0';
	return text;
}

char *certificates_from_files(const char *cert, const char *key, struct err *e)
{
	BIO *all = read_file(cert, e), *second = all ? read_file(key, e) : NULL;
	char *data, *text = NULL;
	long len;

	if (second) {
		len = BIO_get_mem_data(second, &data);
		BIO_write(all, "\n", 1);
		BIO_write(all, data, (int)len);
		text = checked_text(all, e);
	}
	BIO_free(all);
	BIO_free(second);
	if (!text)
		err_wrap(e, "%s", cert);
	return text;
}

/* ---- a CA of our own ---- */

struct pair {
	X509 *cert;
	EVP_PKEY *key;
};

static void pair_done(struct pair *p)
{
	X509_free(p->cert);
	EVP_PKEY_free(p->key);
	*p = (struct pair){0};
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX how;
	X509_EXTENSION *x;
	bool done;

	X509V3_set_ctx(&how, issuer, cert, NULL, NULL, 0);
	x = X509V3_EXT_conf_nid(NULL, &how, nid, value);
	done = x && X509_add_ext(cert, x, -1) == 1;
	X509_EXTENSION_free(x);
	return done;
}

/* A key and an unsigned certificate for it. */
static bool begin_pair(struct pair *p, const char *name, long days)
{
	BIGNUM *serial = BN_new();
	X509_NAME *subject;

	p->key = EVP_EC_gen("P-256");
	p->cert = X509_new();
	if (!serial || !p->key || !p->cert || BN_rand(serial, 120, BN_RAND_TOP_ONE, 0) != 1) {
		BN_free(serial);
		return false;
	}
	BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(p->cert));
	BN_free(serial);
	X509_set_version(p->cert, 2);
	/* Clocks differ. */
	X509_gmtime_adj(X509_getm_notBefore(p->cert), -DAY);
	X509_gmtime_adj(X509_getm_notAfter(p->cert), days * DAY);
	subject = X509_get_subject_name(p->cert);
	return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const void *)name, -1, -1,
					  0) == 1 &&
	       X509_set_pubkey(p->cert, p->key) == 1;
}

static int make_ca(struct pair *p, struct err *e)
{
	char host[65] = "", name[96];

	(void)gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "cloche on %.50s", host[0] ? host : "this host");
	if (!begin_pair(p, name, CA_DAYS) ||
	    X509_set_issuer_name(p->cert, X509_get_subject_name(p->cert)) != 1 ||
	    !add_extension(p->cert, p->cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
	    !add_extension(p->cert, p->cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
	    !add_extension(p->cert, p->cert, NID_subject_key_identifier, "hash") ||
	    !X509_sign(p->cert, p->key, EVP_sha256()))
		return fail(e, "tls: cannot make a CA");
	return 0;
}

static bool is_digits(const char *name)
{
	unsigned char address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

static int make_leaf(const struct pair *ca, char *const *names, struct pair *p, struct err *e)
{
	struct buf alt = {0};
	bool good;

	for (size_t i = 0; names[i]; i++) {
		auto_free char *one = str_format("%s%s:%s", i ? "," : "",
						 is_digits(names[i]) ? "IP" : "DNS", names[i]);

		buf_add(&alt, one, strlen(one));
	}
	buf_add(&alt, "", 1);
	good = begin_pair(p, "cloche", LEAF_DAYS) &&
	       X509_set_issuer_name(p->cert, X509_get_subject_name(ca->cert)) == 1 &&
	       add_extension(p->cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
	       add_extension(p->cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
	       add_extension(p->cert, ca->cert, NID_ext_key_usage, "serverAuth") &&
	       add_extension(p->cert, ca->cert, NID_subject_key_identifier, "hash") &&
	       add_extension(p->cert, ca->cert, NID_authority_key_identifier, "keyid") &&
	       add_extension(p->cert, ca->cert, NID_subject_alt_name, buf_head(&alt)) &&
	       X509_sign(p->cert, ca->key, EVP_sha256()) != 0;
	buf_done(&alt);
	return good ? 0 : fail(e, "tls: cannot make a certificate");
}

static bool read_pair(int dir, const char *cert, const char *key, struct pair *ret)
{
	const char *files[] = {cert, key};

	for (size_t i = 0; i < 2; i++) {
		auto_close int fd = openat(dir, files[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

		if (!f)
			break;
		take_fd(&fd);
		if (i == 0)
			ret->cert = PEM_read_X509(f, NULL, no_passphrase, NULL);
		else
			ret->key = PEM_read_PrivateKey(f, NULL, no_passphrase, NULL);
		fclose(f);
	}
	ERR_clear_error();
	if (ret->cert && ret->key && X509_check_private_key(ret->cert, ret->key) == 1)
		return true;
	pair_done(ret);
	return false;
}

/* Written beside and renamed, so that no reader sees half of a file. */
static int write_pem(int dir, const char *name, mode_t mode, X509 *cert, EVP_PKEY *key)
{
	char fresh[64];
	int fd;
	FILE *f;
	bool good;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	(void)unlinkat(dir, fresh, 0);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		close_fd(&fd);
		return -1;
	}
	good = (!cert || PEM_write_X509(f, cert) == 1) &&
	       (!key || PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1) &&
	       fchmod(fd, mode) == 0 && fflush(f) == 0 && fsync(fd) == 0;
	return fclose(f) == 0 && good ? renameat(dir, fresh, dir, name) : -1;
}

static bool names_are_covered(X509 *cert, char *const *names)
{
	for (size_t i = 0; names[i]; i++) {
		/* A wildcard is not a host that could be asked for: one below it is. */
		auto_free char *below = str_starts(names[i], "*.") ? str_format("a%s", names[i] + 1)
								   : str_copy(names[i]);

		if (is_digits(below) ? X509_check_ip_asc(cert, below, 0) != 1
				     : X509_check_host(cert, below, 0, 0, NULL) != 1)
			return false;
	}
	return true;
}

/* The CA that is there, or a new one. */
static int have_ca(int dir, bool renews, struct pair *ca, struct err *e)
{
	if (!renews && read_pair(dir, "ca.pem", "ca.key", ca) && days_left(ca->cert, LEAF_DAYS))
		return 0;
	pair_done(ca);
	if (make_ca(ca, e) < 0)
		return -1;
	/* The key first: a certificate whose key is another one is not used, but made again. */
	if (write_pem(dir, "ca.key", 0600, NULL, ca->key) < 0 ||
	    write_pem(dir, "ca.pem", 0644, ca->cert, NULL) < 0)
		return err_sys(e, "tls: cannot write the CA");
	return 0;
}

static int have_leaf(int dir, const struct pair *ca, char *const *names, struct pair *leaf,
		     struct err *e)
{
	if (read_pair(dir, "tls.pem", "tls.pem", leaf) && days_left(leaf->cert, RENEW_DAYS) &&
	    X509_verify(leaf->cert, ca->key) == 1 && names_are_covered(leaf->cert, names))
		return 0;
	ERR_clear_error();
	pair_done(leaf);
	if (make_leaf(ca, names, leaf, e) < 0)
		return -1;
	if (write_pem(dir, "tls.pem", 0600, leaf->cert, leaf->key) < 0)
		return err_sys(e, "tls: cannot write the certificate");
	return 0;
}

static int open_dir(const char *path, struct err *e)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? err_sys(e, "tls: cannot open %s", path) : dir;
}

char *certificates_own(const char *path, char *const *names, struct err *e)
{
	auto_close int dir = open_dir(path, e);
	struct pair ca = {0}, leaf = {0};
	BIO *all = NULL;
	char *text = NULL;

	if (dir >= 0 && have_ca(dir, false, &ca, e) == 0 &&
	    have_leaf(dir, &ca, names, &leaf, e) == 0) {
		all = must_alloc(BIO_new(BIO_s_mem()));
		PEM_write_bio_X509(all, leaf.cert);
		PEM_write_bio_PrivateKey(all, leaf.key, NULL, NULL, 0, NULL, NULL);
		text = checked_text(all, e);
	}
	BIO_free(all);
	pair_done(&ca);
	pair_done(&leaf);
	return text;
}

int certificates_renew(const char *path, struct err *e)
{
	auto_close int dir = open_dir(path, e);
	struct pair ca = {0};
	int rc = dir < 0 ? -1 : have_ca(dir, true, &ca, e);

	pair_done(&ca);
	return rc;
}
