/*
 * Is a request that a program inside sends allowed on this connection? Asked for every request, of HTTP/1.1
 * and HTTP/2, since one connection can carry requests for several hosts. The host must be the one that the
 * connection leads to; method and path go to the rules.
 */
#pragma once

#include "base/base.h"
#include "net/rules.h"
#include "wire/http1.h"

#define HTTP_PATH_MAX (16u << 10)

struct secrets;

struct http_refusal {
	int status;
	char why[256];
	char remedy[384];
};

/* Where a connection leads to, and the functions that know the sandbox's rules. */
struct http_place {
	const char *name; /* canonical; "": an address was dialled */
	uint16_t port;
	bool is_tls;  /* both sides speak TLS, and the server's certificate was verified */
	bool is_once; /* a proxy's client: its next request may be for another host */
	void *context;
	/* May a request on this connection be for this host? */
	bool (*may_call_it)(void *context, const char *host, size_t len);
	/* One more request: NULL, or the budget that is used up. */
	const char *(*count)(void *context);
	void (*decide)(void *context, unsigned method, const char *path, struct net_answer *ret);
	/* A request was allowed (r is NULL), or refused. The path is without its query. */
	void (*told)(void *context, const char *method, const char *path,
		     const struct http_refusal *r);
	/* The placeholder of a secret is where no value is put in. */
	void (*noted)(void *context, const char *what);
	/* The value of this secret was put into a request. */
	void (*used)(void *context, const char *secret);
	/* The sandbox's secrets of now, or NULL. */
	struct secrets *(*secrets)(void *context);
};

/* A request on its way: what HTTP/1.1 and HTTP/2 have in common. */
struct http_request {
	const char *method, *target;
	struct http1_field *fields;
	size_t count;
};

/*
 * authority is that of Host, or :authority. The target is in origin-form, or "*". 0, or -1 with the refusal, which
 * was told.
 */
int http_check(const struct http_place *p, const struct http_request *q, const char *authority,
	       struct http_refusal *ret);
/* "host", "host:80", "[::1]:80": how long the host is; -1: malformed. The port stays if the text has none. */
ssize_t http_authority(const char *text, size_t len, uint16_t *port);

/*
 * The ways in which a server may read a path: as it is, decoded once, and decoded twice, each without dot
 * segments and doubled slashes where decoded. All of them must be allowed. Returns how many differ; 0: malformed.
 */
#define HTTP_PATH_FORMS 3
size_t http_path_forms(const char *target, char ret[HTTP_PATH_FORMS][HTTP_PATH_MAX]);

/* A whole answer in HTTP/1.1 that ends the connection. */
/* Everything but letters, digits and -._~ as %XX; free() it. */
char *http_percent_encode(const char *value);
void http_refusal_write(struct buf *out, const struct http_refusal *r, bool no_body);
/* The text of its body. */
size_t http_refusal_text(const struct http_refusal *r, char *text, size_t room);
int http_refuse(struct http_refusal *r, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
