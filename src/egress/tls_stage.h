/*
 * TLS in the middle, as a stage: the client's TLS ends here, with a certificate of the sandbox's own CA, and
 * another one to the server begins, whose certificate is verified against the store. What is inside goes through
 * http_filter or h2.
 */
#pragma once

#include "egress/ca.h"
#include "egress/http_check.h"
#include "egress/stage.h"

struct tls_stage_settings {
	struct http_place place; /* copied; is_tls is set here */
	struct ca *ca;
	EVP_PKEY *leaf_key;
	SSL_CTX *upstream;  /* with the store that is believed in */
	const char *digits; /* the address as text, for a place without a name */
};

/* NULL: e says why. */
struct stage *tls_stage_new(const struct tls_stage_settings *settings, struct err *e);
/* The context for servers, with a store that tls_stage.c's caller fills. */
SSL_CTX *tls_upstream_context(struct err *e);
/* If the client broke it off: why, such as that it does not trust the CA. NULL otherwise. */
const char *tls_stage_why(const struct stage *s);
