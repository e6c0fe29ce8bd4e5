/* G_CONNECT: a stream to a port inside. */
#pragma once

#include "guest/link/server.h"

/* Was it a child that connects? */
bool connect_reaped(struct guest *g, pid_t pid, int status);
