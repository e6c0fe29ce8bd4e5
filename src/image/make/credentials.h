/*
 * The caller's logins for registries, as `docker login` stores them: ~/.docker/config.json, or config.json in
 * DOCKER_CONFIG; and credential helpers, which run as the caller.
 */
#pragma once

#include "image/fetch.h"

/*
 * Fills user, secret and is_identity if there is a login for this registry. file: the operator's, "" for none, in
 * place of the caller's own; no helper is run then.
 */
int credentials_find(const char *file, const char *registry, struct fetch_site *ret, struct err *e);
