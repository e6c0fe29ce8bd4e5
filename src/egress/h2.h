/*
 * HTTP/2 between a program inside and its server, as a stage: two sessions of libnghttp2, and the same checks for
 * each stream that http_filter makes for each request. Trailers and streaming both ways (gRPC) pass.
 */
#pragma once

#include "egress/http_check.h"
#include "egress/stage.h"

/* The place is copied; its name and context must outlive the stage. NULL: out of memory. */
struct stage *h2_new(const struct http_place *place);
