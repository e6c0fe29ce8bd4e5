/*
 * Builds images from a list of steps, which a Dockerfile or somebody else's format is parsed into. Each RUN is a
 * sandbox with root inside over the layers so far; what it wrote becomes a layer. COPY and ADD make a layer of
 * files; all other steps change the configuration.
 *
 *   struct build_steps steps = {0};
 *   dockerfile_parse(text, len, &steps, &e);
 *   image_build(&maker, &(struct image_build){.steps = &steps, .context = dir, ...}, hex, &e);
 *   build_steps_done(&steps);
 *
 * Layers are found again by what made them: the layers below, the step with its variables, and the content of what
 * it copies, without times. What is unfinished is in the maker's directory.
 */
#pragma once

#include "image/make/make.h"

enum build_kind {
	BUILD_FROM,
	BUILD_RUN,
	BUILD_COPY,
	BUILD_ADD,
	BUILD_ENV,
	BUILD_ARG,
	BUILD_WORKDIR,
	BUILD_USER,
	BUILD_LABEL,
	BUILD_EXPOSE,
	BUILD_VOLUME,
	BUILD_CMD,
	BUILD_ENTRYPOINT,
	BUILD_SHELL,
	BUILD_ONBUILD,
	BUILD_STOPSIGNAL,
	BUILD_HEALTHCHECK,
	BUILD_INSTRUCTIONS,		    /* what follows is in no Dockerfile */
	BUILD_ACCOUNT = BUILD_INSTRUCTIONS, /* a user of this name, if the image has none */
	BUILD_KINDS,
};

struct build_step {
	enum build_kind kind;
	unsigned line;	 /* where it is written, for messages; 0: nowhere */
	unsigned origin; /* the caller's own number for it, told with its events */
	bool no_cache;	 /* it is done again */
	bool is_exec; /* args are an argument vector (written as JSON); otherwise words, of RUN one text */
	struct list flags; /* "from=base": without the dashes, variables not replaced yet */
	struct list args;
	struct list
		docs; /* heredocs of COPY and ADD: name, text, name, text; name begins with "<<" */
	char *text;   /* as it is shown */
};

struct build_steps {
	struct build_step *items;
	size_t count, room;
};

/* Errors name the line. */
int dockerfile_parse(const char *text, size_t len, struct build_steps *ret, struct err *e);
/* Adds an empty step. */
struct build_step *build_steps_add(struct build_steps *s, enum build_kind kind);
void build_steps_done(struct build_steps *s);
/* "RUN" */
const char *build_kind_name(enum build_kind kind);

enum build_event_kind { BUILD_STEP, BUILD_CACHED, BUILD_OUTPUT };

struct build_event {
	enum build_event_kind kind;
	unsigned number, of; /* of the steps that are done, from 1 */
	unsigned origin;
	const char *text; /* of the step; or output, len bytes of anything */
	size_t len;
};

struct image_build {
	const struct build_steps *steps;
	int context;		    /* directory, or -1: there is nothing to copy */
	const char *name;	    /* or NULL */
	const char *target;	    /* the stage to be built; NULL: the last one */
	const struct list *args;    /* K=V, for ARG */
	const struct list *secrets; /* ID=PATH, for RUN --mount=type=secret */
	const struct list
		*run_options; /* for each RUN, in pairs, as for `cloche run`: "--net", "allow" */
	const char *launcher; /* path of cloche */
	bool no_cache;
	bool has_network; /* run_options give one */
	const struct buf
		*rules; /* of that network, compiled (net/rules.h); NULL: run_options have them */
	const char *
		base; /* hexadecimal digits of an image that FROM may name besides the maker's own; or NULL */
	bool is_closed;		    /* nothing is fetched from registries */
	const struct list *mirrors; /* for FROM, see struct image_pull */
	bool is_plain;
	void (*event)(void *arg, const struct build_event *what);
	void *arg;
};

/* hex gets the image's id. The name, if any, leads to it then. */
int image_build(struct image_maker *m, const struct image_build *b, char hex[IMAGE_HEX + 1],
		struct err *e);
