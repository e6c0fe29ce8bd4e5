/* Tools that run code and commands, to their end or in the background. */
#include "api/mcp/mcp_internal.h"

#define DEFAULT_TIMEOUT_MS 45000u
#define MAX_TIMEOUT_MS (600u * 1000)
#define INPUT_MAX 60000u
#define POLLED_MAX 1000
#define POLL_MAX (128u << 10)
#define POLL_LEAST_MS 100 /* for output that is already there to arrive */

/* A model may ask for at most the client's option and the ceilings of operator and token. */
static uint64_t most_ms(const struct mcp_call *c, uint64_t otherwise)
{
	uint64_t limit = sandbox_spec(c->box)->limits.timeout_ms;
	uint64_t most =
		json_object_get(c->session->options, "timeout") && limit ? limit : otherwise;
	uint64_t ceiling = exec_timeout_most(c->session->state->api->manager, &c->session->caller);

	return ceiling && (!most || ceiling < most) ? ceiling : most;
}

static uint64_t choose_timeout(const struct mcp_call *c)
{
	uint64_t most = most_ms(c, MAX_TIMEOUT_MS);
	double asked = mcp_arg_number(c, "timeout", 0) * 1000;

	if (asked > 0)
		return asked < (double)most ? (uint64_t)asked : most;
	return most < DEFAULT_TIMEOUT_MS ? most : DEFAULT_TIMEOUT_MS;
}

/* ---- to its end ---- */

static json_t *describe_denials(const struct result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->denial_count; i++) {
		const struct denial *d = &r->denials[i];

		json_array_append_new(list, json_pack("{s:s, s:o, s:I, s:o}", "what", d->what,
						      "target", text_json_of(d->target), "count",
						      (json_int_t)d->count, "explain",
						      text_json_of(d->explain)));
	}
	return list;
}

static const char *advice_for(enum status status, bool truncated)
{
	static const char *const advice[STATUS_COUNT] = {
		[STATUS_TIMEOUT] = "It was stopped because its time was up. Ask for a longer "
				   "timeout, or use process_start and process_poll for long jobs.",
		[STATUS_OOM] = "It was killed because the sandbox ran out of memory. Work on "
			       "smaller parts.",
		[STATUS_CPU_TIME] = "It was stopped because its processor time was used up.",
		[STATUS_OUTPUT_LIMIT] =
			"It printed too much. Write to a file and read parts of it.",
	};

	if (advice[status])
		return advice[status];
	return truncated ? "The middle of the output was left out. Write it to a file, and read "
			   "parts of that with read_file."
			 : NULL;
}

static json_t *output_text(const struct mcp_call *call, const struct capture *c, struct cleaned *n)
{
	auto_buf struct buf b = {0};

	capture_join(c, buf_take_part, &b);
	return mcp_output(call, &b, n);
}

static json_t *summary_of(const struct mcp_call *c, const struct result *r)
{
	struct cleaned n = {0};
	json_t *ret;
	bool truncated = capture_is_cut(&r->out) || capture_is_cut(&r->err);

	ret = json_pack("{s:o, s:o, s:i, s:s, s:b, s:f, s:b, s:o, s:s*}", "stdout",
			output_text(c, &r->out, &n), "stderr", output_text(c, &r->err, &n),
			"exit_code", r->end.exit_code, "status", status_name(r->end.status),
			"timed_out", r->end.status == STATUS_TIMEOUT, "duration_ms",
			r->end.duration_ms, "truncated", truncated, "denials", describe_denials(r),
			"advice", advice_for(r->end.status, truncated));
	mcp_finish_output(c, ret, &n);
	return ret;
}

static void on_captured(void *arg, struct capture_run *run, const struct err *e)
{
	struct mcp_call *c = arg;
	const struct result *r = run ? capture_result(run) : NULL;

	c->work = NULL;
	c->stop = NULL;
	if (!mcp_call_is_over(c)) {
		for (size_t i = 0; r && i < r->denial_count; i++)
			mcp_call_log(c, 3, r->denials[i].explain);
		if (r)
			mcp_call_structured(c, summary_of(c, r));
		else
			mcp_call_error(c, e);
	}
	capture_drop(run);
}

