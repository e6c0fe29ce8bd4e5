/*
 * The client of the daemon's API that its verbs (create, ps, exec ...) share: where the daemon is,
 * JSON calls, paths. Options and output of the verbs are client_verb.h's.
 *
 * The daemon is CLOCHE_URL (http://HOST:PORT or unix:/PATH) with CLOCHE_TOKEN, or else the Unix
 * socket of this user's daemon, or else that of the system's.
 */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"

#include <jansson.h>

struct client {
	struct http_target target;
	struct http *http; /* kept open between calls */
	int status;	   /* of the last call's answer; 0: there was none */
};

struct config;
/* The daemon's settings: of this file, or NULL: of where they usually are; else the defaults. */
int client_config(struct config *c, const char *file, struct err *e);
int client_init(struct client *c, struct err *e);
void client_done(struct client *c);

/*
 * One JSON call. body: taken over, or NULL. ret: the answer, or NULL where nobody cares; the caller
 * frees it. A status other than 2xx is an error with the daemon's own words.
 */
int client_call(struct client *c, const char *method, const char *path, json_t *body, json_t **ret,
		struct err *e);
/* The head of an answer is there and is not 2xx: reads the rest and makes an error of it. Returns -1. */
int client_error(struct http *h, const struct http_response *r, struct err *e);
/* The same for 2xx: the rest is JSON, or nothing (null). The caller frees it. */
int client_answer(struct http *h, json_t **ret, struct err *e);
/* A connection of one's own, for streams; the caller closes it. */
struct http *client_connect(const struct client *c, struct err *e);

/*
 * The same for a sandbox that is given as for client_find. request: "POST /pause", the method and what
 * follows the sandbox in the path.
 */
int client_ask(struct client *c, const char *request, const char *which, json_t *body, json_t **ret,
	       struct err *e);

/* "/v1/sandboxes/ID" and what follows; ID is encoded. The caller frees it. */
char *client_path(const char *id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The id of a sandbox given by id, by name, or by the unique start of an id. */
int client_find(struct client *c, const char *id_or_name, char *ret_id, size_t size, struct err *e);
/*
 * All sandboxes, page after page, as one array; NULL: e says why. filter: "&state=...", or "". The
 * daemon remembers those that ended for a while: also_gone wants them as well.
 */
json_t *client_sandboxes(struct client *c, const char *filter, bool also_gone, struct err *e);

/* K=V pairs as an object of the body, by this name; none: no member. For "env" K alone copies ours. */
int client_put_pairs(json_t *body, const char *key, const struct list *pairs, struct err *e);
/* A list as an array of strings. */
json_t *client_list(const struct list *l);
/* A string of any bytes; of those that are not UTF-8 a sanitised one. */
json_t *client_text(const char *text);
/* Text of a member, or NULL. */
const char *text_at(const json_t *object, const char *key);
double number_at(const json_t *object, const char *key);
