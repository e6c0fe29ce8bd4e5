/*
 * Theory of operation.
 *
 * Parties: the front (this process) and one guest, which may be hostile. Bytes are read into one
 * scratch buffer; whole frames are passed on from there, and only an unfinished frame is kept. Frames
 * to be sent are gathered in `out` and written once at the end of a loop round.
 *
 * A call is one stream. It is in the link's table until its stream is over. After that it lives only
 * for its last callback, which always comes from the loop (a task), never from within link_call,
 * link_close or call_send. A callback may close the link: `depth` keeps the link's memory until the
 * current frames are processed.
 *
 * Bounds: `out` by OUT_MAX (call_room) and OUT_FULL (requests), an unfinished frame by its size,
 * counted frames by the window, all other frames by SMALL_MAX per call.
 */
#include "manager/link.h"

#include "wire/guest.h"
#include "wire/pack.h"

#include <sys/socket.h>

#define HELLO_MS 5000
#define TICK_MS 30000 /* a guest that is silent for two of them is lost */
#define OUT_MAX (1u << 20)
#define OUT_FULL (8u << 20)
#define READ_MAX (128u << 10) /* in one callback: a turn of the loop is to be short */
#define CREDIT_AT (GUEST_WINDOW / 4)
#define SMALL_MAX 16
#define BUCKETS 16

struct call {
	struct link *link; /* NULL: the stream is over, only the last callback is due */
	struct loop *loop;
	uint32_t stream;
	uint8_t type;
	bool answered;	 /* G_OK was seen */
	bool wants_room; /* its last attempt to send found too little room */
	unsigned small;	 /* frames that count against no window */
	uint32_t window_in, window_out, owed;
	const struct call_ops *ops;
	void *arg;
	struct err err;
	struct loop_task task, room;
	struct call *next;
};

struct link {
	struct loop *loop;
	int fd;
	uint64_t generation;
	bool welcomed, broken, closed, suspended, heard, pinged;
	int depth;
	uint32_t next_stream;
	unsigned open;
	struct call *table[BUCKETS];
	struct buf in, out;
	struct err err;
	struct loop_watch watch;
	struct loop_timer timer;
	struct loop_task flush, lost;
	struct loop_task
		again; /* goes on with frames that one turn was too short for: they are in `in` */
	void (*on_lost)(void *arg, const struct err *e);
	void *arg;
};

/* ---- calls in the table ---- */

static bool is_stream(uint8_t type)
{
	static const uint8_t types[] = {G_RUN,	   G_FORK,   G_EXEC,	G_ATTACH, G_EXECS,  G_READ,
					G_WRITE,   G_LIST,   G_TAR_OUT, G_TAR_IN, G_SEARCH, G_WATCH,
					G_CONNECT, G_EVENTS, G_ACCEPT,	G_INSIDE};

	return memchr(types, type, sizeof(types)) != NULL;
}

static struct call *find_call(const struct link *k, uint32_t stream)
{
	struct call *c = k->table[stream % BUCKETS];

	while (c && c->stream != stream)
		c = c->next;
	return c;
}

static void unlist_call(struct call *c)
{
	struct call **at = &c->link->table[c->stream % BUCKETS];

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->link->open--;
	loop_task_remove(c->loop, &c->room);
	c->link = NULL;
}

static void deliver_end(void *arg)
{
	struct call *c = arg;
	const struct call_ops *ops = c->ops;
	void *owner = c->arg;
	struct err e = c->err;

	free(c);
	if (ops->on_end)
		ops->on_end(owner, e.kind == ERR_NONE ? NULL : &e);
	if (ops->on_free)
		ops->on_free(owner);
}

/* The stream is over; the last callback comes from the loop. */
static void finish_call(struct call *c, const struct err *e)
{
	if (c->link)
		unlist_call(c);
	if (e)
		c->err = *e;
	loop_task_add(c->loop, &c->task);
}

static void finish_all(struct link *k, const struct err *e)
{
	for (size_t i = 0; i < BUCKETS; i++)
		while (k->table[i])
			finish_call(k->table[i], e);
}

/* ---- the end of a link ---- */

static void release_link(struct link *k)
{
	if (k->depth > 0)
		return;
	buf_done(&k->in);
	buf_done(&k->out);
	free(k);
}

