/* Bytes from anywhere as JSON: whatever they are, the result is valid. */
#pragma once

#include "base/base.h"

#include <jansson.h>

/* A string; bytes that are not UTF-8 become U+FFFD, NUL stays as \u0000. Never NULL. */
json_t *text_json(const char *bytes, size_t len);
json_t *text_json_base64(const void *bytes, size_t len);
