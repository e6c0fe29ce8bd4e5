/*
 * TLS in the middle, as a stage.
 *
 * Theory of operation: the client's hello is read first, and is kept waiting (SSL_CLIENT_HELLO_RETRY) until the
 * handshake with the server is done: the server chooses the protocol (ALPN) from those that the client offered and
 * we speak, and the client gets the same one, so that nothing is translated. A server that cannot be verified is a
 * 502 inside a complete TLS session to the client, as an error that programs show.
 */
#include "egress/tls_stage.h"

#include "egress/h2.h"
#include "egress/http_filter.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#define PIECE (16u << 10)
#define SESSIONS (40u << 10) /* what OpenSSL keeps for both sides, roughly */

enum hello { HELLO_NONE, HELLO_SEEN, HELLO_ANSWERED };

struct tls_stage {
	struct stage stage;
	struct tls_stage_settings settings;
	SSL *ssl[2];
	struct buf in[2]; /* from the network, encrypted */
	bool ended[2], shut[2];
	enum hello hello;
	bool is_ready[2]; /* handshakes are done */
	char server_name[NET_NAME];
	bool offers_h1, offers_h2, is_h2;
	struct stage *inner;
	bool has_failed; /* the server; the client gets 502 */
	int status;
	char why[256];
	const char *client_why;
	char client_text[128];
};

/* ---- bytes of OpenSSL ---- */

struct port {
	struct tls_stage *t;
	enum stage_side side;
};

static int port_write(BIO *b, const char *bytes, int len)
{
	struct port *p = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (len > 0)
		buf_add(&p->t->stage.out[p->side], bytes, (size_t)len);
	return len;
}

static int port_read(BIO *b, char *bytes, int len)
{
	struct port *p = BIO_get_data(b);
	struct buf *in = &p->t->in[p->side];
	size_t n = len < 0 ? 0 : (size_t)len < in->len ? (size_t)len : in->len;

	BIO_clear_retry_flags(b);
	if (!n) {
		if (p->t->ended[p->side])
			return 0;
		BIO_set_retry_read(b);
		return -1;
	}
	memcpy(bytes, buf_head(in), n);
	buf_drop(in, n);
	return (int)n;
}

static long port_control(BIO *b, int command, long number, void *pointer)
{
	return command == BIO_CTRL_FLUSH;
}

static int port_destroy(BIO *b)
{
	free(BIO_get_data(b));
	return 1;
}