static void shut_link(struct link *k)
{
	loop_unwatch(k->loop, &k->watch);
	loop_timer_stop(k->loop, &k->timer);
	loop_task_remove(k->loop, &k->flush);
	loop_task_remove(k->loop, &k->again);
	close_fd(&k->fd);
}

static void report_lost(void *arg)
{
	struct link *k = arg;
	struct err e = k->err;

	k->on_lost(k->arg, &e);
}

static void break_link(struct link *k, enum err_kind kind, const char *why)
{
	if (k->broken)
		return;
	k->broken = true;
	err_set(&k->err, kind, "the link to the sandbox broke: %s", why);
	shut_link(k);
	finish_all(k, &k->err);
	loop_task_add(k->loop, &k->lost);
}

void link_close(struct link *k)
{
	struct err e;

	if (!k || k->closed)
		return;
	err_set(&e, ERR_CONFLICT, "the sandbox was stopped");
	k->closed = true;
	loop_task_remove(k->loop, &k->lost);
	shut_link(k);
	finish_all(k, k->broken ? &k->err : &e);
	k->broken = true;
	release_link(k);
}

/* ---- sending ---- */

static void report_room(void *arg)
{
	struct call *c = arg;

	c->wants_room = false;
	c->ops->on_room(c->arg);
}

/* Reports room to a call that waits for it, from the loop. */
static void offer_room(struct call *c)
{
	if (c->wants_room && c->ops->on_room && call_room(c) > 0)
		loop_task_add(c->loop, &c->room);
}

static void offer_all(struct link *k)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct call *c = k->table[i]; c; c = c->next)
			offer_room(c);
}

static void flush_link(void *arg)
{
	struct link *k = arg;
	bool was_full = k->out.len >= OUT_MAX / 2;

	while (k->out.len > 0) {
		ssize_t n = send(k->fd, buf_head(&k->out), k->out.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			break_link(k, ERR_SYSTEM, strerror(errno));
			return;
		}
		buf_drop(&k->out, (size_t)n);
	}
	loop_change(k->loop, &k->watch, k->out.len ? EPOLLIN | EPOLLOUT : EPOLLIN);
	if (k->out.len == 0)
		buf_done(&k->out);
	if (was_full && k->out.len < OUT_MAX / 2)
		offer_all(k);
}

static void send_frame(struct link *k, uint32_t stream, uint8_t type, const void *payload,
		       size_t len)
{
	if (k->broken)
		return;
	guest_frame_add(&k->out, stream, type, payload, len);
	loop_task_add(k->loop, &k->flush);
}

static void send_u32(struct call *c, uint8_t type, uint32_t value)
{
	unsigned char bytes[4] = {(unsigned char)value, (unsigned char)(value >> 8),
				  (unsigned char)(value >> 16), (unsigned char)(value >> 24)};

	send_frame(c->link, c->stream, type, bytes, sizeof(bytes));
}

/* ---- calls ---- */

static struct call *new_call(struct loop *l, const struct call_ops *ops, void *arg)
{
	struct call *c = must_alloc(calloc(1, sizeof(*c)));

	*c = (struct call){.loop = l, .ops = ops, .arg = arg};
	c->window_in = c->window_out = GUEST_WINDOW;
	c->task = (struct loop_task){.call = deliver_end, .arg = c};
	c->room = (struct loop_task){.call = report_room, .arg = c};
	return c;
}

struct call *call_refused(struct loop *l, const struct err *e, const struct call_ops *ops,
			  void *arg)
{
	struct call *c = new_call(l, ops, arg);

	finish_call(c, e);
	return c;
}

struct call *link_call(struct link *k, uint8_t type, const void *payload, size_t len,
		       const struct call_ops *ops, void *arg)
{
	bool is_exec = type == G_EXEC || type == G_RUN || type == G_FORK;
	const char *rest = payload;
	struct err e = k->err;
	struct call *c;

	if (!k->broken && (k->open >= GUEST_MAX_STREAMS || k->out.len > OUT_FULL))
		err_set(&e, ERR_LIMIT, "too many calls to this sandbox at once");
	else if (!k->broken && len > (is_exec ? GUEST_MAX_EXEC : GUEST_MAX_PAYLOAD))
		err_set(&e, ERR_INVALID, "the request is too large");
	if (e.kind)
		return call_refused(k->loop, &e, ops, arg);
	c = new_call(k->loop, ops, arg);
	c->type = type;
	c->link = k;
	c->task.user = c->room.user = k->watch.user;
	c->stream = k->next_stream++;
	c->next = k->table[c->stream % BUCKETS];
	k->table[c->stream % BUCKETS] = c;
	k->open++;
	for (; len > GUEST_MAX_PAYLOAD; rest += GUEST_MAX_PAYLOAD, len -= GUEST_MAX_PAYLOAD)
		send_frame(k, c->stream, G_MORE, rest, GUEST_MAX_PAYLOAD);
	send_frame(k, c->stream, type, rest, len);
	return c;
}

