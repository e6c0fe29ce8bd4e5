/* Plain HTTP/1 and HTTP/2 as a handler, and what all stages need to be one. */
#include "egress/http_conn.h"

#include "egress/h2.h"
#include "egress/http_filter.h"
#include "egress/secrets.h"

/* ---- the rules of a connection ---- */

static bool may_call_it(void *context, const char *host, size_t len)
{
	return conn_may_call_it(context, host, len);
}

static const char *count(void *context)
{
	return uplink_count_request(((struct conn *)context)->uplink);
}

static void decide(void *context, unsigned method, const char *path, struct net_answer *ret)
{
	struct conn *c = context;

	conn_decide(c, method, path, ret);
	/* By a person, whatever it asks for; but not what a rule denies. */
	ret->allowed |= c->is_asked && ret->wanted[0];
}

static void record(struct conn *c, const char *why, const char *remedy)
{
	char address[NET_ADDRESS_TEXT] = "";
	struct denial d = {.name = c->name,
			   .address = address,
			   .rule = c->answer.rule,
			   .why = why,
			   .remedy = remedy,
			   .port = c->port,
			   .phase = EGRESS_DENIED};

	if (!c->name[0] || c->upstream == UPSTREAM_OPEN)
		net_address_text(c->address, false, address);
	record_denial(c->uplink, &d);
}

static void told(void *context, const char *method, const char *path, const struct http_refusal *r)
{
	struct conn *c = context;
	struct http_conn *x = c->state;
	char text[EGRESS_TEXT];

	if (!r) {
		snprintf(text, sizeof(text), "%s %.200s", method, path);
		conn_note(c, text);
	} else if (x->is_silent) {
		return;
	} else if (r->status == 502) {
		record_conn(c, EGRESS_FAILED, r->why);
	} else {
		snprintf(text, sizeof(text), "%s %.100s: %.120s", method, path, r->why);
		record(c, *method && *path ? text : r->why, r->remedy);
	}
}

static void noted(void *context, const char *what)
{
	record(context, what, NULL);
}

static void used(void *context, const char *secret)
{
	record_use(context, secret);
}

static struct secrets *secrets_of(void *context)
{
	return ((struct conn *)context)->uplink->secrets;
}

void http_conn_place(struct conn *c, struct http_place *ret)
{
	*ret = (struct http_place){.name = c->name,
				   .port = c->port,
				   .context = c,
				   .may_call_it = may_call_it,
				   .count = count,
				   .decide = decide,
				   .told = told,
				   .noted = noted,
				   .used = used,
				   .secrets = secrets_of};
}

/* ---- bytes ---- */

/* True if something was passed on. */
static bool pull(struct http_conn *x, struct stream *from, enum stage_side side)
{
	if (from->in.len && stage_wants(x->stage, side)) {
		stage_feed(x->stage, side, buf_head(&from->in), from->in.len);
		buf_drop(&from->in, from->in.len);
		return true;
	}
	if (from->ended && !from->in.len && !x->has_ended[side]) {
		x->has_ended[side] = true;
		stage_end(x->stage, side);
		return true;
	}
	return false;
}

static bool push(struct http_conn *x, struct stream *to, enum stage_side side)
{
	struct buf *out = &x->stage->out[side];

	if (out->len && to->out.len < CONN_BUFFER) {
		if (!to->out.len) {
			struct buf empty = to->out;

			to->out = *out;
			*out = empty;
		} else {
			buf_add(&to->out, buf_head(out), out->len);
			buf_drop(out, out->len);
		}
		stage_drained(x->stage);
		return true;
	}
	if (!out->len && x->stage->closing[side])
		to->finish = true;
	return false;
}

/* There is no server: the client is told, in a way that it understands. */
static void tell_failure(struct conn *c, struct http_conn *x)
{
	bool refused = c->upstream == UPSTREAM_REFUSED;
	char text[256];

	x->has_failed = x->is_silent = true;
	snprintf(text, sizeof(text), "%s%s%s",
		 refused ? c->answer.why : "the server cannot be reached",
		 refused && c->answer.remedy[0] ? "; ask for: " : "",
		 refused ? c->answer.remedy : "");
	stage_fail(x->stage, refused ? 403 : 502, text);
}

void http_conn_step(struct conn *c)
{
	struct http_conn *x = c->state;
	bool more = true;

	if ((c->upstream == UPSTREAM_REFUSED || c->upstream == UPSTREAM_FAILED) && !x->has_failed)
		tell_failure(c, x);
	while (more) {
		more = pull(x, &c->client, STAGE_CLIENT);
		more |= pull(x, &c->server, STAGE_SERVER);
		more |= push(x, &c->server, STAGE_SERVER);
		more |= push(x, &c->client, STAGE_CLIENT);
	}
	if (stage_is_over(x->stage) && !c->closing)
		conn_close(c);
}

void http_conn_done(struct conn *c)
{
	struct http_conn *x = c->state;

	if (!x)
		return;
	stage_free(x->stage);
	free(x);
	c->state = NULL;
}

size_t http_conn_held(const struct conn *c)
{
	const struct http_conn *x = c->state;

	return x ? stage_held(x->stage) : 0;
}

/* A client that knows that its server speaks HTTP/2, such as gRPC without TLS. */
static bool is_h2(const struct buf *in)
{
	static const char line[] = "PRI * HTTP/2.0\r\n";

	return in->len >= sizeof(line) - 1 && !memcmp(buf_head(in), line, sizeof(line) - 1);
}

static void begin(struct conn *c, bool is_once)
{
	struct http_conn *x = must_alloc(calloc(1, sizeof(*x)));
	struct http_place place;

	http_conn_place(c, &place);
	place.is_once = is_once;
	x->stage = !is_once && is_h2(&c->client.in) ? h2_new(&place) : http_filter_new(&place);
	c->state = x;
}

static void http_step(struct conn *c)
{
	if (!c->state)
		begin(c, false);
	http_conn_step(c);
}

static void http_once_step(struct conn *c)
{
	if (!c->state)
		begin(c, true);
	http_conn_step(c);
}

const struct handler conn_http = {
	.name = "http", .step = http_step, .done = http_conn_done, .held = http_conn_held};
const struct handler conn_http_once = {.name = "http once",
				       .step = http_once_step,
				       .done = http_conn_done,
				       .held = http_conn_held};
