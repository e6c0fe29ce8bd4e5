#include "api/v1.h"

#include "base/auto.h"

static const struct route routes[] = {
	{"GET", "/healthz", v1_healthz, 0, BODY_NONE, ROUTE_OPEN, "Is the daemon alive?", NULL},
	{"GET", "/metrics", v1_metrics, SCOPE_READ, BODY_NONE, 0, "Counters for Prometheus", NULL},
};

const struct door rest_door = {
	.id = DOOR_REST,
	.name = "rest",
	.routes = routes,
	.route_count = ARRAY_LEN(routes),
};
