/*
 * libcloche: run untrusted code in a sandbox of this host, from C.
 *
 * How to use it:
 *   1. struct cloche *c = cloche_new();
 *   2. cloche_set(c, "memory", "512M");           as often as needed; names as in `cloche help run`
 *   3. cloche_set_input(c, data, len);            what the program reads from its stdin; optional
 *   4. cloche_run(c, argv, &result)               a command, or
 *      cloche_code(c, "python", code, &result)    a snippet
 *      0: it ran, and the result says how it ended. -1: it could not be run: cloche_error(c).
 *   5. cloche_result_stdout(result, &len) ...     or cloche_result_json(result) for everything
 *   6. cloche_result_free(result);                the handle may be used again from step 2
 *   7. cloche_free(c);
 *
 * A program that fails, is killed or times out is a result, not an error.
 *
 * The library starts the `cloche` launcher as a child process and reads its record; it never runs
 * sandbox code, nor changes signals, ids or directories, in the caller's process. The launcher is
 * $CLOCHE, else the one installed with the library, else the one in PATH.
 *
 * Threads: handles are independent of each other. One handle is used by one thread at a time, but
 * cloche_cancel may be called from any. The library does not touch the disposition of SIGCHLD or
 * SIGPIPE; a caller that reaps all children itself does no harm.
 *
 * Link with -lcloche -ljansson (static), or -lcloche.
 */
#ifndef CLOCHE_H
#define CLOCHE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something is added; nothing is ever taken away within one version of the library. */
#define CLOCHE_API_VERSION 1

/* What the library at hand was built with; static strings. */
int cloche_api_version(void);
const char *cloche_version(void);

struct cloche;
struct cloche_result;

enum cloche_error_kind {
	CLOCHE_OK,
	CLOCHE_INVALID,	    /* an argument or a setting makes no sense */
	CLOCHE_DENIED,	    /* a rule forbids it */
	CLOCHE_NOT_FOUND,   /* what was named does not exist; the launcher, for one */
	CLOCHE_LIMIT,	    /* a limit is used up */
	CLOCHE_UNSUPPORTED, /* this host or this build cannot */
	CLOCHE_SYSTEM,	    /* the system said no, or the launcher did not say which */
	CLOCHE_CANCELLED,   /* by cloche_cancel */
};

/* ---- the handle ---- */

/* NULL when memory is gone. Owned by the caller: cloche_free. */
struct cloche *cloche_new(void);
/* Accepts NULL. Nothing may be running. */
void cloche_free(struct cloche *c);

/*
 * Sets an option of `cloche run` by its name, with dashes or underscores: "memory", "timeout",
 * "net", "mount", "capture" ... Options that can be given several times add up; switches take
 * "true". Both strings are copied. What the value means is judged when something is run.
 */
int cloche_set(struct cloche *c, const char *name, const char *value);
/* Forgets all settings and the input. */
void cloche_reset(struct cloche *c);
/*
 * What the next runs read from stdin, until it is set again; NULL: nothing. Not copied: the bytes
 * must stay valid until those runs have returned.
 */
void cloche_set_input(struct cloche *c, const void *data, size_t len);

/* ---- running ---- */

/*
 * Runs argv (NULL-terminated) and waits for its end. *ret_result is set only on success, and owned
 * by the caller: cloche_result_free.
 */
int cloche_run(struct cloche *c, const char *const *argv, struct cloche_result **ret_result);
/*
 * Runs a snippet; language NULL is python. With an input set, code may be 1 MB long at most,
 * without one 64 MB.
 */
int cloche_code(struct cloche *c, const char *language, const char *code,
		struct cloche_result **ret_result);
/*
 * Ends the run that another thread has going on with this handle: its call returns -1 with
 * CLOCHE_CANCELLED, and the sandbox has gone with it. No effect if nothing is running.
 */
void cloche_cancel(struct cloche *c);

/* Why the last call with this handle returned -1. The strings live until the next call with it. */
enum cloche_error_kind cloche_error(const struct cloche *c);
const char *cloche_error_message(const struct cloche *c);

/* ---- results; all that is returned lives as long as the result ---- */

/* Accepts NULL. */
void cloche_result_free(struct cloche_result *r);

/* "exited" "signaled" "timeout" "oom" "cpu_time" "output_limit" "killed" */
const char *cloche_result_status(const struct cloche_result *r);
/* 1 if it exited with 0. */
int cloche_result_success(const struct cloche_result *r);
/* -1 if it did not exit by itself. */
int cloche_result_exit_code(const struct cloche_result *r);
/* 0 if it died of none. */
int cloche_result_signal(const struct cloche_result *r);
/* Bytes in UTF-8 (others were replaced), NUL-terminated besides; ret_len may be NULL. */
const char *cloche_result_stdout(const struct cloche_result *r, size_t *ret_len);
const char *cloche_result_stderr(const struct cloche_result *r, size_t *ret_len);
/* 1 if a part in the middle was left out, because of output_limit. */
int cloche_result_truncated(const struct cloche_result *r);
/* A number of the record: "duration_ms", "max_rss_bytes" ...; -1 if it is not there. */
double cloche_result_number(const struct cloche_result *r, const char *name);

/* Captured files ("capture"), by index; NULL beyond the last. */
size_t cloche_result_file_count(const struct cloche_result *r);
const char *cloche_result_file_path(const struct cloche_result *r, size_t index);
const void *cloche_result_file_data(const struct cloche_result *r, size_t index, size_t *ret_len);

/* The whole record as JSON text, one line. */
const char *cloche_result_json(const struct cloche_result *r);

#ifdef __cplusplus
}
#endif

#endif
