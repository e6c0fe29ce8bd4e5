/*
 * Theory of operation. The client starts `cloche mcp`, writes one JSON-RPC message per line and
 * expects an answer within milliseconds, so nothing is started before it is needed. Requests that
 * need no sandbox are answered from the tables of the MCP door (api/mcp/mcp.h). The first request
 * that needs one makes the bridge look for a daemon, or start an ephemeral one, and open a session
 * there. The session carries the options of the command line, which alone decide what the model
 * may do. Each further request is one HTTP exchange with /mcp; the daemon's answer is written out
 * unchanged.
 *
 * For a cancelled request the bridge closes the connection, and the daemon kills the command. When
 * stdin ends, the session, its sandboxes and an ephemeral daemon end, too.
 */
#include "cli/operator/cloched.h"

#include "api/mcp/mcp.h"
#include "base/loop.h"
#include "cli/cli.h"
#include "cli/verbs/client.h"
#include "cli/operator/mcp_daemon_cmd.h"
#include "cli/operator/mcp_internal.h"

#include <sys/signalfd.h>

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define TRY_MS 10
#define START_NS (30 * 1000000000LL)
#define END_MS 1000

enum daemon_state { DAEMON_NONE, DAEMON_STARTING, DAEMON_OPENING, DAEMON_READY };

/* A request that waits for the daemon, or for its answer. */
struct forward {
	struct forward *next;
	struct bridge *bridge;
	struct jsonrpc message;
	char *text;
	size_t len;
	enum mcp_era era;
	struct mcp_exchange *exchange; /* NULL: not sent yet */
	char session[80];	       /* that it was sent with */
	bool answered, again;
};

struct bridge {
	struct loop *loop;
	struct mcp_options options;
	int level; /* of log messages; -1: none was set */

	struct loop_watch in, out, signals;
	struct loop_timer in_timer; /* for a stdin that is a file, which epoll refuses */
	struct buf input, output;
	bool skipping; /* dropping the rest of a line that was too long */
	bool out_is_file;

	enum daemon_state state;
	struct client client;
	struct ephemeral_daemon daemon;
	bool is_ephemeral;
	int64_t started_ns;
	struct loop_timer retry;
	struct mcp_exchange *opening;
	char session[80];
	struct forward *forwards;
};

/* ---- output ---- */

static void on_stdout_writable(void *arg, uint32_t events)
{
	struct bridge *b = arg;
	/*
	 * A pipe that is ready takes PIPE_BUF bytes without blocking, even if it is a blocking
	 * one.
	 */
	size_t n = b->output.len < PIPE_BUF ? b->output.len : PIPE_BUF;
	ssize_t done = n ? write(1, buf_head(&b->output), n) : 0;

	if (done < 0 && errno != EINTR && errno != EAGAIN) {
		buf_drop(&b->output, b->output.len);
		loop_stop(b->loop); /* the client is gone */
		return;
	}
	if (done > 0)
		buf_drop(&b->output, (size_t)done);
	if (!b->output.len)
		loop_unwatch(b->loop, &b->out);
}

static void write_line(struct bridge *b, const char *text, size_t len)
{
	buf_add(&b->output, text, len);
	buf_add(&b->output, "\n", 1);
	if (!b->out_is_file && loop_watch(b->loop, &b->out) < 0)
		b->out_is_file = true;
	while (b->out_is_file && b->output.len)
		on_stdout_writable(b, 0);
}

static void write_message(struct bridge *b, json_t *message)
{
	size_t len;
	auto_free char *text = jsonrpc_print(message, &len);

	write_line(b, text, len);
	json_decref(message);
}

static void write_error(struct bridge *b, const json_t *id, int code, const char *text)
{
	write_message(b, jsonrpc_error(id, code, text, NULL));
}

/* ---- requests on their way ---- */

static void free_forward(struct forward *f)
{
	struct forward **p = &f->bridge->forwards;

	while (*p && *p != f)
		p = &(*p)->next;
	if (*p)
		*p = f->next;
	mcp_exchange_drop(f->exchange);
	jsonrpc_done(&f->message);
	free(f->text);
	free(f);
}

