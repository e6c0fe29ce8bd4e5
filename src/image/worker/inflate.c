/* Decompresses a layer: gzip, zstd, or neither, by its first bytes. */
#include "image/worker/worker.h"

#include <zlib.h>
#include <zstd.h>

#define PIECE (256u << 10)
#define WINDOW_LOG 27 /* what zstd itself decompresses without being asked for more: 128 MB */

struct input {
	unsigned char bytes[PIECE];
	size_t len, at;
	bool ended;
};

static int say(const char *what)
{
	fprintf(stderr, "the layer cannot be decompressed: %s\n", what);
	return 1;
}

static bool fill(struct input *in)
{
	ssize_t n;

	if (in->at < in->len || in->ended)
		return in->at < in->len;
	do
		n = read(0, in->bytes, sizeof(in->bytes));
	while (n < 0 && errno == EINTR);
	in->at = 0;
	in->len = n > 0 ? (size_t)n : 0;
	in->ended = n <= 0;
	return in->len > 0;
}

static int copy(struct input *in)
{
	while (fill(in)) {
		if (io_write_all(1, in->bytes + in->at, in->len - in->at) < 0)
			return say(strerror(errno));
		in->at = in->len;
	}
	return 0;
}

/* A file may consist of several parts, each compressed by itself. */
static int gunzip(struct input *in, unsigned char *out)
{
	z_stream z = {0};
	int rc = Z_OK;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return say("zlib");
	while (fill(in)) {
		if (rc == Z_STREAM_END && inflateReset(&z) != Z_OK)
			return say("zlib");
		z.next_in = in->bytes + in->at;
		z.avail_in = (unsigned)(in->len - in->at);
		do {
			z.next_out = out;
			z.avail_out = PIECE;
			rc = inflate(&z, Z_NO_FLUSH);
			if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
				return say(z.msg ? z.msg : "it is damaged");
			if (io_write_all(1, out, PIECE - z.avail_out) < 0)
				return say(strerror(errno));
		} while (rc == Z_OK && (z.avail_in || !z.avail_out));
		in->at = in->len - z.avail_in;
	}
	return rc == Z_STREAM_END ? 0 : say("it ends too early");
}

static int unzstd(struct input *in, unsigned char *out)
{
	ZSTD_DCtx *z = ZSTD_createDCtx();
	size_t left = 1;

	if (!z || ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG)))
		return say("zstd");
	while (fill(in)) {
		ZSTD_inBuffer from = {in->bytes, in->len, in->at};
		ZSTD_outBuffer to;

		do {
			to = (ZSTD_outBuffer){out, PIECE, 0};
			left = ZSTD_decompressStream(z, &to, &from);
			if (ZSTD_isError(left))
				return say(ZSTD_getErrorName(left));
			if (io_write_all(1, out, to.pos) < 0)
				return say(strerror(errno));
		} while (from.pos < from.size || (to.pos == to.size && left));
		in->at = in->len;
	}
	return left == 0 ? 0 : say("it ends too early");
}

int worker_inflate(void)
{
	static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
	static unsigned char out[PIECE];
	static struct input in;
	ssize_t n;

	/* Enough to tell what it is; the rest as it comes. */
	n = io_read_all(0, in.bytes, sizeof(zstd));
	if (n <= 0)
		return say("it is empty");
	in.len = (size_t)n;
	if (in.len >= sizeof(gzip) && memcmp(in.bytes, gzip, sizeof(gzip)) == 0)
		return gunzip(&in, out);
	if (in.len >= sizeof(zstd) && memcmp(in.bytes, zstd, sizeof(zstd)) == 0)
		return unzstd(&in, out);
	return copy(&in);
}
