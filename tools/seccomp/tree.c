/*
 * Theory of operation
 *
 * Load: the kernel checks, translates and compiles the program, then tries every call number on it
 * to learn which ones are always allowed; those never run the filter again. It can follow loads of
 * the number and of the architecture, jumps, AND and returns, so no argument may be looked at on a
 * path that ends in a plain allow. What load costs is therefore instructions, and the sum of the
 * paths of all numbers. Hence a search over spans of numbers that share an answer: halved by JGE,
 * or, where single numbers interrupt a long span, taken out by JEQ first. Dynamic programming finds
 * the cheapest mixture. Sets of argument values are searched in the same way.
 *
 * The program is written backwards, last instruction first: jumps only go forward, so whatever a
 * jump leads to has its place already. A jump reaches 255 instructions; a return out of reach is
 * written once more, anything else gets a long jump on the way.
 */
#include "compile.h"

#include <float.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { REACH = 250, MAX_SPANS = 640 };

/* What load costs in us, measured: an instruction, and a step of the kernel's walk of one number.
 */
static const double instruction_cost = 0.13, step_cost = 0.0032;

/* Where a jump leads: to a return, or to the instruction with this number, counted from the end. */
struct target {
	bool is_return;
	uint32_t value;
};

/* Values from `start` up to the next span, all with the same answer: a call's checks, or a target.
 */
struct span {
	uint32_t start;
	const struct call *call; /* NULL: `to` */
	struct target to;
	double weight; /* how often a path ends here, in visits at load */
};

/* How to search a list of spans: the best way for every part of it, from span i to span j. */
struct plan {
	double cost[MAX_SPANS][MAX_SPANS];
	short split[MAX_SPANS][MAX_SPANS]; /* >= 0: two halves; otherwise ~base of a chain */
};

struct spans {
	unsigned count;
	struct span list[MAX_SPANS];
	struct plan *plan;
};

struct builder {
	const struct profile *profile;
	enum arch arch;
	struct program out; /* reversed */
	struct {
		uint32_t result;
		unsigned at;
	} returns[64];
	unsigned return_count;
	struct {
		const struct call *call;
		struct target code;
	} leaves[MAX_CALLS];
	unsigned leaf_count;
};

static struct target target_return(uint32_t result)
{
	return (struct target){.is_return = true, .value = result};
}

static bool same_target(struct target a, struct target b)
{
	return a.is_return == b.is_return && a.value == b.value;
}

/* ---- instructions ---- */

/* Appends an instruction, that is: puts it in front of what there is. Returns its place. */
static unsigned put(struct builder *b, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (b->out.count == MAX_INSNS)
		fail("%s: the program is too long", b->profile->name);
	b->out.insns[b->out.count] = (struct sock_filter){code, jt, jf, k};
	return b->out.count++;
}

static unsigned put_return(struct builder *b, uint32_t result)
{
	unsigned i = 0;

	while (i < b->return_count && b->returns[i].result != result)
		i++;
	if (i == b->return_count) {
		if (i == sizeof(b->returns) / sizeof(b->returns[0]))
			fail("%s: too many kinds of answers", b->profile->name);
		b->return_count++;
		b->returns[i].result = result;
	} else if (b->out.count - b->returns[i].at < REACH) {
		return b->returns[i].at;
	}
	b->returns[i].at = put(b, BPF_RET | BPF_K, 0, 0, result);
	return b->returns[i].at;
}

/* Returns a place that leads to the target and is within reach of the next two instructions. */
static unsigned reach(struct builder *b, struct target t)
{
	if (t.is_return)
		return put_return(b, t.value);
	if (b->out.count - t.value < REACH)
		return t.value;
	return put(b, BPF_JMP | BPF_JA, 0, 0, b->out.count - t.value - 1);
}

/* Makes the target what the next instruction falls through to. */
static void fall_into(struct builder *b, struct target t)
{
	if (!t.is_return && t.value == b->out.count - 1)
		return;
	if (t.is_return)
		put(b, BPF_RET | BPF_K, 0, 0, t.value);
	else
		put(b, BPF_JMP | BPF_JA, 0, 0, b->out.count - t.value - 1);
}

static struct target put_jump(struct builder *b, uint16_t op, uint32_t k, struct target yes,
			      struct target no)
{
	unsigned y, n;

	if (same_target(yes, no))
		return yes;
	y = reach(b, yes);
	n = reach(b, no);
	return (struct target){.value = put(b, BPF_JMP | op | BPF_K, b->out.count - y - 1,
					    b->out.count - n - 1, k)};
}

static struct target put_load(struct builder *b, uint32_t offset, struct target next)
{
	fall_into(b, next);
	return (struct target){.value = put(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)};
}

