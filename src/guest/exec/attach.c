/* Between a command's pipes or terminal and the streams that are attached to it. */
#include "guest/exec/command.h"

/* ---- out ---- */

static void pack_exit(const struct command *c, struct buf *b)
{
	const struct command_exit *x = &c->exit;

	pack_u32(b, (uint32_t)x->wait_status);
	pack_u32(b, (uint32_t)x->exec_errno);
	pack_u8(b, (uint8_t)((unsigned)x->why | x->limits));
	pack_u64(b, x->duration_us);
	pack_u64(b, x->cpu_us);
	pack_u64(b, x->max_rss_bytes);
	pack_u32(b, c->reaped ? denials_count(c->guest, c) : 0);
}

void command_pack(const struct command *c, struct buf *ret)
{
	pack_u32(ret, c->eid);
	pack_u32(ret, (uint32_t)c->pid);
	pack_u8(ret, !c->reaped);
	pack_u8(ret, c->flags);
	pack_str(ret, c->tag);
	pack_str(ret, c->session);
	pack_str(ret, c->cwd);
	pack_u32(ret, (uint32_t)c->argv.count);
	for (size_t i = 0; i < c->argv.count; i++)
		pack_str(ret, c->argv.items[i]);
	pack_u64(ret, c->started_ms);
	pack_exit(c, ret);
	pack_u64(ret, output_oldest(&c->output));
	pack_u64(ret, c->output.next_seq);
}

static void detach(struct attachment *a)
{
	struct attachment **p = &a->command->attached;

	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	free(a);
}

static void tell_end(struct attachment *a)
{
	struct guest_stream *s = a->stream;
	auto_buf struct buf b = {0};

	pack_exit(a->command, &b);
	if (a->command->in_sandbox)
		pack_u64(&b, a->command->exit.disk_bytes);
	stream_send(s, G_EXIT, buf_head(&b), b.len);
	detach(a);
	stream_end(s, NULL, 0);
}

/* Sends one frame: the rest of a chunk, as far as there is room. */
static bool send_some(struct attachment *a)
{
	const struct output_chunk *c = output_find(&a->command->output, a->seq);
	size_t room = stream_room(a->stream), skip, len;
	char *to;

	if (!c || room <= 8)
		return false;
	if (a->seq < c->seq)
		a->seq = c->seq;
	skip = (size_t)(a->seq - c->seq);
	len = c->len - skip < room - 8 ? c->len - skip : room - 8;
	to = stream_reserve(a->stream, 8 + len);
	for (int i = 0; i < 8; i++)
		to[i] = (char)(a->seq >> (8 * i));
	memcpy(to + 8, c->data + skip, len);
	stream_commit(a->stream, c->type, 8 + len);
	a->seq += len;
	return true;
}

static void send_output(void *arg)
{
	struct attachment *a = arg;
	struct command *c = a->command;

	while (send_some(a))
		;
	if (a->seq >= c->output.next_seq && c->finished) {
		tell_end(a);
		return;
	}
	command_watch_sources(c);
}

static void take_input(void *arg, const char *bytes, size_t len)
{
	struct attachment *a = arg;

	/* The window bounds it; credit is given as the command reads. */
	if (!command_input(a->command, bytes, len, false))
		stream_credit(a->stream, len);
}

static void end_input(void *arg)
{
	struct attachment *a = arg;

	command_input(a->command, NULL, 0, true);
}

static void lose_reader(void *arg)
{
	struct attachment *a = arg;
	struct command *c = a->command;

	detach(a);
	/* Commands go on when a daemon dies, but a prefork without an owner is of no use. */
	if ((server_out(c->guest) || c->prefork >= 0) && !c->reaped &&
	    (c->flags & GUEST_EXEC_KILL) && !c->attached)
		command_kill(c, GUEST_WHY_KILLED);
	command_watch_sources(c);
}

void command_attach(struct command *c, struct guest_stream *s, uint64_t from)
{
	static const struct stream_ops ops = {take_input, end_input, send_output, lose_reader};
	struct attachment *a = must_alloc(calloc(1, sizeof(*a)));
	auto_buf struct buf b = {0};

	*a = (struct attachment){.next = c->attached, .command = c, .stream = s, .seq = from};
	if (a->seq > c->output.next_seq)
		a->seq = c->output.next_seq;
	c->attached = a;
	stream_go_on(s, &ops, a);
	pack_u32(&b, c->eid);
	pack_u32(&b, (uint32_t)c->pid);
	if (c->in_sandbox) {
		pack_u32(&b, c->layers);
		pack_u32(&b, (uint32_t)c->landlock_abi);
		pack_u8(&b, c->listening);
	} else {
		pack_u32(&b, (uint32_t)c->exit.exec_errno);
	}
	stream_ok(s, &b);
}

void command_detach_all(struct command *c)
{
	while (c->attached) {
		struct guest_stream *s = c->attached->stream;

		detach(c->attached);
		stream_error(s, ESRCH, "the command is forgotten");
	}
}

/* How far the slowest reader that matters has read. */
static uint64_t read_by_all(const struct command *c)
{
	uint64_t seq = c->output.next_seq;

	if (c->flags & GUEST_EXEC_BACKGROUND)
		return seq;
	for (const struct attachment *a = c->attached; a; a = a->next)
		if (a->seq < seq)
			seq = a->seq;
	return seq;
}