/* Made once; lives as long as the process. */
static BIO_METHOD *port_method(void)
{
	static BIO_METHOD *m;

	if (m)
		return m;
	m = must_alloc(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stage"));
	BIO_meth_set_write(m, port_write);
	BIO_meth_set_read(m, port_read);
	BIO_meth_set_ctrl(m, port_control);
	BIO_meth_set_destroy(m, port_destroy);
	return m;
}

static SSL *ssl_new(struct tls_stage *t, enum stage_side side, SSL_CTX *context)
{
	SSL *s = SSL_new(context);
	BIO *b = s ? BIO_new(port_method()) : NULL;
	struct port *p = must_alloc(malloc(sizeof(*p)));

	*p = (struct port){t, side};
	if (!b) {
		free(p);
		SSL_free(s);
		return NULL;
	}
	BIO_set_data(b, p);
	BIO_set_init(b, 1);
	SSL_set_bio(s, b, b);
	SSL_set_app_data(s, t);
	t->ssl[side] = s;
	return s;
}

/* ---- the client's hello ---- */

static void read_offers(struct tls_stage *t, SSL *s)
{
	const unsigned char *list;
	size_t len;

	if (!SSL_client_hello_get0_ext(s, TLSEXT_TYPE_application_layer_protocol_negotiation, &list,
				       &len))
		return;
	for (size_t i = 2; i < len && i + 1 + list[i] <= len; i += 1u + list[i]) {
		t->offers_h2 |= list[i] == 2 && !memcmp(list + i + 1, "h2", 2);
		t->offers_h1 |= list[i] == 8 && !memcmp(list + i + 1, "http/1.1", 8);
	}
}

/* False: malformed. No name: server_name stays empty. */
static bool read_server_name(struct tls_stage *t, SSL *s)
{
	const unsigned char *x;
	struct network address;
	struct err e = {0};
	size_t len, name;

	if (!SSL_client_hello_get0_ext(s, TLSEXT_TYPE_server_name, &x, &len))
		return true;
	if (len < 5 || x[2] != 0)
		return false;
	name = (size_t)x[3] << 8 | x[4];
	return name + 5 == len &&
	       net_host((const char *)x + 5, name, t->server_name, &address, &e) == NET_IS_NAME;
}

static int on_hello(SSL *s, int *alert, void *arg)
{
	struct tls_stage *t = SSL_get_app_data(s);
	const char *name = t->settings.place.name;

	if (t->hello == HELLO_NONE) {
		bool ok = read_server_name(t, s);

		if (!ok || (name[0] && t->server_name[0] && !str_equal(t->server_name, name))) {
			*alert = SSL_AD_UNRECOGNIZED_NAME;
			t->client_why = "the TLS server name is not that of the connection";
			return SSL_CLIENT_HELLO_ERROR;
		}
		read_offers(t, s);
		t->hello = HELLO_SEEN;
		return SSL_CLIENT_HELLO_RETRY; /* the certificate depends on it */
	}
	return t->is_ready[STAGE_SERVER] || t->has_failed ? SSL_CLIENT_HELLO_SUCCESS
							  : SSL_CLIENT_HELLO_RETRY;
}

static int on_alpn(SSL *s, const unsigned char **out, unsigned char *out_len,
		   const unsigned char *in, unsigned in_len, void *arg)
{
	struct tls_stage *t = SSL_get_app_data(s);

	if (!t->offers_h1 && !t->offers_h2)
		return SSL_TLSEXT_ERR_NOACK;
	*out = (const unsigned char *)(t->is_h2 ? "h2" : "http/1.1");
	*out_len = t->is_h2 ? 2 : 8;
	return SSL_TLSEXT_ERR_OK;
}

/* ---- the server ---- */

static void server_failed(struct tls_stage *t, int status, const char *why)
{
	if (t->has_failed)
		return;
	t->has_failed = true;
	t->status = status;
	snprintf(t->why, sizeof(t->why), "%s", why);
	t->stage.closing[STAGE_SERVER] = true;
}

static const char *verified_name(const struct tls_stage *t)
{
	if (t->settings.place.name[0])
		return t->settings.place.name;
	return t->server_name[0] ? t->server_name : NULL;
}

static bool start_server(struct tls_stage *t)
{
	static const unsigned char both[] = "\x02h2\x08http/1.1";
	SSL *s = ssl_new(t, STAGE_SERVER, t->settings.upstream);
	const char *name = verified_name(t);

	if (!s)
		return false;
	SSL_set_connect_state(s);
	SSL_set_hostflags(s, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (name ? !SSL_set1_host(s, name) || !SSL_set_tlsext_host_name(s, name)
		 : !X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), t->settings.digits))
		return false;
	if (t->offers_h2)
		return SSL_set_alpn_protos(s, both, t->offers_h1 ? 12 : 3) == 0;
	return !t->offers_h1 || SSL_set_alpn_protos(s, both + 3, 9) == 0;
}

static void server_is_ready(struct tls_stage *t)
{
	const unsigned char *protocol = NULL;
	unsigned len = 0;

	t->is_ready[STAGE_SERVER] = true;
	SSL_get0_alpn_selected(t->ssl[STAGE_SERVER], &protocol, &len);
	t->is_h2 = len == 2 && !memcmp(protocol, "h2", 2);
	if (t->offers_h2 && !t->offers_h1 && !t->is_h2)
		server_failed(
			t, 502,
			"the server does not speak HTTP/2, and the program offers nothing else");
}

static void server_handshake_failed(struct tls_stage *t)
{
	long result = SSL_get_verify_result(t->ssl[STAGE_SERVER]);
	struct err e = {0};
	char why[256];

	if (result != X509_V_OK) {
		snprintf(why, sizeof(why), "the certificate of the server is not valid: %s",
			 X509_verify_cert_error_string(result));
	} else {
		ca_error(&e, "TLS with the server failed");
		snprintf(why, sizeof(why), "%.200s", e.msg);
	}
	server_failed(t, 502, why);
}

/* ---- progress ---- */

