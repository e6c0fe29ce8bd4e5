/* What an image of the store says about the run: its user, and its command if none is given. */
#include "cli/cli.h"

#include "image/image.h"

/* A USER that is not named is root. */
static bool is_root(const char *user)
{
	return !user || str_equal(user, "0") || str_equal(user, "root") || str_starts(user, "0:") ||
	       str_starts(user, "root:");
}

int run_take_image(struct sandbox_spec *s, bool needs_command, struct err *e)
{
	struct image_store store = {.dir = -1};
	struct image i = {.lock = -1};
	int rc = 0;

	if (!image_is_stored(s->image))
		return 0;
	if (image_find_mine(s->image, &store, &i, e) < 0)
		return -1;
	if (!spec_is_set(s, "user") && is_root(i.record.user))
		rc = spec_set(s, "user", "root", e);
	for (size_t n = 0; needs_command && n < i.record.entrypoint.count; n++)
		list_add(&s->argv, i.record.entrypoint.items[n]);
	for (size_t n = 0; needs_command && n < i.record.cmd.count; n++)
		list_add(&s->argv, i.record.cmd.items[n]);
	image_done(&i);
	image_store_close(&store);
	return rc;
}
