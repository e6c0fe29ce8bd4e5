/* What the broker knows: shared by its files, by nobody else. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "daemon/broker/box.h"
#include "daemon/broker/front_side.h"
#include "daemon/roles/roles.h"
#include "policy/config.h"

#define BOX_BUCKETS 4096
#define LISTENERS CONFIG_LISTEN

struct listener {
	struct daemon *d;
	struct loop_watch watch; /* of a Unix socket; TCP ones are the front's */
	struct loop_timer again;
	int fd;
	bool is_unix;
	char path[128];
};

struct daemon {
	struct loop *loop;
	struct config *config;
	struct tokens *tokens;
	char *config_file; /* NULL: defaults only */
	struct list listen;
	bool rootless, stopping;
	uid_t uid; /* our own */
	gid_t gid;
	int state, runtime, snapshots_dir; /* directories */
	int lock, runtime_lock;
	int self; /* our own program */
	struct provider_host host;
	struct err unusable[PROVIDER_COUNT]; /* providers of which nothing can be had */
	struct {
		unsigned adopted, reaped, strays;
	} found; /* of earlier brokers, at the start */
	struct box *boxes[BOX_BUCKETS];
	size_t box_count;
	struct role roles[ROLE_COUNT];
	struct config_e2b remote_settings; /* of the role that runs */
	struct front_side front;
	struct audit *audit;
	int audit_for_front;	   /* handed to a new front, */
	bool audit_is_used;	   /* and then not to another */
	unsigned audit_is_renewed; /* how often we looked since it was told to end */
	struct listener listeners[LISTENERS];
	size_t listener_count;
	struct loop_watch signals, files; /* signalfd, inotify */
	struct loop_timer stop_timer;
	int64_t peer_noted_ns;
	struct snapshot_job *snapshot_jobs;
	size_t snapshot_running;
	const char *test_front;
	const char *ephemeral_dir;	  /* NULL: a daemon like any other */
	struct loop_watch ephemeral_life; /* stdin of a private one */
	unsigned last_steps;
	int status;
};

struct token;
/* NULL: there is none of this id, or it is the operator. */
const struct token *daemon_token(const struct daemon *d, const char *owner);
/* The name of a token; "" if there is none, or for the operator. */
const char *daemon_owner_name(const struct daemon *d, const char *owner);

/* Takes no more work, lets what is running finish, then ends. Again: at once. */
void daemon_stop(struct daemon *d);
/* Writes into the audit log what the broker decided by itself. */
void daemon_note(struct daemon *d, const char *what, const char *target, const char *verdict,
		 const char *why);
/* The front has finished, or is gone: when we are stopping, the end is near. */
void daemon_front_is_done(struct daemon *d);
