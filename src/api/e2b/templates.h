/*
 * Templates of E2B clients. A template is a name of the caller's images without its tag; its id is made from owner
 * and name, so that nothing has to be kept. Builds (builds.c) are known as long as the daemon's front lives.
 */
#pragma once

#include "api/e2b/e2b_internal.h"

#include "image/image.h"

#define TEMPLATE_ID 21
#define TEMPLATE_NAME 384
#define TEMPLATE_UPLOADS "cloche/upload/" /* names of what clients uploaded: behind it ID:HASH */

struct template_name {
	char base[TEMPLATE_NAME]; /* "my", "team/my" */
	char tag[132];		  /* "latest": E2B's "default" */
	bool has_tag;		  /* it was written */
};

/* What a client calls a template; -1 with e if it cannot be one of its own. */
int template_name_parse(struct exchange *x, const char *text, struct template_name *ret,
			struct err *e);
void template_id(const struct caller *who, const char *base, char ret[TEMPLATE_ID]);
/* The tag as E2B has it. */
const char *template_tag(const char *tag);
/* The caller's own images, as manager_images describes them; uploads: what clients have uploaded instead. */
json_t *template_images(const struct api *api, const struct caller *who, bool uploads);
/* Splits the name of such an image. */
void template_split(const json_t *image, struct template_name *ret);
/* The base name of the template with this id, or of this name; false: there is none. */
bool template_find(struct exchange *x, const char *text, char ret[TEMPLATE_NAME]);
/* The id of a build that an image came from: made from its digest. */
void template_build_id(const json_t *image, char ret[40]);

/* One after the other; then `done`, e NULL if all went well. Takes the list over. */
struct template_wish {
	enum ipc_image_job job;
	char *name, *to;
};
void template_work(struct api *api, const struct caller *who, struct template_wish *wishes,
		   size_t count, void (*done)(void *arg, const struct err *e), void *arg);
