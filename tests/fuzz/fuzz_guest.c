/*
 * What a guest is sent: the first byte says whether it is an archive (odd) or frames of a link. Frames
 * that would start processes or change files are left out; the rest goes through the real server.
 */
#include "fuzz.h"

#include "base/buf.h"
#include "guest/guest.h"
#include "guest/files/tar_tree.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- archives ---- */

struct bytes {
	const uint8_t *at, *end;
};

static ssize_t read_bytes(void *arg, void *to, size_t len)
{
	struct bytes *b = arg;

	if (len > (size_t)(b->end - b->at))
		len = (size_t)(b->end - b->at);
	/* In odd pieces. */
	if (len > 700)
		len = 700;
	memcpy(to, b->at, len);
	b->at += len;
	return (ssize_t)len;
}

static void archive(const uint8_t *data, size_t size)
{
	struct bytes b = {data, data + size};
	struct tar_in t = {.read = read_bytes, .arg = &b};
	struct tar_extract x = {.root = -1, .upper = true, .strict = true, .dry = true};
	struct err e = {0};

	if (tar_extract(&x, &t, &e) < 0)
		PROMISE(e.kind != ERR_NONE && e.msg[0]);
	else
		PROMISE(x.entries <= size / TAR_BLOCK);
}

/* ---- frames ---- */

static bool is_harmless(uint8_t type)
{
	static const uint8_t types[] = {G_CONFIGURE, G_ATTACH, G_SIGNAL, G_RESIZE,  G_EXECS,
					G_ACK,	     G_INPUT,  G_STAT,	 G_READ,    G_XATTR_LIST,
					G_STATS,     G_PING,   G_EVENTS, G_DENIALS, G_WATCH,
					G_DATA,	     G_CLOSE,  G_CREDIT, G_END,	    G_MORE};

	for (size_t i = 0; i < sizeof(types); i++)
		if (types[i] == type)
			return true;
	/* Unknown ones are refused. */
	return type > G_RUN;
}

/* A hello, then what can be sent without harm; the time to live is kept short. */
static void add_frames(struct buf *b, const uint8_t *data, size_t size)
{
	struct guest_header h;
	struct buf hello = {0};

	pack_u32(&hello, GUEST_VERSION);
	pack_u64(&hello, 1);
	guest_frame_add(b, 0, G_HELLO, buf_head(&hello), hello.len);
	buf_done(&hello);
	while (size >= GUEST_HEADER) {
		size_t len;

		if (!guest_header_get(data, &h) || h.size > size - GUEST_HEADER) {
			buf_add(b, data, size);
			return;
		}
		len = GUEST_HEADER + h.size;
		if (is_harmless(h.type))
			buf_add(b, data, len);
		data += len;
		size -= len;
	}
}

static void frames(const uint8_t *data, size_t size)
{
	struct buf b = {0};
	sigset_t mask;
	int ends[2], room = 1 << 20;
	ssize_t sent;

	if (size > 100000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	add_frames(&b, data, size);
	sent = send(ends[1], buf_head(&b), b.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(&b);
	shutdown(ends[1], SHUT_WR);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	if (sent > 0)
		PROMISE(guest_serve(&(struct guest_options){.listener = -1,
							    .link = ends[0],
							    .notify = -1,
							    .dns = -1,
							    .scratch = -1}) == 0);
	else
		close(ends[0]);
	/* What the guest changed for the whole process. */
	sigprocmask(SIG_SETMASK, &mask, NULL);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
	close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] % 2)
		archive(data + 1, size - 1);
	else
		frames(data + 1, size - 1);
	return 0;
}
