/* The YAML side of policy files: libyaml's events into spec_set. Used by policy.c alone. */
#pragma once

#include "policy/policy.h"

/* Fills names, values, lines, description and spec of p; p->file and p->dir are given. */
int yaml_read_policy(struct policy *p, const char *text, size_t len, struct err *e);
