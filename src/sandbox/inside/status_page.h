/*
 * The status page: memory shared by the keeper, pid 1 and, until its exec, the command's process.
 * Through it pid 1 reports to the keeper: plain data, no parsing. Code inside never has it: exec
 * drops the mapping, and pid 1 can be neither traced nor read.
 */
#pragma once

#include "model/layer.h"
#include "sandbox/inside/net.h"

/* Which namespaces a process is in; compared by verify.c. */
enum { NS_USER, NS_PID, NS_MOUNT, NS_NET, NS_IPC, NS_UTS, NS_CGROUP, NS_TIME, NS_COUNT };

struct namespace_ids {
	dev_t dev;	     /* of the namespaces' file system; 0: not known */
	ino_t ids[NS_COUNT]; /* 0: not known */
};

enum stage {
	STAGE_SETUP,   /* being built */
	STAGE_RUNNING, /* the command was executed */
	STAGE_ENDED,   /* wait_status is valid */
};

/* Why pid 1 ended the run by itself; only where no cgroup does it. */
enum watch_verdict { WATCH_NONE, WATCH_MEMORY, WATCH_CPU_TIME };

enum denial_kind { DENIAL_SYSCALL, DENIAL_CONNECT, DENIAL_RESOLVE };

/* Bits: mounts whose files could not be given to the user inside; see map_owner. */
enum unmapped { UNMAPPED_WORKSPACE = 1, UNMAPPED_MOUNT = 2, UNMAPPED_ROOT = 4 };

#define STATUS_PAGE_DENIALS 64

struct status_denial {
	enum denial_kind kind;
	int report;	  /* DENIAL_SYSCALL: index into the reports of the profile */
	char target[160]; /* sanitised */
	uint64_t count;
	uint32_t owner;	 /* guest only: the command, 0: unknown */
	int64_t last_ns; /* CLOCK_MONOTONIC */
};

struct status_page {
	enum stage stage;
	struct err err;		  /* kind set: the sandbox could not be built */
	struct net_help net;	  /* rootless, while it is built */
	int exec_errno;		  /* the command could not be executed */
	char exec_missing[160];	  /* its interpreter, if that is missing; sanitised */
	char exec_path[PATH_MAX]; /* the file that was executed */
	int wait_status;	  /* of the command, from the kernel */
	int64_t started_ns;	  /* CLOCK_MONOTONIC just before the command's process was made */
	int64_t ended_ns;
	int processor;			  /* where pid 1 runs, plus one; 0: not known yet */
	int redirect;			  /* enum net_redirect: proven by net_redirect */
	const struct net_setup *leads_to; /* in pid 1: what is redirected; NULL: nothing */
	layer_set proven;
	uint64_t caps; /* root inside: the capabilities that the command had when they were tried */
	ino_t outer_user_ns; /* root inside: of pid 1 */
	int inner_listener;  /* root inside: of the command's filter, in pid 1's table; or -1 */
	int landlock_abi;
	bool canary_opens; /* without Landlock, see verify.h */
	bool listening;	   /* to the filter's notifications */
	enum watch_verdict verdict;
	uint64_t watched_cpu_ns; /* processor time, where it is limited and no cgroup counts it */
	bool pids_reached;	 /* as far as a watch can see */
	uint64_t scratch_bytes;	 /* used by the skeleton, before the command ran */
	bool upper_limited;	 /* directories of the workspace cannot be removed */
	bool workspace_linked;	 /* /workspace is a link to where it is shown */
	unsigned unmapped;	 /* enum unmapped: mounts of file systems that cannot map ids */
	uint32_t owner;		 /* of the next denials */
	unsigned denial_count;
	uint64_t denials_dropped;
	struct status_denial denials[STATUS_PAGE_DENIALS];
};
