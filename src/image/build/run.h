/* RUN: one command in a sandbox over layers; what it wrote becomes a layer. */
#pragma once

#include "image/build/build.h"

struct run_file {
	char *path;
	int memfd; /* the path, a newline, the content; its mode is the file's */
};

struct run {
	struct image_maker *maker;
	const struct image_build *build;
	const char *image; /* hexadecimal digits of an image with the layers below */
	struct list argv, env;
	const char *workdir;
	uint32_t uid, gid;
	bool no_network;
	struct list left_out; /* paths below the root, without a slash in front */
	struct list cached;   /* of those, what is taken for caches */
	struct run_file *files;
	size_t file_count;
};

/*
 * layer gets the layer's hexadecimal digits, "" if nothing was written; cache the same of the cached paths. Both are
 * in the store then.
 */
int run_command(struct run *r, char layer[IMAGE_HEX + 1], char cache[IMAGE_HEX + 1], struct err *e);
void run_add_file(struct run *r, const char *path, const void *bytes, size_t len, mode_t mode);
void run_done(struct run *r);
