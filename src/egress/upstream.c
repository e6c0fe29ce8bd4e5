/*
 * The operator's HTTP proxy: asks it for a tunnel to a destination that the rules allow by name. The proxy resolves
 * the name, so that addresses of names are judged there; addresses in digits are judged here.
 */
#include "egress/egress_internal.h"

#include "base/base64.h"
#include "wire/http1.h"

static void write_request(struct conn *c)
{
	const char *auth = c->uplink->role->settings.proxy_auth;
	char host[NET_NAME + NET_ADDRESS_TEXT], digits[NET_ADDRESS_TEXT];
	char encoded[BASE64_ROOM(sizeof(c->uplink->role->settings.proxy_auth)) + 8];
	struct buf *out = &c->server.out;

	net_address_text(c->address, true, digits);
	snprintf(host, sizeof(host), "%s:%u", c->name[0] ? c->name : digits, c->port);
	buf_add(out, "CONNECT ", 8);
	buf_add(out, host, strlen(host));
	buf_add(out, " HTTP/1.1\r\n", 11);
	http1_add_field(out, "Host", host);
	if (auth[0]) {
		size_t n = (size_t)sprintf(encoded, "Basic ");

		n += base64_encode(encoded + n, auth, strlen(auth));
		encoded[n] = '\0';
		http1_add_field(out, "Proxy-Authorization", encoded);
		explicit_bzero(encoded, sizeof(encoded));
	}
	buf_add(out, "\r\n", 2);
}

int upstream_step(struct conn *c, struct err *e)
{
	struct buf *in = &c->server.in;
	size_t len = in->len ? http1_head_length(buf_head(in), in->len) : 0;
	auto_free char *copy = NULL;
	struct http1_head h;
	struct err why = {0};

	if (!c->tunnel_asked) {
		c->tunnel_asked = true;
		write_request(c);
		return 0;
	}
	if (!len && (c->server.ended || in->len > CONN_BUFFER / 2))
		return err_set(e, ERR_SYSTEM,
			       "the operator's proxy gave no answer that can be read");
	if (!len)
		return 0;
	copy = must_alloc(malloc(len));
	memcpy(copy, buf_head(in), len);
	if (http1_head_read(copy, len, &h, &why) < 0)
		return err_set(e, ERR_SYSTEM, "the operator's proxy: %s", why.msg);
	if (h.status == 407)
		return err_set(e, ERR_DENIED,
			       "the operator's proxy wants other credentials (settings: proxy)");
	if (h.status < 200 || h.status > 299)
		return err_set(e, ERR_SYSTEM, "the operator's proxy answered %d", h.status);
	buf_drop(in, len);
	return 1;
}
