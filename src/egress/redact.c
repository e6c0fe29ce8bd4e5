/* Streaming replacement of texts. */
#include "egress/redact.h"

void redact_add(struct redact *r, const char *find, size_t find_len, const char *put,
		size_t put_len)
{
	if (!find_len)
		return;
	r->needles = array_room(r->needles, r->count, &r->room, sizeof(*r->needles));
	r->needles[r->count++] = (struct redact_needle){find, put, find_len, put_len};
}

/* The first needle in the bytes: the longest of those that begin there. */
static const struct redact_needle *find_first(const struct redact *r, const char *bytes, size_t len,
					      size_t *ret_at)
{
	const struct redact_needle *found = NULL;

	for (size_t i = 0; i < r->count; i++) {
		const struct redact_needle *n = &r->needles[i];
		const char *at = memmem(bytes, len, n->find, n->find_len);
		size_t place = at ? (size_t)(at - bytes) : 0;

		if (at && (!found || place < *ret_at ||
			   (place == *ret_at && n->find_len > found->find_len))) {
			found = n;
			*ret_at = place;
		}
	}
	return found;
}

/* How many bytes at the end may be the beginning of a needle. */
static size_t open_end(const struct redact *r, const char *bytes, size_t len)
{
	size_t longest = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct redact_needle *n = &r->needles[i];
		size_t most = n->find_len - 1 < len ? n->find_len - 1 : len;

		for (size_t k = most; k > longest; k--)
			if (bytes[len - k] == n->find[0] && !memcmp(bytes + len - k, n->find, k)) {
				longest = k;
				break;
			}
	}
	return longest;
}

static void put_instead(const struct redact *r, const struct redact_needle *n, struct buf *out)
{
	if (!r->keeps_length) {
		buf_add(out, n->put, n->put_len);
		return;
	}
	buf_add(out, n->put, n->put_len < n->find_len ? n->put_len : n->find_len);
	for (size_t i = n->put_len; i < n->find_len; i++)
		buf_add(out, "*", 1);
}

static size_t replace_in(const struct redact *r, const char *bytes, size_t len, struct buf *out,
			 size_t *ret_left)
{
	const struct redact_needle *n;
	size_t at = 0, count = 0;

	while ((n = find_first(r, bytes, len, &at))) {
		buf_add(out, bytes, at);
		put_instead(r, n, out);
		bytes += at + n->find_len;
		len -= at + n->find_len;
		count++;
	}
	*ret_left = open_end(r, bytes, len);
	buf_add(out, bytes, len - *ret_left);
	return count;
}

size_t redact_feed(struct redact *r, const char *bytes, size_t len, struct buf *out)
{
	size_t count, left;

	if (!r->count) {
		buf_add(out, bytes, len);
		return 0;
	}
	if (!r->held.len) {
		count = replace_in(r, bytes, len, out, &left);
		buf_add(&r->held, bytes + len - left, left);
		return count;
	}
	buf_add(&r->held, bytes, len);
	count = replace_in(r, buf_head(&r->held), r->held.len, out, &left);
	buf_drop(&r->held, r->held.len - left);
	return count;
}

void redact_end(struct redact *r, struct buf *out)
{
	if (r->held.len)
		buf_add(out, buf_head(&r->held), r->held.len);
	buf_drop(&r->held, r->held.len);
}

void redact_done(struct redact *r)
{
	if (r->held.room)
		explicit_bzero(r->held.data, r->held.room);
	buf_done(&r->held);
	free(r->needles);
	*r = (struct redact){0};
}

char *redact_text(const struct redact *r, const char *text)
{
	auto_buf struct buf out = {0};
	size_t left, at, len = strlen(text);

	if (!find_first(r, text, len, &at))
		return NULL;
	replace_in(r, text, len, &out, &left);
	buf_add(&out, text + len - left, left);
	buf_add(&out, "", 1);
	return str_copy(buf_head(&out));
}
