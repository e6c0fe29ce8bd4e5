/* Evaluates the rules by themselves, and holds every program against that. */
#include "compile.h"

#include "kern/cbpf.h"

#include <string.h>

uint32_t rule_result(const struct rule *r, unsigned report)
{
	switch (r->action) {
	case ALLOW:
		return SECCOMP_RET_ALLOW;
	case ERRNO:
		return SECCOMP_RET_ERRNO | (uint32_t)r->errnum;
	case REPORT:
		return SECCOMP_RET_USER_NOTIF | report;
	case NOTIFY:
		return SECCOMP_RET_USER_NOTIF;
	default:
		return SECCOMP_RET_KILL_PROCESS;
	}
}

uint32_t call_result(const struct call *c, unsigned rule)
{
	unsigned report = 1;

	for (unsigned i = 0; i < rule; i++)
		report += c->rules[i]->action == REPORT;
	return rule_result(c->rules[rule], report);
}

static bool test_holds(const struct test *t, const struct seccomp_data *data)
{
	uint64_t value = data->args[t->arg] & t->mask;
	bool found = false;

	for (unsigned i = 0; i < t->value_count; i++)
		found = found || value == t->values[i];
	return found != t->negate;
}

bool rule_holds(const struct rule *r, const struct seccomp_data *data)
{
	for (unsigned i = 0; i < r->test_count; i++)
		if (!test_holds(&r->tests[i], data))
			return false;
	return true;
}

const struct call *profile_call(const struct profile *p, enum arch arch, uint32_t nr)
{
	for (unsigned i = 0; i < p->call_count; i++)
		if (p->calls[i].nr[arch] >= 0 && (uint32_t)p->calls[i].nr[arch] == nr)
			return &p->calls[i];
	return NULL;
}

uint32_t profile_decide(const struct profile *p, enum arch arch, const struct seccomp_data *data)
{
	uint32_t foreign = archs[arch].foreign, nr = (uint32_t)data->nr;
	const struct call *c = profile_call(p, arch, nr);

	if (data->arch != archs[arch].audit)
		return SECCOMP_RET_KILL_PROCESS;
	if (foreign && nr >= foreign && nr != UINT32_MAX)
		return SECCOMP_RET_KILL_PROCESS;
	for (unsigned i = 0; c && i < c->rule_count; i++)
		if (rule_holds(c->rules[i], data))
			return call_result(c, i);
	return rule_result(p->fallback, 0);
}

static void check(const struct program *prog, const struct profile *p, enum arch arch,
		  const struct seccomp_data *data)
{
	uint32_t is = cbpf_run(prog->insns, prog->count, data);
	uint32_t should = profile_decide(p, arch, data);

	if (is != should)
		fail("%s, %s: call %d (%llx, %llx, %llx): the program says %x, the rules %x",
		     p->name, archs[arch].name, data->nr, (unsigned long long)data->args[0],
		     (unsigned long long)data->args[1], (unsigned long long)data->args[2], is,
		     should);
}

/* A generator with a fixed start: the same profile is always checked in the same way. */
static uint64_t noise(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33 ^ *state << 21;
}

/* Something near what the rules look at: a value, one bit beside it, or dirt in the other half. */
static uint64_t tempt(const struct test *t, uint64_t *state)
{
	uint64_t value = t->values[noise(state) % t->value_count];

	switch (noise(state) % 6) {
	case 0:
		return value;
	case 1:
		return value | (noise(state) & ~t->mask);
	case 2:
		return value ^ 1ull << noise(state) % 64;
	case 3:
		return value | noise(state) << 32;
	case 4:
		return (value | t->mask) & noise(state);
	default:
		return noise(state);
	}
}

static void check_arguments(const struct program *prog, const struct profile *p, enum arch arch,
			    const struct call *c)
{
	struct seccomp_data data = {.arch = archs[arch].audit, .nr = c->nr[arch]};
	uint64_t state = (uint64_t)c->nr[arch];

	for (unsigned round = 0; round < 2000; round++) {
		for (unsigned i = 0; i < c->rule_count; i++) {
			const struct rule *r = c->rules[i];

			for (unsigned j = 0; j < r->test_count; j++)
				if (noise(&state) % 2)
					data.args[r->tests[j].arg] = tempt(&r->tests[j], &state);
		}
		check(prog, p, arch, &data);
	}
}

/* Is a plain allow reached without looking at an argument? Otherwise every such call is slower. */
static void check_constant(const struct program *prog, const struct profile *p, enum arch arch,
			   uint32_t nr)
{
	static const struct sock_filter reads_argument = {.code = BPF_LD | BPF_W | BPF_ABS};
	struct seccomp_data data = {.arch = archs[arch].audit, .nr = (int)nr};
	const struct call *c = profile_call(p, arch, nr);
	struct program blind = *prog;

	if (!c || c->rule_count > 1 || c->rules[0]->action != ALLOW)
		return;
	for (unsigned i = 0; i < blind.count; i++)
		if (blind.insns[i].code == reads_argument.code &&
		    blind.insns[i].k >= offsetof(struct seccomp_data, args))
			blind.insns[i] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0};
	if (cbpf_run(blind.insns, blind.count, &data) != SECCOMP_RET_ALLOW)
		fail("%s, %s: %s looks at arguments", p->name, archs[arch].name, c->name);
}

void program_verify(const struct program *prog, const struct profile *p, enum arch arch)
{
	static const uint32_t odd[] = {NR_END,	   0x3fffffff, 0x40000000, 0x40000001, 0x40000200,
				       0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
	struct seccomp_data data = {.arch = archs[arch].audit};

	for (uint32_t nr = 0; nr < NR_END; nr++) {
		const struct call *c = profile_call(p, arch, nr);

		data.nr = (int)nr;
		check(prog, p, arch, &data);
		check_constant(prog, p, arch, nr);
		if (c && c->rule_count > 1)
			check_arguments(prog, p, arch, c);
	}
	for (unsigned i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		data.nr = (int)odd[i];
		check(prog, p, arch, &data);
	}
	for (unsigned a = 0; a < ARCH_COUNT; a++) {
		data = (struct seccomp_data){.arch = archs[a].audit ^ (a == arch), .nr = 1};
		check(prog, p, arch, &data);
	}
}
