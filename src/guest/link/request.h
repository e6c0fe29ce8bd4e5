/*
 * Requests of the guest protocol: the table in request.c describes the payload of each and names
 * the function that answers it. Most payloads are unpacked from that description; requests that
 * hold lists unpack themselves.
 */
#pragma once

#include "guest/link/server.h"

struct work;

#define REQUEST_TEXTS 3
#define REQUEST_NUMBERS 4

/*
 * An unpacked request, each kind of part in the order of the payload; valid while it is answered.
 */
struct unpacked_request {
	char text[REQUEST_TEXTS][GUEST_MAX_PATH]; /* paths are absolute */
	uint64_t number[REQUEST_NUMBERS];
	const char *bytes;
	size_t len;
	struct command *command; /* named by the request */
};

/* Answers a request whose payload was well-formed. */
typedef void request_answer(struct guest_stream *s, const struct unpacked_request *r);
/* The same for a request that unpacks itself; false: malformed, which breaks the link. */
typedef bool request_unpacker(struct guest *g, struct guest_stream *s, struct unpack *u);

/* The same, done by a worker (worker.h). */
typedef void request_work(struct work *w, const struct unpacked_request *r);

/* Takes a request on a new stream; false: malformed. */
bool request_take(struct guest *g, struct guest_stream *s, uint8_t type, struct unpack *u);
bool request_is_known(uint8_t type);

request_unpacker configure_request, exec_request, run_request, fork_request, services_request;
request_answer attach_request, signal_request, resize_request, ack_request, input_request;
request_answer execs_request, stats_request, events_request, denials_request;
request_answer read_request, write_request, stat_request, mkdir_request, move_request,
	remove_request, chmod_request, xattr_set_request, xattr_list_request;
request_answer watch_request, connect_request, accept_request;
request_work list_work, search_work, tar_out_work, tar_in_work, move_work, remove_work, read_work;
