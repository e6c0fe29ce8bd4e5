/*
 * Messages between `cloche image pull` and cloche-image fetch, on a SOCK_SEQPACKET socket (its fd 0). First the
 * registry; then asks with a file each, at most FETCH_SLOTS at a time; answers come in any order.
 */
#pragma once

#include "image/reference.h"

#define FETCH_SLOTS 3
#define FETCH_MANIFEST_MAX (4u << 20)

struct fetch_site {
	char base[160];	      /* "https://registry-1.docker.io" */
	char repository[200]; /* "library/debian" */
	char ns[128];	      /* of a mirror: the registry that is meant; or "" */
	char user[256], secret[4096];
	bool is_identity; /* secret is an identity token */
	bool is_plain;	  /* plain HTTP is allowed, also for tokens and redirects */
};

struct fetch_ask {
	uint32_t slot;
	bool is_manifest;
	char path[160];		   /* "manifests/12", "blobs/sha256:..." */
	char digest[IMAGE_DIGEST]; /* what it must have, or "" */
	uint64_t max;		   /* bytes */
};

enum fetch_kind { FETCH_PROGRESS, FETCH_DONE, FETCH_FAILED };

struct fetch_answer {
	uint32_t slot;
	enum fetch_kind kind;
	uint64_t bytes; /* so far; may become fewer if the registry makes it start again */
	struct err err;
};
