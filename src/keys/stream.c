/* Streams of chunks, of which the last one says so; see stream.h. */
#include "keys/stream.h"

#include <sodium.h>

#define CHUNK (64u << 10)
#define SEAL crypto_secretstream_xchacha20poly1305_ABYTES
#define HEADER crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define FINAL crypto_secretstream_xchacha20poly1305_TAG_FINAL

struct sealed {
	int fd;
	crypto_secretstream_xchacha20poly1305_state state;
	unsigned char head[64]; /* authenticated with the first chunk */
	size_t head_len;
	bool is_begun, has_ended;
	size_t at, len; /* of clear */
	unsigned char clear[CHUNK], closed[CHUNK + SEAL];
};

static struct sealed *sealed_new(int fd, const void *head, size_t len)
{
	struct sealed *s = must_alloc(calloc(1, sizeof(*s)));

	s->fd = fd;
	s->head_len = len < sizeof(s->head) ? len : sizeof(s->head);
	memcpy(s->head, head, s->head_len);
	return s;
}

void sealed_free(struct sealed *s)
{
	if (s)
		explicit_bzero(s, sizeof(*s));
	free(s);
}

/* ---- writing ---- */

struct sealed *sealed_begin(int fd, const unsigned char key[SEALED_KEY], const void *head,
			    size_t len, struct err *e)
{
	struct sealed *s = sealed_new(fd, head, len);
	unsigned char header[HEADER];

	if (crypto_secretstream_xchacha20poly1305_init_push(&s->state, header, key) == 0 &&
	    io_write_all(fd, header, sizeof(header)) == 0)
		return s;
	err_sys(e, "cannot write");
	sealed_free(s);
	return NULL;
}

static int put_chunk(struct sealed *s, unsigned char tag, struct err *e)
{
	unsigned long long len;

	crypto_secretstream_xchacha20poly1305_push(&s->state, s->closed, &len, s->clear, s->len,
						   s->is_begun ? NULL : s->head,
						   s->is_begun ? 0 : s->head_len, tag);
	s->is_begun = true;
	s->len = 0;
	return io_write_all(s->fd, s->closed, (size_t)len) < 0 ? err_sys(e, "cannot write") : 0;
}

/* A full chunk waits until it is known not to be the last one. */
int sealed_write(struct sealed *s, const void *bytes, size_t len, struct err *e)
{
	const unsigned char *from = bytes;

	while (len > 0) {
		size_t n = CHUNK - s->len < len ? CHUNK - s->len : len;

		if (n == 0) {
			if (put_chunk(s, 0, e) < 0)
				return -1;
			continue;
		}
		memcpy(s->clear + s->len, from, n);
		s->len += n;
		from += n;
		len -= n;
	}
	return 0;
}

int sealed_end(struct sealed *s, struct err *e)
{
	return put_chunk(s, FINAL, e);
}

/* ---- reading ---- */

struct sealed *sealed_open(int fd, const unsigned char key[SEALED_KEY], const void *head,
			   size_t len, struct err *e)
{
	struct sealed *s = sealed_new(fd, head, len);
	unsigned char header[HEADER];
	ssize_t n = io_read_all(fd, (char *)header, sizeof(header));

	if (n == (ssize_t)sizeof(header) &&
	    crypto_secretstream_xchacha20poly1305_init_pull(&s->state, header, key) == 0)
		return s;
	if (n < 0)
		err_sys(e, "cannot read");
	else
		err_set(e, ERR_INVALID, "it is cut off");
	sealed_free(s);
	return NULL;
}

static int next_chunk(struct sealed *s, struct err *e)
{
	ssize_t n = io_read_all(s->fd, (char *)s->closed, sizeof(s->closed));
	unsigned long long len;
	unsigned char tag, more;

	if (n < 0)
		return err_sys(e, "cannot read");
	if (n < (ssize_t)SEAL)
		return err_set(e, ERR_INVALID, "it is cut off");
	if (crypto_secretstream_xchacha20poly1305_pull(
		    &s->state, s->clear, &len, &tag, s->closed, (unsigned long long)n,
		    s->is_begun ? NULL : s->head, s->is_begun ? 0 : s->head_len) < 0)
		return s->is_begun ? err_set(e, ERR_INVALID, "it was changed, or is cut off")
				   : err_set(e, ERR_DENIED,
					     "the key is another one, or it was changed, or is cut "
					     "off");
	s->is_begun = true;
	s->has_ended = tag == FINAL;
	if (!s->has_ended && n < (ssize_t)sizeof(s->closed))
		return err_set(e, ERR_INVALID, "it is cut off");
	if (s->has_ended && io_read_all(s->fd, (char *)&more, 1) != 0)
		return err_set(e, ERR_INVALID, "it goes on after its end");
	s->at = 0;
	s->len = (size_t)len;
	return 0;
}

ssize_t sealed_read(struct sealed *s, void *bytes, size_t size, struct err *e)
{
	size_t n;

	while (s->at == s->len) {
		if (s->has_ended)
			return 0;
		if (next_chunk(s, e) < 0)
			return -1;
	}
	n = s->len - s->at < size ? s->len - s->at : size;
	memcpy(bytes, s->clear + s->at, n);
	s->at += n;
	return (ssize_t)n;
}
