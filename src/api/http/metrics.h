/* What /metrics shows: counters and histograms, and a look at the manager when it is asked. */
#pragma once

#include "base/base.h"
#include "api/http/http.h"

struct metrics;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* One request was answered. */
void metrics_answer(struct metrics *m, const struct exchange *x, int status);
void metrics_error(struct metrics *m, const char *kind);
/* One /v1/run, or task of a batch. */
void metrics_run(struct metrics *m, int64_t since_ns);
/* Prometheus text format. */
void metrics_write(const struct metrics *m, const struct api *api, struct buf *to);