/* 1: done; 0: needs more bytes; -1: failed. */
static int shake_hands(struct tls_stage *t, enum stage_side side)
{
	SSL *s = t->ssl[side];
	int rc, error;

	ERR_clear_error();
	rc = SSL_do_handshake(s);
	if (rc == 1)
		return 1;
	error = SSL_get_error(s, rc);
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_CLIENT_HELLO_CB ? 0 : -1;
}

static void stop(struct tls_stage *t)
{
	t->stage.closing[STAGE_CLIENT] = t->stage.closing[STAGE_SERVER] = true;
}

static void client_handshake_failed(struct tls_stage *t)
{
	struct err e = {0};

	if (!t->client_why) {
		ca_error(&e, "the program broke TLS off; does it trust the sandbox's CA?");
		snprintf(t->client_text, sizeof(t->client_text), "%.120s", e.msg);
		t->client_why = t->client_text;
	}
	stop(t);
}

static int use_leaf(struct tls_stage *t)
{
	const char *name = verified_name(t);
	struct err e = {0};
	X509 *leaf = ca_leaf(t->settings.ca, name ? name : t->settings.digits, !name, &e);
	SSL *s = t->ssl[STAGE_CLIENT];

	t->hello = HELLO_ANSWERED;
	if (t->has_failed)
		t->is_h2 = t->offers_h2 && !t->offers_h1;
	if (leaf && SSL_use_certificate(s, leaf) && SSL_use_PrivateKey(s, t->settings.leaf_key))
		return 0;
	t->client_why = "no certificate could be made for the host";
	return -1;
}

/* Handshakes; true: bytes of HTTP can be passed. */
static bool get_ready(struct tls_stage *t)
{
	int rc;

	if (!t->is_ready[STAGE_CLIENT] && t->hello == HELLO_NONE &&
	    shake_hands(t, STAGE_CLIENT) < 0) {
		client_handshake_failed(t);
		return false;
	}
	if (t->hello == HELLO_NONE)
		return false;
	if (!t->ssl[STAGE_SERVER] && !t->has_failed && !start_server(t))
		server_failed(t, 502, "TLS with the server could not be begun");
	if (!t->is_ready[STAGE_SERVER] && !t->has_failed) {
		rc = shake_hands(t, STAGE_SERVER);
		if (rc < 0)
			server_handshake_failed(t);
		else if (rc == 1)
			server_is_ready(t);
		else
			return false;
	}
	if (!t->is_ready[STAGE_CLIENT]) {
		rc = t->hello == HELLO_SEEN ? use_leaf(t) : 0;
		rc = rc < 0 ? rc : shake_hands(t, STAGE_CLIENT);
		if (rc < 0)
			client_handshake_failed(t);
		t->is_ready[STAGE_CLIENT] = rc == 1;
	}
	return t->is_ready[STAGE_CLIENT];
}

/* Decrypted bytes of a side to the inner stage. True if there was something. */
static bool pass_in(struct tls_stage *t, enum stage_side side)
{
	char bytes[PIECE];
	int n, error;

	if (t->shut[side] || (side == STAGE_SERVER && t->has_failed) ||
	    !stage_wants(t->inner, side) || t->stage.out[stage_other(side)].len >= STAGE_FULL)
		return false;
	ERR_clear_error();
	n = SSL_read(t->ssl[side], bytes, sizeof(bytes));
	if (n > 0) {
		stage_feed(t->inner, side, bytes, (size_t)n);
		return true;
	}
	error = SSL_get_error(t->ssl[side], n);
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return false;
	/*
	 * An end without close_notify is an end for HTTP, too: an answer without a length that is cut off
	 * cannot be told from a whole one by the program anyway, and many servers end so.
	 */
	t->shut[side] = true;
	stage_end(t->inner, side);
	return true;
}

static bool pass_out(struct tls_stage *t, enum stage_side side)
{
	struct buf *from = &t->inner->out[side];
	size_t len = from->len < PIECE ? from->len : PIECE;
	int n;

	if (t->has_failed && side == STAGE_SERVER) {
		buf_drop(from, from->len);
		return false;
	}
	if (from->len && t->stage.out[side].len < STAGE_FULL) {
		ERR_clear_error();
		n = SSL_write(t->ssl[side], buf_head(from), (int)len);
		if (n <= 0) {
			stop(t);
			return false;
		}
		explicit_bzero(buf_head(from), (size_t)n); /* it may have a secret's value in it */
		buf_drop(from, (size_t)n);
		if (!from->len)
			stage_drained(t->inner);
		return true;
	}
	if (!from->len && t->inner->closing[side] && !t->stage.closing[side]) {
		SSL_shutdown(t->ssl[side]);
		t->stage.closing[side] = true;
	}
	return false;
}

