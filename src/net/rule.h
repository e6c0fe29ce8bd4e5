/* One rule: text to row. Used by the maker of policies (rules.c); everything else works on rows. */
#pragma once

#include "net/rules.h"

#define NET_PATH 512

struct net_rule_text {
	struct net_rule row; /* without offsets, stage and verdict */
	char name[NET_NAME]; /* canonical, of NET_RULE_NAME and NET_RULE_BELOW */
	char path[NET_PATH]; /* "" : every path */
};

int net_rule_parse(const char *text, enum net_verdict verdict, struct net_rule_text *ret,
		   struct err *e);

/*
 * Copies the path of a request without its query, with harmless percent codes decoded. False if programs read it
 * differently: dot segments, doubled slashes, encoded slashes, control characters.
 */
bool net_path_clean(const char *path, char *ret, size_t size);
/* Is a clean path the prefix itself, or below it? */
bool net_path_has_prefix(const char *path, const char *prefix);

/* A named set: rows of policies/net/NAME.txt. */
struct net_set_row {
	const char *set, *rule, *reason;
};
extern const struct net_set_row net_set_rows[];
extern const size_t net_set_row_count;
