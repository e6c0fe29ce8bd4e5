/*
 * What a hostile guest may send: after a welcome (or, if the first byte is odd, without one), the
 * bytes go to a link on which a call of every kind is open. Whatever they are, each call ends once,
 * the link is lost once, and nothing is handed on that is larger than a frame.
 */
#include "fuzz.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/loop.h"
#include "manager/link.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST (1u << 16)

struct one {
	struct call *call;
	unsigned answers, ends;
	size_t uncredited;
};

static const uint8_t types[] = {G_PING,	 G_EXEC,   G_ATTACH, G_EXECS,  G_READ,	  G_WRITE,
				G_STAT,	 G_LIST,   G_SEARCH, G_WATCH,  G_CONNECT, G_TAR_OUT,
				G_STATS, G_EVENTS, G_TAR_IN, G_DENIALS};

static void on_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct one *o = arg;
	unsigned char sum = 0;

	PROMISE(o->ends == 0 && len <= GUEST_MAX_PAYLOAD);
	PROMISE((type == G_OK) == (o->answers == 0));
	o->answers++;
	for (size_t i = 0; i < len; i++)
		sum ^= ((const unsigned char *)payload)[i];
	/* Some consume what they get, some never do. */
	if (sum & 1)
		call_credit(o->call, len);
	if (type == G_ITEM && sum == 7)
		call_close(o->call);
}

static void on_end(void *arg, const struct err *e)
{
	struct one *o = arg;

	PROMISE(o->ends++ == 0);
	PROMISE(!e || (e->kind != ERR_NONE && memchr(e->msg, '\0', sizeof(e->msg))));
	o->call = NULL;
}

static void on_room(void *arg)
{
	struct one *o = arg;

	PROMISE(call_room(o->call) <= GUEST_WINDOW);
	call_send(o->call, "x", 1);
}

static const struct call_ops ops = {.on_frame = on_frame, .on_end = on_end, .on_room = on_room};

static void on_lost(void *arg, const struct err *e)
{
	PROMISE(e->kind == ERR_SYSTEM);
	loop_stop(arg);
}

static void say_welcome(int fd)
{
	struct buf b = {0}, frame = {0};

	pack_u32(&b, GUEST_VERSION);
	pack_u64(&b, 1);
	pack_u64(&b, 2);
	guest_frame_add(&frame, 0, G_WELCOME, buf_head(&b), b.len);
	PROMISE(send(fd, buf_head(&frame), frame.len, MSG_NOSIGNAL) == (ssize_t)frame.len);
	buf_done(&b);
	buf_done(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct one calls[sizeof(types)] = {0};
	struct loop *l = loop_new();
	struct link *k;
	int pair[2];

	if (size < 1 || size > MOST ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		loop_free(l);
		return 0;
	}
	k = link_open(l, pair[0], 1, on_lost, l);
	for (size_t i = 0; i < sizeof(types); i++)
		calls[i].call = link_call(k, types[i], "", 0, &ops, &calls[i]);
	if (!(data[0] & 1))
		say_welcome(pair[1]);
	PROMISE(send(pair[1], data + 1, size - 1, MSG_NOSIGNAL) == (ssize_t)size - 1);
	shutdown(pair[1], SHUT_WR);
	loop_run(l);
	for (size_t i = 0; i < sizeof(types); i++)
		PROMISE(calls[i].ends == 1);
	PROMISE(link_open_calls(k) == 0);
	link_close(k);
	close(pair[1]);
	loop_free(l);
	return 0;
}