static void drive(struct tls_stage *t)
{
	bool more = true;

	if (!t->inner && !get_ready(t))
		return;
	if (!t->inner) {
		t->inner =
			t->is_h2 ? h2_new(&t->settings.place) : http_filter_new(&t->settings.place);
		if (t->has_failed)
			stage_fail(t->inner, t->status, t->why);
	}
	while (more) {
		more = pass_in(t, STAGE_SERVER);
		more |= pass_in(t, STAGE_CLIENT);
		more |= pass_out(t, STAGE_SERVER);
		more |= pass_out(t, STAGE_CLIENT);
	}
}

/* ---- the stage ---- */

static void tls_feed(struct stage *s, enum stage_side from, const char *bytes, size_t len)
{
	struct tls_stage *t = (struct tls_stage *)s;

	buf_add(&t->in[from], bytes, len);
	drive(t);
}

static void tls_end(struct stage *s, enum stage_side from)
{
	struct tls_stage *t = (struct tls_stage *)s;

	t->ended[from] = true;
	if (from == STAGE_SERVER && !t->is_ready[STAGE_SERVER])
		server_failed(t, 502,
			      "the server has closed the connection during the TLS handshake");
	drive(t);
	if (from == STAGE_CLIENT && !t->inner)
		stop(t);
}

static void tls_drained(struct stage *s)
{
	drive((struct tls_stage *)s);
}

static bool tls_wants(const struct stage *s, enum stage_side from)
{
	return ((const struct tls_stage *)s)->in[from].len < STAGE_FULL;
}

static size_t tls_held(const struct stage *s)
{
	const struct tls_stage *t = (const struct tls_stage *)s;

	return SESSIONS + t->in[STAGE_CLIENT].len + t->in[STAGE_SERVER].len +
	       (t->inner ? stage_held(t->inner) : 0);
}

static void tls_fail(struct stage *s, int status, const char *why)
{
	struct tls_stage *t = (struct tls_stage *)s;

	server_failed(t, status, why);
	if (t->inner)
		stage_fail(t->inner, status, why);
	drive(t);
}

static void tls_free(struct stage *s)
{
	struct tls_stage *t = (struct tls_stage *)s;

	for (int side = 0; side < 2; side++) {
		SSL_free(t->ssl[side]);
		buf_done(&t->in[side]);
		buf_done(&s->out[side]);
	}
	stage_free(t->inner);
	free(t);
}

const char *tls_stage_why(const struct stage *s)
{
	return ((const struct tls_stage *)s)->client_why;
}

struct stage *tls_stage_new(const struct tls_stage_settings *settings, struct err *e)
{
	static const struct stage_ops ops = {.feed = tls_feed,
					     .end = tls_end,
					     .drained = tls_drained,
					     .wants = tls_wants,
					     .held = tls_held,
					     .fail = tls_fail,
					     .free = tls_free};
	struct tls_stage *t = must_alloc(calloc(1, sizeof(*t)));
	SSL_CTX *context = ca_context(settings->ca);

	t->stage.ops = &ops;
	t->settings = *settings;
	t->settings.place.is_tls = true;
	SSL_CTX_set_client_hello_cb(context, on_hello, NULL);
	SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
	if (!ssl_new(t, STAGE_CLIENT, context)) {
		ca_error(e, "begin TLS");
		tls_free(&t->stage);
		return NULL;
	}
	SSL_set_accept_state(t->ssl[STAGE_CLIENT]);
	return &t->stage;
}

SSL_CTX *tls_upstream_context(struct err *e)
{
	SSL_CTX *x = SSL_CTX_new(TLS_client_method());

	if (!x || !SSL_CTX_set_min_proto_version(x, TLS1_2_VERSION)) {
		ca_error(e, "prepare TLS");
		SSL_CTX_free(x);
		return NULL;
	}
	SSL_CTX_set_verify(x, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(x, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(x, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return x;
}