static void stop_run(struct mcp_call *c)
{
	capture_drop(take_ptr(c->work));
}

static void start_capture(struct mcp_call *c, struct exec_request *r)
{
	r->cwd = mcp_arg_text(c, "cwd", NULL);
	r->timeout_ms = choose_timeout(c);
	c->work = exec_capture(c->box, &c->session->caller, r, on_captured, c);
	c->stop = stop_run;
	list_done(&r->argv);
	list_done(&r->env);
}

void mcp_run_command(struct mcp_call *c)
{
	json_t *input = json_object_get(c->args, "stdin");
	struct exec_request r = {.shell = mcp_arg_text(c, "command", ""),
				 .input = json_string_value(input),
				 .input_len = json_string_length(input),
				 .input_text = input};

	start_capture(c, &r);
}

static void on_placed(void *arg, const struct answer *a, const struct err *e)
{
	struct mcp_call *c = arg;
	struct err unknown;
	struct exec_request r = {0};

	c->guest_call = NULL;
	c->stop = NULL;
	if (e) {
		mcp_file_error(c, c->code, e);
	} else if (mcp_call_box(c)) {
		snippet_request(snippet_language(mcp_arg_text(c, "language", NULL), &unknown),
				c->code, &r);
		start_capture(c, &r);
	}
}

void mcp_run_code(struct mcp_call *c)
{
	struct err e = {0};
	const struct language *l = snippet_language(mcp_arg_text(c, "language", NULL), &e);

	if (!l) {
		mcp_call_error(c, &e);
		return;
	}
	snippet_choose_path(l, c->code);
	mcp_call_guest(
		c, snippet_put(c->box, c->code, json_object_get(c->args, "code"), on_placed, c));
}

/* ---- in the background ---- */

struct background {
	struct exec *exec;
	uint32_t eid;
	struct loop_timer timer;
	struct buf out, err;
	uint64_t next;
	bool cut;	 /* older output is lost */
	const char *uri; /* of a resource; NULL: process_poll */
};

static void detach_background(struct mcp_call *c)
{
	struct background *b = c->work;

	loop_timer_stop(c->session->state->api->loop, &b->timer);
	if (b->exec)
		exec_detach(take_ptr(b->exec));
}

static void background_done(void *work)
{
	struct background *b = work;

	if (!b)
		return;
	buf_done(&b->out);
	buf_done(&b->err);
}

static struct background *background_new(struct mcp_call *c)
{
	struct background *b = must_alloc(calloc(1, sizeof(*b)));

	c->work = b;
	c->work_done = background_done;
	c->stop = detach_background;
	return b;
}

static void on_background_error(void *arg, const struct err *e)
{
	struct mcp_call *c = arg;
	struct background *b = c->work;

	b->exec = NULL;
	detach_background(c);
	if (b->uri)
		mcp_resource_missing(c, b->uri);
	else
		mcp_call_error(c, e);
}

static void on_started(void *arg, uint32_t eid, uint32_t pid)
{
	struct mcp_call *c = arg;

	detach_background(c);
	mcp_call_structured(c, json_pack("{s:I}", "process_id", (json_int_t)eid));
}

void mcp_process_start(struct mcp_call *c)
{
	static const struct exec_ops ops = {
		.on_start = on_started,
		.on_error = on_background_error,
	};
	struct exec_request r = {.shell = mcp_arg_text(c, "command", ""),
				 .cwd = mcp_arg_text(c, "cwd", NULL),
				 .background = true,
				 .keep = true};
	uint64_t most = most_ms(c, 0), asked = (uint64_t)(mcp_arg_number(c, "timeout", 0) * 1000);
	struct background *b = background_new(c);

	r.timeout_ms = asked && (!most || asked < most) ? asked : most;
	b->exec = exec_start(c->box, &c->session->caller, &r, &ops, c);
}

static json_t *polled_key(const struct mcp_call *c, uint32_t eid, char *ret, size_t size)
{
	snprintf(ret, size, "%s/%" PRIu32, c->box_id, eid);
	return json_object_get(c->session->polled, ret);
}