/* Answers a request with an error. */
static void fail_forward(struct forward *f, const char *why)
{
	write_error(f->bridge, f->message.id, JSONRPC_INTERNAL, why);
	free_forward(f);
}

static void fail_all(struct bridge *b, const char *why)
{
	while (b->forwards)
		fail_forward(b->forwards, why);
}

static void ensure_daemon(struct bridge *b);
static void send_forward(struct forward *f);

static void on_forward_message(void *arg, const char *text, size_t len)
{
	struct forward *f = arg;

	/* The daemon forgot the session: the request is sent again with a new one. */
	if (!f->again && memmem(text, len, "\"code\":-32001", 13)) {
		f->again = true;
		return;
	}
	f->answered = true;
	write_line(f->bridge, text, len);
}

/* The session was lost: opens another, unless another request has done so meanwhile. */
static void try_again(struct forward *f)
{
	struct bridge *b = f->bridge;

	if (b->state == DAEMON_READY && !str_equal(b->session, f->session)) {
		send_forward(f);
		return;
	}
	if (b->state == DAEMON_READY)
		b->state = DAEMON_NONE;
	ensure_daemon(b);
}

static void on_forward_end(void *arg, int status, const char *session, const struct err *e)
{
	struct forward *f = arg;

	f->exchange = NULL;
	if (status == 404 && f->again && !f->answered) {
		try_again(f);
		return;
	}
	if (f->answered || (status == 200 && !e)) {
		free_forward(f);
		return;
	}
	f->bridge->state = e ? DAEMON_NONE : f->bridge->state;
	fail_forward(f, e ? e->msg : "the daemon gave no answer");
}

static const char *name_of_request(const struct jsonrpc *m)
{
	const char *name = json_string_value(json_object_get(m->params, "name"));

	return str_equal(m->method, "resources/read")
		       ? json_string_value(json_object_get(m->params, "uri"))
		       : name;
}

static void send_forward(struct forward *f)
{
	static const struct mcp_exchange_ops ops = {on_forward_message, on_forward_end};
	bool modern = f->era == MCP_MODERN;
	struct bridge *b = f->bridge;
	struct mcp_request r = {
		.verb = "POST",
		.body = f->text,
		.body_len = f->len,
		.session = b->session,
		.method = modern ? f->message.method : NULL,
		.name = modern ? name_of_request(&f->message) : NULL,
	};
	struct err e = {0};

	memcpy(f->session, b->session, sizeof(f->session));
	f->exchange = mcp_exchange_start(b->loop, &b->client.target, &r, &ops, f, &e);
	if (!f->exchange) {
		b->state = DAEMON_NONE;
		fail_forward(f, e.msg);
	}
}

static void send_waiting_forwards(struct bridge *b)
{
	struct forward *next;

	for (struct forward *f = b->forwards; f; f = next) {
		next = f->next;
		if (!f->exchange)
			send_forward(f);
	}
}

/* ---- the daemon ---- */

/* The level must reach the session before the next call. */
static void send_level(struct bridge *b)
{
	static const struct mcp_exchange_ops ops = {NULL, NULL};
	static const char *const names[] = {"debug", "info",	 "notice", "warning",
					    "error", "critical", "alert",  "emergency"};
	struct mcp_request r = {.verb = "POST", .session = b->session};
	struct err e = {0};
	auto_free char *text = NULL;
	json_t *message;

	if (b->level < 0 || b->state != DAEMON_READY)
		return;
	message = jsonrpc_request(0, "logging/setLevel",
				  json_pack("{s:s}", "level", names[b->level]));
	r.body = text = jsonrpc_print(message, &r.body_len);
	json_decref(message);
	mcp_exchange_start(b->loop, &b->client.target, &r, &ops, NULL, &e);
}

static void start_ephemeral(struct bridge *b);

static void give_up_daemon(struct bridge *b, const char *why)
{
	b->state = DAEMON_NONE;
	fail_all(b, why);
}

static void on_open_message(void *arg, const char *text, size_t len)
{
	struct bridge *b = arg;
	json_auto_t *answer = json_loadb(text, len, 0, NULL);
	const json_t *error = json_object_get(answer, "error");
	const char *why = json_string_value(json_object_get(error, "message"));

	if (why && json_integer_value(json_object_get(error, "code")) == JSONRPC_PARAMS)
		fail_all(b, why);
}

