/*
 * A command's terminal over one WebSocket: binary frames are bytes of the terminal both ways, text
 * frames are JSON. From the client {"resize":{"rows","cols"}} and {"signal":N|"NAME"}; to the client
 * {"exit":{...}} or {"error":{...}}, then the close.
 *
 * Memory is bounded whatever a client sends or does not read. The pump stops the guest while output
 * waits. The socket is read only while all earlier input was given to the command, at most OUT_MAX bytes
 * wait to be sent, and no earlier resize or signal is under way.
 */
#include "api/rest/rest.h"

#include "wire/http1.h"
#include "wire/websocket.h"

#include <sys/socket.h>

#define MESSAGE_MAX (64u << 10) /* of a client */
#define PIECE (32u << 10)
#define OUT_MAX (256u << 10)
#define OUTPUT_MAX (64u << 10) /* of it, before the command is stopped */
#define PING_MS 30000
#define LINGER_MS 2000 /* for the client to read the end and hang up */

struct ws_terminal {
	struct exchange *x; /* until it is upgraded */
	struct api *api;
	struct caller caller;
	char id[IPC_ID]; /* of the sandbox */
	uint32_t eid;
	struct exec *exec;  /* NULL: it ended */
	struct upgraded *u; /* NULL: not open yet, or closed */
	struct loop_watch watch;
	struct loop_timer ping;
	struct ws_reader reader;
	struct buf out, in; /* to the client, to the command */
	struct pump pump;   /* of the command's output */
	bool is_closing;    /* our close frame is in out: input is ignored */
	bool is_shut;	    /* and is sent: the client is to hang up */
	bool was_heard;	    /* something came since the last ping */
	bool is_asking;	    /* a resize or signal is under way */
	bool has_ended;	    /* freed by the answer that is still due */
};

static size_t output_room(void *arg)
{
	const struct ws_terminal *t = arg;

	return t->out.len < OUTPUT_MAX ? OUTPUT_MAX - t->out.len : 0;
}

static void end_terminal(struct ws_terminal *t)
{
	t->pump.from = NULL;
	if (t->exec)
		exec_detach(take_ptr(t->exec));
	if (t->u) {
		loop_unwatch(t->api->loop, &t->watch);
		loop_timer_stop(t->api->loop, &t->ping);
		upgraded_close(take_ptr(t->u));
	}
	t->has_ended = true;
	if (t->is_asking)
		return;
	ws_reader_done(&t->reader);
	buf_done(&t->out);
	buf_done(&t->in);
	free(t);
}

/* Takes the value over. */
static void send_json(struct ws_terminal *t, json_t *value)
{
	auto_free char *text = json_dumps(value, JSON_COMPACT);

	if (text)
		ws_write(&t->out, WS_TEXT, text, strlen(text), NULL);
	json_decref(value);
}

static void send_error(struct ws_terminal *t, const struct err *e)
{
	send_json(t, exchange_error_body(exchange_status_of(e), e));
}

static void send_close(struct ws_terminal *t, enum ws_code code)
{
	if (!t->is_closing)
		ws_write_close(&t->out, code, NULL);
	t->is_closing = true;
}

static void give_input(struct ws_terminal *t)
{
	if (t->exec && t->in.len)
		buf_drop(&t->in, exec_push(t->exec, buf_head(&t->in), t->in.len));
}

static bool may_read(const struct ws_terminal *t)
{
	return !t->is_closing && !t->in.len && !t->is_asking && t->out.len < OUT_MAX;
}

static void take_messages(struct ws_terminal *t);

/* Moves what can be moved and polls for the rest. t may be freed afterwards. */
static void update_terminal(struct ws_terminal *t)
{
	bool is_broken;

	if (!t->u)
		return;
	give_input(t);
	take_messages(t);
	buf_write(&t->out, t->watch.fd, &is_broken);
	pump_resume(&t->pump);
	if (is_broken) {
		end_terminal(t);
		return;
	}
	/* Sending has made room: frames that waited for it would else wait for the next event. */
	take_messages(t);
	/* Closing with unread bytes would reset the connection, and the client would lose the last frames. */
	if (t->is_closing && !t->out.len && !t->is_shut) {
		t->is_shut = true;
		shutdown(t->watch.fd, SHUT_WR);
		loop_timer_set(t->api->loop, &t->ping, LINGER_MS);
	}
	loop_change(t->api->loop, &t->watch,
		    (may_read(t) || t->is_shut ? EPOLLIN : 0) | (t->out.len ? EPOLLOUT : 0));
}