static bool is_behind(const struct command *c)
{
	return c->output.next_seq - read_by_all(c) >= COMMAND_AHEAD;
}

static void close_source(struct output_source *s)
{
	loop_unwatch(s->command->guest->loop, &s->watch);
	close_fd(&s->watch.fd);
}

static void trim_to(struct command *c, uint64_t limit)
{
	uint64_t before = c->output.kept;

	output_trim(&c->output, limit, read_by_all(c));
	c->guest->kept_bytes -= before - c->output.kept;
}

/*
 * Each command keeps log_bytes, all together eight times that; beyond, commands that have ended
 * keep less.
 */
static void trim(struct command *c)
{
	struct guest *g = c->guest;

	trim_to(c, g->log_bytes);
	if (g->kept_bytes <= 8 * g->log_bytes)
		return;
	for (struct command *d = g->commands; d; d = d->next)
		if (d->finished)
			trim_to(d, g->log_bytes / 8);
	if (g->kept_bytes > 8 * g->log_bytes)
		trim_to(c, g->log_bytes / 8);
}

/* Reads once; true if there was output. */
static bool read_source(struct output_source *s)
{
	struct command *c = s->command;
	char bytes[16384];
	uint64_t before = c->output.kept;
	ssize_t n = read(s->watch.fd, bytes, sizeof(bytes));

	s->dry = n < 0 && errno == EAGAIN;
	if (n > 0) {
		output_add(&c->output, s->type, bytes, (size_t)n);
		c->guest->kept_bytes += c->output.kept - before;
		if (c->reaped)
			c->read_late += (size_t)n;
		trim(c);
		server_wake(c->guest);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		/* A terminal whose last user is gone returns EIO. */
		close_source(s);
	}
	return n > 0;
}

/*
 * Once its process is gone, all that it printed is in the pipes. The command is finished when they
 * are empty, even if other processes still hold them. A process that goes on printing cannot delay
 * that: at most COMMAND_LATE bytes are read.
 */
static void check_finished(struct command *c)
{
	bool empty = true;

	if (c->finished || !c->reaped)
		return;
	for (int i = 0; i < 2; i++) {
		struct output_source *s = &c->sources[i];

		while (s->watch.fd >= 0 && c->read_late < COMMAND_LATE && !is_behind(c) &&
		       read_source(s))
			;
		empty = empty && (s->watch.fd < 0 || s->dry);
	}
	if (!empty && c->read_late < COMMAND_LATE)
		return;
	c->finished = true;
	/* No process of a warm sandbox is left that could print. */
	for (int i = 0; c->in_sandbox && i < 2; i++)
		close_source(&c->sources[i]);
	server_wake(c->guest);
	command_ended(c);
}

static void on_source(void *arg, uint32_t events)
{
	struct output_source *s = arg;

	read_source(s);
	command_watch_sources(s->command);
}

void command_watch_sources(struct command *c)
{
	check_finished(c);
	for (int i = 0; i < 2; i++) {
		struct output_source *s = &c->sources[i];

		s->watch.call = on_source;
		s->watch.arg = s;
		if (s->watch.fd >= 0 && !c->deadline.place && !is_behind(c))
			loop_change(c->guest->loop, &s->watch, EPOLLIN);
		else
			loop_unwatch(c->guest->loop, &s->watch);
	}
}

/* ---- in ---- */

void command_close_input(struct command *c)
{
	loop_unwatch(c->guest->loop, &c->input);
	close_fd(&c->input.fd);
	buf_done(&c->waiting);
}

/* Input came from attached streams, which get credit, or by G_INPUT, which does not. */
static void give_back(struct command *c, size_t len)
{
	for (struct attachment *a = c->attached; a && len; a = a->next) {
		size_t unpaid = a->stream->unpaid - a->stream->owed;
		size_t part = unpaid < len ? unpaid : len;

		stream_credit(a->stream, part);
		len -= part;
	}
}

static void write_input(void *arg, uint32_t events)
{
	struct command *c = arg;
	bool gone;

	give_back(c, buf_write(&c->waiting, c->input.fd, &gone));
	if (!gone && c->waiting.len) {
		loop_change(c->guest->loop, &c->input, EPOLLOUT);
		return;
	}
	loop_unwatch(c->guest->loop, &c->input);
	if (gone)
		give_back(c, c->waiting.len);
	/* A terminal's end of file is ctrl-D. If the terminal is full, nothing reads it. */
	else if (c->input_ends && (c->flags & GUEST_EXEC_TTY))
		gone = write(c->input.fd, "\4", 1) != 1;
	if (gone || c->input_ends)
		command_close_input(c);
	else if (c->waiting.room > 4096)
		buf_done(&c->waiting);
}

bool command_input(struct command *c, const char *bytes, size_t len, bool close)
{
	if (c->input.fd < 0 || c->input_ends)
		return false;
	c->input.call = write_input;
	c->input.arg = c;
	buf_add(&c->waiting, bytes, len);
	c->input_ends = close;
	write_input(c, 0);
	return true;
}
