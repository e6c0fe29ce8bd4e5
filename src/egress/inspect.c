/*
 * Opens TLS by rule: the store that servers are verified against, the CA of each sandbox that needs one, and the
 * handler. Parsing the system's store takes 40 to 60 ms, so that a daemon's egress does it in small steps before
 * it is needed.
 */
#include "egress/http_conn.h"
#include "egress/secrets.h"
#include "egress/tls_stage.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/mman.h>

#define STORE_MAX (8u << 20)
#define CERTIFICATES_AT_ONCE 4
#define WARM_MS 5

struct inspector {
	struct role *role;
	EVP_PKEY *leaf_key;
	SSL_CTX *upstream;
	char *system, *more; /* PEM: the system's store, and what the settings add */
	BIO *unread;	     /* the part of the system's store that is not in upstream yet */
	struct loop_timer warm;
};

/* ---- the store ---- */

static char *read_store(void)
{
	static const char *const files[] = {
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/cert.pem"};

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		auto_close int fd = open(files[i], O_RDONLY | O_CLOEXEC);
		char *pem;
		size_t len;

		if (fd >= 0 && io_read_whole(fd, STORE_MAX, &pem, &len) == 0)
			return pem;
	}
	return NULL; /* only the certificates of the settings are believed */
}

/* Certificates from the text into the store; false: there are no more. */
static bool add_certificates(SSL_CTX *context, BIO *from, size_t most)
{
	X509_STORE *store = SSL_CTX_get_cert_store(context);

	for (size_t i = 0; i < most; i++) {
		X509 *x = PEM_read_bio_X509(from, NULL, NULL, NULL);

		if (!x) {
			ERR_clear_error();
			return false;
		}
		X509_STORE_add_cert(store, x);
		X509_free(x);
	}
	return true;
}

static void add_some(struct inspector *x, size_t most)
{
	if (!x->unread || add_certificates(x->upstream, x->unread, most))
		return;
	BIO_free(x->unread);
	x->unread = NULL;
}

/* The key and an empty store, or one with the certificates of the settings. */
static int prepare(struct inspector *x, struct err *e)
{
	BIO *more;

	if (!x->leaf_key)
		x->leaf_key = ca_key_new(e);
	if (x->upstream || !x->leaf_key)
		return x->leaf_key ? 0 : -1;
	x->upstream = tls_upstream_context(e);
	if (!x->upstream)
		return -1;
	if (x->more) {
		more = must_alloc(BIO_new_mem_buf(x->more, -1));
		add_certificates(x->upstream, more, SIZE_MAX);
		BIO_free(more);
	}
	if (x->system)
		x->unread = must_alloc(BIO_new_mem_buf(x->system, -1));
	return 0;
}

static void on_warm(void *arg)
{
	struct inspector *x = arg;
	struct err e = {0};

	if (prepare(x, &e) < 0)
		return;
	add_some(x, CERTIFICATES_AT_ONCE);
	if (x->unread)
		loop_timer_set(x->role->loop, &x->warm, WARM_MS);
}

static void warm_soon(struct inspector *x)
{
	if (!x->role->one_run)
		loop_timer_set(x->role->loop, &x->warm, 1000);
}

int inspect_start(struct role *r, struct err *e)
{
	struct inspector *x = must_alloc(calloc(1, sizeof(*x)));

	x->role = r;
	x->warm = (struct loop_timer){.call = on_warm, .arg = x};
	x->system = read_store();
	r->inspector = x;
	warm_soon(x);
	return 0;
}

int inspect_settings(struct role *r, const char *pem, struct err *e)
{
	struct inspector *x = r->inspector;

	free(x->more);
	x->more = pem && *pem ? str_copy(pem) : NULL;
	SSL_CTX_free(x->upstream); /* connections keep their own reference */
	BIO_free(x->unread);
	x->upstream = NULL;
	x->unread = NULL;
	warm_soon(x);
	return 0;
}

/* ---- sandboxes ---- */

static bool needs_authority(const struct uplink *s)
{
	const struct net_policy *p = uplink_policy(s);

	return s->secrets || (p && net_policy_inspects(p));
}

static int send_authority(struct uplink *s, const struct ca *ca, struct err *e)
{
	struct egress m = {.type = EGRESS_CA};
	const char *pem = ca_pem(ca);
	auto_close int fd = memfd_create("ca", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, pem, strlen(pem)) != (ssize_t)strlen(pem) || io_seal(fd) < 0)
		return err_sys(e, "cannot pass the sandbox's CA on");
	memcpy(m.id, s->id, sizeof(m.id));
	records_send(s->role, &m, fd);
	return 0;
}

int inspect_uplink(struct uplink *s, struct err *e)
{
	struct inspector *x = s->role->inspector;

	if (s->inspection || !needs_authority(s))
		return 0;
	if (prepare(x, e) < 0)
		return -1;
	s->inspection = ca_new(s->id, x->leaf_key, e);
	return s->inspection ? send_authority(s, s->inspection, e) : -1;
}

void inspect_uplink_done(struct uplink *s)
{
	ca_free(s->inspection);
	s->inspection = NULL;
}

/* ---- the handler ---- */

static struct http_conn *begin(struct conn *c, struct err *e)
{
	struct inspector *r = c->uplink->role->inspector;
	struct tls_stage_settings settings = {.ca = c->uplink->inspection};
	char digits[NET_ADDRESS_TEXT];
	struct http_conn *x;
	struct stage *stage;

	if (!settings.ca) {
		err_set(e, ERR_SYSTEM, "TLS cannot be opened: the sandbox has no CA");
		return NULL;
	}
	if (prepare(r, e) < 0)
		return NULL;
	add_some(r, SIZE_MAX);
	net_address_text(c->address, false, digits);
	http_conn_place(c, &settings.place);
	settings.leaf_key = r->leaf_key;
	settings.upstream = r->upstream;
	settings.digits = digits;
	stage = tls_stage_new(&settings, e);
	if (!stage)
		return NULL;
	x = must_alloc(calloc(1, sizeof(*x)));
	x->stage = stage;
	return x;
}

static void inspect_step(struct conn *c)
{
	struct http_conn *x = c->state;
	struct err e = {0};

	if (!x) {
		x = c->state = begin(c, &e);
		if (!x) {
			conn_deny(c, e.msg, NULL);
			return;
		}
		c->inspected = true;
	}
	http_conn_step(c);
	if (!c->dead && !x->is_silent && tls_stage_why(x->stage)) {
		x->is_silent = true;
		record_conn(c, EGRESS_FAILED, tls_stage_why(x->stage));
	}
}

const struct handler conn_inspect = {
	.name = "inspect", .step = inspect_step, .done = http_conn_done, .held = http_conn_held};
