/*
 * One task from its body to its record: a transient sandbox is made, files are put into it, the
 * command runs, files are taken out, and it is gone before the record is handed on (rule 16).
 *
 *   struct run *r = run_start(api, &caller, body, &done, arg, &e);
 *   ... done(arg, result, NULL)  or  done(arg, NULL, e)      once, never from within
 *   run_cancel(r);                    instead: nobody wants it any more
 */
#pragma once

#include "api/http/fields.h"
#include "api/http/http.h"
#include "model/result.h"

struct run;

/* The record is valid during the callback. */
typedef void (*run_done)(void *arg, const struct result *r, const struct err *e);

/* The body is used until the end; NULL and e if it is wrong. */
struct run *run_start(struct api *api, const struct caller *who, json_t *body, run_done done,
		      void *arg, struct err *e);
void run_cancel(struct run *r);
