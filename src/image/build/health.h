/* HEALTHCHECK, which is kept for whoever runs the image elsewhere. */
#pragma once

#include "image/build/build.h"

/* Its JSON, as OCI's configuration has it; the caller frees it. */
char *health_json(const struct build_step *s, struct err *e);
