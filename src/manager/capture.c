/* Runs a command to its end and keeps its output, as a struct result that a door prints. */
#include "manager/manager_internal.h"

#include "sandbox/outside/head_tail.h"
#include "wire/guest.h"
#include "wire/pack.h"

struct capture_run {
	struct exec *x;
	struct sandbox *s; /* held */
	struct head_tail out, err;
	bool cancelled;
	bool asking; /* the guest is asked for denials; freed by the answer */
	uint32_t eid;
	bool warm, holds;
	layer_set proven;
	int landlock_abi;
	char *input, *note;
	json_t *input_text; /* has the input instead */
	struct network_mark mark;
	int64_t begun_ns;
	double setup_ms;
	struct result result;
	capture_done done;
	void *arg;
};

/* At once, not along with the next command: its lane makes no warm sandbox before. */
static void release_files(const struct capture_run *c)
{
	static const struct call_ops nothing = {0};
	auto_buf struct buf b = {0};

	pack_u32(&b, c->eid);
	guest_call(c->s, G_ACK, buf_head(&b), b.len, &nothing, NULL);
}

static void capture_free(struct capture_run *c)
{
	head_tail_done(&c->out);
	head_tail_done(&c->err);
	result_done(&c->result);
	if (c->holds && c->eid)
		release_files(c);
	sandbox_release(c->s);
	free(c->input);
	json_decref(c->input_text);
	free(c->note);
	free(c);
}

#define ESCAPED_LEN 6 /* of a byte, at most */

/* The largest length that it can have in the record. */
static size_t printed_len(const struct capture *c, bool base64)
{
	const struct {
		const char *bytes;
		size_t len;
	} parts[] = {{c->head, c->head_len}, {c->tail, c->tail_len}};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		for (size_t j = 0; j < parts[i].len; j++) {
			unsigned char b = (unsigned char)parts[i].bytes[j];

			n += b < ' ' || b >= 0x7f || b == '"' || b == '\\' ? ESCAPED_LEN : 1;
		}
	return base64 ? (c->head_len + c->tail_len) / 3 * 4 + 4 : n;
}

static void shrink_capture(struct capture *c)
{
	if (c->head_len > HEAD_TAIL_FREE)
		c->head_len = HEAD_TAIL_FREE;
	c->tail_len = 0;
	free(take_ptr(c->tail));
}

/* The answer replaces the kept output; together with all other answers it must fit the budget. */
static bool answer_fits(struct capture_run *c)
{
	struct budget *b = c->out.budget;
	const struct result *r = &c->result;
	size_t kept = c->out.held + c->err.held;
	size_t output = r->out.head_len + r->out.tail_len + r->err.head_len + r->err.tail_len;
	bool fits;

	budget_give(b, kept);
	/* As a rule, there is room in any case: a megabyte takes a millisecond to look through. */
	fits = budget_has(b, output * ESCAPED_LEN + 8) ||
	       budget_has(b, printed_len(&r->out, r->base64) + printed_len(&r->err, r->base64));
	budget_count(b, kept);
	return fits || !kept;
}

static void hand_over(struct capture_run *c)
{
	bool fit = answer_fits(c);

	if (!fit) {
		shrink_capture(&c->result.out);
		shrink_capture(&c->result.err);
	}
	if (!fit || c->out.starved || c->err.starved) {
		c->result.end.limits_hit |= HIT_OUTPUT;
		result_add_note(&c->result,
				"less output was kept than asked for: the daemon holds as much as "
				"it may of all that runs (output_budget)");
	}
	c->done(c->arg, c, NULL);
}

/* ---- the record ---- */

static void fill_result(struct capture_run *c, const struct outcome *x)
{
	struct result *r = &c->result;

	/* A warm host has many runs, and clients cannot find it by its id. */
	if (c->warm)
		id_make(r->id);
	else
		snprintf(r->id, sizeof(r->id), "%s", c->s->id);
	r->end = *x;
	r->setup_ms = c->setup_ms;
	head_tail_finish(&c->out, &r->out);
	head_tail_finish(&c->err, &r->err);
	if (r->out.tail || r->err.tail)
		r->end.limits_hit |= HIT_OUTPUT;
	layers_fill(c->s, r);
	if (c->warm)
		warm_layers(c->s, c->proven, c->landlock_abi, r);
	if (c->s->booted.note[0])
		result_add_note(r, c->s->booted.note);
	result_add_note(r, c->note);
}

/* The record is complete. */
static void conclude(void *arg)
{
	struct capture_run *c = arg;

	c->asking = false;
	ack(c->s, c->eid);
	if (c->cancelled) {
		capture_free(c);
		return;
	}
	network_since(c->s, &c->mark, &c->result);
	denials_add_limits(&c->result);
	hand_over(c);
}

