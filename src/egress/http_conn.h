/* Stages as handlers of connections. */
#pragma once

#include "egress/egress_internal.h"
#include "egress/http_check.h"
#include "egress/stage.h"

struct http_conn {
	struct stage *stage;
	bool has_failed;   /* the stage knows that there is no server */
	bool is_silent;	   /* a record of it exists */
	bool has_ended[2]; /* the stage knows */
};

/* The place that a connection leads to. */
void http_conn_place(struct conn *c, struct http_place *ret);
/* Passes bytes through c->state, a struct http_conn. */
void http_conn_step(struct conn *c);
void http_conn_done(struct conn *c);
size_t http_conn_held(const struct conn *c);
