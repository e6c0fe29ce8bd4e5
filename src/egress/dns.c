/*
 * The resolver that sandboxes see, over UDP and TCP. Allowed names get an address that stands for them; nothing is
 * asked outside, but for TXT records of rules that say so.
 */
#include "egress/egress_internal.h"

#include "wire/dns.h"

#include <netinet/in.h>

#define AT_ONCE 64
#define TTL_S 60
#define IDLE_MS 10000
#define WILDCARD_NAMES 1024 /* below one sandbox's wildcards, unless its budget says otherwise */
#define LONG_NAME 100	    /* names that could carry data count more often */
#define LONG_LABEL 40

/* ---- decisions ---- */

/* What one query comes to. */
struct lookup {
	struct uplink *uplink;
	struct dns_query query;
	char name[NET_NAME]; /* canonical */
	struct net_answer answer;
};

static void deny(struct lookup *l, const char *why, const char *remedy)
{
	char shown[NET_NAME];
	struct denial d = {.name = shown,
			   .rule = l->answer.rule,
			   .why = why,
			   .remedy = remedy,
			   .phase = EGRESS_LOOKUP};

	str_sanitise(shown, sizeof(shown), l->query.name, strlen(l->query.name));
	record_denial(l->uplink, &d);
}

/* Names that a program chose below a wildcard can carry data to their server. */
static bool is_within_budget(struct uplink *u, const char *name, const char *rule)
{
	const struct net_budget *b = uplink_budget(u);
	const char *label = name;
	uint32_t cost = 1;

	if (b && b->names && names_count(u->names) >= b->names)
		return false;
	if (rule[0] != '*' || rule[1] != '.')
		return true;
	if (strlen(name) > LONG_NAME)
		cost = 8;
	for (; label; label = strchr(label, '.')) {
		label += *label == '.';
		if (strcspn(label, ".") > LONG_LABEL)
			cost = 8;
	}
	if (u->wildcard_names + cost > (b && b->names ? b->names : WILDCARD_NAMES))
		return false;
	u->wildcard_names += cost;
	return true;
}

uint32_t dns_name_index(struct uplink *u, const char *name, const char *rule)
{
	uint32_t index = names_find(u->names, name);

	return !index && is_within_budget(u, name, rule) ? names_index(u->names, name) : index;
}

static uint32_t index_of(struct lookup *l)
{
	uint32_t index = dns_name_index(l->uplink, l->name, l->answer.rule);

	if (!index)
		deny(l, "names", NULL);
	return index;
}

static void answer_address(struct lookup *l, struct buf *out)
{
	bool v4 = l->query.type == DNS_A;
	unsigned char address[16];
	uint32_t index = index_of(l);

	dns_answer_begin(out, &l->query, index ? DNS_OK : DNS_SERVFAIL);
	if (!index || (!v4 && !l->uplink->has_v6))
		return;
	if (v4)
		net_synthetic4(index, address);
	else
		net_synthetic6(l->uplink->prefix6, index, address);
	dns_answer_address(out, address, v4 ? 4 : 16, TTL_S);
}

static void answer_pointer(struct lookup *l, struct buf *out)
{
	unsigned char address[16];
	const char *name = NULL;

	if (dns_reverse_address(l->query.name, address))
		name = names_name(l->uplink->names,
				  net_synthetic_index(l->uplink->prefix6, address));
	dns_answer_begin(out, &l->query, name ? DNS_OK : DNS_NXDOMAIN);
	if (name)
		dns_answer_name(out, name, TTL_S);
}

/* RFC 6761: never asked for elsewhere. */
static void answer_localhost(struct lookup *l, struct buf *out)
{
	static const unsigned char v4[4] = {127, 0, 0, 1}, v6[16] = {[15] = 1};

	dns_answer_begin(out, &l->query, DNS_OK);
	if (l->query.type == DNS_A)
		dns_answer_address(out, v4, sizeof(v4), TTL_S);
	else if (l->query.type == DNS_AAAA)
		dns_answer_address(out, v6, sizeof(v6), TTL_S);
}

