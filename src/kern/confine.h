/* Drops every privilege that a role does not need. Runs in the role's own process, after its exec. */
#pragma once

#include "base/base.h"
#include "kern/seccomp.h"

struct role_confinement {
	const char *root;	     /* becomes "/", the only tree there is; or NULL: */
	const char *const *readable; /* the only paths that can be read then, NULL at the end */
	uid_t uid;		     /* as root; otherwise left alone */
	gid_t gid;
	bool rootless;
	bool is_callers; /* of an ordinary user, who cannot drop the bounding set; no_new_privs makes it inert */
	uint64_t open_files;
	const struct seccomp_profile *profile;
};

/* Makes this process die with the broker; call first. */
int confine_to_broker(int broker_socket, struct err *e);
int confine(const struct role_confinement *c, struct err *e);
