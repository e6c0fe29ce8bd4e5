/*
 * cloche-boot: makes sandboxes for the broker, one after the other. It is a program of its own, small and
 * static, because pid 1 of every sandbox is cloned from it: every other mapping would be copied for each
 * sandbox, and dropped when pid 1 executes the guest.
 *
 *   cloche-boot BROKER     the pid of its parent, which it does not outlive; fds as below
 */
#pragma once

#include "base/base.h"
#include "policy/config.h"
#include "sandbox/inside/boot.h"
#include "wire/ipc.h"

#define BOOT_WORKER_FD_BROKER 3	 /* the socket that jobs come from */
#define BOOT_WORKER_FD_GUEST 4	 /* the program of pid 1 */
#define BOOT_WORKER_FD_SECCOMP 5 /* the operator's profile; may be closed */

/* Of a volume that is a disk. */
struct boot_job_volume {
	uint64_t bytes; /* 0: it is a directory */
	uint8_t has_key;
	unsigned char key[IPC_DISK_KEY_BYTES];
};

/* To a boot worker, with the listener, the volumes and the disk. */
struct boot_job {
	struct ipc_boot boot;
	uint32_t id_base;
	uint8_t root;
	uint8_t has_disk;	       /* the last fd is its file */
	uint8_t is_ephemeral;	       /* the daemon is ephemeral: no sandbox outlives it */
	char image[CONFIG_PATH];       /* "host", the operator's path, or an id */
	char images[CONFIG_PATH + 16]; /* the store that has the id */
	uint8_t has_disk_key;
	unsigned char disk_key[IPC_DISK_KEY_BYTES];
	struct boot_job_volume volumes[IPC_VOLUMES];
	char cgroup[CGROUP_NAME];
	uint32_t lanes;		/* of each kind that a warm host starts with */
	uint32_t preload_count; /* of its interpreter */
	char preload[CONFIG_ITEMS][CONFIG_NAME];
};

/* And back, with the pidfd unless it failed. */
struct boot_result {
	struct err err;
	struct booted booted;
	uint8_t has_was; /* on its disk: disk_has_was */
};
