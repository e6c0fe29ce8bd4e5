#include "manager/warm/snippets.h"

#include "manager/warm/prefork.h"
#include "model/guest_files.h"
#include "wire/guest.h"
#include "wire/pack.h"

#define TAG "cloche:snippets"
#define SOON_MS 5 /* the answer to the client is sent first */
#define FILES_KEPT 64
#define MEMORY_LEAST (256ull << 20) /* a prefork takes about 10 MB that the commands may need */

struct snippets {
	struct sandbox *s;
	struct prefork prefork;
	struct loop_timer soon;
	struct list files; /* oldest first */
};

static void start_interpreter(void *arg)
{
	struct snippets *n = arg;
	const struct config_warm *w = &n->s->m->p.config->warm;
	const struct guest_file *script = &guest_file_snippet_prefork_py;
	struct prefork_program what = {.request = {.cwd = "/", .tag = TAG},
				       .input = script->bytes,
				       .input_len = script->size};

	if (n->prefork.state != PREFORK_NONE || !n->s->link || n->s->state != STATE_RUNNING)
		return;
	list_add(&what.request.argv, "python3");
	list_add(&what.request.argv, "-");
	for (uint32_t i = 0; i < w->preload_count; i++)
		list_add(&what.request.argv, w->preload[i]);
	list_add(&what.request.env, "PYTHONPATH=");
	prefork_start(&n->prefork, n->s, &what);
	list_done(&what.request.argv);
	list_done(&what.request.env);
}

static struct snippets *snippets_of(struct sandbox *s)
{
	struct snippets *n = s->snippets;

	if (n)
		return n;
	n = s->snippets = must_alloc(calloc(1, sizeof(*n)));
	*n = (struct snippets){.s = s, .soon = {.call = start_interpreter, .arg = n}};
	return n;
}

uint32_t snippets_prefork(const struct sandbox *s)
{
	return s->snippets && s->snippets->prefork.state == PREFORK_READY ? s->snippets->prefork.eid
									  : 0;
}

void snippets_expect(struct sandbox *s)
{
	uint64_t memory = s->o.spec.limits.memory_bytes;
	struct snippets *n;

	if (!s->m->p.config->warm.lanes || s->o.transient || !s->known ||
	    (memory && memory < MEMORY_LEAST))
		return;
	n = snippets_of(s);
	if (n->prefork.state == PREFORK_NONE && !prefork_is_hopeless(&n->prefork))
		loop_timer_set(s->m->p.loop, &n->soon, SOON_MS);
}

static void remove_path(struct sandbox *s, const char *path)
{
	static const struct call_ops nothing = {0};
	struct buf b = {0};

	pack_str(&b, path);
	pack_u8(&b, 0);
	sandbox_call(s, G_REMOVE, buf_head(&b), b.len, &nothing, NULL);
	buf_done(&b);
}

void snippets_remove(struct sandbox *s, const char *file)
{
	auto_free char *path = str_copy(file);

	remove_path(s, path);
	*strrchr(path, '/') = '\0';
	remove_path(s, path); /* fails if the directory has other files */
}

static void remove_oldest(struct snippets *n)
{
	struct list *l = &n->files;
	auto_free char *path = l->items[0];

	memmove(l->items, l->items + 1, l->count * sizeof(*l->items)); /* NULL at the end, too */
	l->count--;
	snippets_remove(n->s, path);
}

void snippets_ended(struct sandbox *s, const char *file)
{
	struct snippets *n;

	if (s->o.transient || !s->known)
		return;
	n = snippets_of(s);
	list_add(&n->files, file);
	while (n->files.count > FILES_KEPT)
		remove_oldest(n);
}

void snippets_free(struct sandbox *s)
{
	struct snippets *n = take_ptr(s->snippets);

	if (!n)
		return;
	loop_timer_stop(s->m->p.loop, &n->soon);
	prefork_drop(&n->prefork);
	list_done(&n->files);
	free(n);
}
