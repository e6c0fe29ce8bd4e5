/* The role `remote`: does with sandboxes of a service what the broker asks (IPC_REMOTE_*). */
#pragma once

#include "provider/e2b/remote/service.h"

/* Serves until the broker is gone; returns an exit status. */
int remote_role_run(struct loop *l, int broker, struct service *s);
