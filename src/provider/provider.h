/*
 * A provider runs sandboxes: as processes of this host (ns), at another service (e2b). Each is one row
 * of functions, and the broker calls nothing else of it.
 *
 *   probe -> boot or adopt -> connect, pause, resume, update, stats, snapshot -> destroy
 *
 * Every function answers through its callback exactly once: from within, or later from the loop. An
 * instance has at most one of pause, resume, update and snapshot going on. Destroy may be called at any
 * time but during a boot; whatever else goes on is answered with an error before destroy is answered.
 * An instance whose boot or adoption failed is destroyed as well, so that nothing of it is left.
 *
 * Starting, stopping and forking are made of these, by the manager.
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "policy/config.h"
#include "provider/can.h"
#include "wire/ipc.h"

#define PROVIDER_COUNT (PROVIDER_E2B + 1)
#define PROVIDER_BLOB 1024

struct provider_row;
struct provider_host;
struct record_0_1;

/* One sandbox: allocated and freed by the broker. */
struct instance {
	struct provider_host *host;
	const struct provider_row *row;
	struct ipc_booted info; /* the row fills in what it knows and proves */
	bool is_doomed;		/* to be destroyed as soon as it is booted */
	/* What the row needs to adopt it under another broker; set by boot, kept by the broker. */
	unsigned char blob[PROVIDER_BLOB];
	void *own; /* the row's; gone once destroy is answered */
};

/* What the broker lends to the rows, and how they tell it what they were not asked. */
struct provider_host {
	void *daemon; /* the broker's own */
	struct loop *loop;
	const struct config *config; /* another one after a reload */
	bool rootless, is_ephemeral; /* is_private: no sandbox outlives the daemon */
	char tag[16];		     /* tells this daemon's cgroups from another's */
	int guest;		     /* programs: the guest, in memory, and cloche-boot */
	int boot_worker;
	int boxes_dir;		   /* for sockets, named after the sandbox's id */
	int volumes[CONFIG_ITEMS]; /* the operator's, as in the configuration */
	bool has_foreign;	   /* there are sandboxes of which the record cannot be read */
	void *rows[PROVIDER_COUNT];
	/* A live instance, or NULL. */
	struct instance *(*find)(struct provider_host *h, const char *id);
	/* A live instance has ended by itself; it is to be destroyed. */
	void (*on_ended)(struct instance *i, bool by_oom, const char *why);
	/* An earlier broker left something of this id. */
	void (*on_leftover)(struct provider_host *h, const struct provider_row *row,
			    const char *id);
	/* The role through which the row works does not keep to the protocol. */
	void (*end_role)(struct provider_host *h, const char *why);
};

struct provider_result {
	int fd; /* boot, connect: the link; net_enter: the socket; else -1. It stays the row's */
	struct ipc_stats stats;
	uint64_t size_bytes; /* of a snapshot */
	char digest[80];
};

/* e NULL: it was done. r is set by those that have a result. */
typedef void (*provider_done)(void *arg, const struct provider_result *r, const struct err *e);

struct provider_row {
	const char *name;
	unsigned can; /* CAN_*; functions for the others may be NULL */
	bool connects_at_once;

	void (*start)(struct provider_host *h);
	void (*stop)(struct provider_host *h);
	/* True if this child was the row's. NULL: it has none. */
	bool (*reaped)(struct provider_host *h, pid_t pid);
	/* The role that works for the row is there, or is gone. Takes sock. NULL: it needs none. */
	void (*role_started)(struct provider_host *h, int sock);
	void (*role_ended)(struct provider_host *h);
	/* Tells what earlier brokers left, once all their records were seen. NULL: nothing can be. */
	void (*find_leftovers)(struct provider_host *h);

	/* Can anything be booted at all, as things are configured? */
	void (*probe)(struct provider_host *h, provider_done done, void *arg);
	void (*boot)(struct instance *i, const struct ipc_boot *b, provider_done done, void *arg);
	/* Makes the blob of a sandbox of version 0.1.0. -1: what the record says does not fit. */
	int (*import_0_1)(struct instance *i, const struct record_0_1 *r, struct err *e);
	/* By info and blob of its record. */
	void (*adopt)(struct instance *i, provider_done done, void *arg);
	/* Another link in place of the one that boot gave. */
	void (*connect)(struct instance *i, provider_done done, void *arg);
	void (*update)(struct instance *i, const struct limits *l, provider_done done, void *arg);
	void (*pause)(struct instance *i, provider_done done, void *arg);
	void (*resume)(struct instance *i, provider_done done, void *arg);
	/* Its files as a tar of at most so many bytes; the file stays the caller's and open. */
	void (*snapshot)(struct instance *i, int file, uint64_t max_bytes, provider_done done,
			 void *arg);
	void (*stats)(struct instance *i, provider_done done, void *arg);
	void (*destroy)(struct instance *i, provider_done done, void *arg);
	/* A socket of this family and type in its network namespace. NULL: unsupported. */
	void (*net_enter)(struct instance *i, int family, int type, provider_done done, void *arg);
};

extern const struct provider_row provider_ns, provider_e2b;

/* By enum provider; NULL: not built. */
const struct provider_row *provider_row(int provider);
