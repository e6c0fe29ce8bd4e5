/*
 * The door that speaks Docker's Engine API: containers are sandboxes of the caller, images are those of the daemon's
 * store. Clients reach it by the socket docker.sock beside the daemon's own, or over TCP by paths with a version
 * (/v1.47/...), and by those without one that no other door has. Only if the setting `docker` is on.
 */
#pragma once

#include "base/base.h"

struct api;
struct door;

extern const struct door docker_door;

/* Finds the containers among the sandboxes that were found again. */
void docker_open_all(struct api *api);
/* What the door keeps; before the manager is closed. */
void docker_free(struct api *api);
