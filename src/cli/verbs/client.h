/*
 * The client of the daemon's API, used by its verbs (create, ps, exec ...): the daemon's address,
 * JSON calls, paths. client_verb.h has the options and the output of verbs.
 *
 * The daemon is CLOCHE_URL (http://HOST:PORT or unix:/PATH) with CLOCHE_TOKEN, else the Unix
 * socket of this user's daemon, else that of the system's daemon.
 */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"

#include <jansson.h>

struct client {
	struct http_target target;
	struct http_client *http; /* kept open between calls */
	int status;		  /* of the last answer; 0: there was none */
};

struct config;
/* Reads the daemon's settings from this file. NULL: from the usual files, else the defaults. */
int client_config(struct config *c, const char *file, struct err *e);
int client_init(struct client *c, struct err *e);
void client_done(struct client *c);

/*
 * One JSON call. body: taken over, or NULL. ret: the answer, which the caller frees; NULL if it is
 * not needed. A status other than 2xx is an error with the daemon's message.
 */
int client_call(struct client *c, const char *method, const char *path, json_t *body, json_t **ret,
		struct err *e);
/* For an answer whose head is not 2xx: reads the body and turns it into an error. Returns -1. */
int client_error(struct http_client *h, const struct http_response *r, struct err *e);
/* For 2xx: reads the body as JSON; an empty one is null. The caller frees it. */
int client_answer(struct http_client *h, json_t **ret, struct err *e);
/* Opens a separate connection, for streams. The caller closes it. */
struct http_client *client_connect(const struct client *c, struct err *e);

/*
 * A JSON call for a sandbox, which is named as for client_find. request: "POST /pause", the method
 * and the path below the sandbox.
 */
int client_ask(struct client *c, const char *request, const char *which, json_t *body, json_t **ret,
	       struct err *e);

/* "/v1/sandboxes/ID" and the rest of the path; ID is encoded. The caller frees it. */
char *client_path(const char *id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Finds the id of a sandbox by id, by name, or by the unique start of an id. */
int client_find(struct client *c, const char *id_or_name, char *ret_id, size_t size, struct err *e);
/*
 * All sandboxes as one array, read page by page; NULL: e says why. filter: "&state=...", or "".
 * The daemon remembers ended sandboxes for a while; also_gone includes them.
 */
json_t *client_sandboxes(struct client *c, const char *filter, bool also_gone, struct err *e);

/*
 * Adds K=V pairs to the body as an object of this name, unless there are none. For "env", K alone
 * takes our value.
 */
int client_put_pairs(json_t *body, const char *key, const struct list *pairs, struct err *e);
/* A list as an array of strings; NULL: one of them is not UTF-8. */
json_t *client_list(const struct list *l);
/* Adds a value, which is taken over. NULL, of text that is not UTF-8, is refused and never left out. */
int client_put(json_t *body, const char *key, json_t *value, struct err *e);
/* A JSON string of any bytes; if they are not UTF-8, sanitised. */
json_t *client_text(const char *text);
/* The text of a member, or NULL. */
const char *text_at(const json_t *object, const char *key);
double number_at(const json_t *object, const char *key);
