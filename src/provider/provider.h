/*
 * A provider runs sandboxes: as processes of this host (ns), or at another service (e2b). Each provider is
 * one row of functions, and the broker calls nothing else of it.
 *
 *   probe -> boot or adopt -> connect, pause, resume, update, stats, snapshot -> destroy
 *
 * Every function calls its callback exactly once: before it returns, or later from the loop. The broker asks
 * for at most one of pause, resume, update and snapshot of an instance at a time. Destroy may be called at
 * any time but during a boot; calls that are not finished fail before destroy is answered. An instance whose
 * boot or adoption failed is destroyed as well, so that nothing of it is left.
 *
 * The manager makes start, stop and fork out of these.
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "net/redirect.h"
#include "policy/config.h"
#include "provider/can.h"
#include "wire/ipc.h"

#define PROVIDER_COUNT (PROVIDER_E2B + 1)
#define PROVIDER_BLOB 1024

struct provider_row;
struct provider_host;
struct record_0_1;

/* A volume that is a disk. */
struct instance_volume {
	int file; /* locked as it is to be mounted; -1: the volume is a directory of the operator's */
	uint64_t bytes;
	bool has_key;
	unsigned char key[IPC_DISK_KEY_BYTES];
};

/* One sandbox: allocated and freed by the broker. */
struct instance {
	struct provider_host *host;
	const struct provider_row *row;
	struct ipc_booted info; /* the row fills in what it has proven */
	bool is_doomed;		/* to be destroyed as soon as it is booted */
	bool has_disk_key;	/* boot: the disk is encrypted with this; wiped by the row */
	unsigned char disk_key[IPC_DISK_KEY_BYTES];
	int disk_from; /* boot: a disk to begin with a copy of; the broker's. -1: none */
	/* boot: by the volumes of the request; the broker's. NULL: none of them is a disk */
	struct instance_volume *volumes;
	uint32_t volume_count;
	/* What the row needs to adopt it in a later broker. Set by boot, stored by the broker. */
	unsigned char blob[PROVIDER_BLOB];
	void *own; /* the row's own state; freed before destroy is answered */
};

/* What the broker offers to the rows, and the functions by which they report events. */
struct provider_host {
	void *daemon; /* struct daemon */
	struct loop *loop;
	const struct config *config; /* replaced by a reload */
	bool rootless, is_ephemeral; /* is_ephemeral: no sandbox outlives the daemon */
	char tag[16];		     /* part of the names of this daemon's cgroups */
	int guest;		     /* programs: the guest, as a memfd, and cloche-boot */
	int boot_worker;
	int own_seccomp; /* sandbox.seccomp, compiled; 0: none */
	int boxes_dir;	 /* for sockets, named after the sandbox's id */
	int disks_dir; /* ID.img; one that is there before its sandbox is booted is to be used again */
	int volumes[CONFIG_ITEMS]; /* directories, in the order of the configuration */
	bool has_foreign;	   /* some sandboxes have a record that cannot be read */
	void *rows[PROVIDER_COUNT];
	/* A live instance, or NULL. */
	struct instance *(*find)(struct provider_host *h, const char *id);
	/* A live instance has ended by itself; the broker destroys it. */
	void (*on_ended)(struct instance *i, bool by_oom, const char *why);
	/* Something of a sandbox with this id exists. */
	void (*on_leftover)(struct provider_host *h, const struct provider_row *row,
			    const char *id);
	/* The row's role broke the protocol. */
	void (*end_role)(struct provider_host *h, const char *why);
	void (*role_answered)(struct provider_host *h);
};

struct provider_result {
	int fd; /* boot, connect: the link; net_enter: the socket; else -1. The row closes it */
	struct net_listeners *listeners; /* net_prepare: the callback's; else NULL */
	struct ipc_stats stats;
	uint64_t size_bytes;	 /* of a snapshot */
	bool is_disk, is_shared; /* the snapshot is a disk; it shares blocks with the sandbox's */
	uint32_t frozen_ms;
	char digest[80];
};

/* e NULL: success. r is set by functions that have a result. */
typedef void (*provider_done)(void *arg, const struct provider_result *r, const struct err *e);

struct provider_row {
	const char *name;
	unsigned can; /* CAN_*; functions for the others may be NULL */
	bool connects_at_once;

	void (*start)(struct provider_host *h);
	void (*stop)(struct provider_host *h);
	/* True if this child belonged to the row. NULL: the row has no children. */
	bool (*reaped)(struct provider_host *h, pid_t pid);
	/* The row's role was started, or has ended. Takes sock. NULL: the row needs no role. */
	void (*role_started)(struct provider_host *h, int sock);
	void (*role_ended)(struct provider_host *h);
	/* Sends a ping, which the host hears answered (role_answered). */
	void (*role_ping)(struct provider_host *h);
	/* Reports what earlier brokers left, after all records were read. NULL: nothing can be left. */
	void (*find_leftovers)(struct provider_host *h);

	/* Can anything be booted with this configuration? */
	void (*probe)(struct provider_host *h, provider_done done, void *arg);
	void (*boot)(struct instance *i, const struct ipc_boot *b, provider_done done, void *arg);
	/* Makes the blob out of a record of version 0.1.0. -1: it does not fit. */
	int (*import_0_1)(struct instance *i, const struct record_0_1 *r, struct err *e);
	/* Takes info and blob from its record. */
	void (*adopt)(struct instance *i, provider_done done, void *arg);
	/* Opens another link in place of the one that boot returned. */
	void (*connect)(struct instance *i, provider_done done, void *arg);
	void (*update)(struct instance *i, const struct limits *l, provider_done done, void *arg);
	void (*pause)(struct instance *i, provider_done done, void *arg);
	void (*resume)(struct instance *i, provider_done done, void *arg);
	/* Writes its files to file, as a tar or as a disk of at most max_bytes; the caller keeps file open. */
	void (*snapshot)(struct instance *i, int file, uint64_t max_bytes, provider_done done,
			 void *arg);
	/* What must be brought back to a disk that is used again: a tar. NULL: unsupported. */
	void (*disk_read)(struct instance *i, int file, provider_done done, void *arg);
	int (*disk_done)(struct instance *i, struct err *e);
	void (*stats)(struct instance *i, provider_done done, void *arg);
	void (*destroy)(struct instance *i, provider_done done, void *arg);
	/* Opens a socket of this family and type in its network namespace. NULL: unsupported. */
	void (*net_enter)(struct instance *i, int family, int type, provider_done done, void *arg);
	/* Makes its network namespace lead to new listeners, in place of earlier ones. */
	void (*net_prepare)(struct instance *i, const struct net_setup *setup, provider_done done,
			    void *arg);
	/* Has programs inside trust this CA, in place of an earlier one; the blob may change. NULL: unsupported. */
	void (*trust)(struct instance *i, const char *pem, size_t len, provider_done done,
		      void *arg);
};

extern const struct provider_row provider_ns, provider_e2b;

/* By enum provider; NULL: not built. */
const struct provider_row *provider_row(int provider);