static bool name_is_allowed(struct lookup *l)
{
	struct network address;
	struct err e = {0};
	struct net_question q = {.name = l->name};
	struct net_answer udp;

	l->answer.rule = "";
	if (!l->query.is_text ||
	    net_host(l->query.name, strlen(l->query.name), l->name, &address, &e) != NET_IS_NAME) {
		snprintf(l->answer.why, sizeof(l->answer.why), "not the name of a host");
		return false;
	}
	if (conn_is_host(l->name))
		q.name = "localhost";
	else if (segment_is_isolated(l->uplink))
		q.peer = segment_find(l->uplink, l->name, &e) != NULL;
	if (e.kind) {
		snprintf(l->answer.why, sizeof(l->answer.why), "%s", e.msg);
		return false;
	}
	uplink_decide(l->uplink, &q, &l->answer);
	if (l->answer.allowed || q.peer)
		return l->answer.allowed;
	q.udp = true;
	uplink_decide(l->uplink, &q, &udp);
	if (udp.allowed)
		l->answer = udp;
	return udp.allowed || l->uplink->asks;
}

static bool is_refused_type(unsigned type)
{
	return type == DNS_TXT || type == DNS_NULL || type == DNS_ANY || type == DNS_AXFR ||
	       type == DNS_IXFR;
}

/* Everything that can be answered at once. False: a TXT record must be asked for outside. */
static bool answer(struct lookup *l, struct buf *out)
{
	unsigned type = l->query.type;

	if (type == DNS_PTR) {
		answer_pointer(l, out);
	} else if (strcasecmp(l->query.name, "localhost") == 0) {
		answer_localhost(l, out);
	} else if (l->uplink->role->is_held) {
		deny(l, "audit", NULL);
		dns_answer_begin(out, &l->query, DNS_SERVFAIL);
	} else if (!name_is_allowed(l)) {
		deny(l, l->answer.why, l->answer.remedy);
		dns_answer_begin(out, &l->query, DNS_NXDOMAIN);
	} else if (type == DNS_A || type == DNS_AAAA) {
		answer_address(l, out);
	} else if (type == DNS_TXT && l->answer.txt && index_of(l)) {
		return false;
	} else if (type == DNS_TXT && l->answer.txt) {
		dns_answer_begin(out, &l->query, DNS_SERVFAIL);
	} else if (is_refused_type(type)) {
		deny(l, "queries of this type are refused", NULL);
		dns_answer_begin(out, &l->query, DNS_REFUSED);
	} else {
		/* HTTPS and SVCB would lead to other addresses, or hide the server name. */
		dns_answer_begin(out, &l->query, DNS_OK);
	}
	return true;
}

/* ---- TXT records, from outside ---- */

/* A query that waits for its answer; the client is a UDP address or a connection. */
struct pending {
	struct pending *next, **back;
	struct uplink *uplink;
	struct dns_query query;
	struct resolver_text text;
	struct conn *conn; /* NULL: UDP */
	int fd;
	struct datagram client;
};

#define PENDING_MAX 64

/* With its length in front. */
static void add_tcp_reply(struct conn *c, const struct buf *out)
{
	unsigned char len[2] = {(unsigned char)(out->len >> 8), (unsigned char)out->len};

	if (c->dead)
		return; /* its buffers are freed already */
	buf_add(&c->client.out, len, 2);
	buf_add(&c->client.out, buf_head(out), out->len);
}

static void pending_free(struct pending *p)
{
	resolver_text_cancel(&p->text);
	*p->back = p->next;
	if (p->next)
		p->next->back = p->back;
	p->uplink->pending_count--;
	free(p);
}

static void on_text(void *arg, const struct buf *texts, size_t count, int rcode)
{
	struct pending *p = arg;
	auto_buf struct buf out = {0};
	const char *at = texts->len ? buf_head(texts) : "";

	dns_answer_begin(&out, &p->query, (enum dns_rcode)rcode);
	for (size_t i = 0; i < count; i++) {
		uint16_t len;

		memcpy(&len, at, sizeof(len));
		dns_answer_text(&out, at + sizeof(len), len, TTL_S);
		at += sizeof(len) + len;
	}
	dns_answer_end(&out, &p->query, p->conn ? UINT16_MAX : p->query.udp_size);
	if (p->conn) {
		add_tcp_reply(p->conn, &out);
		conn_step_soon(p->conn);
	} else {
		datagram_reply(p->fd, &p->client, buf_head(&out), out.len);
	}
	pending_free(p);
}

