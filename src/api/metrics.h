/* What /metrics shows: counters and histograms, and a look at the manager when it is asked. */
#pragma once

#include "api/http.h"
#include "base/buf.h"

struct metrics;

enum metric { METRIC_CREATE, METRIC_EXEC, METRIC_RUN, METRIC_COUNT };

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* One request was answered. */
void metrics_answer(struct metrics *m, const struct exchange *x, int status);
void metrics_error(struct metrics *m, const char *kind);
void metrics_observe(struct metrics *m, enum metric which, int64_t since_ns);
/* A refusal inside a sandbox, by its rule. */
void metrics_denial(struct metrics *m, const char *rule, uint64_t count);
/* Prometheus text format. */
void metrics_write(const struct metrics *m, const struct api *api, struct buf *to);
