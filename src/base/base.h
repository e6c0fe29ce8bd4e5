/*
 * The prelude: the usual headers of libc, and of this folder errors, cleanup attributes, strings, buffers,
 * lists, clocks, parsing and small files. Each header includes it, so a .c file gets it by its own header.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/list.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/utf8.h"