static void on_open_end(void *arg, int status, const char *session, const struct err *e)
{
	struct bridge *b = arg;

	b->opening = NULL;
	/* We may not use this daemon: an ephemeral one does as well, unless this one was named. */
	if (status == 401 && !b->is_ephemeral && !getenv("CLOCHE_URL") && !getenv("CLOCHE_TOKEN")) {
		start_ephemeral(b);
		return;
	}
	if (status != 200 || !session[0]) {
		give_up_daemon(b, status == 401
					  ? "the daemon wants a token: make one with `cloche token "
					    "create` and set CLOCHE_TOKEN for this server"
				  : e ? e->msg
				      : "the daemon refused a session");
		return;
	}
	b->state = DAEMON_READY;
	snprintf(b->session, sizeof(b->session), "%s", session);
	send_level(b);
	send_waiting_forwards(b);
}

static int open_session(struct bridge *b, struct err *e)
{
	static const struct mcp_exchange_ops ops = {on_open_message, on_open_end};
	json_t *hello = jsonrpc_request(
		0, "initialize",
		json_pack("{s:s, s:{}, s:{s:s, s:s}, s:{s:O}}", "protocolVersion",
			  MCP_NEWEST_LEGACY, "capabilities", "clientInfo", "name", "cloche mcp",
			  "version", CLOCHE_VERSION, "_meta", MCP_OPTIONS_KEY, b->options.session));
	struct mcp_request r = {.verb = "POST"};
	auto_free char *text = jsonrpc_print(hello, &r.body_len);

	json_decref(hello);
	r.body = text;
	b->opening = mcp_exchange_start(b->loop, &b->client.target, &r, &ops, b, e);
	if (!b->opening)
		return -1;
	b->state = DAEMON_OPENING;
	return 0;
}

/* An ephemeral daemon does not say when it serves; connecting is tried until it works. */
static void on_retry(void *arg)
{
	struct bridge *b = arg;
	struct err e = {0};

	if (b->state != DAEMON_STARTING)
		return;
	if (ephemeral_daemon_has_ended(&b->daemon)) {
		give_up_daemon(
			b, "the sandboxes' daemon could not start; `cloche doctor` says what this "
			   "host lacks");
	} else if (open_session(b, &e) < 0) {
		if (now_ns() - b->started_ns > START_NS)
			give_up_daemon(b, e.msg);
		else
			loop_timer_set(b->loop, &b->retry, TRY_MS);
	}
}

static void await_ephemeral(struct bridge *b)
{
	b->state = DAEMON_STARTING;
	b->started_ns = now_ns();
	loop_timer_set(b->loop, &b->retry, TRY_MS);
}

static void start_ephemeral(struct bridge *b)
{
	struct err e = {0};

	ephemeral_daemon_stop(&b->daemon);
	b->is_ephemeral = true;
	if (ephemeral_daemon_start(&b->daemon, &b->options.spec, &e) < 0) {
		give_up_daemon(b, e.msg);
		return;
	}
	b->client.target = b->daemon.target;
	await_ephemeral(b);
}

static void ensure_daemon(struct bridge *b)
{
	struct err e = {0};

	if (b->state != DAEMON_NONE)
		return;
	/* An ephemeral daemon that still runs has only lost the session. */
	if (b->is_ephemeral && b->daemon.pid && !ephemeral_daemon_has_ended(&b->daemon)) {
		await_ephemeral(b);
		return;
	}
	if (!b->options.ephemeral_only && client_init(&b->client, &e) == 0 &&
	    open_session(b, &e) == 0) {
		b->is_ephemeral = false;
		return;
	}
	if (!b->options.ephemeral_only && getenv("CLOCHE_URL")) {
		give_up_daemon(b, e.msg); /* this daemon was named, so no other will do */
		return;
	}
	start_ephemeral(b);
}

/* ---- messages of the client ---- */

