/*
 * `cloche mcp --server NAME -- COMMAND`: a user's own MCP server runs in a sandbox, and its client speaks with it
 * through this bridge. Theory of operation: the server is a `cloche run` of the command, so that limits, network and
 * secrets are those of any run. Between the two, each message is one line of JSON. What the client sends
 * passes, unless a rule refuses the tool call. What the server sends is made fit for a model
 * (base/clean.h); lines that are no JSON-RPC are dropped. An answer to a tool call says in words what the network
 * refused meanwhile, which else would be a riddle to the model.
 */
#include "cli/operator/mcp_internal.h"

#include "base/clean.h"
#include "cli/cli.h"
#include "cli/verbs/client.h"
#include "policy/tools/rules.h"

#include <poll.h>
#include <sys/wait.h>

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define LIVES "2592000s" /* 30 days: as long as its client, as a rule */
#define WAITING_MAX 1000
#define LOG_DELAY_MS 20

struct server_bridge {
	const char *name;
	struct sandbox_spec spec;
	struct list options, words; /* for `cloche run`; the command */
	char log_path[64];	    /* of the network's attempts; "": there is no network */
	off_t log_at;
	pid_t pid;
	int to, from; /* the server's input and output */
	struct buf in, out, to_server;
	json_t *waiting; /* ids of tool calls as JSON text */
};

/* ---- messages ---- */

static void send_line(struct buf *to, const json_t *message)
{
	auto_free char *text = json_dumps(message, JSON_COMPACT);

	if (!text)
		return;
	buf_add(to, text, strlen(text));
	buf_add(to, "\n", 1);
}

static int write_client(const json_t *message)
{
	auto_buf struct buf b = {0};

	send_line(&b, message);
	return b.len ? io_write_all(1, buf_head(&b), b.len) : 0;
}

static char *id_text(const json_t *id)
{
	return json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* All texts of a message, names of members aside. */
static void clean_value(json_t *holder, const char *key, size_t index, json_t *value)
{
	auto_buf struct buf b = {0};
	struct cleaned n = {0};
	json_t *item, *fresh;
	const char *name;
	size_t i;

	json_object_foreach (value, name, item)
		clean_value(value, name, 0, item);
	json_array_foreach (value, i, item)
		clean_value(value, NULL, i, item);
	if (!json_is_string(value))
		return;
	clean_text(&b, json_string_value(value), json_string_length(value), NULL, &n);
	if (!cleaned_any(&n))
		return;
	fresh = json_stringn(b.len ? buf_head(&b) : "", b.len);
	if (key)
		json_object_set_new(holder, key, fresh);
	else
		json_array_set_new(holder, index, fresh);
}

/* ---- denials in words ---- */

static void add_denial(const json_t *attempt, struct buf *to)
{
	const char *verdict = text_at(attempt, "verdict"), *why = text_at(attempt, "why");
	const char *name = text_at(attempt, "name"), *address = text_at(attempt, "address");
	const char *remedy = text_at(attempt, "remedy");
	auto_free char *text = NULL;

	if (!verdict || !str_equal(verdict, "deny") || to->len > 4000)
		return;
	text = str_format("%s%s: %s%s%s", to->len ? "\n" : "",
			  name	    ? name
			  : address ? address
				    : "a connection",
			  why ? why : "refused", remedy ? "; the user can allow it: " : "",
			  remedy ? remedy : "");
	buf_add(to, text, strlen(text));
}

/* What the network has refused since the last look. */
static void read_denials(struct server_bridge *b, struct buf *ret)
{
	FILE *f = b->log_path[0] ? fopen(b->log_path, "re") : NULL;
	auto_free char *line = NULL;
	size_t room = 0;
	ssize_t n;

	if (!f)
		return;
	if (fseeko(f, b->log_at, SEEK_SET) == 0)
		while ((n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n') {
			json_auto_t *attempt = json_loadb(line, (size_t)n, 0, NULL);

			b->log_at += n;
			add_denial(attempt, ret);
		}
	fclose(f);
}

static void explain_result(struct server_bridge *b, json_t *message)
{
	json_t *content = json_object_get(json_object_get(message, "result"), "content");
	auto_buf struct buf said = {0};
	auto_free char *text = NULL;

	/* The log is written by another process, a moment behind the refusal. */
	if (b->log_path[0])
		poll(NULL, 0, LOG_DELAY_MS);
	read_denials(b, &said);
	if (!said.len)
		return;
	text = str_format("[The sandbox of the MCP server %s refused meanwhile:\n%.*s]", b->name,
			  (int)said.len, buf_head(&said));
	if (json_is_array(content))
		json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
							 client_text(text)));
	else
		fprintf(stderr, "cloche: %s\n", text);
}

