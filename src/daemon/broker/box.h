/* One sandbox, as the broker sees it; what runs it is its provider's. */
#pragma once

#include "provider/provider.h"

struct daemon;

/* Who is to be answered: a front that was restarted meanwhile is somebody else. */
struct asker {
	uint32_t epoch, serial; /* serial 0: nobody */
};

enum box_state {
	BOX_BOOTING,
	BOX_LIVE,
	BOX_DYING,   /* being destroyed */
	BOX_FOREIGN, /* of another version of cloche: neither adopted nor destroyed */
};

struct box {
	struct instance i; /* first: an instance is the box around it */
	struct daemon *d;
	struct box *next; /* in its bucket */
	enum box_state state;
	bool is_busy; /* one change at a time: pause, resume, limits, a snapshot */
	struct asker *destroyers;
	size_t destroyer_count;
	struct loop_timer again; /* destroying failed */
};

/* NULL if there is none. */
struct box *box_find(struct daemon *d, const char *id);
/* The same, if it is live. */
struct box *box_find_live(struct daemon *d, const char *id);
struct box *box_new(struct daemon *d, const struct provider_row *row, const char *id);
/* What rows call (provider.h). */
void box_init_host(struct daemon *d);
/* Tells the front of one that it did not ask for, or asked for in an earlier life. */
void box_announce(struct box *b);
/* Ends it; who asks is answered when nothing is left. */
void box_destroy(struct box *b, struct asker who);

/* Requests of the front (box_requests.c). */
void box_request_boot(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_connect(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_destroy(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_pause(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_resume(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_update(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_claim(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_stats(struct daemon *d, struct asker who, const struct ipc *m);
