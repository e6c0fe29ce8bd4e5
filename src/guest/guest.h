/*
 * cloche-guest: pid 1 of a sandbox of the daemon. It runs commands and file operations for the
 * daemon (wire/guest.h), reaps, answers the filter's notifications and every name query, and ends
 * the sandbox when its time to live is over. It has no privilege and runs under the same filter as
 * its commands.
 */
#pragma once

#include "base/base.h"

struct warm_host_options;

struct guest_options {
	int listener; /* GUEST_FD_LISTENER; -1: there is one link only, and the guest ends with it */
	int link;     /* that link, if listener is -1; the guest owns it */
	int notify, dns, scratch; /* or -1 */
	uint64_t memory_bytes;	  /* 0: a cgroup limits it */
	uint64_t pids;		  /* with memory_bytes */
	uint64_t
		lives_on; /* 1: from the first hello on, the guest survives the process that made it */
	uint64_t root_inside;			   /* enum root_inside */
	const struct warm_host_options *warm_host; /* or NULL */
};

/* Serves until the time to live is over; returns an exit status. */
int guest_serve(const struct guest_options *o);

/* `cloche-guest pack`: the trees of a scratch directory (cwd), as one tar on fd 1. */
int guest_pack(void);
/* `cloche-guest pack-was`: of these only what was changed in the skeleton of the root, on a disk that is used again. */
int guest_pack_was(void);
/*
 * `cloche-guest pack-layer`: what an overlay wrote to its upper directory (cwd), as a layer of an image on fd 1. fd 0
 * has lines: "-PATH" is left out; if there is a "+PATH", nothing else is taken.
 */
int guest_pack_layer(void);
/* `cloche-guest check`: is the tar on fd 0 one that may be restored? */
int guest_check(void);
/*
 * `cloche-guest unpack`, `unpack-as-user`: unpacks the layer on fd 0 below the root directory. fd 1 gets what
 * `assemble` needs to write the same tar again; fd 2 gets lines "NAME NUMBER", or what went wrong.
 */
int guest_unpack(bool owners);
/* `cloche-guest assemble`: the other way round; the layer is below the root directory. */
int guest_assemble(void);
