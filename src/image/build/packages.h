/*
 * Images from packages of the host's distribution, without a registry: apt chooses and checks them as data, they are
 * unpacked like any archive, and their scripts run in a sandbox without a network. A Debian needs those scripts
 * (users, alternatives, caches of libraries), so they are not left out.
 */
#pragma once

#include "image/build/build.h"

struct image_packages {
	const char *name;	  /* of the image */
	const char *packages;	  /* names with blanks between; besides the essential ones */
	struct image_build build; /* launcher, event, run_options; the rest is set here */
	/* Is told each package that is new, gone or of another version: '+' or '-', "name_version". May be NULL. */
	void (*changed)(char sign, const char *package);
};

/*
 * Makes the image. If the name leads to an image of the same packages and versions already, that one stays; hex gets
 * its id.
 */
int image_from_packages(struct image_maker *m, const struct image_packages *p,
			char hex[IMAGE_HEX + 1], struct err *e);
/* What the image of this name was made from; the caller frees it. NULL: it was not made so. */
char *image_packages_of(struct image_maker *m, const char *name, struct err *e);
/* The packages of a definition that comes with cloche, or NULL. */
const char *image_packages_known(const char *name);
