/* The record that the broker of version 0.1.0 wrote for each sandbox, whatever its provider. */
#pragma once

#include "wire/ipc.h"

struct record_0_1 {
	char magic[8];
	uint32_t size, id_base;
	int64_t pid;
	uint64_t scratch_dev;
	struct {
		uint64_t start_time, pid_ns, mount_ns;
	} identity;
	struct ipc_booted info;
	char remote[REMOTE_ID];	 /* the E2B service's name of the sandbox, or "" */
	char cgroup_table[4096]; /* only as much as is used is in the file */
};