/* ---- what the client sends ---- */

static void on_asked(void *arg, json_t *value, const struct err *e)
{
	struct ws_terminal *t = arg;

	json_decref(value);
	t->is_asking = false;
	if (t->has_ended) {
		end_terminal(t);
		return;
	}
	if (e && e->kind != ERR_NONE)
		send_error(t, e);
	update_terminal(t);
}

static int ask_resize(struct ws_terminal *t, struct sandbox *s, const json_t *size, struct err *e)
{
	json_int_t rows = json_integer_value(json_object_get(size, "rows")),
		   cols = json_integer_value(json_object_get(size, "cols"));

	if (rows < 1 || cols < 1 || rows > 4096 || cols > 4096)
		return err_field(e, ERR_INVALID, "resize",
				 "resize: rows and cols are numbers from 1 to 4096");
	t->is_asking = true;
	sandbox_resize(s, t->eid, (uint32_t)rows, (uint32_t)cols, on_asked, t);
	return 0;
}

static int ask_signal(struct ws_terminal *t, struct sandbox *s, const json_t *value, struct err *e)
{
	char number[24];
	int sig;

	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	if (v1_read_signal(json_is_string(value) ? json_string_value(value) : number, &sig, e) < 0)
		return -1;
	t->is_asking = true;
	sandbox_signal(s, t->eid, sig, false, on_asked, t);
	return 0;
}

static int take_text(struct ws_terminal *t, const char *text, size_t len, struct err *e)
{
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *size = json_object_get(o, "resize"), *sig = json_object_get(o, "signal");
	struct sandbox *s = manager_find(t->api->manager, &t->caller, t->id, e);
	int rc = -1;

	if (s && json_object_size(o) == 1 && size)
		rc = ask_resize(t, s, size, e);
	else if (s && json_object_size(o) == 1 && sig)
		rc = ask_signal(t, s, sig, e);
	else if (s)
		err_set(e, ERR_INVALID, "a text frame is {\"resize\":{...}} or {\"signal\":...}");
	json_decref(o);
	return rc;
}

static void take_message(struct ws_terminal *t, const struct ws_message *m)
{
	struct err e = {0};

	switch (m->opcode) {
	case WS_BINARY:
		buf_add(&t->in, m->bytes, m->len);
		give_input(t);
		break;
	case WS_TEXT:
		if (take_text(t, m->bytes, m->len, &e) < 0)
			send_error(t, &e);
		break;
	case WS_PING:
		ws_write(&t->out, WS_PONG, m->bytes, m->len, NULL);
		break;
	case WS_CLOSE:
		send_close(t, WS_NORMAL);
		break;
	default:
		break;
	}
}

static void take_messages(struct ws_terminal *t)
{
	struct ws_message m;
	int rc;

	while (may_read(t) && (rc = ws_next(&t->reader, &m)) != 0) {
		if (rc < 0)
			send_close(t, m.code);
		else
			take_message(t, &m);
	}
}

static void on_socket(void *arg, uint32_t events)
{
	struct ws_terminal *t = arg;
	char bytes[PIECE];
	ssize_t n;
	bool is_read = may_read(t) || t->is_shut;

	/* Reading may have been put off since this event was waited for; the end of the connection counts. */
	if (events & (EPOLLHUP | EPOLLERR | (is_read ? EPOLLIN : 0))) {
		n = is_read ? recv(t->watch.fd, bytes, sizeof(bytes), MSG_DONTWAIT) : 0;
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			end_terminal(t);
			return;
		}
		if (n > 0 && !t->is_shut)
			ws_feed(&t->reader, bytes, (size_t)n);
		t->was_heard = true;
	}
	update_terminal(t);
}

/* A client that sends nothing and does not answer pings is taken for gone. */
static void on_ping(void *arg)
{
	struct ws_terminal *t = arg;

	if (t->is_closing || (!t->was_heard && may_read(t))) {
		end_terminal(t);
		return;
	}
	t->was_heard = false;
	loop_timer_set(t->api->loop, &t->ping, PING_MS);
	if (t->out.len < OUT_MAX)
		ws_write(&t->out, WS_PING, "", 0, NULL);
	update_terminal(t);
}

/* ---- what the command does ---- */

