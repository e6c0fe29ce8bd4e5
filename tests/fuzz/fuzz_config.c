/* Any bytes as the daemon's configuration; what is taken must survive the way to another role. */
#include "fuzz.h"

#include "base/auto.h"
#include "base/str.h"
#include "policy/config.h"

#include <string.h>

static void hand_over(const struct config *c)
{
	static struct config there;
	struct err e = {0};
	auto_close int fd = config_write(c, &e);

	PROMISE(fd >= 0);
	PROMISE(config_read(fd, &there, &e) == 0);
	/* Padding as well: both began as zeroes. */
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	PROMISE(memcmp(c, &there, sizeof(there)) == 0);
}

static void check_bounds(const struct config *c)
{
	PROMISE(c->listen_count <= CONFIG_LISTEN);
	PROMISE(c->image_count <= CONFIG_ITEMS && c->volume_count <= CONFIG_ITEMS);
	for (uint32_t i = 0; i < c->image_count; i++)
		PROMISE(c->images[i].path[0] == '/' && !strstr(c->images[i].path, "/../"));
	for (uint32_t i = 0; i < c->volume_count; i++)
		PROMISE(c->volumes[i].path[0] == '/' && c->volumes[i].token_count <= CONFIG_TOKENS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config c;
	struct err e = {0};

	config_init(&c);
	if (config_parse("f", (const char *)data, size, &c, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
		PROMISE(str_starts(e.msg, "f:"));
		PROMISE(!memchr(e.msg, '\n', strlen(e.msg)));
		return 0;
	}
	check_bounds(&c);
	hand_over(&c);
	if (config_finish(&c, &e) < 0)
		PROMISE(e.kind != ERR_NONE && e.msg[0]);
	return 0;
}
