/*
 * Theory of operation. A command's output arrives as server-sent events on one connection. A child
 * process sends its input on another, so that a command that is slow to read never blocks its
 * output.
 *
 * With -t the caller's terminal is raw while the command runs, and one WebSocket carries keys,
 * screen output and the window size. The command is started by the same request as without -t. The
 * event stream is closed once the WebSocket is attached: the guest kills a command when its last
 * attachment ends, so the command never outlives this client.
 */
#include "cli/operator/cloched.h"

#include "base/base64.h"
#include "cli/cli.h"
#include "cli/verbs/client_sse.h"
#include "cli/verbs/client_verb.h"
#include "model/outcome.h"
#include "wire/websocket.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>

#define PIECE 32768 /* the most that the daemon passes on at once */
#define FRAME_MAX (1u << 20)

struct exec_session {
	struct client *client;
	char id[64], eid[24];
	struct http_client *http;
	struct sse_reader sse;
	struct ws_reader ws; /* of an attached terminal: frames received on http */
	struct buf out;	     /* of an attached terminal: frames to be sent */
	bool tty, input;
	bool is_raw;
	struct termios saved;
	int winch;     /* signalfd */
	pid_t feeder;  /* sends our stdin; 0: none */
	int status;    /* of the command, -1: not yet */
	bool out_gone; /* our stdout is closed */
};

/* ---- input, in a child ---- */

/*
 * The daemon takes a piece whole or not at all. While a command is slow to read, its input is
 * refused (429, 503) and sent again. The parent kills this child when the command has ended.
 */
static int send_piece(struct exec_session *s, const char *bytes, size_t len, bool last,
		      struct err *e)
{
	auto_free char *path = client_path(s->id, "/execs/%s/stdin", s->eid);
	auto_free char *text = must_alloc(malloc(BASE64_ROOM(len) + 1));
	json_auto_t *body = NULL;
	int wait_ms = 2, rc;

	text[base64_encode(text, bytes, len)] = '\0';
	body = json_pack("{s:s, s:b}", "base64", text, "close", last);
	while ((rc = client_call(s->client, "POST", path, json_incref(body), NULL, e)) < 0 &&
	       (s->client->status == 429 || s->client->status == 503)) {
		poll(NULL, 0, wait_ms);
		wait_ms = wait_ms < 100 ? wait_ms * 2 : 100;
	}
	return rc;
}

static void feed_stdin(struct exec_session *s)
{
	char bytes[PIECE];
	struct err e = {0};
	ssize_t n;

	/* The open connection belongs to the parent. */
	s->client->http = NULL;
	do {
		n = read(STDIN_FILENO, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (send_piece(s, bytes, n > 0 ? (size_t)n : 0, n <= 0, &e) < 0)
			break;
	} while (n > 0);
	_exit(0);
}

static void start_feeder(struct exec_session *s)
{
	pid_t parent = getpid();

	fflush(stdout);
	s->feeder = fork();
	if (s->feeder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		feed_stdin(s);
	}
}

static void stop_feeder(struct exec_session *s)
{
	if (s->feeder <= 0)
		return;
	kill(s->feeder, SIGKILL);
	waitpid(s->feeder, NULL, 0);
	s->feeder = 0;
}

/* ---- the terminal ---- */

static void window_size(json_t *body)
{
	struct winsize w;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_row || !w.ws_col)
		return;
	json_object_set_new(body, "rows", json_integer(w.ws_row));
	json_object_set_new(body, "cols", json_integer(w.ws_col));
}

static void make_raw(struct exec_session *s)
{
	struct termios raw;

	if (!s->tty || tcgetattr(STDIN_FILENO, &s->saved) < 0)
		return;
	raw = s->saved;
	cfmakeraw(&raw);
	s->is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void make_cooked(struct exec_session *s)
{
	if (s->is_raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &s->saved);
	s->is_raw = false;
}

static void watch_size(struct exec_session *s)
{
	sigset_t set;

	s->winch = -1;
	if (!s->tty)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s->winch = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- output ---- */

static void write_output(struct exec_session *s, int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
			continue;
		}
		if (n <= 0) {
			s->out_gone = s->out_gone || fd == STDOUT_FILENO;
			return;
		}
		bytes += n;
		len -= (size_t)n;
	}
}

