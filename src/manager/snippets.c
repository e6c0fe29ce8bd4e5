#include "manager/snippets.h"

#include "base/auto.h"
#include "base/str.h"
#include "manager/park.h"
#include "model/guest_files.h"

#include <stdlib.h>

#define TAG "cloche:snippets"
#define SOON_MS 5		    /* whoever waits for an answer goes first */
#define MEMORY_LEAST (256ull << 20) /* it has some 10 MB that others may need */

struct snippets {
	struct sandbox *s;
	struct park park;
	struct loop_timer soon;
};

static void on_changed(void *arg)
{
	(void)arg; /* the next one finds it, or does not */
}

static void start(void *arg)
{
	struct snippets *n = arg;
	const struct config_warm *w = &n->s->m->p.config->warm;
	const struct guest_file *script = &guest_file_snippet_park_py;
	struct park_program what = {.request = {.cwd = "/", .tag = TAG},
				    .input = script->bytes,
				    .input_len = script->size};

	if (n->park.state != PARK_NONE || !n->s->link || n->s->state != STATE_RUNNING)
		return;
	list_add(&what.request.argv, "python3");
	list_add(&what.request.argv, "-");
	for (uint32_t i = 0; i < w->preload_count; i++)
		list_add(&what.request.argv, w->preload[i]);
	list_add(&what.request.env, "PYTHONPATH=");
	park_start(&n->park, n->s, &what);
	list_done(&what.request.argv);
	list_done(&what.request.env);
}

uint32_t snippets_park(const struct sandbox *s)
{
	return s->snippets && s->snippets->park.state == PARK_READY ? s->snippets->park.eid : 0;
}

void snippets_expect(struct sandbox *s)
{
	uint64_t memory = s->o.spec.limits.memory_bytes;

	if (!s->m->p.config->warm.slots || s->o.transient || !s->known ||
	    (memory && memory < MEMORY_LEAST))
		return;
	if (!s->snippets) {
		s->snippets = must_alloc(calloc(1, sizeof(*s->snippets)));
		*s->snippets = (struct snippets){.s = s,
						 .park = {.changed = on_changed},
						 .soon = {.call = start, .arg = s->snippets}};
	}
	if (s->snippets->park.state == PARK_NONE && !park_is_hopeless(&s->snippets->park))
		loop_timer_set(s->m->p.loop, &s->snippets->soon, SOON_MS);
}

void snippets_free(struct sandbox *s)
{
	struct snippets *n = take_ptr(s->snippets);

	if (!n)
		return;
	loop_timer_stop(s->m->p.loop, &n->soon);
	park_drop(&n->park);
	free(n);
}
