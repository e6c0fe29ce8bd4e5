/* What the files of the native provider share. */
#pragma once

#include "net/redirect.h"
#include "provider/snapshot_worker.h"
#include "provider/provider.h"
#include "sandbox/inside/boot.h"

#include <sys/queue.h>

#define BOOT_WORKERS 4
#define ID_RANGES                                                                                  \
	0x3ff0 /* of 65536 ids each, from ID_RANGE_FIRST on; below are those of cloche run */
#define ID_RANGE_FIRST 0x4000

struct ns_sandbox;

/* A tree of processes that was stopped by signals. */
struct stop_tree {
	pid_t *own; /* had stopped before, and are not continued with the others */
	size_t own_count;
};

/* One cloche-boot process: boots one sandbox at a time. */
struct boot_worker {
	struct ns *ns;
	pid_t pid; /* 0: not running */
	int sock;
	struct ns_sandbox *busy;
	bool has_worked; /* since it was started */
	struct loop_watch watch;
	struct loop_timer timer; /* of the boot, or until it is started again */
};

/* The instance's blob: what an adopting broker needs. The pid comes first, because tests read it. */
struct ns_blob {
	int64_t pid;
	uint64_t scratch_dev; /* of its files, noted before anything ran inside */
	struct boot_identity identity;
	uint32_t id_base;
	uint32_t warm_host_lanes;	       /* not 0: a warm host */
	char cgroup_table[PROVIDER_BLOB - 56]; /* of the daemon that made it */
	uint64_t trust_dev;		       /* of the files about its CA; 0: there are none */
};

#define DISK_POOL 4

/* Disks that are made before anybody asks for one, as large as the one that was asked for last. */
struct ns_disk_pool {
	uint64_t limit;		   /* 0: nobody has asked yet */
	uint64_t ready[DISK_POOL]; /* limits; 0: free. The file is `pool-N` */
	struct snapshot_worker maker;
	size_t making;
	int file;
};

struct ns {
	struct provider_host *host;
	struct cgroup_place cgroups; /* where this daemon makes cgroups */
	char cgroup_table[sizeof(((struct ns_blob *)0)->cgroup_table)];
	bool has_table; /* false: the table does not fit into a blob */
	uint8_t ranges[ID_RANGES];
	uint32_t next_range;
	struct boot_worker boot_workers[BOOT_WORKERS];
	struct ns_sandbox *first, **last; /* wait for a boot worker */
	struct {
		TAILQ_HEAD(, ns_sandbox) all;
		struct ns_sandbox *next; /* to be looked at */
		uint16_t busy[256];
		struct loop_timer timer;
	} weigh; /* weights.c */
	struct ns_disk_pool disks;
};

struct ns_sandbox {
	struct ns *ns;
	struct instance *i;
	struct ns_sandbox *next; /* in the queue of the boot workers */
	struct ns_blob at;
	int pidfd;
	int listener;			   /* until it is booted */
	bool disk_has_files, disk_has_was; /* its disk is one that was used */
	struct snapshot_worker cleaner;	   /* of a disk that was used */
	int frozen_disk;       /* a directory on it, while a snapshot is made; else -1 */
	struct ipc_boot *boot; /* until it is booted */
	int32_t range;	       /* of ids; -1: none */
	bool is_ours;	       /* booted by this process, or tried to be */
	/* The call that goes on: boot, pause or snapshot. */
	provider_done done;
	void *arg;
	provider_done destroyed;
	void *destroyed_arg;
	struct loop_watch death;
	struct loop_timer timer; /* freezing, or clearing away */
	int64_t dying_since_ns;
	char cgroup[CGROUP_NAME]; /* "": not looked for yet */
	struct {
		TAILQ_ENTRY(ns_sandbox) list;
		bool is_weighed, is_busy;
		int64_t looked_ns;
		uint64_t used_us, use; /* use: thousandths of a processor */
		unsigned weight;
	} alone; /* in no group: weights.c */
	void (*frozen)(struct ns_sandbox *s, const struct err *e);
	int64_t freeze_until_ns;
	unsigned freeze_tries;
	struct stop_tree stopped;		/* without a cgroup */
	struct snapshot_worker snapshot_worker; /* while a snapshot is made */
};

