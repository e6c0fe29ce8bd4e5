/*
 * The result record: what every run ends in, through every door. Printed as the JSON object of the
 * contract by result_print.
 */
#pragma once

#include "model/layer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum status {
	STATUS_EXITED,
	STATUS_SIGNALED,
	STATUS_TIMEOUT,
	STATUS_OOM,
	STATUS_CPU_TIME,
	STATUS_OUTPUT_LIMIT,
	STATUS_KILLED,
	STATUS_COUNT,
};

enum limit_hit { HIT_PIDS = 1, HIT_DISK = 2, HIT_FILE_SIZE = 4, HIT_OUTPUT = 16, HIT_MEMORY = 32 };

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
	enum status status;
	int exit_code;	 /* -1: none */
	int signal;	 /* 0: none */
	bool oom_killed; /* something inside was killed for memory */
	int exec_errno;	 /* the command could not be executed: why; exit_code is 126 or 127 */
	char exec_missing[160]; /* ENOENT: not the file, but what it is to be run by; or "" */
	unsigned limits_hit;
	struct capture out, err;
	bool base64; /* print them as bytes */
	double duration_ms, setup_ms, cpu_ms;
	uint64_t max_rss_bytes;
	int64_t pids_peak;		     /* -1: the host cannot tell */
	int64_t disk_bytes;		     /* -1: the host cannot tell */
	uint64_t net_tx_bytes, net_rx_bytes; /* beyond the sandbox's own loopback */
	struct captured_file *files;
	size_t file_count;
	struct change *changes;
	size_t change_count;
	bool changes_cut;  /* there were more */
	bool apply_failed; /* a change could not be brought to the host */
	int output_errno;  /* the caller's file could not take the output: why */
	struct denial *denials;
	size_t denial_count;
	char exec_path[4096];	 /* the file that was executed */
	const char *interpreter; /* `cloche code`: what ran it, or NULL */
	/* layers */
	int level;
	layer_set proven, missing;
	char seccomp[96]; /* "default@sha256:..." */
	int landlock_abi;
	const char *cgroup;	     /* "v1" "v2" "none" */
	const char *memory;	     /* "cgroup" "watch" */
	const char *disk;	     /* "tmpfs" "none" */
	bool rootless, is_remote;    /* is_remote: of another service, nothing was measured */
	char guard_note[160];	     /* what the guard saw and did not refuse, or "" */
	const char *recycled[8];     /* namespaces and the like that were used before */
	const char *denial_kinds[6]; /* what is observed: "syscall" ...; NULL-terminated */
	const char *notes[8];	     /* what the caller should know, NULL-terminated */
};

const char *status_name(enum status s);
/* The exit status of `cloche run` for this result. */
int result_exit_status(const struct result *r);
/* Prints the record as one JSON object and a newline; -1 if it could not be written. */
int result_print(const struct result *r, FILE *to);
/* Its "layers" object alone. */
int result_print_layers(const struct result *r, FILE *to);
void result_done(struct result *r);
