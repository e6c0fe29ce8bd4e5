/* What a guest says of a file (guest_stat of wire/guest.h), and how REST shows it. */
#pragma once

#include "wire/guest.h"
#include "wire/pack.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct guest_stat {
	char path[GUEST_MAX_PATH + 1];
	char kind; /* 'f' 'd' 'l' 'o' */
	uint32_t mode, uid, gid;
	uint64_t size, mtime_ns;
	char owner[64], group[64];
	char target[GUEST_MAX_PATH + 1];
};

/* False if it is malformed. */
bool guest_stat_read(struct unpack *u, struct guest_stat *ret);
/* {"path","name","type","mode","size","mtime","uid","gid","owner","group","target"} */
json_t *guest_stat_json(const struct guest_stat *st);
