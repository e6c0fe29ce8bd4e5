/*
 * What of the daemon's uses an image: a file uses/ID for each sandbox and each snapshot. So an image stays while
 * a sandbox is stopped, or while no broker runs.
 */
#include "image/store_internal.h"

static int open_uses(const struct image_store *s, struct err *e)
{
	int fd = openat(s->dir, "uses", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, "cannot open %s/uses", s->path) : fd;
}

int image_use(const struct image_store *s, const char *id, const char *hex, bool to_disk,
	      struct err *e)
{
	auto_close int uses = open_uses(s, e);
	auto_close int fd = -1;
	char part[64];

	if (uses < 0)
		return -1;
	if (to_disk)
		return image_write_file(uses, id, hex, IMAGE_HEX, e);
	snprintf(part, sizeof(part), ".%.50s", id);
	fd = openat(uses, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || io_write_all(fd, hex, IMAGE_HEX) < 0 || renameat(uses, part, uses, id) < 0)
		return err_sys(e, "cannot write down that an image is used");
	return 0;
}

void image_unuse(const struct image_store *s, const char *id)
{
	auto_close int uses = openat(s->dir, "uses", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (uses >= 0)
		unlinkat(uses, id, 0);
}

bool image_use_find(const struct image_store *s, const char *id, char hex[IMAGE_HEX + 1])
{
	auto_close int uses = openat(s->dir, "uses", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char digits[IMAGE_HEX + 2];

	if (uses < 0 || io_read_at(uses, id, digits, sizeof(digits)) <= 0 || !image_is_hex(digits))
		return false;
	memcpy(hex, digits, IMAGE_HEX + 1);
	return true;
}

int image_uses(const struct image_store *s, struct list *ret, struct err *e)
{
	auto_close int uses = openat(s->dir, "uses", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A store that no daemon has used. */
	if (uses < 0 && errno == ENOENT)
		return 0;
	if (uses < 0 || dirents_names(uses, SIZE_MAX, ret, NULL) < 0)
		return err_sys(e, "cannot list %s/uses", s->path);
	return 0;
}
