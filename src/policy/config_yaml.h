/* The YAML side of the configuration: libyaml's events into struct config. Used by config.c alone. */
#pragma once

#include "policy/config.h"

int config_yaml_read(const char *file, const char *text, size_t len, struct config *c,
		     struct err *e);
