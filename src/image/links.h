/* Layers below one another, as options of a mount name them. */
#pragma once

#include "base/base.h"

/*
 * An option of a mount has at most 255 bytes, so each layer gets a link with a short name in the current directory:
 * a, b, ..., Ba, Bb. `below` leads from there to the layers. names gets "a:b", the uppermost layer first.
 */
int image_link_layers(const struct list *layers, const char *below, char names[256], struct err *e);
