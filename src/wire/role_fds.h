/* Which fds a role of the daemon is started with. */
#pragma once

enum {
	ROLE_FD_BROKER = 3,
	ROLE_FD_AUDIT,
	ROLE_FD_CONFIG,
	ROLE_FD_DIR,
	/* of the role remote */
	ROLE_FD_GUEST = ROLE_FD_AUDIT,
	ROLE_FD_KEY = ROLE_FD_DIR,
};