/* ---- from the client ---- */

/* True: it was answered here. */
static bool refuse_call(struct server_bridge *b, const json_t *message, const json_t *params)
{
	auto_free char *tool = str_format("mcp__%s__%s", b->name,
					  text_at(params, "name") ? text_at(params, "name") : "");
	const struct tool_question q = {.tool = tool, .args = json_object_get(params, "arguments")};
	struct tool_judgement j;
	auto_free char *text = NULL;
	json_t *answer;

	tool_rules_judge(&b->spec.tool_rules, &q, &j);
	if (j.verdict == TOOL_ALLOW)
		return false;
	text = str_format("A rule of the user refuses this call: %s", j.reason);
	answer = json_pack("{s:s, s:O?, s:{s:[{s:s, s:o}], s:b}}", "jsonrpc", "2.0", "id",
			   json_object_get(message, "id"), "result", "content", "type", "text",
			   "text", client_text(text), "isError", 1);
	write_client(answer);
	json_decref(answer);
	return true;
}

static void take_client_line(struct server_bridge *b, const char *line, size_t len)
{
	json_auto_t *message = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	const json_t *id = json_object_get(message, "id");
	const char *method = text_at(message, "method");

	if (!json_is_object(message)) {
		fprintf(stderr, "cloche: a line of the client is no JSON-RPC message\n");
		return;
	}
	if (method && str_equal(method, "tools/call") && id) {
		auto_free char *key = id_text(id);

		if (refuse_call(b, message, json_object_get(message, "params")))
			return;
		if (json_object_size(b->waiting) < WAITING_MAX)
			json_object_set_new(b->waiting, key, json_true());
	}
	send_line(&b->to_server, message);
}

/* ---- from the server ---- */

static void take_server_line(struct server_bridge *b, const char *line, size_t len)
{
	json_auto_t *message = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	const json_t *id = json_object_get(message, "id");

	if (!json_is_object(message) || !json_object_get(message, "jsonrpc")) {
		if (len)
			fprintf(stderr, "cloche: the server %s wrote a line that is no message\n",
				b->name);
		return;
	}
	clean_value(NULL, NULL, 0, message);
	if (id && json_object_get(message, "result")) {
		auto_free char *key = id_text(id);

		if (json_object_del(b->waiting, key) == 0)
			explain_result(b, message);
	}
	if (write_client(message) < 0)
		exit(EXIT_CLOCHE); /* the client is gone; the server ends with its input */
}

/* ---- the loop ---- */

/* Reads once and takes whole lines. False: the end, or a line that is too long. */
static bool read_lines(struct server_bridge *b, int fd, struct buf *in,
		       void (*take)(struct server_bridge *b, const char *line, size_t len))
{
	ssize_t n = read(fd, buf_reserve(in, 65536), 65536);
	char *eol;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0)
		return false;
	buf_added(in, (size_t)n);
	while (in->len && (eol = memchr(buf_head(in), '\n', in->len))) {
		size_t len = (size_t)(eol - buf_head(in));

		take(b, buf_head(in), len);
		buf_drop(in, len + 1);
	}
	if (in->len <= LINE_MAX_BYTES)
		return true;
	fprintf(stderr, "cloche: a message of more than 16 MB\n");
	return false;
}

static void relay(struct server_bridge *b)
{
	bool client = true, gone = false;

	for (;;) {
		struct pollfd fds[] = {
			{.fd = client && b->to_server.len < LINE_MAX_BYTES ? 0 : -1,
			 .events = POLLIN},
			{.fd = b->from, .events = POLLIN},
			{.fd = b->to_server.len ? b->to : -1, .events = POLLOUT},
		};

		if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
			return;
		if (fds[1].revents && !read_lines(b, b->from, &b->out, take_server_line))
			return;
		if (fds[0].revents && !read_lines(b, 0, &b->in, take_client_line))
			client = false;
		if (b->to_server.len && b->to >= 0)
			buf_write(&b->to_server, b->to, &gone);
		/* The client has closed its end: so do we, and the server ends by that. */
		if ((!client && !b->to_server.len) || gone)
			close_fd(&b->to);
	}
}

