/* Which namespaces a process is in: plain data, compared by verify.c. */
#pragma once

#include "base/base.h"

enum { NS_USER, NS_PID, NS_MOUNT, NS_NET, NS_IPC, NS_UTS, NS_CGROUP, NS_TIME, NS_COUNT };

struct namespace_ids {
	dev_t dev;	     /* of the file system that they are on; 0: not known */
	ino_t ids[NS_COUNT]; /* 0: not known */
};