static void on_upgraded(void *arg, struct upgraded *u, const char *bytes, size_t len)
{
	struct ws_terminal *t = arg;

	if (!u) {
		end_terminal(t);
		return;
	}
	t->u = u;
	t->watch = (struct loop_watch){
		.fd = upgraded_fd(u), .events = EPOLLIN, .call = on_socket, .arg = t};
	t->ping = (struct loop_timer){.call = on_ping, .arg = t};
	t->was_heard = true;
	loop_watch(t->api->loop, &t->watch);
	loop_timer_set(t->api->loop, &t->ping, PING_MS);
	ws_feed(&t->reader, bytes, len);
	update_terminal(t);
}

static void on_attached(void *arg, uint32_t eid, uint32_t pid)
{
	struct ws_terminal *t = arg;
	struct exchange *x = take_ptr(t->x);
	char accept[WS_ACCEPT];

	ws_accept(exchange_header(x, "Sec-WebSocket-Key"), accept);
	exchange_set_header(x, "Upgrade", "websocket");
	exchange_set_header(x, "Sec-WebSocket-Accept", accept);
	exchange_upgrade(x, on_upgraded, t);
}

static void on_command_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct ws_terminal *t = arg;

	ws_write(&t->out, WS_BINARY, bytes, len, NULL);
	pump_moved(&t->pump, len);
	update_terminal(t);
}

static void on_command_exit(void *arg, const struct outcome *x)
{
	struct ws_terminal *t = arg;

	t->exec = t->pump.from = NULL;
	send_json(t, json_pack("{s:o}", "exit", stream_describe_exit(x)));
	send_close(t, WS_NORMAL);
	update_terminal(t);
}

static void on_command_error(void *arg, const struct err *e)
{
	struct ws_terminal *t = arg;
	struct exchange *x = take_ptr(t->x);

	t->exec = t->pump.from = NULL;
	if (x) {
		end_terminal(t);
		exchange_error(x, e);
		return;
	}
	send_error(t, e);
	send_close(t, WS_INTERNAL);
	update_terminal(t);
}

static void on_input_room(void *arg)
{
	update_terminal(arg);
}

/* ---- the handshake ---- */

static void on_client_gone(void *arg)
{
	struct ws_terminal *t = arg;
	struct exchange *x = take_ptr(t->x);

	if (!x)
		return;
	end_terminal(t);
	exchange_answer_gone(x);
}

/* False: an error was answered. */
static bool check_handshake(struct exchange *x)
{
	const char *connection = exchange_header(x, "Connection"),
		   *upgrade = exchange_header(x, "Upgrade"),
		   *version = exchange_header(x, "Sec-WebSocket-Version"),
		   *key = exchange_header(x, "Sec-WebSocket-Key");
	struct err e = {0};

	if (!connection || !http1_list_has(connection, "Upgrade") || !upgrade ||
	    !http1_list_has(upgrade, "websocket") || !version || !str_equal(version, "13")) {
		err_set(&e, ERR_INVALID, "this is for WebSockets, version 13");
		exchange_set_header(x, "Upgrade", "websocket");
		exchange_set_header(x, "Sec-WebSocket-Version", "13");
		exchange_error_as(x, 426, &e);
		return false;
	}
	if (!key || !ws_key_is_valid(key)) {
		exchange_fail(x, ERR_INVALID, "Sec-WebSocket-Key is not base64 of 16 bytes");
		return false;
	}
	return true;
}

static void attach_terminal(struct exchange *x)
{
	static const struct exec_ops ops = {on_attached, on_command_output, on_command_exit,
					    on_command_error, on_input_room};
	struct ws_terminal *t;
	uint64_t from;
	uint32_t eid;

	if (!v1_read_eid(x, &eid) || !v1_arg_uint(x, "from", 0, INT64_MAX, &from))
		return;
	t = must_alloc(calloc(1, sizeof(*t)));
	*t = (struct ws_terminal){.x = x, .api = x->api, .caller = x->caller, .eid = eid};
	t->pump = (struct pump){.room = output_room, .to = t, .credit = exec_credit};
	t->reader = (struct ws_reader){.is_server = true, .max = MESSAGE_MAX};
	snprintf(t->id, sizeof(t->id), "%s", sandbox_id(x->sandbox));
	exchange_on_gone(x, on_client_gone, t);
	t->exec = t->pump.from = exec_attach(x->sandbox, eid, from, &ops, t);
}

void v1_exec_ws(struct exchange *x)
{
	if (check_handshake(x))
		v1_awake(x, attach_terminal);
}
