/* Options of `cloche mcp`: all that decides what a model may do. */
#pragma once

#include "base/base.h"
#include "model/spec.h"

#include <jansson.h>

struct mcp_options {
	struct sandbox_spec spec;
	bool ephemeral_only;
	json_t *session; /* what a session of the daemon is told */
};

extern const char mcp_usage[];

/* 0; 1: help is wanted; -1. mcp_options_done in any case. */
int mcp_options_read(struct mcp_options *ret, int argc, char **argv, struct err *e);
void mcp_options_done(struct mcp_options *o);
