/*
 * Layers by what made them. build/KEY in the store names a layer and when it was made; the layer may be gone, and is
 * made again then. What nobody names goes with `cloche image prune`.
 */
#include "image/build/build_internal.h"

#include "base/clock.h"

#define EMPTY "-"

void build_key_start(const struct build *b, const char *what, struct build_key *k)
{
	k->text.len = 0;
	/* Nobody gets what somebody else's command wrote. */
	build_key_add(k, b->maker->store.owner);
	build_key_add(k, what);
	for (size_t i = 0; i < b->now->config.layers.count; i++)
		build_key_add(k, b->now->config.layers.items[i]);
	build_key_add(k, "");
}

void build_key_add(struct build_key *k, const char *text)
{
	buf_add(&k->text, text, strlen(text) + 1);
}

static void name_of(const struct build_key *k, char hex[IMAGE_HEX + 1])
{
	image_hash(buf_head(&k->text), k->text.len, hex);
}

/* "HEX CREATED" */
static bool read_row(const struct build *b, const char *name, char hex[IMAGE_HEX + 1],
		     char created[UTC_TEXT])
{
	char text[IMAGE_HEX + UTC_TEXT + 8];

	if (io_read_at(b->cache, name, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%64s %47s", hex, created) != 2)
		return false;
	return str_equal(hex, EMPTY) ||
	       (image_is_hex(hex) && image_has_layer(&b->maker->store, hex));
}

static int write_row(struct build *b, const char *name, const char *hex, struct err *e)
{
	char text[IMAGE_HEX + UTC_TEXT + 8], now[UTC_TEXT];

	utc_now(0, now);
	build_config_put(&b->now->config.created, now);
	snprintf(text, sizeof(text), "%s %s\n", *hex ? hex : EMPTY, now);
	return image_write_file(b->cache, name, text, strlen(text), e);
}

static void add_layer(struct build *b, const struct build_step *s, const char *hex)
{
	struct stage *now = b->now;

	build_config_history(&now->config, s->text, !*hex);
	if (!*hex)
		return;
	list_add(&now->config.layers, hex);
	now->image[0] = '\0';
}

bool build_take_cached(struct build *b, const struct build_key *k, const struct build_step *s)
{
	char name[IMAGE_HEX + 1], hex[IMAGE_HEX + 1], created[UTC_TEXT];

	name_of(k, name);
	if (b->how->no_cache || s->no_cache || !read_row(b, name, hex, created))
		return false;
	build_config_put(&b->now->config.created, created);
	add_layer(b, s, str_equal(hex, EMPTY) ? "" : hex);
	if (b->how->event)
		b->how->event(b->how->arg, &(struct build_event){.kind = BUILD_CACHED,
								 .number = b->number,
								 .of = b->of,
								 .origin = s->origin,
								 .text = s->text});
	return true;
}

int build_add_layer(struct build *b, const struct build_key *k, const struct build_step *s,
		    const char *hex, struct err *e)
{
	char name[IMAGE_HEX + 1];

	name_of(k, name);
	if (write_row(b, name, hex, e) < 0)
		return -1;
	add_layer(b, s, hex);
	/* Without an image the layer would go with the next `rm`. */
	return build_stage_image(b, e);
}

int build_file(const struct build *b, struct err *e)
{
	int fd = openat(b->maker->tmp, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	return fd < 0 ? err_sys(e, "cannot make a file in %s/tmp", b->maker->store.path) : fd;
}

int build_layer(struct build *b, int file, char hex[IMAGE_HEX + 1], struct err *e)
{
	struct image_layer l = {.blob = file};

	if (lseek(file, 0, SEEK_SET) < 0)
		return err_sys(e, "cannot read a layer");
	if (image_layer_unpack(b->maker, &l, e) < 0 || image_layer_keep(b->maker, &l, e) < 0)
		return -1;
	memcpy(hex, l.hex, sizeof(l.hex));
	return 0;
}

int build_image(struct build *b, const struct list *layers, char hex[IMAGE_HEX + 1], struct err *e)
{
	if (build_config_make(b->maker, &(struct build_config){.layers = *layers}, hex, e) < 0)
		return -1;
	list_add(&b->maker->loose, hex);
	return 0;
}

int build_stage_image(struct build *b, struct err *e)
{
	struct stage *now = b->now;

	if (now->image[0] || now->config.layers.count == 0)
		return 0;
	return build_image(b, &now->config.layers, now->image, e);
}

/* ---- caches ---- */

static void cache_name(const struct build *b, const char *id, char hex[IMAGE_HEX + 1])
{
	auto_free char *text = str_format("cache mount %s %s", b->maker->store.owner, id);

	image_hash(text, strlen(text), hex);
}

bool build_cache_find(const struct build *b, const char *id, char hex[IMAGE_HEX + 1])
{
	char name[IMAGE_HEX + 1], created[UTC_TEXT];

	cache_name(b, id, name);
	return read_row(b, name, hex, created) && !str_equal(hex, EMPTY);
}

int build_cache_keep(struct build *b, const char *id, const char *hex, struct err *e)
{
	char name[IMAGE_HEX + 1], image[IMAGE_HEX + 1];
	const struct list layers = {.items = (char *[]){(char *)hex, NULL}, .count = 1};

	cache_name(b, id, name);
	return build_image(b, &layers, image, e) < 0 ? -1 : write_row(b, name, hex, e);
}