/* A sandbox with a network has more to tell. */
static void conclude_network(struct capture_run *c)
{
	if (!c->s->net) {
		conclude(c);
		return;
	}
	c->asking = true;
	network_sync(c->s, conclude, c);
}

/* If the guest cannot be asked, the record goes out without denials. */
static void on_denials(void *arg, struct sandbox *s, struct unpack *u, const struct err *e)
{
	struct capture_run *c = arg;

	if (!e)
		denials_read(u, s, &c->result);
	conclude_network(c);
}

static void on_capture_exit(void *arg, const struct outcome *x)
{
	struct capture_run *c = arg;
	struct buf b = {0};

	c->x = NULL;
	fill_result(c, x);
	c->asking = x->denials_seen;
	if (!c->asking) {
		conclude_network(c);
		return;
	}
	pack_u32(&b, c->eid);
	guest_ask(c->s, G_DENIALS, &b, on_denials, c);
}

static void on_capture_error(void *arg, const struct err *e)
{
	struct capture_run *c = arg;

	c->x = NULL;
	c->done(c->arg, NULL, e);
	capture_free(c);
}

/* ---- output ---- */

static void on_capture_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct capture_run *c = arg;

	c->eid = eid;
	c->warm = c->x->warm;
	c->proven = c->x->proven;
	c->landlock_abi = c->x->landlock_abi;
	c->setup_ms = (double)(now_ns() - c->begun_ns) / 1e6;
}

/* The command has printed far more than is kept: it is killed. */
static void stop_flood(struct capture_run *c)
{
	struct outcome x = {.pids_peak = -1, .disk_bytes = -1};

	outcome_add_flood(&x);
	x.duration_ms = (double)(now_ns() - c->begun_ns) / 1e6;
	exec_detach(take_ptr(c->x));
	fill_result(c, &x);
	hand_over(c);
}

static void on_capture_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct capture_run *c = arg;
	struct head_tail *to = kind == 1 ? &c->out : &c->err;

	head_tail_add(to, bytes, len);
	exec_credit(c->x, len);
	if (head_tail_is_flood(to))
		stop_flood(c);
}

static const struct exec_ops capture_ops = {.on_start = on_capture_start,
					    .on_output = on_capture_output,
					    .on_exit = on_capture_exit,
					    .on_error = on_capture_error};

struct capture_run *exec_capture(struct sandbox *s, const struct caller *who,
				 const struct exec_request *r, capture_done done, void *arg)
{
	struct capture_run *c = must_alloc(calloc(1, sizeof(*c)));
	struct exec_request request = *r;
	size_t limit = s->o.spec.limits.output_bytes ? s->o.spec.limits.output_bytes : 1 << 20;

	if (r->output_bytes)
		limit = r->output_bytes;
	*c = (struct capture_run){.s = sandbox_hold(s), .done = done, .arg = arg};
	c->result.base64 = r->base64;
	c->holds = r->hold && r->warm != WARM_NOT;
	c->begun_ns = now_ns();
	network_mark(s, &c->mark);
	c->note = r->note ? str_copy(r->note) : NULL;
	head_tail_init(&c->out, -1, limit);
	head_tail_init(&c->err, -1, limit);
	c->out.budget = c->err.budget = shares_of(s->m->shares, s->owner.token, SHARE_OUTPUT);
	request.no_stdin = !r->input_len;
	c->input_text = json_incref(r->input_text);
	if (r->input_len && !r->input_text) {
		c->input = must_alloc(malloc(r->input_len));
		memcpy(c->input, r->input, r->input_len);
	}
	c->x = exec_start(s, who, &request, &capture_ops, c);
	c->x->source = (struct exec_source){c->input ? c->input : r->input, r->input_len,
					    r->input_len > 0};
	c->x->unacked = true;
	return c;
}

struct sandbox *capture_place(const struct capture_run *c, uint32_t *ret_inside)
{
	*ret_inside = c->warm ? c->eid : 0;
	return c->s;
}

struct result *capture_result(struct capture_run *c)
{
	return &c->result;
}

void capture_peek(const struct capture_run *c,
		  void (*add)(void *arg, const char *bytes, size_t len), void *arg)
{
	head_tail_peek(&c->out, add, arg);
	head_tail_peek(&c->err, add, arg);
}

void capture_drop(struct capture_run *c)
{
	if (!c)
		return;
	exec_detach(take_ptr(c->x));
	if (c->asking)
		c->cancelled = true;
	else
		capture_free(c);
}
