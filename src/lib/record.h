/* The launcher's record, parsed; and errors that it printed instead. */
#pragma once

#include "base/base.h"
#include "cloche.h"

/* Takes over the text, in any case. NULL if it is no record, or memory is gone. */
struct cloche_result *record_parse(char *text, size_t len);
/*
 * Is it an error object, {"error":{"kind":...,"message":...}}? Then its kind, and its message in
 * ret; else CLOCHE_OK.
 */
enum cloche_error_kind record_error(const char *text, size_t len, char *ret, size_t size);