/* False: the message was answered. True: it needs the daemon. */
static bool answer_here(struct bridge *b, const struct jsonrpc *m, enum mcp_era era)
{
	const struct mcp_method *method = mcp_method_find(m->method, era);
	struct mcp_fault f = {0};
	json_t *result = NULL;

	if (!method) {
		mcp_fault_set(&f, 0, JSONRPC_NO_METHOD, "Method not found: %.64s", m->method);
	} else if (method->answer) {
		result = method->answer(m, &f);
	} else if (str_equal(m->method, "subscriptions/listen")) {
		write_message(b, jsonrpc_notification("notifications/subscriptions/acknowledged",
						      json_pack("{s:{}, s:{s:O}}", "notifications",
								"_meta", MCP_META "subscriptionId",
								m->id)));
		return false;
	} else if (str_equal(m->method, "resources/list") && b->state == DAEMON_NONE) {
		result = json_pack("{s:[]}", "resources");
	} else {
		return true;
	}
	if (result)
		write_message(b, jsonrpc_result(m->id, mcp_finish(era, method, result)));
	else
		write_message(b, jsonrpc_error(m->id, f.code, f.text, f.data));
	return false;
}

static int check_modern(struct bridge *b, const struct jsonrpc *m)
{
	const json_t *meta = json_object_get(m->params, "_meta");
	const char *version = json_string_value(json_object_get(meta, MCP_META "protocolVersion"));
	struct mcp_fault f = {0};

	if (mcp_check_envelope(m, &f) < 0) {
		write_error(b, m->id, f.code, f.text);
		return -1;
	}
	if (str_equal(version, MCP_MODERN_VERSION))
		return 0;
	write_message(b, jsonrpc_error(m->id, MCP_BAD_VERSION, "Unsupported protocol version",
				       json_pack("{s:[s], s:s}", "supported", MCP_MODERN_VERSION,
						 "requested", version)));
	return -1;
}

/* Takes the message over. */
static void handle_request(struct bridge *b, struct jsonrpc *m, const char *text, size_t len)
{
	enum mcp_era era = mcp_era_of(m);
	struct forward *f;

	if ((era == MCP_MODERN && check_modern(b, m) < 0) || !answer_here(b, m, era)) {
		if (str_equal(m->method, "logging/setLevel")) {
			b->level = mcp_level_find(
				json_string_value(json_object_get(m->params, "level")));
			send_level(b);
		}
		jsonrpc_done(m);
		return;
	}
	f = must_alloc(calloc(1, sizeof(*f)));
	f->bridge = b;
	f->message = *m;
	f->era = era;
	f->text = must_alloc(malloc(len + 1));
	memcpy(f->text, text, len);
	f->len = len;
	f->next = b->forwards;
	b->forwards = f;
	if (b->state == DAEMON_READY)
		send_forward(f);
	else
		ensure_daemon(b);
}

/* A cancelled request gets no answer. */
static void handle_notification(struct bridge *b, const struct jsonrpc *m)
{
	const json_t *id = json_object_get(m->params, "requestId");

	if (!str_equal(m->method, "notifications/cancelled") || !id)
		return;
	for (struct forward *f = b->forwards; f; f = f->next)
		if (json_equal(f->message.id, id)) {
			free_forward(f);
			return;
		}
}

static void handle_line(struct bridge *b, const char *text, size_t len)
{
	struct jsonrpc_fault f;
	struct jsonrpc m;

	while (len && (text[len - 1] == '\r' || text[len - 1] == ' '))
		len--;
	if (!len)
		return;
	if (jsonrpc_parse(text, len, &m, &f) < 0) {
		write_error(b, f.id, f.code, f.text);
		json_decref(f.id);
		return;
	}
	if (m.kind == JSONRPC_REQUEST) {
		handle_request(b, &m, text, len);
		return;
	}
	if (m.kind == JSONRPC_NOTIFICATION)
		handle_notification(b, &m);
	jsonrpc_done(&m);
}

/* ---- input ---- */

static void handle_lines(struct bridge *b)
{
	char *eol;

	while (b->input.len && (eol = memchr(buf_head(&b->input), '\n', b->input.len))) {
		size_t len = (size_t)(eol - buf_head(&b->input));

		if (!b->skipping)
			handle_line(b, buf_head(&b->input), len);
		b->skipping = false;
		buf_drop(&b->input, len + 1);
	}
	if (b->input.len <= LINE_MAX_BYTES)
		return;
	if (!b->skipping)
		write_error(b, NULL, JSONRPC_INVALID, "Invalid Request: a line of more than 16 MB");
	b->skipping = true;
	buf_drop(&b->input, b->input.len);
}

