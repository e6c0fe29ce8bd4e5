/*
 * Errors: plain data, nothing to free, the same bytes travel child -> parent -> caller.
 *
 * A function that can fail returns -1 and fills the struct err that it was given. `kind` answers
 * "whose fault"; one table (err.c) maps it to a name and, for the doors, to their status codes.
 * A sandboxed program that fails is a result, never an error.
 */
#pragma once

enum err_kind {
	ERR_NONE,
	ERR_INVALID,	 /* the caller asked for something malformed */
	ERR_DENIED,	 /* a rule forbids it */
	ERR_NOT_FOUND,	 /* what was named does not exist */
	ERR_CONFLICT,	 /* not in this state */
	ERR_LIMIT,	 /* a limit or quota is used up */
	ERR_UNSUPPORTED, /* this host or this build cannot */
	ERR_SYSTEM,	 /* the kernel said no */
	ERR_KIND_COUNT,
};

struct err {
	enum err_kind kind;
	int errnum;	/* errno behind it, or 0 */
	char field[32]; /* the option or key at fault, or empty */
	char msg[512];
};

/* Each returns -1, so that `return err_set(...)` reads well. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same, and names the option or key at fault. */
int err_field(struct err *e, enum err_kind kind, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* ERR_SYSTEM with the current errno, whose text is appended after ": ". */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says in front of an error what was being done. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_kind_name(enum err_kind kind);
