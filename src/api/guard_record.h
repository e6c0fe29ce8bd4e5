/* The Python guard's findings as part of a result record; see model/guard.h for what they are worth. */
#pragma once

#include "model/guard.h"

/*
 * The record, which is consumed, with the denials and notes of a report; text that is no record comes
 * back as it was.
 */
char *guard_record_add(char *record, enum guard profile, const char *report, size_t size);
