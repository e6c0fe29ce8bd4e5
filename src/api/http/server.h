/*
 * The HTTP/1.1 server, in the loop: connections come from listeners and from the broker, and are counted as
 * those of the operator, of a tenant, or of strangers.
 *
 *   struct api api = {.loop = l, .manager = m, .audit = a, .config = c, .tokens = t};
 *   api_start(&api, &e);                          makes server and metrics, adds every door
 *   server_listen(api.server, tcp_listener);
 *   server_add_peer(api.server, fd, &peer);       an accepted, checked Unix connection
 *   server_drain(api.server, false);              new requests are answered 503, no keep-alive
 *   ... until server_busy(api.server) is 0 ...
 *   api_stop(&api);
 */
#pragma once

#include "api/http/http.h"
#include "wire/ipc.h"

/* Fills in api->server and api->metrics. */
int api_start(struct api *api, struct err *e);
/* Ends every exchange as if its client had gone, then frees both. Before the manager is closed. */
void api_stop(struct api *api);

struct server *server_new(struct api *api);
void server_free(struct server *s);
void server_add_door(struct server *s, const struct door *d);

/* Takes the listening socket over. */
int server_listen(struct server *s, int fd, struct err *e);
/* HOST:PORT of a listening TCP socket; false: there is none. */
bool server_address(const struct server *s, char *ret, size_t size);
/* Takes the connection over. A peer that is not the operator needs a token. */
void server_add_peer(struct server *s, int fd, const struct ipc_peer *peer);
/* Opens the ports of the host that lead into this sandbox. e: one of them could not be opened. */
typedef void (*published_done)(void *arg, struct sandbox *s, const struct err *e);
void server_publish(struct server *s, struct sandbox *box, published_done done, void *arg);
/* The same for all sandboxes that were found again. */
void server_publish_all(struct server *s);
/* Serves the agent that runs in this sandbox, if there is one, until the sandbox is destroyed. */
void server_open_agent(struct server *s, struct sandbox *box);
void server_open_all_agents(struct server *s);
/* leaves_sockets: connections are left to another process that has the same listening sockets. */
void server_drain(struct server *s, bool leaves_sockets);
bool server_is_draining(const struct server *s);
/* Exchanges that are not yet answered, without those that have no end of their own. */
size_t server_busy(const struct server *s);
/* The tokens have changed: closes connections whose request is of a token that is gone or has expired. */
void server_cut_revoked(struct server *s);
size_t server_connections(const struct server *s);

/* ---- /metrics: counters and histograms, and what the manager counts ---- */
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* One request was answered. */
void metrics_answer(struct metrics *m, const struct exchange *x, int status);
void metrics_error(struct metrics *m, const char *kind);
/* One /v1/run, or task of a batch. */
void metrics_run(struct metrics *m, int64_t since_ns);
/* Prometheus text format. */
void metrics_write(const struct metrics *m, const struct api *api, struct buf *to);
