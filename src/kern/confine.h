/* Gives up everything that a role does not need. In the role's own process, after its exec. */
#pragma once

#include "base/base.h"
#include "kern/seccomp.h"

struct confinement {
	const char *root;	     /* becomes "/", and all that there is; or NULL: */
	const char *const *readable; /* all that can be read then, ended by NULL */
	uid_t uid;		     /* as root; otherwise left alone */
	gid_t gid;
	bool rootless;
	uint64_t open_files;
	const struct seccomp_profile *profile;
};

/* Dies with the broker; call first. */
int confine_to_broker(int broker_socket, struct err *e);
int confine(const struct confinement *c, struct err *e);
