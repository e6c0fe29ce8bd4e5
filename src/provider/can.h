/*
 * What each provider can do. The front and the broker refuse requests by this table, and the front knows
 * nothing else of a provider. Providers are those of enum provider (model/spec.h).
 */
#pragma once

#include "base/base.h"

enum provider_can {
	CAN_PAUSE = 1,
	CAN_SNAPSHOT = 2,
	CAN_FORK = 4,
	CAN_UPDATE = 8, /* limits, while it runs */
	CAN_NET = 16,
	CAN_PORTS = 32,
	CAN_VOLUMES = 64,
	CAN_IMAGE = 128,
	CAN_PROVE = 256,   /* its layers are verified, so they can be required */
	CAN_PREPARE = 512, /* sandboxes for one run, and sandboxes of the pool */
	CAN_DISK = 1024,   /* a disk of its own for what it writes */
};

/* Can it do all of these? */
bool provider_can(int provider, unsigned wanted);
/* -1: e says what the provider cannot do. */
int provider_check(int provider, unsigned wanted, struct err *e);
/* "" if it is not built. */
const char *provider_name(int provider);
