/* The configuration of an image while it is built: lists and texts, from JSON and to JSON. */
#pragma once

#include "image/make/make.h"

struct build_config {
	struct list layers; /* diff_ids as hexadecimal digits, lowest first */
	struct list env, entrypoint, cmd, label, port, volume, shell, onbuild;
	struct list history; /* JSON objects */
	char *workdir, *user, *platform, *created, *stopsignal, *health;
	bool has_cmd, has_entrypoint; /* set by this build, be it to nothing */
};

/* Reads the configuration of an image of the store. */
int build_config_read(struct image_maker *m, const char *hex, struct build_config *ret,
		      struct err *e);
void build_config_copy(const struct build_config *from, struct build_config *ret);
void build_config_done(struct build_config *c);
/* Sets "K=V" in a list of those. */
void build_config_set(struct list *pairs, const char *pair);
/* Replaces a text. */
void build_config_put(char **member, const char *text);
void build_config_history(struct build_config *c, const char *by, bool is_empty);
/* Writes it as JSON and adds the image; hex gets its id. */
int build_config_make(struct image_maker *m, const struct build_config *c, char hex[IMAGE_HEX + 1],
		      struct err *e);
