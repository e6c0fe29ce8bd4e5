/*
 * A certificate authority of one sandbox, for TLS that is opened: its key exists in this process only, and its
 * certificate is trusted inside that sandbox only. A leaf is made for each host when it is first asked for.
 */
#pragma once

#include "base/base.h"

#include <openssl/ssl.h>

struct ca;

EVP_PKEY *ca_key_new(struct err *e);
/* leaf_key is shared by all leaves; the caller keeps it as long as the CA. */
struct ca *ca_new(const char *id, EVP_PKEY *leaf_key, struct err *e);
void ca_free(struct ca *ca);
/* The certificate as PEM text. */
const char *ca_pem(const struct ca *ca);
/* Of a name, or of an address in digits (is_address). Belongs to the CA, until the next call. NULL: e says why. */
X509 *ca_leaf(struct ca *ca, const char *name, bool is_address, struct err *e);
/* The server's context of the sandbox; belongs to the CA. */
SSL_CTX *ca_context(const struct ca *ca);
/* What OpenSSL says last, without paths and codes. */
int ca_error(struct err *e, const char *what);
