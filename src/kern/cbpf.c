#include "kern/cbpf.h"

static bool load_word(const struct seccomp_data *data, uint32_t offset, uint32_t *ret)
{
	if (offset % sizeof(*ret) != 0 || offset > sizeof(*data) - sizeof(*ret))
		return false;
	memcpy(ret, (const char *)data + offset, sizeof(*ret));
	return true;
}

static bool jump_holds(uint16_t code, uint32_t a, uint32_t k)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return a == k;
	case BPF_JGE:
		return a >= k;
	case BPF_JGT:
		return a > k;
	default: /* BPF_JSET */
		return (a & k) != 0;
	}
}

uint32_t cbpf_run(const struct sock_filter *insns, unsigned count, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (uint64_t pc = 0; pc < count; pc++) {
		const struct sock_filter *i = &insns[pc];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (!load_word(data, i->k, &a))
				return SECCOMP_RET_KILL_PROCESS;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
		case BPF_JMP | BPF_JGE | BPF_K:
		case BPF_JMP | BPF_JGT | BPF_K:
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += jump_holds(i->code, a, i->k) ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			return SECCOMP_RET_KILL_PROCESS;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}