static struct target put_and(struct builder *b, uint32_t mask, struct target next)
{
	if (mask == UINT32_MAX)
		return next;
	fall_into(b, next);
	return (struct target){.value = put(b, BPF_ALU | BPF_AND | BPF_K, 0, 0, mask)};
}

/* ---- searching ---- */

static struct target put_leaf(struct builder *b, const struct call *c);

static bool same_rules(const struct call *a, const struct call *b)
{
	return a->rule_count == b->rule_count &&
	       memcmp(a->rules, b->rules, a->rule_count * sizeof(a->rules[0])) == 0;
}

static bool same_answer(const struct span *a, const struct span *b)
{
	if (a->call || b->call)
		return a->call && b->call && same_rules(a->call, b->call);
	return same_target(a->to, b->to);
}

/* Adds [start, next span), or lets the span before it go on if the answer is the same. */
static void add_span(struct spans *s, struct span new)
{
	if (s->count && same_answer(&s->list[s->count - 1], &new)) {
		s->list[s->count - 1].weight += new.weight;
		return;
	}
	if (s->count == MAX_SPANS)
		fail("too many different answers");
	s->list[s->count++] = new;
}

static bool is_single(const struct spans *s, unsigned i)
{
	return i + 1 < s->count ? s->list[i + 1].start - s->list[i].start == 1
				: s->list[i].start == UINT32_MAX;
}

/* Spans i to j as a chain: one JEQ for each number that differs, and the base's answer for the
 * rest. */
static double chain_cost(const struct spans *s, unsigned i, unsigned j, unsigned base)
{
	double cost = 0, rest = 0;
	unsigned steps = 0;

	for (unsigned k = i; k <= j; k++) {
		if (same_answer(&s->list[k], &s->list[base])) {
			rest += s->list[k].weight;
			continue;
		}
		if (!is_single(s, k))
			return DBL_MAX;
		steps++;
		cost += instruction_cost + steps * s->list[k].weight * step_cost;
	}
	return cost + steps * rest * step_cost;
}

static void plan_part(struct spans *s, unsigned i, unsigned j, double weight)
{
	double *cost = &s->plan->cost[i][j];

	*cost = DBL_MAX;
	for (unsigned m = i + 1; m <= j; m++) {
		double c = s->plan->cost[i][m - 1] + s->plan->cost[m][j] + instruction_cost +
			   weight * step_cost;

		if (c < *cost) {
			*cost = c;
			s->plan->split[i][j] = (short)m;
		}
	}
	for (unsigned base = i; base <= j && base < i + 4; base++) {
		double c = chain_cost(s, i, j, base);

		if (c < *cost) {
			*cost = c;
			s->plan->split[i][j] = (short)~base;
		}
	}
}

static void plan_search(struct spans *s)
{
	s->plan = allocate(sizeof(*s->plan));
	for (unsigned len = 1; len <= s->count; len++) {
		for (unsigned i = 0; i + len <= s->count; i++) {
			double weight = 0;

			for (unsigned k = i; k < i + len; k++)
				weight += s->list[k].weight;
			plan_part(s, i, i + len - 1, weight);
		}
	}
}

static struct target answer(struct builder *b, const struct span *s)
{
	if (!s->call)
		return s->to;
	for (unsigned i = 0; i < b->leaf_count; i++)
		if (same_rules(b->leaves[i].call, s->call))
			return b->leaves[i].code;
	b->leaves[b->leaf_count].call = s->call;
	b->leaves[b->leaf_count].code = put_leaf(b, s->call);
	return b->leaves[b->leaf_count++].code;
}

static struct target put_chain(struct builder *b, const struct spans *s, unsigned i, unsigned j,
			       unsigned base)
{
	struct target next = answer(b, &s->list[base]);

	for (unsigned k = j + 1; k-- > i;)
		if (!same_answer(&s->list[k], &s->list[base]))
			next = put_jump(b, BPF_JEQ, s->list[k].start, answer(b, &s->list[k]), next);
	return next;
}

/* The search for the accumulator's value among spans i to j. */
static struct target put_search(struct builder *b, const struct spans *s, unsigned i, unsigned j)
{
	struct target low, high;
	int m = s->plan->split[i][j];

	if (m < 0)
		return put_chain(b, s, i, j, (unsigned)~m);
	high = put_search(b, s, (unsigned)m, j);
	low = put_search(b, s, i, (unsigned)m - 1);
	return put_jump(b, BPF_JGE, s->list[m].start, high, low);
}

/* ---- argument checks ---- */

static uint32_t arg_offset(const struct test *t, bool high)
{
	/* Both architectures are little-endian. */
	return (uint32_t)(offsetof(struct seccomp_data, args) + 8 * t->arg + (high ? 4 : 0));
}