size_t call_room(const struct call *c)
{
	size_t room = 0;

	if (c->link && !c->link->broken && c->link->out.len < OUT_MAX) {
		room = OUT_MAX - c->link->out.len;
		room = c->window_out < room ? c->window_out : room;
	}
	if (room < GUEST_MAX_PAYLOAD)
		((struct call *)(uintptr_t)c)->wants_room = true;
	return room;
}

bool call_send(struct call *c, const void *bytes, size_t len)
{
	const char *rest = bytes;

	if (len > call_room(c) || !c->link)
		return false;
	c->window_out -= (uint32_t)len;
	while (len > 0) {
		size_t part = len < GUEST_MAX_PAYLOAD ? len : GUEST_MAX_PAYLOAD;

		send_frame(c->link, c->stream, G_DATA, rest, part);
		rest += part;
		len -= part;
	}
	return true;
}

size_t call_push(struct call *c, const void *bytes, size_t len)
{
	size_t room = call_room(c), n = len < room ? len : room;

	if (n && !call_send(c, bytes, n))
		n = 0;
	/* The remaining bytes wait for on_room, whatever room there was. */
	c->wants_room |= n < len;
	return n;
}

void call_close(struct call *c)
{
	if (c->link)
		send_frame(c->link, c->stream, G_CLOSE, NULL, 0);
}

void call_credit(struct call *c, size_t len)
{
	uint32_t owed = GUEST_WINDOW - c->window_in;

	/* A caller cannot return more credit than it has used. */
	if (!c->link || len == 0)
		return;
	c->owed += len < owed - c->owed ? (uint32_t)len : owed - c->owed;
	if (c->owed < CREDIT_AT)
		return;
	send_u32(c, G_CREDIT, c->owed);
	c->window_in += c->owed;
	c->owed = 0;
}

void call_drop(struct call *c)
{
	if (!c)
		return;
	if (c->link) {
		if (is_stream(c->type))
			send_frame(c->link, c->stream, G_END, NULL, 0);
		unlist_call(c);
	}
	loop_task_remove(c->loop, &c->task);
	if (c->ops->on_free)
		c->ops->on_free(c->arg);
	free(c);
}

/* ---- receiving ---- */

static const struct {
	int number;
	enum err_kind kind;
} errno_kinds[] = {
	{ENOENT, ERR_NOT_FOUND}, {ESRCH, ERR_NOT_FOUND},      {ENODATA, ERR_NOT_FOUND},
	{EACCES, ERR_DENIED},	 {EPERM, ERR_DENIED},	      {EROFS, ERR_DENIED},
	{EEXIST, ERR_CONFLICT},	 {EBUSY, ERR_CONFLICT},	      {ENOTEMPTY, ERR_CONFLICT},
	{ETXTBSY, ERR_CONFLICT}, {EPIPE, ERR_CONFLICT},	      {ECONNREFUSED, ERR_CONFLICT},
	{EINVAL, ERR_INVALID},	 {ENAMETOOLONG, ERR_INVALID}, {ENOTDIR, ERR_INVALID},
	{EISDIR, ERR_INVALID},	 {ELOOP, ERR_INVALID},	      {ENOTTY, ERR_INVALID},
	{E2BIG, ERR_INVALID},	 {EBADMSG, ERR_INVALID},      {EXDEV, ERR_INVALID},
	{ENOSPC, ERR_LIMIT},	 {EDQUOT, ERR_LIMIT},	      {EMFILE, ERR_LIMIT},
	{ENFILE, ERR_LIMIT},	 {EFBIG, ERR_LIMIT},	      {ENOMEM, ERR_LIMIT},
	{EAGAIN, ERR_LIMIT},	 {ENOSYS, ERR_UNSUPPORTED},   {EOPNOTSUPP, ERR_UNSUPPORTED},
};