static int put_output(struct exec_session *s, int fd, const json_t *data, struct err *e)
{
	const char *text = text_at(data, "text"), *coded = text_at(data, "base64");
	size_t len = coded ? strlen(coded) : 0;
	auto_free char *bytes = NULL;

	if (text) {
		write_output(s, fd, text, json_string_length(json_object_get(data, "text")));
		return 0;
	}
	bytes = must_alloc(malloc(len / 4 * 3 + 1));
	if (!coded || base64_decode(bytes, coded, len, &len) < 0)
		return err_set(e, ERR_SYSTEM, "the daemon sent output that makes no sense");
	write_output(s, fd, bytes, len);
	return 0;
}

/* The exit status that `cloche run` would have. */
static int exit_status(const json_t *data)
{
	const json_t *code = json_object_get(data, "exit_code");
	struct outcome o = {.exit_code =
				    json_is_integer(code) ? (int)json_integer_value(code) : -1};
	const char *status = text_at(data, "status");

	o.signal = (int)json_integer_value(json_object_get(data, "signal"));
	if (!status || !status_find(status, &o.status))
		o.status = o.exit_code >= 0 ? STATUS_EXITED : STATUS_KILLED; /* of a newer daemon */
	return outcome_exit_status(&o);
}

static int on_exec_event(struct exec_session *s, const char *name, const json_t *data,
			 struct err *e)
{
	const json_t *error = json_object_get(data, "error");
	const char *reason = text_at(data, "reason");

	if (str_equal(name, "start")) {
		snprintf(s->eid, sizeof(s->eid), "%" JSON_INTEGER_FORMAT,
			 json_integer_value(json_object_get(data, "id")));
		if (s->input && !s->tty)
			start_feeder(s);
		return 0;
	}
	if (str_equal(name, "stdout") || str_equal(name, "stderr"))
		return put_output(s, name[3] == 'o' ? STDOUT_FILENO : STDERR_FILENO, data, e);
	if (str_equal(name, "error"))
		return err_set(e, ERR_SYSTEM, "%s",
			       text_at(error, "message") ? text_at(error, "message") : "it failed");
	if (!str_equal(name, "exit"))
		return 0; /* of a newer daemon */
	s->status = exit_status(data);
	if (s->status == 124 && json_is_true(json_object_get(data, "timed_out")))
		fprintf(stderr, "cloche: timed out, and was killed with all that it started%s\n",
			s->tty ? "\r" : "");
	if (reason)
		fprintf(stderr, "cloche: cannot execute the command: %s%s\n", reason,
			s->tty ? "\r" : "");
	return 0;
}

static int next_exec_event(struct exec_session *s, struct err *e)
{
	int rc = sse_next(&s->sse, e);
	json_auto_t *data = NULL;

	if (rc < 0)
		return -1;
	if (rc == 0)
		return err_set(e, ERR_SYSTEM,
			       "the daemon closed the stream before the command ended");
	data = json_loads(s->sse.data.len ? buf_head(&s->sse.data) : "", JSON_ALLOW_NUL, NULL);
	return on_exec_event(s, s->sse.name, data, e);
}

