/* Lists of steps. */
#include "image/build/build.h"

#include <assert.h>

static const char *const names[] = {
	[BUILD_FROM] = "FROM",
	[BUILD_RUN] = "RUN",
	[BUILD_COPY] = "COPY",
	[BUILD_ADD] = "ADD",
	[BUILD_ENV] = "ENV",
	[BUILD_ARG] = "ARG",
	[BUILD_WORKDIR] = "WORKDIR",
	[BUILD_USER] = "USER",
	[BUILD_LABEL] = "LABEL",
	[BUILD_EXPOSE] = "EXPOSE",
	[BUILD_VOLUME] = "VOLUME",
	[BUILD_CMD] = "CMD",
	[BUILD_ENTRYPOINT] = "ENTRYPOINT",
	[BUILD_SHELL] = "SHELL",
	[BUILD_ONBUILD] = "ONBUILD",
	[BUILD_STOPSIGNAL] = "STOPSIGNAL",
	[BUILD_HEALTHCHECK] = "HEALTHCHECK",
	[BUILD_ACCOUNT] = "ACCOUNT",
};
static_assert(ARRAY_LEN(names) == BUILD_KINDS, "one name for each kind");

const char *build_kind_name(enum build_kind kind)
{
	return names[kind];
}

struct build_step *build_steps_add(struct build_steps *s, enum build_kind kind)
{
	s->items = array_room(s->items, s->count, &s->room, sizeof(*s->items));
	s->items[s->count] = (struct build_step){.kind = kind};
	return &s->items[s->count++];
}

void build_steps_done(struct build_steps *s)
{
	for (size_t i = 0; i < s->count; i++) {
		list_done(&s->items[i].flags);
		list_done(&s->items[i].args);
		list_done(&s->items[i].docs);
		free(s->items[i].text);
	}
	free(s->items);
	*s = (struct build_steps){0};
}
