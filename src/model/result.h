/*
 * The result record of a run, the same through every door. result_print prints it as the documented
 * JSON object.
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/outcome.h"

struct denial {
	char what[16];	  /* "syscall", "connect", "resolve", "limit", "guard" */
	char target[160]; /* sanitised */
	char rule[80];
	uint64_t count;
	char explain[400];
};

/* Captured output: the head and the tail, with how much there was in all. */
struct capture {
	char *head;
	size_t head_len;
	char *tail; /* in order; NULL unless something was left out between */
	size_t tail_len;
	uint64_t total;
};

struct captured_file {
	char *path; /* relative to the workspace */
	char *data;
	size_t size; /* of data */
	uint64_t real_size;
	bool truncated;
};

struct change {
	char *path;
	const char *kind; /* "added" "modified" "deleted" "skipped" */
	const char *note; /* why it was not applied, or NULL */
};

struct result {
	char id[24];
	struct outcome end;
	char exec_missing[160]; /* ENOENT: the missing interpreter or loader of the file; or "" */
	struct capture out, err;
	bool base64; /* print them as bytes */
	double setup_ms;
	uint64_t net_tx_bytes, net_rx_bytes; /* without the loopback of the sandbox */
	struct captured_file *files;
	size_t file_count;
	struct change *changes;
	size_t change_count;
	bool changes_cut;	 /* there were more */
	bool changes_incomplete; /* the tree was too large to look at all of it */
	bool apply_failed;	 /* a change could not be brought to the host */
	char *cwd;		 /* cwd_file: where the command ended, or NULL */
	int output_errno;	 /* the caller's file could not take the output: why */
	struct denial *denials;
	size_t denial_count;
	char exec_path[4096];	 /* the file that was executed */
	const char *interpreter; /* `cloche code`: what ran it, or NULL */
	/* layers */
	int level;
	layer_set proven, missing;
	uint64_t caps;		 /* root inside: its capabilities, a bit each */
	const char *root_inside; /* "nested" "answered", or NULL: an ordinary user */
	char seccomp[176];	 /* "default@sha256:...", and " own@sha256:..." of --seccomp */
	int landlock_abi;
	const char *cgroup;    /* "v1" "v2" "none" */
	const char *memory;    /* "cgroup" "watch" */
	const char *disk;      /* "tmpfs" "image" "none" */
	const char *encrypted; /* "fscrypt" "none"; NULL: nothing is on a disk */
	const char *network;   /* "tproxy" "ports"; NULL: "none" */
	bool wants_vm; /* its trust level would rather have a virtual machine (auth/trust.h) */
	bool rootless, is_remote; /* is_remote: run by another service, nothing was measured */
	char net_note[240];	  /* why a connection failed that was allowed, or "" */
	char guard_note[160];	  /* what the guard observed but did not refuse, or "" */
	const char *recycled[8];  /* namespaces and other parts reused from an earlier run */
	const char *denial_kinds
		[6]; /* kinds of denials that are observed: "syscall" ...; NULL-terminated */
	const char *notes[8]; /* notes for the caller, NULL-terminated */
};

/* Prints the record as one JSON object and a newline; -1 if it could not be written. */
int result_print(const struct result *r, FILE *to);
/* The same as text without the newline; the caller frees it. */
char *result_text(const struct result *r, size_t *ret_len);
/*
 * The same in several steps, each a fraction of a millisecond, for much output as text (not base64). Takes the
 * output out of r; of the rest of r nothing is needed later.
 */
struct result_printing *result_printing_new(struct result *r);
/* True: the text is complete. */
bool result_printing_step(struct result_printing *p);
/* The caller frees it. */
char *result_printing_take(struct result_printing *p, size_t *ret_len);
void result_printing_free(struct result_printing *p);
/* Its "layers" object alone. */
int result_print_layers(const struct result *r, FILE *to);
/* A sentence for the caller, kept as long as the record; left out if there are too many. */
void result_add_note(struct result *r, const char *note);
/* Appends copies. */
void result_add_denials(struct result *r, const struct denial *from, size_t count);
/* Adds a captured file and takes over path and data. */
void result_add_file(struct result *r, const struct captured_file *f);
void result_done(struct result *r);

/*
 * Captured output as one text: a mark stands where bytes were left out, and no character is split there.
 * add is called for each part.
 */
void capture_join(const struct capture *c, void (*add)(void *to, const char *bytes, size_t len),
		  void *to);
bool capture_is_cut(const struct capture *c);
