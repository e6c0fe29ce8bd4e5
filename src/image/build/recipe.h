/*
 * Builds for clients of the daemon: steps that a door has checked the form of, in a process of its own
 * (image/make/job.h). The front writes
 *
 *   a struct recipe_head, the compiled rules of the network that is asked for (net/rules.h), then
 *   KIND ORIGIN FORCE COUNT ARG...      texts with a NUL behind each, for each step
 *
 * and the broker, which checks the head, exchanges the rules for those of all stages (none: no network).
 *
 *   RUN COMMAND [USER]     COPY IMAGE SOURCE TARGET [USER [MODE]]     ENV NAME VALUE...
 *   USER NAME   WORKDIR PATH   LABEL NAME VALUE   TAG NAME (the image gets this name, too)
 *
 * ORIGIN is the client's number of the step. COPY takes files of an image that the owner has. A user that the image
 * does not have is added to it. Commands are the user's that is called "user" and begin in its home, until a step
 * says otherwise.
 */
#pragma once

#include "image/make/job.h"
#include "model/spec.h"

#define RECIPE_MAX (1u << 20)
#define RECIPE_STEPS 400

struct recipe_head {
	struct limits limits; /* of each RUN */
	uint32_t rules_size;
};

/* Of job IMAGE_JOB_BUILD. */
int recipe_build(struct image_maker *m, const struct image_order *o, struct err *e);
