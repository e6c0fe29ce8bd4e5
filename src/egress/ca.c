/* Certificate authorities of sandboxes, with OpenSSL. */
#include "egress/ca.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#define LEAVES 256
#define DAY (24 * 3600L)
#define LEAF_DAYS 90
#define LEAF_RENEW_MS (30 * DAY * 1000)

struct leaf {
	char *name;
	X509 *certificate;
	uint64_t made_ms;
};

struct ca {
	EVP_PKEY *key, *leaf_key;
	X509 *certificate;
	SSL_CTX *context;
	char *pem;
	struct leaf leaves[LEAVES]; /* by a hash of the name; a newer one replaces an older one */
};

int ca_error(struct err *e, const char *what)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	return err_set(e, ERR_SYSTEM, "%s: %s", what, reason ? reason : "OpenSSL failed");
}

EVP_PKEY *ca_key_new(struct err *e)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");

	if (!key)
		ca_error(e, "make a key");
	return key;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool ok;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	ok = extension && X509_add_ext(x, extension, -1);
	X509_EXTENSION_free(extension);
	return ok;
}

static bool set_serial(X509 *x)
{
	unsigned char bytes[16];
	BIGNUM *n;
	bool ok;

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always of the same length */
	n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
	BN_free(n);
	return ok;
}

static X509 *certificate_new(EVP_PKEY *key, const char *common_name, long days)
{
	X509 *x = X509_new();
	X509_NAME *subject = x ? X509_get_subject_name(x) : NULL;

	if (x && X509_set_version(x, 2) && set_serial(x) &&
	    X509_gmtime_adj(X509_getm_notBefore(x), -DAY) &&
	    X509_gmtime_adj(X509_getm_notAfter(x), days * DAY) && X509_set_pubkey(x, key) &&
	    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
				       (const unsigned char *)common_name, -1, -1, 0))
		return x;
	X509_free(x);
	return NULL;
}

static bool make_authority(struct ca *ca, const char *id)
{
	char name[64];
	X509 *x;

	snprintf(name, sizeof(name), "cloche sandbox %.40s", id);
	x = ca->certificate = certificate_new(ca->key, name, 3650);
	return x && X509_set_issuer_name(x, X509_get_subject_name(x)) &&
	       add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	       add_extension(x, x, NID_subject_key_identifier, "hash") &&
	       X509_sign(x, ca->key, EVP_sha256());
}

static bool write_pem(struct ca *ca)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *text;
	long len;
	bool ok = out && PEM_write_bio_X509(out, ca->certificate);

	if (ok) {
		len = BIO_get_mem_data(out, &text);
		ca->pem = must_alloc(strndup(text, (size_t)len));
	}
	BIO_free(out);
	return ok;
}

static bool make_context(struct ca *ca)
{
	SSL_CTX *x = ca->context = SSL_CTX_new(TLS_server_method());

	if (!x || !SSL_CTX_set_min_proto_version(x, TLS1_2_VERSION) ||
	    !SSL_CTX_set_session_id_context(x, (const unsigned char *)"cloche", 6) ||
	    !SSL_CTX_set_num_tickets(x, 1))
		return false;
	SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(x, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(x, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return true;
}

struct ca *ca_new(const char *id, EVP_PKEY *leaf_key, struct err *e)
{
	struct ca *ca = must_alloc(calloc(1, sizeof(*ca)));

	ca->leaf_key = leaf_key;
	ca->key = ca_key_new(e);
	if (ca->key && make_authority(ca, id) && write_pem(ca) && make_context(ca))
		return ca;
	ca_error(e, "make the sandbox's certificate authority");
	ca_free(ca);
	return NULL;
}

void ca_free(struct ca *ca)
{
	if (!ca)
		return;
	for (size_t i = 0; i < LEAVES; i++) {
		free(ca->leaves[i].name);
		X509_free(ca->leaves[i].certificate);
	}
	SSL_CTX_free(ca->context);
	X509_free(ca->certificate);
	EVP_PKEY_free(ca->key); /* OpenSSL wipes it */
	free(ca->pem);
	free(ca);
}

const char *ca_pem(const struct ca *ca)
{
	return ca->pem;
}

SSL_CTX *ca_context(const struct ca *ca)
{
	return ca->context;
}

static X509 *leaf_new(struct ca *ca, const char *name, bool is_address)
{
	/* A common name has at most 64 letters; clients look at the alternative name only. */
	X509 *x = certificate_new(ca->leaf_key, strlen(name) <= 64 ? name : "cloche", LEAF_DAYS);
	char alternative[300];

	snprintf(alternative, sizeof(alternative), "%s:%s", is_address ? "IP" : "DNS", name);
	if (x && X509_set_issuer_name(x, X509_get_subject_name(ca->certificate)) &&
	    add_extension(x, ca->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
	    add_extension(x, ca->certificate, NID_key_usage, "critical,digitalSignature") &&
	    add_extension(x, ca->certificate, NID_ext_key_usage, "serverAuth") &&
	    add_extension(x, ca->certificate, NID_subject_key_identifier, "hash") &&
	    add_extension(x, ca->certificate, NID_authority_key_identifier, "keyid") &&
	    add_extension(x, ca->certificate, NID_subject_alt_name, alternative) &&
	    X509_sign(x, ca->key, EVP_sha256()))
		return x;
	X509_free(x);
	return NULL;
}

static size_t leaf_slot(const char *name)
{
	size_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash % LEAVES;
}

X509 *ca_leaf(struct ca *ca, const char *name, bool is_address, struct err *e)
{
	struct leaf *l = &ca->leaves[leaf_slot(name)];

	/* The name becomes a part of a text that OpenSSL parses. */
	if (!str_only(name, STR_ALNUM "-._:", 1, 253)) {
		err_set(e, ERR_INVALID, "no certificate can be made for this name");
		return NULL;
	}
	if (l->name && str_equal(l->name, name) && unix_ms() - l->made_ms < LEAF_RENEW_MS)
		return l->certificate;
	X509_free(l->certificate);
	free(l->name);
	*l = (struct leaf){.certificate = leaf_new(ca, name, is_address)};
	if (!l->certificate) {
		ca_error(e, "make a certificate");
		return NULL;
	}
	l->name = str_copy(name);
	l->made_ms = unix_ms();
	return l->certificate;
}
