/* A listing: the references as in their file, then the record of each image behind a line with its length. */
#include "image/listing.h"

#include "image/store_internal.h"

static void add_part(struct buf *to, const char *name, const char *bytes, size_t len)
{
	char head[IMAGE_HEX + 32];
	int n = snprintf(head, sizeof(head), "%s %zu\n", name, len);

	buf_add(to, head, (size_t)n);
	buf_add(to, bytes, len);
}

static int add_refs(const struct image_store *s, struct buf *to, struct err *e)
{
	auto_close int fd = openat(s->dir, "refs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len = 0;

	if (fd < 0 && errno != ENOENT)
		return err_sys(e, "cannot open %s/refs", s->path);
	if (fd >= 0 && io_read_whole(fd, IMAGE_REFS_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read %s/refs", s->path);
	add_part(to, "refs", text ? text : "", len);
	return 0;
}

int image_listing_write(const struct image_store *s, struct buf *ret, struct err *e)
{
	auto_close int images = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0};
	char bytes[IMAGE_RECORD_MAX];

	if (images < 0 || dirents_names(images, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list images");
	if (add_refs(s, ret, e) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		auto_close int fd =
			openat(images, names.items[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : io_read_all(fd, bytes, sizeof(bytes));

		if (n > 0 && image_is_hex(names.items[i]))
			add_part(ret, names.items[i], bytes, (size_t)n);
	}
	return 0;
}

/* The next part; false: that was all, or the rest makes no sense. */
static bool next_part(const char **at, size_t *left, char name[IMAGE_HEX + 1], size_t *ret_len)
{
	const char *end = memchr(*at, '\n', *left);
	char head[IMAGE_HEX + 32];
	unsigned long long len;

	if (!end || (size_t)(end - *at) >= sizeof(head))
		return false;
	snprintf(head, sizeof(head), "%.*s", (int)(end - *at), *at);
	*left -= (size_t)(end + 1 - *at);
	*at = end + 1;
	if (sscanf(head, "%64s %20llu", name, &len) != 2 || len > *left)
		return false;
	*ret_len = (size_t)len;
	return true;
}

int image_listing_read(const char *bytes, size_t len, struct image_listing *ret, struct err *e)
{
	struct image_listing l = {0};
	struct err ignored;
	char name[IMAGE_HEX + 1];
	size_t left = len, part;

	if (!next_part(&bytes, &left, name, &part) || !str_equal(name, "refs"))
		return err_set(e, ERR_INVALID, "the listing of images is malformed");
	if (image_refs_parse(bytes, part, &l.refs, e) < 0)
		return -1;
	bytes += part;
	left -= part;
	while (next_part(&bytes, &left, name, &part)) {
		struct image_known *k;

		l.images = array_room(l.images, l.count, &l.room, sizeof(*l.images));
		k = &l.images[l.count];
		snprintf(k->hex, sizeof(k->hex), "%s", name);
		/* One that is damaged is not known. */
		if (image_record_parse(bytes, part, &k->record, &ignored) == 0)
			l.count++;
		bytes += part;
		left -= part;
	}
	*ret = l;
	return 0;
}

void image_listing_done(struct image_listing *l)
{
	image_refs_done(&l->refs);
	for (size_t i = 0; i < l->count; i++)
		image_record_done(&l->images[i].record);
	free(l->images);
	*l = (struct image_listing){0};
}

const struct image_record *image_listing_find(const struct image_listing *l, const char *hex)
{
	for (size_t i = 0; i < l->count; i++)
		if (str_equal(l->images[i].hex, hex))
			return &l->images[i].record;
	return NULL;
}