static int run_events(struct exec_session *s, struct err *e)
{
	while (s->status < 0) {
		if (s->out_gone)
			return err_set(e, ERR_SYSTEM, "cannot write to stdout");
		if (next_exec_event(s, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- a terminal: one WebSocket ---- */

static void queue_frame(struct exec_session *s, enum ws_opcode opcode, const void *bytes,
			size_t len)
{
	uint8_t mask[WS_MASK];

	while (getrandom(mask, sizeof(mask), 0) != sizeof(mask))
		;
	ws_write(&s->out, opcode, bytes, len, mask);
}

static void send_size(struct exec_session *s)
{
	struct signalfd_siginfo info;
	json_auto_t *size = json_object(), *body = json_pack("{s:O}", "resize", size);
	auto_free char *text = NULL;

	while (read(s->winch, &info, sizeof(info)) == sizeof(info))
		;
	window_size(size);
	text = json_dumps(body, JSON_COMPACT);
	if (json_object_size(size) == 2)
		queue_frame(s, WS_TEXT, text, strlen(text));
}

/* The end of our input closes nothing: the command's terminal gets ^D as a byte. */
static void send_typed(struct exec_session *s)
{
	char bytes[PIECE];
	ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (n > 0)
		queue_frame(s, WS_BINARY, bytes, (size_t)n);
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		s->input = false;
}

static int take_ws_frame(struct exec_session *s, const struct ws_message *m, struct err *e)
{
	json_auto_t *o = NULL;
	const json_t *exit;

	switch (m->opcode) {
	case WS_BINARY:
		write_output(s, STDOUT_FILENO, m->bytes, m->len);
		return 0;
	case WS_PING:
		queue_frame(s, WS_PONG, m->bytes, m->len);
		return 0;
	case WS_TEXT:
		o = json_loadb(m->bytes, m->len, 0, NULL);
		exit = json_object_get(o, "exit");
		return on_exec_event(s, exit ? "exit" : "error", exit ? exit : o, e);
	case WS_CLOSE:
		return err_set(e, ERR_SYSTEM,
			       "the daemon closed the stream before the command ended");
	default:
		return 0;
	}
}

static int take_ws_frames(struct exec_session *s, struct err *e)
{
	struct ws_message m;
	int rc = 0;

	while (s->status < 0 && !s->out_gone && (rc = ws_next(&s->ws, &m)) > 0)
		if (take_ws_frame(s, &m, e) < 0)
			return -1;
	return rc < 0 ? err_set(e, ERR_SYSTEM, "the daemon sent a broken frame") : 0;
}

/* Sends and receives as much as possible without waiting. */
static int exchange_bytes(struct exec_session *s, bool is_readable, struct err *e)
{
	int fd = http_fd(s->http);
	char bytes[PIECE];
	ssize_t n;

	if (s->out.len) {
		n = send(fd, buf_head(&s->out), s->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		/* A daemon that hung up may have sent the reason: read on. */
		buf_drop(&s->out, n > 0 ? (size_t)n : 0);
	}
	if (!is_readable)
		return 0;
	n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return err_set(e, ERR_SYSTEM, "the daemon closed the connection");
	ws_feed(&s->ws, bytes, (size_t)n);
	return take_ws_frames(s, e);
}

static int run_terminal(struct exec_session *s, struct err *e)
{
	if (take_ws_frames(s, e) < 0)
		return -1;
	while (s->status < 0) {
		struct pollfd fds[] = {
			{.fd = http_fd(s->http), .events = POLLIN | (s->out.len ? POLLOUT : 0)},
			{.fd = s->input && s->out.len < PIECE ? STDIN_FILENO : -1,
			 .events = POLLIN},
			{.fd = s->winch, .events = POLLIN}};

		if (s->out_gone)
			return err_set(e, ERR_SYSTEM, "cannot write to stdout");
		if (poll(fds, 3, -1) < 0 && errno != EINTR)
			return err_sys(e, "cannot wait");
		if (fds[1].revents)
			send_typed(s);
		if (fds[2].revents)
			send_size(s);
		if (exchange_bytes(s, fds[0].revents & ~POLLOUT, e) < 0)
			return -1;
	}
	return 0;
}

/* 1: attached; 0: the command has ended and is forgotten, so the events have all its output. */
static int attach_terminal(struct exec_session *s, struct err *e)
{
	auto_free char *path = client_path(s->id, "/execs/%s/ws?from=0", s->eid);
	char random[16], key[WS_KEY + 1] = "", accept[WS_ACCEPT];
	const char *const extra[][2] = {{"Connection", "Upgrade"},
					{"Upgrade", "websocket"},
					{"Sec-WebSocket-Version", "13"},
					{"Sec-WebSocket-Key", key},
					{NULL, NULL}};
	const struct http_request r = {
		.method = "GET", .path = path, .extra = extra, .stream_len = HTTP_NO_BODY};
	struct http_client *h = client_connect(s->client, e);
	struct http_response response;
	const char *accepted;
	int rc = -1;

	while (getrandom(random, sizeof(random), 0) != sizeof(random))
		;
	base64_encode(key, random, sizeof(random));
	ws_accept(key, accept);
	if (!h || http_send(h, &r, e) < 0 || http_receive(h, &response, e) < 0) {
		http_close(h);
		return -1;
	}
	accepted = http_header(h, "Sec-WebSocket-Accept");
	if (response.status == 404) {
		rc = 0;
	} else if (response.status != 101) {
		client_error(h, &response, e);
	} else if (!accepted || !str_equal(accepted, accept)) {
		err_set(e, ERR_SYSTEM, "what answers is not a daemon of ours");
	} else {
		http_close(s->http);
		s->http = h;
		s->ws = (struct ws_reader){.max = FRAME_MAX};
		ws_feed(&s->ws, http_rest(h)->len ? buf_head(http_rest(h)) : "", http_rest(h)->len);
		return 1;
	}
	http_close(h);
	return rc;
}

static int run_to_end(struct exec_session *s, struct err *e)
{
	int rc = 0;

	while (s->tty && s->status < 0 && !*s->eid)
		if (next_exec_event(s, e) < 0)
			return -1;
	if (s->tty && s->status < 0)
		rc = attach_terminal(s, e);
	return rc < 0 ? -1 : rc > 0 ? run_terminal(s, e) : run_events(s, e);
}

/* ---- the whole ---- */

/* Sends a request whose answer is an event stream. */
static int open_event_stream(struct exec_session *s, const char *method, const char *path,
			     json_t *body, struct err *e)
{
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	const struct http_request r = {.method = method,
				       .path = path,
				       .accept = "text/event-stream",
				       .content_type = text ? "application/json" : NULL,
				       .body = text,
				       .body_len = text ? strlen(text) : 0,
				       .stream_len = HTTP_NO_BODY};
	struct http_response response;

	json_decref(body);
	s->http = client_connect(s->client, e);
	if (!s->http || http_send(s->http, &r, e) < 0 || http_receive(s->http, &response, e) < 0)
		return -1;
	if (response.status != 200)
		return client_error(s->http, &response, e);
	sse_init(&s->sse, s->http);
	return 0;
}

static void session_done(struct exec_session *s)
{
	stop_feeder(s);
	make_cooked(s);
	sse_done(&s->sse);
	ws_reader_done(&s->ws);
	buf_done(&s->out);
	http_close(s->http);
	close_fd(&s->winch);
}

static int run_session(struct exec_session *s, const char *what, json_t *body, struct err *e)
{
	auto_free char *path = NULL;
	int rc;

	s->status = -1;
	signal(SIGPIPE, SIG_IGN);
	watch_size(s);
	rc = client_find(s->client, what, s->id, sizeof(s->id), e);
	if (rc == 0) {
		path = client_path(s->id, "/exec");
		rc = open_event_stream(s, "POST", path, json_incref(body), e);
	}
	if (rc == 0) {
		make_raw(s);
		rc = run_to_end(s, e);
	}
	session_done(s);
	return rc < 0 ? -1 : s->status;
}

/* A variable without a value that is not set here is left out. */
static int put_exec_env(json_t *body, const struct list *given, struct err *e)
{
	auto_list struct list env = {0};

	for (size_t i = 0; i < given->count; i++)
		if (strchr(given->items[i], '=') || getenv(given->items[i]))
			list_add(&env, given->items[i]);
	return client_put_pairs(body, "env", &env, e);
}

static int exec_body(const struct verb_call *v, char **command, json_t *body, struct err *e)
{
	static const char *const pairs[][2] = {{"cwd", "workdir"},
					       {"user", "user"},
					       {"timeout", "timeout"},
					       {"tag", "tag"},
					       {"session", "session"}};
	json_t *cmd = json_array();

	json_object_set_new(body, "cmd", cmd);
	for (; *command; command++)
		if (json_array_append_new(cmd, json_string(*command)) < 0)
			return err_set(e, ERR_INVALID, "the command is not UTF-8");
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
		if (verb_text(v, pairs[i][1]) &&
		    client_put(body, pairs[i][0], json_string(verb_text(v, pairs[i][1])), e) < 0)
			return -1;
	if (verb_text(v, "tty")) {
		json_object_set_new(body, "tty", json_true());
		window_size(body);
	}
	return put_exec_env(body, verb_texts(v, "env"), e);
}

/* Runs in the background, or waits for the record. Needs no stream. */
static int run_at_once(struct verb_call *v, json_t *body, struct err *e)
{
	bool detach = verb_text(v, "detach");
	json_t *answer;
	int status, printed;

	if (detach)
		json_object_set_new(body, "background", json_true());
	if (client_ask(&v->client, "POST /exec", v->args[0], json_incref(body), &answer, e) < 0)
		return v->json ? cli_fail_json(e) : -1;
	status = detach ? 0 : exit_status(answer);
	if (v->json) {
		printed = print_json(answer);
		return printed ? printed : status;
	}
	printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(json_object_get(answer, "id")));
	json_decref(answer);
	return finish_stdout(0);
}

static int exec_verb(struct verb_call *v, struct err *e)
{
	struct exec_session s = {.client = &v->client, .winch = -1, .tty = verb_text(v, "tty")};
	char **command = v->args + 1 + str_equal(v->args[1], "--");
	json_auto_t *body = json_object();

	s.input = !verb_text(v, "no-stdin");
	if (s.tty && v->json)
		return err_set(e, ERR_INVALID, "--json is not for terminals");
	if (!*command)
		return verb_misused(v, e);
	if (exec_body(v, command, body, e) < 0)
		return -1;
	if (verb_text(v, "detach") || v->json)
		return run_at_once(v, body, e);
	if (s.input)
		json_object_set_new(body, "interactive", json_true());
	return run_session(&s, v->args[0], body, e);
}

static const struct verb_option exec_options[] = {
	{"tty", 't', NULL, "give it a terminal", NULL},
	{"interactive", 'i', NULL, "pass standard input on (which is done anyway)", NULL},
	{"no-stdin", 'n', NULL, "its standard input is empty", NULL},
	{"detach", 'd', NULL, "in the background; prints its number", NULL},
	{"env", 'e', "K=V", "sets a variable; often", NULL},
	{"workdir", 'w', "DIR", "where it starts", NULL},
	{"user", 'u', "NAME", "as whom", NULL},
	{"timeout", 0, "TIME", "it is killed after so long", NULL},
	{"tag", 0, "TEXT", "to find it again by", NULL},
	{"session", 0, "NAME", "in this shell session", NULL},
	{"json", 0, NULL, "print its record, or with -d an object; no input", NULL},
};

const struct verb verb_exec = {
	.line = "cloche exec [OPTIONS] ID [--] CMD [ARG...]",
	.about = "Runs a command in a sandbox, with our standard streams and its "
		 "exit status.",
	.run = exec_verb,
	OPTIONS(exec_options),
	ARGS(2, -1),
};

int cmd_shell_in(int argc, char **argv)
{
	static const char login[] =
		"if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l";
	char *rest[] = {argv[0],
			isatty(STDIN_FILENO) ? "-t" : "-i",
			"--",
			argc > 1 ? argv[1] : "",
			"/bin/sh",
			"-c",
			(char *)(uintptr_t)login,
			NULL};

	if (argc != 2 || argv[1][0] == '-') {
		fputs("usage: cloche shell ID\n", stderr);
		return EXIT_CLOCHE;
	}
	return verb_main(&verb_exec, 7, rest);
}

/* ---- logs ---- */

static int stream_logs(struct exec_session *s, const char *eid, struct err *e)
{
	auto_free char *path = NULL;
	char encoded[64];

	http_encode(encoded, sizeof(encoded), eid, false);
	path = client_path(s->id, "/execs/%s/stream?from=0", encoded);
	if (open_event_stream(s, "GET", path, NULL, e) < 0)
		return -1;
	return run_to_end(s, e);
}

static void print_log(const json_t *item, bool heads)
{
	const json_t *cmd = json_object_get(item, "cmd"), *text = json_object_get(item, "text");
	const char *first = json_string_value(json_array_get(cmd, 0));
	char clean[256];

	if (heads) {
		str_sanitise(clean, sizeof(clean), first ? first : "", first ? strlen(first) : 0);
		printf("==> %" JSON_INTEGER_FORMAT " %s <==\n",
		       json_integer_value(json_object_get(item, "id")), clean);
	}
	if (json_is_string(text))
		fwrite(json_string_value(text), 1, json_string_length(text), stdout);
}

static int show_logs(json_t *answer)
{
	const json_t *all = json_object_get(answer, "logs"), *item;
	size_t i;

	json_array_foreach (all, i, item)
		print_log(item, json_array_size(all) > 1);
	json_decref(answer);
	return finish_stdout(0);
}

static int logs(struct verb_call *v, struct err *e)
{
	struct exec_session s = {.client = &v->client, .winch = -1, .status = -1};
	const char *eid = v->args[1];
	auto_free char *request = NULL;
	json_t *answer;
	char encoded[64];
	int rc;

	if (verb_text(v, "follow")) {
		if (!eid)
			return err_set(e, ERR_INVALID,
				       "-f wants the number of a command; see `cloche ps ID`");
		rc = client_find(s.client, v->args[0], s.id, sizeof(s.id), e);
		if (rc == 0)
			rc = stream_logs(&s, eid, e);
		session_done(&s);
		return rc < 0 ? -1 : s.status;
	}
	http_encode(encoded, sizeof(encoded), eid ? eid : "", false);
	request = str_format("GET /logs%s%s", eid ? "?exec=" : "", encoded);
	if (client_ask(s.client, request, v->args[0], NULL, &answer, e) < 0)
		return -1;
	return v->json ? print_json(answer) : show_logs(answer);
}

static const struct verb_option logs_options[] = {
	{"follow", 'f', NULL, "of one command: go on until it ends", NULL},
	{"json", 0, NULL, "as the daemon answers", NULL},
};

const struct verb verb_logs = {
	.line = "cloche logs [-f] ID [EXEC]",
	.about = "Shows what background commands wrote last.",
	.run = logs,
	OPTIONS(logs_options),
	ARGS(1, 2),
};
