/* Fetches images from registries. */
#include "image/worker/worker.h"

int worker_fetch(void)
{
	return 125;
}
