/* A Dockerfile, its variables and its mounts. The first byte picks one. */
#include "fuzz.h"

#include "image/build/build.h"
#include "image/build/expand.h"
#include "image/build/mounts.h"
#include "image/build/view.h"

static void file(const char *text, size_t size)
{
	struct build_steps steps = {0};
	struct err e = {0};

	if (dockerfile_parse(text, size, &steps, &e) < 0) {
		PROMISE(e.kind != ERR_NONE && str_equal(e.field, "dockerfile"));
		return;
	}
	PROMISE(steps.count > 0);
	for (size_t i = 0; i < steps.count; i++) {
		const struct build_step *s = &steps.items[i];

		PROMISE(s->line > 0 && s->text && s->kind < BUILD_KINDS);
		PROMISE(s->docs.count % 2 == 0);
		/* A word that stands for a heredoc leads to one. */
		for (size_t k = 0;
		     (s->kind == BUILD_COPY || s->kind == BUILD_ADD) && k + 1 < s->args.count; k++)
			if (str_starts(s->args.items[k], "<<"))
				PROMISE((size_t)atoi(s->args.items[k] + 2) * 2 < s->docs.count);
	}
	build_steps_done(&steps);
}

static void word(const char *text, size_t size)
{
	const struct list own = {.items = (char *[]){"A=1", "B=$A${B}", NULL}, .count = 2};
	const struct list *const lists[] = {&own, NULL};
	auto_free char *copy = must_alloc(strndup(text, size)), *path = view_clean("/a", copy);
	struct run_mounts m = {0};
	struct err e = {0};

	free(expand_word(copy, lists, &e));
	free(expand_text(copy, lists, &e));
	if (run_mounts_add(&m, copy, &e) == 0)
		PROMISE(m.count == 1 && m.items[0].target);
	run_mounts_done(&m);
	/* No part leads up. */
	PROMISE(path[0] == '/' && !strstr(path, "/../") && !strstr(path, "//"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = NULL;

	if (size == 0)
		return 0;
	text = must_alloc(malloc(size));
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] & 1)
		word(text, size - 1);
	else
		file(text, size - 1);
	return 0;
}
