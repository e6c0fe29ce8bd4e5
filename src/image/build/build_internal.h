/* A build in progress, and what the files here share. */
#pragma once

#include "image/build/build.h"
#include "image/build/config.h"
#include "image/build/copy.h"

struct stage {
	char *name;	   /* or NULL */
	size_t first, end; /* steps; the first is FROM */
	struct build_config config;
	struct list args;	   /* K=V */
	char image[IMAGE_HEX + 1]; /* with these layers and nothing else; "": not made yet */
	bool is_needed;
};

struct build {
	struct image_maker *maker;
	const struct image_build *how;
	struct stage *stages;
	size_t stage_count;
	struct stage *now;
	struct list globals; /* K=V: ARG in front of FROM */
	struct list usual;   /* K=V that ARG may ask for */
	struct list ignored; /* of the context */
	int cache;	     /* directory */
	unsigned number, of;
};

/* The lists that variables of a step come from. */
#define BUILD_VARIABLES(b)                                                                         \
	((const struct list *const[]){&(b)->now->config.env, &(b)->now->args, NULL})

/* ---- build.c ---- */

/* Of a flag such as "from", with variables replaced: 1; 0: it was not given. The caller frees the value. */
int build_flag(const struct build *b, const struct build_step *s, const char *name, char **ret,
	       struct err *e);
/* The layers of a stage that is built, or of an image, which is pulled if need be. The caller frees the list. */
int build_layers_of(struct build *b, const char *name, struct list *ret, struct err *e);

/* ---- layers.c: layers that were made before ---- */

/* What a layer is made from. Each text is a part of it. */
struct build_key {
	struct buf text;
};
void build_key_start(const struct build *b, const char *what, struct build_key *k);
void build_key_add(struct build_key *k, const char *text);
/* Is there such a layer? Then it is added to the stage. Frees nothing. */
bool build_take_cached(struct build *b, const struct build_key *k, const struct build_step *s);
/* Adds a layer, "" for none, and remembers it. */
int build_add_layer(struct build *b, const struct build_key *k, const struct build_step *s,
		    const char *hex, struct err *e);
/* A new file without a name in the maker's directory. */
int build_file(const struct build *b, struct err *e);
/* Unpacks a tar from its start. "" is its hex if it is empty. */
int build_layer(struct build *b, int file, char hex[IMAGE_HEX + 1], struct err *e);
/* An image of layers alone, which holds them; the stage's own. */
int build_image(struct build *b, const struct list *layers, char hex[IMAGE_HEX + 1], struct err *e);
int build_stage_image(struct build *b, struct err *e);
/* What a cache mount had: hexadecimal digits of a layer with its files at the top; false: nothing yet. */
bool build_cache_find(const struct build *b, const char *id, char hex[IMAGE_HEX + 1]);
int build_cache_keep(struct build *b, const char *id, const char *hex, struct err *e);

/* ---- accounts.c: users of an image ---- */

struct account {
	uint32_t uid, gid;
	char home[256]; /* or "" */
};
/* "USER", "USER:GROUP", by name or number, as the files of the view have them. */
int build_account(struct build *b, int view, const char *text, struct account *ret, struct err *e);
/* By name, or by number. */
bool build_has_account(struct build *b, int view, const char *name);

/* ---- the steps that make layers ---- */

int build_step_run(struct build *b, const struct build_step *s, struct err *e);
int build_step_copy(struct build *b, const struct build_step *s, struct err *e);
int build_step_workdir(struct build *b, const struct build_step *s, struct err *e);
int build_step_account(struct build *b, const struct build_step *s, struct err *e);