/* ---- ns.c ---- */
struct ns *ns_of(const struct provider_host *h);
/* Made if the instance has none yet. */
struct ns_sandbox *ns_sandbox(struct instance *i);
/* Answers the call that goes on, if there is one. */
void ns_answer(struct ns_sandbox *s, const struct provider_result *r, const struct err *e);
/* Where its cgroup is made. */
void ns_cgroup_choose(struct ns_sandbox *s);
/* Where its cgroup is, if it has one. */
const char *ns_cgroup_name(struct ns_sandbox *s);
/* Opens its cgroup; false if it has none. */
bool ns_cgroup(struct ns_sandbox *s, struct cgroup *ret);
/* The tmpfs with all files that the sandbox has written; -1 on error. */
int ns_scratch(const struct ns_sandbox *s, struct err *e);
/* Called by a boot worker: e is set, or result and pidfd (which is taken) are. */
void ns_booted(struct ns_sandbox *s, const struct booted *result, int pidfd, const struct err *e);

/* ---- weights.c ---- */
/* From now on, if its cgroup is in no group. */
void ns_weigh(struct ns_sandbox *s);
void ns_weigh_no_more(struct ns_sandbox *s);

/* ---- boot_workers.c ---- */
void boot_workers_start(struct ns *ns);
void boot_workers_stop(struct provider_host *h);
/* Queues it; ns_booted is called in the end. */
void boot_workers_add(struct ns_sandbox *s);
/* True if this child was a boot worker, which is started anew. */
bool boot_workers_reaped(struct provider_host *h, pid_t pid);

/* ---- freeze.c ---- */
void ns_pause(struct instance *i, provider_done done, void *arg);
void ns_resume(struct instance *i, provider_done done, void *arg);
void ns_snapshot(struct instance *i, int file, uint64_t max_bytes, provider_done done, void *arg);
/* Thaws a sandbox that an earlier broker may have frozen only to copy it. */
void ns_thaw_leftover(struct ns_sandbox *s);
/* Before it is killed: ends freezing and copying, and answers the call that waits for them. */
void ns_stop_freezing(struct ns_sandbox *s);

/* ---- disks.c ---- */
/* Makes or takes its disk, then boots it. */
void ns_disk_begin(struct ns_sandbox *s);
/* It is booted: removes in the background what the last sandbox on its disk has left. */
void ns_disk_clean(struct ns_sandbox *s);
/* Its file; -1 on error. */
int ns_disk_open(const struct ns_sandbox *s, struct err *e);
void ns_disk_remove(const struct ns_sandbox *s);
void ns_disks_stop(struct ns *ns);
void ns_disk_snapshot(struct ns_sandbox *s, int file, uint64_t max_bytes);
/* A broker that died may have left it frozen. */
void ns_disk_thaw(struct ns_sandbox *s);
void ns_disk_read(struct instance *i, int file, provider_done done, void *arg);
int ns_disk_done(struct instance *i, struct err *e);

/* ---- usage.c ---- */
void ns_update(struct instance *i, const struct limits *l, provider_done done, void *arg);
void ns_stats(struct instance *i, provider_done done, void *arg);

/* ---- net_enter.c ---- */
/* A socket in the network namespace of this process; -1 on error. */
int net_enter(int pidfd, bool rootless, int family, int type, struct err *e);
/* Makes the network namespace of this process lead to listeners, which are the caller's. */
int net_prepare(int pidfd, bool rootless, const struct net_setup *setup, struct net_listeners *ret,
		struct err *e);

/* ---- trust_enter.c ---- */
struct trust_visit {
	int pidfd; /* of pid 1 */
	bool rootless;
	uid_t uid; /* as root: of the user inside */
	const char *pem;
	size_t len;
	uint64_t dev; /* of the files that were shown before, or 0 */
};
/* Returns as soon as the files are there. */
int trust_enter(const struct trust_visit *v, uint64_t *ret_dev, struct err *e);

/*
 * ---- stop_tree.c ----
 * Stops all processes of a sandbox that has no cgroup to freeze: by signals, from outside, from pid 1
 * downwards, until none of them runs. All of them are below pid 1, because orphans become its children.
 */
/* Before the first stop_tree_step. */
void stop_tree_begin(struct stop_tree *h, pid_t top);
/* How many were still running and have been sent the signal now; 0: all stand still. */
size_t stop_tree_step(pid_t top, ino_t pid_ns);
/* Continues all others, from the leaves upwards, and frees the list. */
void stop_tree_end(struct stop_tree *h, pid_t top, ino_t pid_ns);
/* Was this process stopped by a signal? */
bool stop_tree_is_stopped(pid_t pid);
