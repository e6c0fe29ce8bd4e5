/* The files of the program cloche-tls: certificates, and connections that are decrypted. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "wire/ipc_channel.h"

#include <openssl/ssl.h>

#define TLS_NAMES 64

/* ---- certificates.c ---- */
/*
 * Certificates and the key of a server as one PEM text, checked: they can be read, belong together and are in
 * force. The caller frees it with OPENSSL_free.
 */
char *certificates_from_files(const char *cert, const char *key, struct err *e);
/*
 * The same, made by a CA of our own: ca.pem, ca.key and tls.pem (certificate and key) in this directory, each made
 * if it is not there or ends soon. names: of hosts, and addresses in digits.
 */
char *certificates_own(const char *dir, char *const *names, struct err *e);
/* Makes a new CA, whose certificates replace those of the old one. */
int certificates_renew(const char *dir, struct err *e);
/* A context for connections, from such a text. */
SSL_CTX *certificates_context(const char *pem, size_t len, struct err *e);

/* ---- connections.c ---- */
struct door;

/* on_open gets one end of a socket pair with the plain bytes; it closes the fd. */
typedef void door_open(void *arg, int fd, const char *address);
struct door *door_new(struct loop *loop, door_open *on_open, void *arg);
/* For connections from now on; takes ctx. */
void door_set_context(struct door *d, SSL_CTX *ctx);
/* Takes fd, a listening socket. */
int door_listen(struct door *d, int fd, struct err *e);
