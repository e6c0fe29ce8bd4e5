/* The REST door: contract.md's paths, one table. */
#pragma once

#include "api/http.h"

extern const struct door rest_door;

/* v1_system.c */
void v1_healthz(struct exchange *x);
void v1_metrics(struct exchange *x);
