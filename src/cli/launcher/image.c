/* What an image of the store says about the run: its user, and its command if none is given. */
#include "cli/cli.h"

#include "image/image.h"

int run_take_image(struct sandbox_spec *s, bool needs_command, struct err *e)
{
	struct image_store store = {.dir = -1};
	struct image i = {.lock = -1};
	int rc = 0;

	if (!image_is_stored(s->image))
		return 0;
	if (image_find_mine(s->image, &store, &i, e) < 0)
		return -1;
	if (!spec_is_set(s, "user") && image_user_is_root(&i.record))
		rc = spec_set(s, "user", "root", e);
	if (needs_command)
		image_command(&i.record, &s->argv);
	image_done(&i);
	image_store_close(&store);
	return rc;
}
