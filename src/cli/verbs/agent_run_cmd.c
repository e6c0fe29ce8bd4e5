/*
 * `cloche agent run`: one task, or a file of them. Theory of operation: a file has a task in each line, as JSON. Its
 * lines go to the daemon in portions, as one request each (POST /v1/run/batch), which bounds how many run at one time
 * and sends an event as each begins and ends. Every result is a line in the journal and on disk before it counts, so that
 * a run that was cut off goes on where it was: lines whose result is in the journal are not run again. What failed
 * by cloche's own fault is tried again; what failed by itself is a result.
 */
#include "cli/verbs/agent_run.h"

#include "cli/cli.h"
#include "cli/verbs/client_sse.h"
#include "cli/verbs/task_table.h"

#include <sodium.h>
#include <sys/file.h>

#define LINE_BYTES (8u << 20)
#define PORTION_BYTES (8u << 20)
#define PORTION_TASKS 500
#define TRIES 3
#define DRAW_MS 250
#define HASH 16

/* ---- one task ---- */

/* The task as JSON: any bytes that are UTF-8. */
static int add_task(json_t *body, const char *task, size_t len, struct err *e)
{
	json_t *text = json_stringn(task, len);

	return text ? client_put(body, "task", text, e)
		    : err_field(e, ERR_INVALID, "task", "task: is not UTF-8");
}

static int read_task(const char *given, json_t *body, struct err *e)
{
	auto_buf struct buf b = {0};
	ssize_t n = 1;

	if (given && !str_equal(given, "-"))
		return add_task(body, given, strlen(given), e);
	while (n > 0 && b.len <= LINE_BYTES) {
		n = io_read_all(0, buf_reserve(&b, 65536), 65536);
		if (n > 0)
			buf_added(&b, (size_t)n);
	}
	if (n < 0 || b.len > LINE_BYTES)
		return err_set(
			e, ERR_INVALID,
			"the task cannot be read from standard input, or has more than 8 MB");
	return add_task(body, b.len ? buf_head(&b) : "", b.len, e);
}

