/* Parses the launcher's record, or the error that it printed instead. */
#pragma once

#include "base/base.h"
#include "cloche.h"

/* Takes over the text in any case. NULL if it is not a record, or memory is used up. */
struct cloche_result *record_parse(char *text, size_t len);
/*
 * The kind of an error object, {"error":{"kind":...,"message":...}}, with its message in ret;
 * CLOCHE_OK if the text is not one.
 */
enum cloche_error_kind record_error(const char *text, size_t len, char *ret, size_t size);