static bool read_error(const void *payload, size_t len, struct err *ret)
{
	struct unpack u = unpack_from(payload, len);
	uint32_t number = unpack_u32(&u);
	size_t text_len;
	const char *text = unpack_bytes(&u, &text_len);

	if (!unpack_is_done(&u) || number > 4095)
		return false;
	*ret = (struct err){.kind = ERR_SYSTEM, .errnum = (int)number};
	for (size_t i = 0; i < ARRAY_LEN(errno_kinds); i++)
		if (errno_kinds[i].number == (int)number)
			ret->kind = errno_kinds[i].kind;
	str_sanitise(ret->msg, sizeof(ret->msg), text, text_len);
	if (!ret->msg[0])
		snprintf(ret->msg, sizeof(ret->msg), "%s", strerror((int)number));
	return true;
}

static bool read_welcome(struct link *k, uint8_t type, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	uint32_t version = unpack_u32(&u);
	uint64_t generation = unpack_u64(&u);

	unpack_u64(&u);
	if (k->welcomed || type != G_WELCOME || !unpack_is_done(&u) || version != GUEST_VERSION ||
	    generation != k->generation)
		return false;
	k->welcomed = true;
	loop_timer_set(k->loop, &k->timer, TICK_MS);
	return true;
}

static bool take_credit(struct call *c, const void *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	uint32_t credit = unpack_u32(&u);

	if (!unpack_is_done(&u) || credit > GUEST_WINDOW - c->window_out)
		return false;
	c->window_out += credit;
	offer_room(c);
	return true;
}

/* Is the frame within its window, or one of the few frames that need none? */
static bool is_within_bounds(struct call *c, uint8_t type, size_t len)
{
	if (!guest_is_counted(type))
		return ++c->small <= SMALL_MAX;
	if (len > c->window_in)
		return false;
	c->window_in -= (uint32_t)len;
	/* An empty frame uses no window, so the number of empty frames is bounded, too. */
	return len > 0 || ++c->small <= SMALL_MAX;
}

static bool end_call(struct call *c, const void *payload, size_t len)
{
	if (len && c->ops->on_frame) {
		struct link *k = c->link;
		uint32_t stream = c->stream;

		c->ops->on_frame(c->arg, G_END, payload, len);
		if (k->broken || find_call(k, stream) != c)
			return true;
	}
	finish_call(c, NULL);
	return true;
}

/* A frame of an open stream; false: it broke the protocol. */
static bool take_frame(struct link *k, struct call *c, uint8_t type, const void *payload,
		       size_t len)
{
	uint32_t stream = c->stream;
	struct err e;

	if (type == G_CREDIT)
		return take_credit(c, payload, len);
	if (type == G_ERROR) {
		if (!read_error(payload, len, &e))
			return false;
		finish_call(c, &e);
		return true;
	}
	if ((type == G_OK) == c->answered || !is_within_bounds(c, type, len))
		return false;
	if (type == G_END)
		return end_call(c, payload, len);
	c->answered = true;
	if (c->ops->on_frame)
		c->ops->on_frame(c->arg, type, payload, len);
	if (!k->broken && find_call(k, stream) == c && !is_stream(c->type))
		finish_call(c, NULL);
	return true;
}

static bool is_known(uint8_t type)
{
	return type == G_DATA || type == G_CLOSE || type == G_CREDIT || type == G_END ||
	       (type >= G_WELCOME && type <= G_DONE);
}

static bool take_any_frame(struct link *k, const struct guest_header *h, const void *payload)
{
	struct call *c;

	if (!is_known(h->type))
		return false;
	k->heard = true;
	if (h->stream == 0)
		return read_welcome(k, h->type, payload, h->size);
	if (!k->welcomed || h->type == G_WELCOME || h->stream >= k->next_stream)
		return false;
	c = find_call(k, h->stream);
	return !c || take_frame(k, c, h->type, payload, h->size);
}

/* Passes on the whole frames; returns the number of their bytes. */
static size_t take_frames(struct link *k, const unsigned char *bytes, size_t len)
{
	size_t at = 0;

	while (!k->broken && len - at >= GUEST_HEADER) {
		struct guest_header h;

		if (!guest_header_get(bytes + at, &h)) {
			break_link(k, ERR_SYSTEM, "it sent what is no frame");
			break;
		}
		if (len - at < GUEST_HEADER + h.size)
			break;
		if (!take_any_frame(k, &h, bytes + at + GUEST_HEADER))
			break_link(k, ERR_SYSTEM, "it does not keep to the protocol");
		at += GUEST_HEADER + h.size;
		if (!k->broken && loop_turn_is_over(k->loop)) {
			loop_task_add(k->loop, &k->again);
			break;
		}
	}
	return at;
}

