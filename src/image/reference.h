/*
 * Names of images, as Docker writes them: [REGISTRY/]REPOSITORY[:TAG][@DIGEST]. "debian:12" stands for
 * "docker.io/library/debian:12"; the short form is the one that is kept and shown.
 */
#pragma once

#include "base/base.h"

#define IMAGE_DIGEST 72 /* "sha256:", 64 hexadecimal digits, NUL */
#define IMAGE_HEX 64

struct image_reference {
	char registry[128];   /* "docker.io", "127.0.0.1:5000" */
	char repository[200]; /* "library/debian" */
	char tag[129];	      /* "" if there is only a digest */
	char digest[IMAGE_DIGEST];
	char name[384]; /* the short form */
};

int image_reference_parse(const char *text, struct image_reference *ret, struct err *e);
/* Is this "sha256:" and 64 hexadecimal digits in lower case? */
bool image_is_digest(const char *s);
bool image_is_hex(const char *s);
