/*
 * Requests of the guest protocol: request.c has a table that says what the payload of each holds and
 * which function answers it. Most payloads are unpacked here, from a description; those that hold
 * lists unpack themselves.
 */
#pragma once

#include "guest/link/server.h"

struct work;

#define REQUEST_TEXTS 3
#define REQUEST_NUMBERS 4

/* What was unpacked, each kind in the order of the payload; valid while the request is answered. */
struct request {
	char text[REQUEST_TEXTS][GUEST_MAX_PATH]; /* paths are absolute */
	uint64_t number[REQUEST_NUMBERS];
	const char *bytes;
	size_t len;
	struct command *command; /* that the request names */
};

/* Answers a request whose payload was in order. */
typedef void request_answer(struct stream *s, const struct request *r);
/* The same for one that unpacks itself; false: its payload is malformed, which breaks the link. */
typedef bool request_unpacker(struct guest *g, struct stream *s, struct unpack *u);

/* The same, done by a worker (worker.h). */
typedef void request_work(struct work *w, const struct request *r);

/* On a new stream; false: there is no such request, or it is malformed. */
bool request_take(struct guest *g, struct stream *s, uint8_t type, struct unpack *u);
bool request_is_known(uint8_t type);

request_unpacker configure_request, exec_request, run_request, fork_request;
request_answer attach_request, signal_request, resize_request, ack_request, input_request;
request_answer execs_request, stats_request, events_request, denials_request;
request_answer read_request, write_request, stat_request, mkdir_request, move_request,
	remove_request, chmod_request, xattr_set_request, xattr_list_request;
request_answer watch_request, connect_request;
request_work list_work, search_work, tar_out_work, tar_in_work, move_work, remove_work;
