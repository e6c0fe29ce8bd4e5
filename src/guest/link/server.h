/* What the parts of the guest share: one struct, passed first. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "guest/guest.h"
#include "guest/link/stream.h"
#include "sandbox/inside/status_page.h"

/*
 * So much may wait to be sent before streams stop sending, and before requests are no longer read.
 */
#define SERVER_HIGH (192u << 10)
#define SERVER_FULL (1u << 20)
#define SERVER_STRANGERS 4
#define SERVER_BUCKETS 64

struct conn;
struct command;
struct worker;
struct port;
struct watcher;
struct warm_host;
struct pending_run;

struct guest {
	struct guest_options options;
	struct loop *loop;
	struct loop_watch listener, signals, notify, dns, ttl;
	struct loop_watch agent; /* fd -1: nobody asked for the agent's socket */
	struct loop_task work;	 /* pump and flush */
	struct conn *conn;	 /* the connection that is served, or NULL */
	unsigned configured;	 /* how often */
	struct conn *strangers[SERVER_STRANGERS];
	struct loop_timer listen_again;
	uint64_t boot_id, generation;
	uint64_t open_files; /* soft limit for commands; 0: the same as ours */

	struct guest_stream *streams, **streams_end;
	struct guest_stream *buckets[SERVER_BUCKETS];
	size_t stream_count;

	/* G_CONFIGURE */
	struct list env;
	char *workdir;
	uint64_t log_bytes;
	uint32_t cpus_milli;

	struct service *services;
	struct command *commands, **commands_end;
	size_t ended_count;
	uint32_t last_eid;
	uint64_t kept_bytes; /* of output, all commands */
	struct loop_timer forget;

	struct warm_host *warm_host; /* or NULL */
	struct pending_run *pending, **pending_end;
	struct loop_timer deadline;

	struct worker *workers;
	struct port *ports;
	struct guest_stream *listeners[8]; /* G_EVENTS */
	struct loop_timer news;
	uint64_t told[STATUS_PAGE_DENIALS]; /* counts that were sent to the listeners */
	struct status_page *page;
	struct watch_state *watch;
};

/* ---- server.c ---- */
/* The buffer for frames; NULL without a connection. */
struct buf *server_out(struct guest *g);
/* Frames were added, or a stream may have something to send. */
void server_wake(struct guest *g);
/* Sends now what waits to be sent. */
void server_send(void *guest);
/*
 * Sends a frame with this header and part of a file, without copying: the file's pages are spliced
 * into the socket. 0: end of file; EAGAIN: another frame is on its way; EINVAL: this file cannot be
 * spliced.
 */
ssize_t server_splice(struct guest *g, const struct guest_header *like, int fd, uint64_t offset,
		      size_t max);
/*
 * Frames added since server_pending returned `before` may wait until others are sent, or until
 * released.
 */
size_t server_pending(const struct guest *g);
void server_hold(struct guest *g, size_t before);
void server_release(struct guest *g);
/* The time to live is over: tells the listeners and stops. */
void server_expire(struct guest *g);