/* Options of the verb that are members of a call. */
static int add_options(struct verb_call *v, json_t *body, struct err *e)
{
	static const char *const names[][2] = {{"name", "agent_name"},
					       {"system", "system_prompt"},
					       {"memory", "memory"},
					       {"timeout", "timeout"},
					       {"cpus", "cpus"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (verb_text(v, names[i][0]) &&
		    client_put(body, names[i][1], json_string(verb_text(v, names[i][0])), e) < 0)
			return -1;
	if (verb_texts(v, "capture")->count &&
	    client_put(body, "capture", client_list(verb_texts(v, "capture")), e) < 0)
		return -1;
	return client_put_pairs(body, "env", verb_texts(v, "env"), e);
}

static void print_output(const json_t *output, bool is_terminal)
{
	auto_free char *json =
		json_is_string(output) ? NULL : json_dumps(output, JSON_COMPACT | JSON_ENCODE_ANY);
	const char *text = json ? json : json_string_value(output);
	size_t len = json ? strlen(json) : json_string_length(output);

	fwrite(text, 1, len, stdout);
	if (json || (is_terminal && len && text[len - 1] != '\n'))
		putchar('\n');
}

static int show_one(struct verb_call *v, json_t *answer)
{
	if (v->json)
		return print_json(answer);
	print_output(json_object_get(answer, "output"), isatty(1));
	json_decref(answer);
	return finish_stdout(0);
}

/* It ran and failed: its error output, and its status as that of `cloche run`. */
static int show_failure(const json_t *answer, bool is_late)
{
	const json_t *text = json_object_get(answer, "stderr");
	const json_t *record = json_object_get(answer, "record");
	json_int_t code = json_integer_value(json_object_get(record, "exit_code"));
	const char *why = text_at(json_object_get(answer, "error"), "message");
	size_t len = json_string_length(text);
	struct err e = {0};

	fwrite(json_string_value(text), 1, len, stderr);
	if (len && json_string_value(text)[len - 1] != '\n')
		fputc('\n', stderr);
	err_set(&e, ERR_SYSTEM, "%s", why ? why : "the agent failed");
	cli_fail(&e);
	return is_late ? 124 : code > 0 && code < 125 ? (int)code : 1;
}

static json_t *read_json(struct http_client *h, struct err *e)
{
	auto_buf struct buf b = {0};
	ssize_t n;

	while ((n = http_read(h, buf_reserve(&b, 65536), 65536, e)) > 0)
		buf_added(&b, (size_t)n);
	return n < 0 ? NULL : json_loadb(b.len ? buf_head(&b) : "", b.len, JSON_ALLOW_NUL, NULL);
}

/* An answer with a record is of an agent that ran; any other error is cloche's or the caller's. */
static int take_one(struct verb_call *v, struct http_client *h, const struct http_response *r,
		    struct err *e)
{
	json_t *answer = read_json(h, e);
	const json_t *error = json_object_get(answer, "error");
	int rc;

	if (r->status == 200 && answer)
		return show_one(v, answer);
	if (json_object_get(answer, "record"))
		rc = v->json ? (print_json(json_incref(answer)), r->status == 408 ? 124 : 1)
			     : show_failure(answer, r->status == 408);
	else
		rc = err_set(e, ERR_SYSTEM, "%s",
			     text_at(error, "message") ? text_at(error, "message")
						       : "the daemon gave no answer");
	json_decref(answer);
	return rc;
}

static int run_one(struct verb_call *v, struct err *e)
{
	json_auto_t *body = json_object();
	auto_free char *path = NULL, *text = NULL;
	struct http_request r = {.method = "POST", .content_type = "application/json"};
	struct http_response response;
	struct http_client *h;
	char type[256];
	int rc = -1;

	http_encode(type, sizeof(type), v->args[0], false);
	r.path = path = str_format("/mcp/agents/%s", type);
	if (read_task(v->count > 1 ? v->args[1] : NULL, body, e) < 0 || add_options(v, body, e) < 0)
		return -1;
	r.body = text = json_dumps(body, JSON_COMPACT);
	r.body_len = strlen(text);
	h = client_connect(&v->client, e);
	if (h && http_send(h, &r, e) == 0 && http_receive(h, &response, e) == 0)
		rc = take_one(v, h, &response, e);
	http_close(h);
	return rc;
}

/* ---- a file of tasks ---- */

struct task_line {
	json_t *body;
	char key[2 * HASH + 1]; /* of its text and the options, for the journal */
	bool done;
	unsigned tries;
};

struct swarm {
	struct verb_call *v;
	struct task_line *lines;
	size_t count, room;
	int journal; /* or -1 */
	size_t ended, failed, skipped;
	struct task_table *table;
	char over[160]; /* why the budget ended it, or "" */
};

/* A line is a JSON string, the task, or an object with task and what a call may say. */
static json_t *line_body(const char *text, size_t len)
{
	json_t *value = json_loadb(text, len,
				   JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	json_t *body;

	if (!json_is_string(value))
		return value;
	body = json_object();
	json_object_set_new(body, "task", value);
	return body;
}

static void make_key(const char *type, const char *text, size_t len, char *ret)
{
	unsigned char hash[HASH];
	crypto_generichash_state st;

	crypto_generichash_init(&st, NULL, 0, HASH);
	crypto_generichash_update(&st, (const unsigned char *)type, strlen(type) + 1);
	crypto_generichash_update(&st, (const unsigned char *)text, len);
	crypto_generichash_final(&st, hash, HASH);
	sodium_bin2hex(ret, 2 * HASH + 1, hash, HASH);
}

static int add_line(struct swarm *s, const char *text, size_t len, struct err *e)
{
	struct task_line l = {.body = line_body(text, len)};

	if (!json_is_object(l.body) || !json_is_string(json_object_get(l.body, "task"))) {
		json_decref(l.body);
		return err_set(e, ERR_INVALID,
			       "line %zu is no JSON object with a task, and no JSON string",
			       s->count + 1);
	}
	make_key(s->v->args[0], text, len, l.key);
	json_object_set_new(l.body, "agent_type", json_string(s->v->args[0]));
	if (add_options(s->v, l.body, e) < 0) {
		json_decref(l.body);
		return -1;
	}
	s->lines = array_room(s->lines, s->count, &s->room, sizeof(*s->lines));
	s->lines[s->count++] = l;
	return 0;
}

static int read_lines(struct swarm *s, const char *file, struct err *e)
{
	FILE *f = str_equal(file, "-") ? stdin : fopen(file, "re");
	auto_free char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int rc = 0;

	if (!f)
		return err_sys(e, "%s: cannot open", file);
	while (rc == 0 && (n = getline(&line, &room, f)) >= 0) {
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
			n--;
		if (n > LINE_BYTES)
			rc = err_set(e, ERR_LIMIT, "line %zu is longer than 8 MB", s->count + 1);
		else if (n > 0)
			rc = add_line(s, line, (size_t)n, e);
	}
	if (f != stdin)
		fclose(f);
	return rc < 0 ? err_wrap(e, "%s", file) : 0;
}

/* ---- the journal ---- */

/* Marks the lines that it has. A last line that was cut off is no result. */
static void read_journal(struct swarm *s, FILE *f)
{
	auto_free char *line = NULL;
	size_t room = 0;
	ssize_t n;

	while ((n = getline(&line, &room, f)) > 0) {
		json_auto_t *entry = line[n - 1] == '\n'
					     ? json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL)
					     : NULL;
		size_t i = (size_t)json_integer_value(json_object_get(entry, "line")) - 1;
		const char *key = text_at(entry, "key");

		if (!entry || i >= s->count || s->lines[i].done || !key ||
		    !str_equal(key, s->lines[i].key))
			continue;
		s->lines[i].done = true;
		s->skipped++;
	}
}

/* Only one run at a time writes to a journal, and a cut-off line is ended first. */
static int open_journal(struct swarm *s, const char *file, struct err *e)
{
	auto_close int fd = open(file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char last = '\n';
	struct stat st;
	FILE *f;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "journal %s: cannot open", file);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, ERR_CONFLICT, "journal %s: another run writes to it", file);
	f = fopen(file, "re");
	if (!f)
		return err_sys(e, "journal %s: cannot read", file);
	read_journal(s, f);
	fclose(f);
	if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n' &&
	    io_write_all(fd, "\n", 1) < 0)
		return err_sys(e, "journal %s: cannot write", file);
	s->journal = take_fd(&fd);
	return 0;
}

