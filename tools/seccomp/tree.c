/*
 * Theory of operation
 *
 * Load: the kernel checks, translates and compiles the program, then tries every call number on it
 * to learn which ones are always allowed; those never run the filter again. It can follow loads of
 * the number and of the architecture, jumps, AND and returns, so no argument may be looked at on a
 * path that ends in a plain allow. What load costs is therefore instructions, and the sum of the
 * paths of all numbers. Hence a search tree over ranges of numbers that share a decision, shaped by
 * dynamic programming so that long ranges and often called checks lie near the root.
 *
 * The program is written backwards, last instruction first: jumps only go forward, so whatever a
 * jump leads to has its place already. A jump reaches 255 instructions; a return out of reach is
 * written once more, anything else gets a long jump on the way.
 */
#include "compile.h"

#include <stddef.h>
#include <string.h>

enum { REACH = 250, MAX_RANGES = 640 };

/* Where a jump leads: to a return, or to the instruction with this number, counted from the end. */
struct target {
	bool is_return;
	uint32_t value;
};

struct range {
	uint32_t start;
	const struct call *call; /* NULL: `result` for all of it */
	uint32_t result;
	double weight;
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
	unsigned range_count;
	struct range ranges[MAX_RANGES];
	double cost[MAX_RANGES][MAX_RANGES];
	unsigned short root[MAX_RANGES][MAX_RANGES];
};

static struct target target_return(uint32_t result)
{
	return (struct target){.is_return = true, .value = result};
}

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

	if (yes.is_return == no.is_return && yes.value == no.value)
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

static uint32_t arg_offset(const struct test *t, bool high)
{
	/* Both architectures are little-endian. */
	return (uint32_t)(offsetof(struct seccomp_data, args) + 8 * t->arg + (high ? 4 : 0));
}

static struct target put_narrow(struct builder *b, const struct test *t, struct target yes,
				struct target no)
{
	struct target next = no;

	if (t->value_count == 1 && t->values[0] == 0) {
		next = put_jump(b, BPF_JSET, (uint32_t)t->mask, no, yes);
		return put_load(b, arg_offset(t, false), next);
	}
	for (unsigned i = t->value_count; i-- > 0;)
		next = put_jump(b, BPF_JEQ, (uint32_t)t->values[i], yes, next);
	next = put_and(b, (uint32_t)t->mask, next);
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
	struct target next = target_return(rule_result(c->rules[c->rule_count - 1]));

	for (unsigned i = c->rule_count - 1; i-- > 0;) {
		const struct rule *r = c->rules[i];
		struct target otherwise = next;

		next = target_return(rule_result(r));
		for (unsigned j = r->test_count; j-- > 0;)
			next = put_test(b, &r->tests[j], next, otherwise);
	}
	return next;
}

static bool same_rules(const struct call *a, const struct call *b)
{
	return a->rule_count == b->rule_count &&
	       memcmp(a->rules, b->rules, a->rule_count * sizeof(a->rules[0])) == 0;
}

static struct target leaf(struct builder *b, const struct range *r)
{
	if (!r->call)
		return target_return(r->result);
	for (unsigned i = 0; i < b->leaf_count; i++)
		if (same_rules(b->leaves[i].call, r->call))
			return b->leaves[i].code;
	b->leaves[b->leaf_count].call = r->call;
	b->leaves[b->leaf_count].code = put_leaf(b, r->call);
	return b->leaves[b->leaf_count++].code;
}

/* Adds [start, next range), or lets the range before it go on if the decision is the same. */
static void add_range(struct builder *b, uint32_t start, const struct call *c, uint32_t result)
{
	struct range *last = b->range_count ? &b->ranges[b->range_count - 1] : NULL;

	if (c && c->rule_count == 1) {
		result = rule_result(c->rules[0]);
		c = NULL;
	}
	/* Calls with checks run the filter each time they are made, the others only at load. */
	if (last &&
	    (c ? last->call && same_rules(last->call, c) : !last->call && last->result == result)) {
		last->weight += c ? 8 : 1;
		return;
	}
	if (b->range_count == MAX_RANGES)
		fail("%s: too many ranges", b->profile->name);
	b->ranges[b->range_count++] =
		(struct range){.start = start, .call = c, .result = result, .weight = c ? 8 : 1};
}

static void find_ranges(struct builder *b)
{
	uint32_t fallback = rule_result(b->profile->fallback);
	uint32_t foreign = archs[b->arch].foreign;

	for (uint32_t nr = 0; nr < NR_END; nr++)
		add_range(b, nr, profile_call(b->profile, b->arch, nr), fallback);
	if (foreign) {
		add_range(b, foreign, NULL, SECCOMP_RET_KILL_PROCESS);
		/* -1 is no call of any ABI: programs try it to see ENOSYS. */
		add_range(b, UINT32_MAX, NULL, fallback);
	}
}

/* The cheapest tree over ranges [from, to]: an optimal split for every pair, short ones first. */
static void plan(struct builder *b)
{
	double sum[MAX_RANGES + 1];
	unsigned n = b->range_count;

	sum[0] = 0;
	for (unsigned i = 0; i < n; i++)
		sum[i + 1] = sum[i] + b->ranges[i].weight;
	for (unsigned i = 0; i < n; i++)
		b->cost[i][i] = 0;
	for (unsigned len = 2; len <= n; len++) {
		for (unsigned i = 0; i + len <= n; i++) {
			unsigned j = i + len - 1;

			b->cost[i][j] = 1e18;
			for (unsigned m = i + 1; m <= j; m++) {
				double cost = b->cost[i][m - 1] + b->cost[m][j];

				if (cost < b->cost[i][j]) {
					b->cost[i][j] = cost;
					b->root[i][j] = (unsigned short)m;
				}
			}
			b->cost[i][j] += sum[j + 1] - sum[i];
		}
	}
}

static struct target put_tree(struct builder *b, unsigned from, unsigned to)
{
	struct target low, high;
	unsigned m;

	if (from == to)
		return leaf(b, &b->ranges[from]);
	m = b->root[from][to];
	high = put_tree(b, m, to);
	low = put_tree(b, from, m - 1);
	return put_jump(b, BPF_JGE, b->ranges[m].start, high, low);
}

void program_build(struct program *prog, const struct profile *p, enum arch arch)
{
	struct builder *b = allocate(sizeof(*b));
	struct target start;

	b->profile = p;
	b->arch = arch;
	find_ranges(b);
	plan(b);
	start = put_load(b, offsetof(struct seccomp_data, nr), put_tree(b, 0, b->range_count - 1));
	start = put_jump(b, BPF_JEQ, archs[arch].audit, start,
			 target_return(SECCOMP_RET_KILL_PROCESS));
	put_load(b, offsetof(struct seccomp_data, arch), start);
	prog->count = b->out.count;
	for (unsigned i = 0; i < prog->count; i++)
		prog->insns[i] = b->out.insns[prog->count - 1 - i];
}
