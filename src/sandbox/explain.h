/* One denial of the board in words. */
#pragma once

#include "kern/seccomp.h"
#include "model/result.h"
#include "sandbox/board.h"

void explain_denial(const struct seccomp_profile *profile, const struct board_denial *b,
		    struct denial *ret);