static int compare_values(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static struct target put_set(struct builder *b, const struct test *t, struct target yes,
			     struct target no)
{
	struct spans *s = allocate(sizeof(*s));
	uint64_t sorted[MAX_VALUES], end = 0;

	memcpy(sorted, t->values, sizeof(sorted));
	qsort(sorted, t->value_count, sizeof(sorted[0]), compare_values);
	for (unsigned i = 0; i < t->value_count; i++) {
		if (sorted[i] > end)
			add_span(s, (struct span){.start = (uint32_t)end, .to = no, .weight = 1});
		add_span(s, (struct span){.start = (uint32_t)sorted[i], .to = yes, .weight = 1});
		end = sorted[i] + 1;
	}
	if (end <= UINT32_MAX)
		add_span(s, (struct span){.start = (uint32_t)end, .to = no, .weight = 1});
	plan_search(s);
	return put_search(b, s, 0, s->count - 1);
}

static struct target put_narrow(struct builder *b, const struct test *t, struct target yes,
				struct target no)
{
	struct target next;

	if (t->value_count == 1 && t->values[0] == 0)
		next = put_jump(b, BPF_JSET, (uint32_t)t->mask, no, yes);
	else
		next = put_and(b, (uint32_t)t->mask, put_set(b, t, yes, no));
	return put_load(b, arg_offset(t, false), next);
}

static struct target put_wide(struct builder *b, const struct test *t, struct target yes,
			      struct target no)
{
	struct target next = no;

	for (unsigned i = t->value_count; i-- > 0;) {
		struct target low = put_jump(b, BPF_JEQ, (uint32_t)t->values[i], yes, next);
		struct target high;

		low = put_load(b, arg_offset(t, false), put_and(b, (uint32_t)t->mask, low));
		high = put_jump(b, BPF_JEQ, (uint32_t)(t->values[i] >> 32), low, next);
		next = put_load(b, arg_offset(t, true),
				put_and(b, (uint32_t)(t->mask >> 32), high));
	}
	return next;
}

static struct target put_test(struct builder *b, const struct test *t, struct target yes,
			      struct target no)
{
	if (t->negate)
		return t->wide ? put_wide(b, t, no, yes) : put_narrow(b, t, no, yes);
	return t->wide ? put_wide(b, t, yes, no) : put_narrow(b, t, yes, no);
}

static struct target put_leaf(struct builder *b, const struct call *c)
{
	struct target next = target_return(call_result(c, c->rule_count - 1));

	for (unsigned i = c->rule_count - 1; i-- > 0;) {
		const struct rule *r = c->rules[i];
		struct target otherwise = next;

		next = target_return(call_result(c, i));
		for (unsigned j = r->test_count; j-- > 0;)
			next = put_test(b, &r->tests[j], next, otherwise);
	}
	return next;
}

/* ---- the whole ---- */

static void find_spans(struct spans *s, const struct profile *p, enum arch arch)
{
	struct target fallback = target_return(rule_result(p->fallback, 0));

	for (uint32_t nr = 0; nr < NR_END; nr++) {
		const struct call *c = profile_call(p, arch, nr);
		struct span new = {.start = nr, .to = fallback, .weight = nr < NR_WALKED};

		if (c && c->rule_count == 1)
			new.to = target_return(call_result(c, 0));
		else if (c) /* runs the filter whenever it is called, the others only at load */
			new.call = c, new.weight = 8;
		add_span(s, new);
	}
	if (archs[arch].foreign) {
		add_span(s, (struct span){.start = archs[arch].foreign,
					  .to = target_return(SECCOMP_RET_KILL_PROCESS)});
		/* -1 is no call of any ABI: programs try it to see ENOSYS. */
		add_span(s, (struct span){.start = UINT32_MAX, .to = fallback});
	}
}

void program_build(struct program *prog, const struct profile *p, enum arch arch)
{
	struct builder *b = allocate(sizeof(*b));
	struct spans *calls = allocate(sizeof(*calls));
	struct target start;

	b->profile = p;
	b->arch = arch;
	find_spans(calls, p, arch);
	plan_search(calls);
	start = put_load(b, offsetof(struct seccomp_data, nr),
			 put_search(b, calls, 0, calls->count - 1));
	start = put_jump(b, BPF_JEQ, archs[arch].audit, start,
			 target_return(SECCOMP_RET_KILL_PROCESS));
	put_load(b, offsetof(struct seccomp_data, arch), start);
	prog->count = b->out.count;
	for (unsigned i = 0; i < prog->count; i++)
		prog->insns[i] = b->out.insns[prog->count - 1 - i];
}
