/* What client and role say to each other: one SOCK_SEQPACKET message each. */
#pragma once

#include "audit/audit.h"

enum audit_type { AUDIT_WRITE = 1, AUDIT_QUERY = 2 };

struct audit_request {
	uint32_t type, serial;
	union {
		struct audit_entry entry;
		struct audit_query query;
	};
};

/* A query's reply has an fd. */
struct audit_reply {
	uint32_t type, serial;
	struct err err; /* kind ERR_NONE: done */
};