static void answer_poll(struct mcp_call *c, const struct outcome *x)
{
	struct background *b = c->work;
	struct cleaned n = {0};
	char key[64];
	json_t *out;

	detach_background(c);
	if (b->uri) {
		buf_add(&b->out, b->err.len ? buf_head(&b->err) : "", b->err.len);
		out = mcp_text(c, b->out.len ? buf_head(&b->out) : "", b->out.len, &n);
		mcp_call_result(c, json_pack("{s:[{s:s, s:s, s:o}]}", "contents", "uri", b->uri,
					     "mimeType", "text/plain", "text", out));
		return;
	}
	polled_key(c, b->eid, key, sizeof(key));
	if (json_object_size(c->session->polled) >= POLLED_MAX)
		json_object_clear(c->session->polled);
	json_object_set_new(c->session->polled, key, json_integer((json_int_t)b->next));
	out = json_pack("{s:b, s:b, s:i, s:o, s:o, s:I, s:s}", "running", !x, "truncated", b->cut,
			"exit_code", x ? x->exit_code : -1, "stdout", mcp_output(c, &b->out, &n),
			"stderr", mcp_output(c, &b->err, &n), "next", (json_int_t)b->next, "status",
			x ? status_name(x->status) : "running");
	mcp_finish_output(c, out, &n);
	mcp_call_structured(c, out);
}

static void on_wait_over(void *arg)
{
	answer_poll(arg, NULL);
}

static void on_background_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct mcp_call *c = arg;
	struct background *b = c->work;

	buf_add(kind == 2 && !b->uri ? &b->err : &b->out, bytes, len);
	b->cut = b->cut || seq > b->next;
	b->next = seq + len;
	exec_credit(b->exec, len);
	if (b->out.len + b->err.len >= POLL_MAX)
		answer_poll(c, NULL);
}

static void on_background_ended(void *arg, const struct outcome *x)
{
	struct mcp_call *c = arg;
	struct background *b = c->work;

	b->exec = NULL;
	answer_poll(c, x);
}

static void attach_background(struct mcp_call *c, struct background *b, uint64_t from,
			      uint64_t wait_ms)
{
	static const struct exec_ops ops = {
		.on_output = on_background_output,
		.on_exit = on_background_ended,
		.on_error = on_background_error,
	};

	b->next = from;
	b->exec = exec_attach(c->box, b->eid, from, &ops, c);
	b->timer = (struct loop_timer){.call = on_wait_over, .arg = c};
	loop_timer_set(c->session->state->api->loop, &b->timer, wait_ms);
}

void mcp_process_poll(struct mcp_call *c)
{
	struct background *b = background_new(c);
	char key[64];
	double last;

	b->eid = (uint32_t)mcp_arg_number(c, "process_id", 0);
	last = json_number_value(polled_key(c, b->eid, key, sizeof(key)));
	attach_background(c, b, (uint64_t)mcp_arg_number(c, "from", last),
			  POLL_LEAST_MS + (uint64_t)(mcp_arg_number(c, "wait", 1) * 1000));
}

void mcp_log_as_resource(struct mcp_call *c, const char *uri, uint32_t eid)
{
	struct background *b = background_new(c);

	b->eid = eid;
	b->uri = uri;
	attach_background(c, b, 0, 1000);
}

void mcp_process_write(struct mcp_call *c)
{
	const json_t *input = json_object_get(c->args, "input");

	if (json_string_length(input) > INPUT_MAX) {
		mcp_call_refuse(c,
				"At most %u bytes fit into one process_write. Send the rest with "
				"further calls.",
				INPUT_MAX);
		return;
	}
	sandbox_input(c->box, (uint32_t)mcp_arg_number(c, "process_id", 0),
		      json_string_value(input), json_string_length(input),
		      body_flag(c->args, "close"), mcp_call_answer_json, c);
}

void mcp_process_kill(struct mcp_call *c)
{
	sandbox_signal(c->box, (uint32_t)mcp_arg_number(c, "process_id", 0),
		       (int)mcp_arg_number(c, "signal", 15), true, mcp_call_answer_json, c);
}
