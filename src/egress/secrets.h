/*
 * Secrets of one sandbox: the program inside has a placeholder, and the value is put in on the way to the
 * secret's host, over verified TLS, in the configured header only. What comes back is searched for the value.
 *
 * A set is shared by the sandbox and by all requests that use it; the values are wiped with the last of them.
 */
#pragma once

#include "egress/http_check.h"
#include "egress/redact.h"
#include "wire/egress.h"

#define SECRETS_MAX 64

struct secrets;

/* Rows as EGRESS_SECRETS has them. The uses of a secret of the same name in `old` count on. */
struct secrets *secrets_new(const void *rows, size_t len, const struct secrets *old, struct err *e);
struct secrets *secrets_ref(struct secrets *s);
void secrets_unref(struct secrets *s);
/* Is there a secret for this host and port? Then its TLS is opened. */
bool secrets_has_host(const struct secrets *s, const char *name, uint16_t port);

/* One request with its answer. Zero-initialised is empty. */
struct secret_use {
	struct secrets *set;
	bool is_host; /* a secret belongs to this host: answers are searched */
	struct redact_needle
		own[8]; /* texts made for this request, such as basic credentials; heap */
	size_t own_count;
	char *made[40]; /* values and names of fields, and the target; heap */
	size_t made_count;
	struct redact seen; /* placeholders in the body of the request */
	bool has_leak;	    /* told once */
};

/*
 * Puts values into the fields and the target (which may be changed to point into use). Fields that would let the
 * answer come compressed or in parts are removed. -1: the uses of a secret are up, with the refusal.
 */
int secret_use_begin(struct secret_use *use, const struct http_place *p, struct http_request *q,
		     struct http_refusal *ret);
/* Looks for placeholders in the body of a request; they stay there, and are told. */
void secret_use_body(struct secret_use *use, const struct http_place *p, const char *bytes,
		     size_t len);
/* What to look for in the answer. */
void secret_use_needles(const struct secret_use *use, struct redact *r);
void secret_use_done(struct secret_use *use);
