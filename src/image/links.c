/* Short names for layers, for whoever mounts them: a sandbox, or a build that looks into them. */
#include "image/links.h"

int image_link_layers(const struct list *layers, const char *below, char names[256], struct err *e)
{
	size_t used = 0;

	names[0] = '\0';
	for (size_t i = 0; i < layers->count; i++) {
		auto_free char *target =
			str_format("%s/%s/fs", below, layers->items[layers->count - 1 - i]);
		char name[4];

		if (i < 26)
			snprintf(name, sizeof(name), "%c", (char)('a' + i));
		else
			snprintf(name, sizeof(name), "%c%c", (char)('A' + i / 26),
				 (char)('a' + i % 26));
		if (symlink(target, name) < 0)
			return err_sys(e, "cannot link a layer");
		used += (size_t)snprintf(names + used, 256 - used, "%s%s", i ? ":" : "", name);
		if (used >= 256)
			return err_set(e, ERR_UNSUPPORTED, "the image has too many layers");
	}
	return 0;
}
