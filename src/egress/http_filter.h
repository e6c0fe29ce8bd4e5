/*
 * HTTP/1.1 between a program inside and its server, as a stage. Every request is read strictly, checked, and
 * written anew; both directions are framed, so that the end of each message is known and a pipelined request is
 * checked like the first. What cannot be read in one way only is refused with an answer that says why.
 */
#pragma once

#include "egress/http_check.h"
#include "egress/stage.h"

/* The place is copied; its name and context must outlive the stage. */
struct stage *http_filter_new(const struct http_place *place);
