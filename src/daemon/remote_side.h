/* The broker's side of the role `remote`: sandboxes of another service (wire/remote.h). */
#pragma once

#include "base/err.h"
#include "base/loop.h"
#include "daemon/box.h"

#include <stdbool.h>

struct daemon;
struct remote_asked;

struct remote_side {
	int sock; /* -1: the role does not run */
	struct loop_watch watch;
	uint32_t next_serial;
	struct remote_asked *asked;
};

/* A new role. */
void remote_attach(struct daemon *d, int sock);
/* It is gone, and with it the answers. */
void remote_detach(struct daemon *d);

bool box_is_remote(const struct box *b);
/* What the front asks, of a box that is elsewhere. Each answers who asked. */
void remote_boot(struct box *b);
void remote_connect(struct box *b, struct asker who);
void remote_pause(struct box *b, struct asker who);
void remote_resume(struct box *b, struct asker who);
void remote_destroy(struct box *b);
