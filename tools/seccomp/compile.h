/*
 * The seccomp profile compiler: text -> rules -> one classic BPF program per architecture.
 *
 * text.c    reads the profile (its language is described in policies/seccomp/default.txt)
 * names.c   system calls, errno values and kernel constants by name
 * tree.c    writes the program: a search tree over call numbers, argument checks in its leaves
 * verify.c  runs every program against the rules that it was made from
 *
 * A build tool: errors end it, and memory is freed by its exit.
 */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_CALLS = 640, MAX_RULES = 12, MAX_TESTS = 4, MAX_VALUES = 48, MAX_INSNS = 4096 };
/* Numbers at and above this are decided in one piece; every call's number lies below. */
enum { NR_END = 1024 };
/* About as many numbers does a kernel have, and try at load. */
enum { NR_WALKED = 472 };

enum arch { ARCH_X86_64, ARCH_AARCH64, ARCH_COUNT };

struct arch_info {
	const char *name;
	const char *macro; /* the C compiler's */
	uint32_t audit;	   /* AUDIT_ARCH_* */
	uint32_t foreign;  /* numbers from here on belong to another ABI and kill; 0: none */
};
extern const struct arch_info archs[ARCH_COUNT];

enum action { ALLOW, ERRNO, REPORT, NOTIFY, KILL };

/* (arg & mask) is, or is not, one of the values. */
struct test {
	unsigned arg;
	bool wide; /* all 64 bits; otherwise the low 32, which is what the kernel sees of an int */
	bool negate;
	uint64_t mask;
	unsigned value_count;
	uint64_t values[MAX_VALUES];
};

struct rule {
	enum action action;
	int errnum;
	const char *errname;
	unsigned test_count; /* all must hold; none: always */
	struct test tests[MAX_TESTS];
	const char *condition; /* as it was written, or NULL */
	const char *reason;    /* REPORT only */
};

struct call {
	char *name;
	int nr[ARCH_COUNT]; /* -1: this architecture has none */
	unsigned rule_count;
	const struct rule
		*rules[MAX_RULES]; /* the first that holds decides; the last always holds */
};

struct profile {
	const char *name;
	unsigned call_count;
	struct call calls[MAX_CALLS];
	const struct rule *fallback; /* for every number that is not named */
	bool is_callers;	     /* of `--narrow`: nobody serves its notifications */
	bool narrows;		     /* loaded on top of another, so the default may be allow */
	char digest[65];
};

struct program {
	unsigned count;
	struct sock_filter insns[MAX_INSNS];
};

/* Prints "file:line: ..." or a plain message, and exits. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Zeroed memory that stays until the exit. */
void *allocate(size_t size);

void profile_read(struct profile *p, const char *path);

/* A rule of setns that answers SECCOMP_NARROW_CANARY, to prove that the filter is in force. */
void profile_add_canary(struct profile *p);

/* False: no architecture knows it. */
bool name_call(const char *name, int ret_nr[ARCH_COUNT]);
bool name_errno(const char *name, int *ret);
bool name_constant(const char *name, uint64_t *ret);

/*
 * SECCOMP_RET_*. The kernel has no use for a notification's 16 bits of data; we number the reports
 * of each call in them, from 1, to find out later which one it was.
 */
uint32_t rule_result(const struct rule *r, unsigned report);
uint32_t call_result(const struct call *c, unsigned rule);
bool rule_holds(const struct rule *r, const struct seccomp_data *data);
/* What the rules say, without any program. */
uint32_t profile_decide(const struct profile *p, enum arch arch, const struct seccomp_data *data);
const struct call *profile_call(const struct profile *p, enum arch arch, uint32_t nr);

void program_build(struct program *prog, const struct profile *p, enum arch arch);
/* Ends the tool if the program and the rules disagree anywhere. */
void program_verify(const struct program *prog, const struct profile *p, enum arch arch);

struct sha256 {
	uint32_t state[8];
	uint64_t length;
	uint8_t block[64];
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_hex(struct sha256 *s, char ret[65]);