/* False: it has ended. */
static bool read_input(struct bridge *b)
{
	ssize_t n = read(0, buf_reserve(&b->input, 65536), 65536);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0)
		return false;
	buf_added(&b->input, (size_t)n);
	handle_lines(b);
	return true;
}

static void on_stdin(void *arg, uint32_t events)
{
	struct bridge *b = arg;

	if (!read_input(b))
		loop_stop(b->loop);
}

/* A file ends before its requests are answered: wait for the answers. */
static void on_file_input(void *arg)
{
	struct bridge *b = arg;

	while (read_input(b))
		;
	if (b->forwards || b->output.len)
		loop_timer_set(b->loop, &b->in_timer, TRY_MS);
	else
		loop_stop(b->loop);
}

static void on_stop_signal(void *arg, uint32_t events)
{
	struct bridge *b = arg;

	loop_stop(b->loop);
}

/* ---- beginning and end ---- */

static void on_end_timeout(void *arg)
{
	loop_stop(arg);
}

static void on_session_deleted(void *arg, int status, const char *session, const struct err *e)
{
	loop_stop(arg);
}

/* Ends the session and its sandboxes at a daemon that lives on. */
static void end_session(struct bridge *b)
{
	static const struct mcp_exchange_ops ops = {NULL, on_session_deleted};
	struct mcp_request r = {.verb = "DELETE", .session = b->session};
	struct loop_timer late = {.call = on_end_timeout, .arg = b->loop};
	struct mcp_exchange *x;
	struct err e = {0};

	if (b->is_ephemeral || b->state != DAEMON_READY)
		return;
	loop_unwatch(b->loop, &b->in);
	loop_unwatch(b->loop, &b->out);
	x = mcp_exchange_start(b->loop, &b->client.target, &r, &ops, b->loop, &e);
	if (!x)
		return;
	loop_timer_set(b->loop, &late, END_MS);
	loop_run(b->loop);
	loop_timer_stop(b->loop, &late);
}

static void end_bridge(struct bridge *b)
{
	mcp_exchange_drop(b->opening);
	while (b->forwards)
		free_forward(b->forwards);
	(void)!io_write_all(1, buf_head(&b->output), b->output.len);
	end_session(b);
	ephemeral_daemon_stop(&b->daemon);
	client_done(&b->client);
	mcp_options_done(&b->options);
}

static int watch_all(struct bridge *b, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	b->signals = (struct loop_watch){.fd = signalfd(-1, &set, SFD_CLOEXEC),
					 .events = EPOLLIN,
					 .call = on_stop_signal,
					 .arg = b};
	b->in = (struct loop_watch){.fd = 0, .events = EPOLLIN, .call = on_stdin, .arg = b};
	b->out = (struct loop_watch){
		.fd = 1, .events = EPOLLOUT, .call = on_stdout_writable, .arg = b};
	b->in_timer = (struct loop_timer){.call = on_file_input, .arg = b};
	b->retry = (struct loop_timer){.call = on_retry, .arg = b};
	if (loop_watch(b->loop, &b->signals) < 0)
		return err_sys(e, "cannot watch signals");
	if (loop_watch(b->loop, &b->in) < 0)
		loop_timer_set(b->loop, &b->in_timer, 0);
	return 0;
}

int cmd_mcp(int argc, char **argv)
{
	struct bridge b = {.level = -1, .daemon = {.life = -1}};
	struct err e = {0};
	int rc;

	if (mcp_is_server(argc, argv))
		return mcp_server(argc, argv);
	rc = mcp_options_read(&b.options, argc, argv, &e);
	if (rc > 0) {
		fputs(mcp_usage, stdout);
		return fflush(stdout) == 0 ? 0 : EXIT_CLOCHE;
	}
	if (rc < 0)
		return cli_fail(&e);
	b.loop = loop_new();
	if (watch_all(&b, &e) < 0)
		return cli_fail(&e);
	loop_run(b.loop);
	end_bridge(&b);
	loop_free(b.loop);
	return 0;
}