/* ---- start ---- */

static int read_options(struct server_bridge *b, int argc, char **argv, struct err *e)
{
	struct options o = {.verb = "mcp"};
	auto_list struct list rest = {0};
	int i, end;

	list_add(&rest, "run");
	for (i = 1; i < argc && !str_equal(argv[i], "--"); i++) {
		if (str_equal(argv[i], "--server") && i + 1 < argc) {
			b->name = argv[++i];
			continue;
		}
		list_add(&rest, argv[i]);
		list_add(&b->options, argv[i]);
	}
	for (i++; i < argc; i++)
		list_add(&b->words, argv[i]);
	end = options_parse(&b->spec, (int)rest.count, rest.items, &o, e);
	if (end < 0 || tool_rules_check(&b->spec.tool_rules, e) < 0)
		return -1;
	if ((size_t)end < rest.count || !b->words.count)
		return err_set(
			e, ERR_INVALID,
			"usage: cloche mcp --server NAME [OPTIONS of cloche run] -- COMMAND");
	if (!b->name || !str_only(b->name, STR_ALNUM "_-", 1, 48))
		return err_field(e, ERR_INVALID, "server",
				 "--server: a name has letters, digits, '_' and '-'");
	return 0;
}

/* Without a workspace of the user's the server sees none. */
static int add_defaults(struct server_bridge *b, struct err *e)
{
	int fd;

	if (!spec_is_set(&b->spec, "workspace") && !spec_is_set(&b->spec, "empty"))
		list_add(&b->options, "--empty");
	if (!spec_is_set(&b->spec, "timeout"))
		list_add_all(&b->options, (const char *const[]){"--timeout", LIVES, NULL});
	if (b->spec.net == NET_NONE || spec_is_set(&b->spec, "net_log"))
		return 0;
	snprintf(b->log_path, sizeof(b->log_path), "/tmp/cloche-mcp-XXXXXX");
	fd = mkostemp(b->log_path, O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cannot make a file for the network's log");
	close(fd);
	list_add_all(&b->options, (const char *const[]){"--net-log", b->log_path, NULL});
	return 0;
}

static int start_server(struct server_bridge *b, struct err *e)
{
	auto_list struct list argv = {0};
	char launcher[PATH_MAX];
	int in[2], out[2];

	if (cli_find_helper("cloche", launcher, sizeof(launcher)) < 0)
		return err_set(e, ERR_SYSTEM, "cloche is not installed beside cloched");
	list_add_all(&argv, (const char *const[]){launcher, "run", NULL});
	list_add_all(&argv, (const char *const *)b->options.items);
	list_add(&argv, "--");
	list_add_all(&argv, (const char *const *)b->words.items);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(e, "cannot make pipes");
	b->pid = fork();
	if (b->pid < 0)
		return err_sys(e, "cannot start the server");
	if (b->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execv(launcher, argv.items);
		_exit(EXIT_CLOCHE);
	}
	close(in[0]);
	close(out[1]);
	b->to = in[1];
	b->from = out[0];
	return fcntl(b->to, F_SETFL, O_NONBLOCK) < 0 ? err_sys(e, "cannot prepare a pipe") : 0;
}

bool mcp_is_server(int argc, char **argv)
{
	for (int i = 1; i < argc && !str_equal(argv[i], "--"); i++)
		if (str_equal(argv[i], "--server"))
			return true;
	return false;
}

int mcp_server(int argc, char **argv)
{
	struct server_bridge b = {.to = -1, .from = -1, .waiting = json_object()};
	struct err e = {0};
	int status = -1, rc;

	spec_init(&b.spec);
	signal(SIGPIPE, SIG_IGN);
	rc = read_options(&b, argc, argv, &e);
	if (rc == 0)
		rc = add_defaults(&b, &e);
	if (rc == 0)
		rc = start_server(&b, &e);
	if (rc == 0) {
		relay(&b);
		close_fd(&b.to);
		close_fd(&b.from);
		while (waitpid(b.pid, &status, 0) < 0 && errno == EINTR)
			;
		rc = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CLOCHE;
	} else {
		rc = cli_fail(&e);
	}
	if (b.log_path[0])
		unlink(b.log_path);
	buf_done(&b.in);
	buf_done(&b.out);
	buf_done(&b.to_server);
	json_decref(b.waiting);
	list_done(&b.options);
	list_done(&b.words);
	spec_done(&b.spec);
	return rc;
}