static int write_result(struct swarm *s, size_t i, json_t *entry, struct err *e)
{
	auto_free char *text = NULL;
	auto_free char *line = NULL;
	int to = s->journal >= 0 ? s->journal : 1;

	json_object_set_new(entry, "line", json_integer((json_int_t)i + 1));
	json_object_set_new(entry, "key", json_string(s->lines[i].key));
	text = json_dumps(entry, JSON_COMPACT);
	line = str_format("%s\n", text ? text : "");
	if (!text || io_write_all(to, line, strlen(line)) < 0 ||
	    (s->journal >= 0 && fdatasync(s->journal) < 0))
		return err_sys(e, "a result cannot be written");
	return 0;
}

/* ---- portions ---- */

/* Why a task is no success, for people; NULL: it is one. */
static const char *how_it_failed(const json_t *result, const json_t *error, char *ret, size_t size)
{
	const char *why = text_at(error, "message"), *status = text_at(result, "status");
	const json_t *code = json_object_get(result, "exit_code");

	if (json_is_true(json_object_get(result, "success")))
		return NULL;
	if (json_is_integer(code))
		snprintf(ret, size, "exit status %d", (int)json_integer_value(code));
	else
		snprintf(ret, size, "%s", why ? why : status ? status : "failed");
	return ret;
}

/* A result of a line; an error that is cloche's fault may be tried again. */
static int take_answer(struct swarm *s, size_t i, json_t *answer, struct err *e)
{
	struct task_line *l = &s->lines[i];
	const json_t *result = json_object_get(answer, "result"),
		     *error = json_object_get(answer, "error");
	const char *fault = text_at(error ? error : result, "fault"), *how;
	bool is_ours = fault && str_equal(fault, "cloche");
	char text[200];

	if (is_ours && ++l->tries < TRIES) {
		task_table_forget(s->table, i + 1);
		return 0;
	}
	how = how_it_failed(result, error, text, sizeof(text));
	l->done = true;
	s->ended++;
	s->failed += how != NULL;
	task_table_end(s->table, i + 1, how);
	/* What cloche could not do is tried again by the next run, so it is not in the journal. */
	if (is_ours && s->journal >= 0)
		return 0;
	json_object_del(answer, "index");
	return write_result(s, i, answer, e);
}

/* What a row of the table shows. */
static void take_start(struct swarm *s, size_t i, const json_t *event)
{
	const json_t *body = s->lines[i].body;
	const char *name = text_at(body, "agent_name");

	task_table_start(s->table, i + 1, name ? name : text_at(body, "task"),
			 (uint64_t)json_integer_value(json_object_get(event, "timeout_ms")));
}

/* start and end have an index; an end by the budget is of all tasks. */
static int take_event(struct swarm *s, const struct sse_reader *r, const size_t *which,
		      size_t count, struct err *e)
{
	json_auto_t *event = json_loadb(buf_head(&r->data), r->data.len - 1, JSON_ALLOW_NUL, NULL);
	const json_t *index = json_object_get(event, "index"),
		     *error = json_object_get(event, "error");
	json_int_t at = json_integer_value(index);
	const char *field = text_at(error, "field");

	if (str_equal(r->name, "done"))
		return 0;
	if (!json_is_integer(index) || at < 0 || (size_t)at >= count)
		return err_set(e, ERR_SYSTEM, "the daemon's answer is not understood");
	if (str_equal(r->name, "start")) {
		take_start(s, which[at], event);
		return 0;
	}
	if (field && str_equal(field, "budget")) {
		snprintf(s->over, sizeof(s->over), "%s", text_at(error, "message"));
		return 0;
	}
	return take_answer(s, which[at], event, e);
}

