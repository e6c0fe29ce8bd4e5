/* A YAML file of the operator as JSON, for what is no configuration or policy: agent types. */
#pragma once

#include "base/base.h"

#include <jansson.h>

/* One mapping; scalars that YAML calls numbers or booleans are such. NULL: e says FILE:LINE. */
json_t *document_read(const char *file, const char *text, size_t len, struct err *e);
/*
 * All NAME.yaml of the directories, as {"NAME": {...}}; a later directory replaces names of an earlier one. A NULL or
 * missing directory is empty. A file that cannot be read is left out: bad is called for each.
 */
json_t *documents_read(const char *const *dirs, size_t count,
		       void (*bad)(const char *file, const struct err *e));