static void take_bytes(struct link *k, const unsigned char *bytes, size_t len)
{
	size_t used;

	k->depth++;
	used = take_frames(k, bytes, len);
	buf_done(&k->in);
	if (!k->broken && used < len)
		buf_add(&k->in, bytes + used, len - used);
	k->depth--;
}

static void on_link_ready(void *arg, uint32_t events)
{
	/* Holds the kept part of an unfinished frame and the new bytes. */
	static unsigned char scratch[GUEST_HEADER + GUEST_MAX_PAYLOAD + READ_MAX];
	struct link *k = arg;
	size_t kept = k->in.len; /* less than a frame, unless frames wait */
	ssize_t n;

	if (events & EPOLLOUT)
		loop_task_add(k->loop, &k->flush);
	if (!(events & ~(uint32_t)EPOLLOUT) || k->again.back)
		return;
	n = recv(k->fd, scratch + kept, READ_MAX, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		break_link(k, ERR_SYSTEM, n == 0 ? "the guest closed it" : strerror(errno));
		return;
	}
	if (kept)
		memcpy(scratch, buf_head(&k->in), kept);
	take_bytes(k, scratch, kept + (size_t)n);
	if (k->closed)
		release_link(k);
}

static void take_waiting(void *arg)
{
	struct link *k = arg;
	struct buf waiting = k->in;

	k->in = (struct buf){0};
	take_bytes(k, (const unsigned char *)buf_head(&waiting), waiting.len);
	buf_done(&waiting);
	if (k->closed)
		release_link(k);
}

/* ---- pings ---- */

static const struct call_ops ping_ops = {0};

static void on_link_tick(void *arg)
{
	struct link *k = arg;

	if (k->suspended) {
		loop_timer_set(k->loop, &k->timer, TICK_MS);
		return;
	}
	if (!k->welcomed) {
		break_link(k, ERR_SYSTEM, "the guest does not greet");
		return;
	}
	loop_timer_set(k->loop, &k->timer, TICK_MS);
	if (k->pinged && !k->heard) {
		break_link(k, ERR_SYSTEM, "the guest does not answer");
		return;
	}
	k->pinged = !k->heard;
	k->heard = false;
	if (k->pinged)
		link_call(k, G_PING, NULL, 0, &ping_ops, NULL);
}

void link_set_user(struct link *k, struct loop_user *user)
{
	bool waits = k->again.back;

	loop_task_remove(k->loop, &k->again);
	k->watch.user = k->again.user = user;
	if (waits)
		loop_task_add(k->loop, &k->again);
}

unsigned link_open_calls(const struct link *k)
{
	return k->open;
}

void link_suspend(struct link *k, bool suspended)
{
	if (!k)
		return;
	k->suspended = suspended;
	k->pinged = false;
	k->heard = true;
	if (!suspended && !k->welcomed && !k->broken)
		loop_timer_set(k->loop, &k->timer, HELLO_MS);
}

struct link *link_open(struct loop *l, int fd, uint64_t generation,
		       void (*on_lost)(void *arg, const struct err *e), void *arg)
{
	struct link *k = must_alloc(calloc(1, sizeof(*k)));
	struct buf hello = {0};

	*k = (struct link){.loop = l, .fd = fd, .generation = generation, .next_stream = 1};
	k->on_lost = on_lost;
	k->arg = arg;
	k->watch =
		(struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_link_ready, .arg = k};
	k->timer = (struct loop_timer){.call = on_link_tick, .arg = k};
	k->flush = (struct loop_task){.call = flush_link, .arg = k};
	k->lost = (struct loop_task){.call = report_lost, .arg = k};
	k->again = (struct loop_task){.call = take_waiting, .arg = k};
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	if (loop_watch(l, &k->watch) < 0)
		break_link(k, ERR_SYSTEM, strerror(errno));
	pack_u32(&hello, GUEST_VERSION);
	pack_u64(&hello, generation);
	send_frame(k, 0, G_HELLO, buf_head(&hello), hello.len);
	buf_done(&hello);
	if (!k->broken)
		loop_timer_set(l, &k->timer, HELLO_MS);
	return k;
}