static int read_answers(struct swarm *s, struct http_client *h, const size_t *which, size_t count,
			struct err *e)
{
	struct sse_reader r;
	int rc;

	sse_init(&r, h);
	http_on_idle(h, DRAW_MS, task_table_draw, s->table);
	while ((rc = sse_next(&r, e)) > 0)
		if (take_event(s, &r, which, count, e) < 0) {
			rc = -1;
			break;
		}
	sse_done(&r);
	return rc;
}

/* Counts are numbers; what is none stays text, and the daemon says what is wrong with it. */
static json_t *budget_value(const char *name, const char *text)
{
	struct err ignored;
	uint64_t n;

	if (!str_equal(name, "name") && parse_count(text, &n, &ignored) == 0)
		return json_integer((json_int_t)n);
	return json_string(text);
}

static json_t *budget_left(const struct swarm *s)
{
	json_t *ret = json_object();

	for (size_t i = 0; i < verb_texts(s->v, "budget")->count; i++) {
		const char *item = verb_texts(s->v, "budget")->items[i],
			   *equals = strchr(item, '=');

		if (equals) {
			auto_free char *name = must_alloc(strndup(item, (size_t)(equals - item)));

			json_object_set_new(ret, name, budget_value(name, equals + 1));
		}
	}
	return ret;
}

/* Sends these lines and takes what comes back. */
static int run_portion(struct swarm *s, const size_t *which, size_t count, struct err *e)
{
	json_auto_t *body =
		json_pack("{s:[], s:i}", "tasks", "parallel", atoi(verb_text(s->v, "parallel")));
	struct http_client *h = client_connect(&s->v->client, e);
	struct http_response response;
	auto_free char *text = NULL;
	struct http_request r = {.method = "POST",
				 .path = "/v1/run/batch",
				 .accept = "text/event-stream",
				 .content_type = "application/json"};
	int rc = -1;

	for (size_t i = 0; i < count; i++)
		json_array_append(json_object_get(body, "tasks"), s->lines[which[i]].body);
	if (verb_texts(s->v, "budget")->count)
		json_object_set_new(body, "budget", budget_left(s));
	r.body = text = json_dumps(body, JSON_COMPACT);
	r.body_len = strlen(text);
	if (h && http_send(h, &r, e) == 0 && http_receive(h, &response, e) == 0)
		rc = response.status == 200 ? read_answers(s, h, which, count, e)
					    : client_error(h, &response, e);
	http_close(h);
	return rc;
}

/* The next lines that are not done: which they are, and how many. */
static size_t choose_portion(const struct swarm *s, size_t *which)
{
	size_t count = 0, bytes = 0;

	for (size_t i = 0; i < s->count && count < PORTION_TASKS; i++) {
		const struct task_line *l = &s->lines[i];

		if (l->done)
			continue;
		bytes += json_string_length(json_object_get(l->body, "task")) * 2 + 1024;
		if (count && bytes > PORTION_BYTES)
			break;
		which[count++] = i;
	}
	return count;
}

static int run_all(struct swarm *s, struct err *e)
{
	auto_free size_t *which = must_alloc(calloc(PORTION_TASKS, sizeof(*which)));
	size_t count;
	int rc = 0;

	s->table = task_table_new(s->count, s->skipped);
	while (rc == 0 && !s->over[0] && (count = choose_portion(s, which)) > 0)
		rc = run_portion(s, which, count, e);
	task_table_free(s->table);
	if (rc < 0)
		return -1;
	fprintf(stderr, "cloche: %zu tasks: %zu done before, %zu succeeded, %zu failed%s%s\n",
		s->count, s->skipped, s->ended - s->failed, s->failed,
		s->over[0] ? "; ended: " : "", s->over);
	return s->over[0] ? 124 : s->failed ? 1 : 0;
}

static int run_file(struct verb_call *v, struct err *e)
{
	struct swarm s = {.v = v, .journal = -1};
	const char *journal = verb_text(v, "journal");
	int rc = read_lines(&s, verb_text(v, "tasks"), e);

	if (rc == 0 && journal)
		rc = open_journal(&s, journal, e);
	if (rc == 0)
		rc = run_all(&s, e);
	for (size_t i = 0; i < s.count; i++)
		json_decref(s.lines[i].body);
	free(s.lines);
	close_fd(&s.journal);
	return rc;
}

int agent_run(struct verb_call *v, struct err *e)
{
	if (!verb_text(v, "tasks"))
		return run_one(v, e);
	return v->count == 1 ? run_file(v, e) : verb_misused(v, e);
}
