/*
 * Fuzz targets: each defines LLVMFuzzerTestOneInput. libFuzzer calls it with bytes of its own
 * making
 * (`make fuzz`), replay.c with those of the corpus (`make test`). Broken promises abort.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(x)                                                                                 \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #x);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)