/* The answer goes to the connection or, if it is NULL, to the client. False: there are too many, or no resolver. */
static bool ask_outside(struct lookup *l, struct conn *c, int fd, const struct datagram *client)
{
	struct uplink *u = l->uplink;
	struct pending *p;

	if (u->pending_count >= PENDING_MAX || !u->role->resolver)
		return false;
	p = must_alloc(calloc(1, sizeof(*p)));
	p->uplink = u;
	p->conn = c;
	p->fd = fd;
	if (client)
		p->client = *client;
	p->query = l->query;
	p->text = (struct resolver_text){.call = on_text, .arg = p};
	p->next = u->pending;
	p->back = &u->pending;
	if (p->next)
		p->next->back = &p->next;
	u->pending = p;
	u->pending_count++;
	if (resolver_ask_text(u->role->resolver, u->asker, l->name, &p->text))
		return true;
	pending_free(p);
	return false;
}

void lookups_free(struct uplink *u)
{
	while (u->pending)
		pending_free(u->pending);
}

/* ---- UDP ---- */

static bool serve_datagram(struct listener *l)
{
	struct lookup look = {.uplink = l->uplink};
	auto_buf struct buf out = {0};
	unsigned char bytes[DNS_UDP_MAX];
	struct datagram client;
	ssize_t n = datagram_receive(l->watch.fd, bytes, sizeof(bytes), &client);
	int rc;

	if (n < 0)
		return false;
	rc = dns_query_read(bytes, (size_t)n, &look.query);
	if (rc == 0)
		return true;
	if (rc < 0) {
		dns_answer_begin(&out, &look.query, look.query.rcode);
	} else if (!answer(&look, &out)) {
		if (ask_outside(&look, NULL, l->watch.fd, &client))
			return true;
		dns_answer_begin(&out, &look.query, DNS_SERVFAIL);
	}
	dns_answer_end(&out, &look.query, look.query.udp_size);
	datagram_reply(l->watch.fd, &client, buf_head(&out), out.len);
	return true;
}

void dns_udp_ready(struct listener *l)
{
	for (int i = 0; i < AT_ONCE && !loop_turn_is_over(l->uplink->role->loop); i++)
		if (!serve_datagram(l))
			return;
}

/* ---- TCP ---- */

static void serve_message(struct conn *c, const unsigned char *bytes, size_t len)
{
	struct lookup look = {.uplink = c->uplink};
	auto_buf struct buf out = {0};
	int rc = dns_query_read(bytes, len, &look.query);

	if (rc == 0) {
		conn_reset(c);
		return;
	}
	if (rc < 0) {
		dns_answer_begin(&out, &look.query, look.query.rcode);
	} else if (!answer(&look, &out)) {
		if (ask_outside(&look, c, -1, NULL))
			return;
		dns_answer_begin(&out, &look.query, DNS_SERVFAIL);
	}
	dns_answer_end(&out, &look.query, UINT16_MAX);
	add_tcp_reply(c, &out);
}

static void dns_step(struct conn *c)
{
	struct buf *in = &c->client.in;

	conn_hold(c, IDLE_MS, NULL);
	while (!c->dead && in->len >= 2 && c->client.out.len < CONN_BUFFER) {
		const unsigned char *bytes = (unsigned char *)buf_head(in);
		size_t len = (size_t)(bytes[0] << 8 | bytes[1]);

		if (len > DNS_TCP_MAX) {
			conn_reset(c);
			return;
		}
		if (in->len < 2 + len)
			break;
		serve_message(c, bytes + 2, len);
		if (!c->dead)
			buf_drop(in, 2 + len);
	}
	if (!c->dead && c->client.ended)
		conn_close(c);
}

/* Queries of this connection that still wait have nobody to answer. */
static void dns_done(struct conn *c)
{
	struct pending *next;

	for (struct pending *p = c->uplink->pending; p; p = next) {
		next = p->next;
		if (p->conn == c)
			pending_free(p);
	}
}

const struct handler conn_dns = {.name = "dns", .step = dns_step, .done = dns_done};
