/* One sandbox, as the broker sees it. */
#pragma once

#include "base/err.h"
#include "base/loop.h"
#include "daemon/halt.h"
#include "sandbox/boot.h"
#include "wire/ipc.h"
#include "wire/remote.h"

struct daemon;

/* Who is to be answered: a front that was restarted meanwhile is somebody else. */
struct asker {
	uint32_t epoch, serial; /* serial 0: nobody */
};

enum box_state {
	BOX_WAITING, /* for a booter */
	BOX_BOOTING,
	BOX_LIVE,
	BOX_DYING, /* killed or dead, being cleared away */
};

struct box {
	struct daemon *d;
	struct box *next;      /* in its bucket */
	struct box *boot_next; /* in the queue */
	enum box_state state;
	struct ipc_booted info;
	pid_t pid;
	int pidfd;
	uint64_t scratch_dev; /* where its files are, as it was before anything ran inside */
	struct boot_identity identity;
	char remote[REMOTE_ID]; /* its name at the service that runs it, or "" */
	int32_t slot;		/* of id ranges; -1: none */
	uint32_t id_base;
	unsigned nest_slots;   /* not 0: a nest */
	char *cgroup_table;    /* of the daemon that made it; NULL: our own */
	int listener;	       /* until it is booted */
	struct ipc_boot *boot; /* until it is booted */
	struct asker booter_asker;
	struct asker *destroyers;
	size_t destroyer_count;
	bool is_doomed; /* destroyed while it was booting */
	/* One change at a time: freezing, thawing, a snapshot. */
	bool is_busy;
	int64_t freeze_until_ns;
	unsigned freeze_tries;
	struct halt halt; /* without a cgroup */
	void (*frozen)(struct box *b, const struct err *e);
	struct asker op_asker;
	struct loop_watch death;
	struct loop_timer timer; /* freezing, or clearing away */
	int64_t dying_since_ns;
};

/* NULL if there is none. */
struct box *box_find(struct daemon *d, const char *id);
struct box *box_new(struct daemon *d, const char *id);
void box_free(struct box *b);
/* Takes a free range of ids; -1 if there is none. */
int32_t box_take_slot(struct daemon *d);
void box_cgroup_name(const struct box *b, char *ret, size_t size);
/* Opens its cgroup; false if it has none. */
bool box_cgroup(const struct box *b, struct cgroup *ret);
/* From now on its death is noticed. */
int box_watch(struct box *b, struct err *e);
/* A new link of a higher generation, written down first; -1 on error. */
int box_connect(struct box *b, struct err *e);
/* Tells the front of one that it did not ask for, or asked for in an earlier life. */
void box_announce(struct box *b);
/* Kills it; who asks is answered when nothing is left. */
void box_destroy(struct box *b, struct asker who);
/* Removes what is left of one whose process is gone. */
void box_clear(struct box *b);

/* Requests of the front (box_requests.c). */
void box_request_boot(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_connect(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_destroy(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_pause(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_resume(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_update(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_claim(struct daemon *d, struct asker who, const struct ipc *m);
void box_request_stats(struct daemon *d, struct asker who, const struct ipc *m);

/* Called by a booter: e is set, or result and pidfd (which is ours) are. */
void box_booted(struct box *b, const struct booted *result, int pidfd, const struct err *e);

/* Freezes or thaws; done is called at once or later. Only if !is_busy. */
void box_freeze(struct box *b, void (*done)(struct box *b, const struct err *e));
int box_thaw(struct box *b, struct err *e);
/* What another broker may have left frozen. */
void box_thaw_leftover(struct box *b);
/* Remembers which file system is its own, while pid 1 is still ours. */
void box_note_scratch(struct box *b);
/* The tmpfs with all that it has written; -1 on error. */
int box_scratch(const struct box *b, struct err *e);
