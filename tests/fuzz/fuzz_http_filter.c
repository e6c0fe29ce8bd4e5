/*
 * Any bytes from a program inside and from its server, in any order: what is passed on is always a sequence of
 * requests for the connection's own host, and never has a secret's value in an answer.
 */
#include "fuzz.h"

#include "egress/http_filter.h"
#include "egress/secrets.h"

#include <string.h>
#include <strings.h>

static struct secrets *set;

static bool may_call_it(void *context, const char *host, size_t len)
{
	return len == 6 && !strncasecmp(host, "a.test", 6);
}

static const char *count(void *context)
{
	return NULL;
}

static void decide(void *context, unsigned method, const char *path, struct net_answer *ret)
{
	*ret = (struct net_answer){.allowed = !str_starts(path, "/no")};
}

static struct secrets *secrets_of(void *context)
{
	return set;
}

/* Every head that the server gets names the host; bodies are not looked into. */
static void check_requests(const struct buf *out, bool *is_first)
{
	static struct http1_head h;
	struct http1_body body;
	char *bytes = malloc(out->len + 1);
	size_t scanned = 0;
	ssize_t len;
	struct err e = {0};

	if (!*is_first || !out->len) {
		free(bytes);
		return;
	}
	*is_first = false;
	memcpy(bytes, buf_head(out), out->len);
	len = http1_request_length(bytes, out->len, &scanned);
	PROMISE(len > 0);
	PROMISE(http1_request_read(bytes, (size_t)len, &h, &e) == 0);
	PROMISE((*h.target == '/' && !str_starts(h.target, "/no")) ||
		(str_equal(h.target, "*") && str_equal(h.method, "OPTIONS")));
	PROMISE(http1_field(&h, "Host") && !strncasecmp(http1_field(&h, "Host"), "a.test", 6));
	http1_body_begin_request(&body, &h);
	free(bytes);
}

static void make_set(void)
{
	static struct egress_secret row = {.name = "K",
					   .placeholder = "PLACEHOLDER",
					   .hosts = {"a.test"},
					   .header = "Authorization: Bearer {}",
					   .value_len = 6,
					   .value = "VALUE!"};
	struct err e = {0};

	if (!set)
		set = secrets_new(&row, sizeof(row), NULL, &e);
}

/* The first byte chooses; then pieces: a byte with a side and a length, and so many bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_place p = {.name = "a.test",
			       .port = 80,
			       .may_call_it = may_call_it,
			       .count = count,
			       .decide = decide,
			       .secrets = secrets_of};
	bool is_first = true, is_tls = size && data[0] & 1, searches = is_tls;
	struct stage *s;
	size_t at = 1;

	make_set();
	p.is_tls = is_tls;
	p.port = is_tls ? 443 : 80;
	p.is_once = size && data[0] & 2;
	s = http_filter_new(&p);
	while (at < size) {
		enum stage_side side = data[at] & 1;
		size_t len = data[at] >> 1 == 127 ? size - at - 1 : (size_t)(data[at] >> 1) + 1;

		at++;
		len = len < size - at ? len : size - at;
		/* A refusal may quote the client. */
		searches &= side == STAGE_SERVER || !memmem(data + at, len, "E!", 2);
		stage_feed(s, side, (const char *)data + at, len);
		at += len;
		check_requests(&s->out[STAGE_SERVER], &is_first);
		if (searches && s->out[STAGE_CLIENT].len)
			PROMISE(!memmem(buf_head(&s->out[STAGE_CLIENT]), s->out[STAGE_CLIENT].len,
					"VALUE!", 6));
		buf_drop(&s->out[STAGE_SERVER], s->out[STAGE_SERVER].len);
	}
	stage_end(s, STAGE_SERVER);
	stage_end(s, STAGE_CLIENT);
	if (searches && s->out[STAGE_CLIENT].len)
		PROMISE(!memmem(buf_head(&s->out[STAGE_CLIENT]), s->out[STAGE_CLIENT].len, "VALUE!",
				6));
	stage_free(s);
	return 0;
}
