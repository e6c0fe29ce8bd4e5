/* Bodies with many values or long strings are freed in several turns of their tenant. */
#include "api/http/http_internal.h"

#include "manager/manager.h"

#include <sys/mman.h>

#define AT_ONCE 2000	   /* values that are freed without ado */
#define STEP 32		   /* values from one look at the clock to the next */
#define PAGES (128u << 10) /* bytes of a string that are given back at once */

struct json_bin {
	struct loop *loop;
	struct loop_task task;
	json_t *open[JSON_FEED_DEPTH + 1]; /* each was in the one before */
	size_t depth;
	json_t *text;	       /* a long string */
	size_t text_gone;      /* of it, bytes that are given back to the kernel */
	struct budget *budget; /* which the body is counted in, until it is gone */
	size_t held;
};

/* Takes one member out of a container; NULL: it is empty. */
static json_t *take_member(json_t *from)
{
	size_t count = json_array_size(from);
	void *first;
	json_t *member;

	if (json_is_array(from)) {
		if (!count)
			return NULL;
		member = json_incref(json_array_get(from, count - 1));
		json_array_remove(from, count - 1);
		return member;
	}
	first = json_object_iter(from);
	if (!first)
		return NULL;
	member = json_incref(json_object_iter_value(first));
	json_object_del(from, json_object_iter_key(first));
	return member;
}

static bool is_ours(const json_t *value)
{
	return value->refcount == 1 && (json_is_array(value) || json_is_object(value));
}

static bool is_long(const json_t *value)
{
	return value->refcount == 1 && json_string_length(value) >= 2 * PAGES;
}

/* A block's pages go one part after the other: to free all at once takes the kernel 100 us for each megabyte. */
static void free_text(struct json_bin *b)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t text = (uintptr_t)json_string_value(b->text);
	uintptr_t at = (text + page - 1) / page * page + b->text_gone;

	if (at + PAGES <= text + json_string_length(b->text)) {
		madvise((void *)at, PAGES, MADV_DONTNEED);
		b->text_gone += PAGES;
		return;
	}
	json_decref(take_ptr(b->text));
	b->text_gone = 0;
}

static void free_one(struct json_bin *b)
{
	json_t *member = take_member(b->open[b->depth - 1]);

	if (!member)
		json_decref(b->open[--b->depth]);
	else if (is_ours(member) && b->depth < ARRAY_LEN(b->open))
		b->open[b->depth++] = member;
	else if (is_long(member))
		b->text = member;
	else
		json_decref(member);
}

static void free_some(void *arg)
{
	struct json_bin *b = arg;
	unsigned freed = 0;

	while (b->depth || b->text) {
		if (b->text)
			free_text(b);
		else
			free_one(b);
		if ((b->text || ++freed % STEP == 0) && loop_turn_is_over(b->loop)) {
			loop_task_add(b->loop, &b->task);
			return;
		}
	}
	budget_give(b->budget, b->held);
	free(b);
}

void json_bin_add(struct exchange *x, json_t *value)
{
	struct exchange_internal *in = x->internal;
	struct json_bin *b;

	if (!value || (!is_ours(value) && !is_long(value)) ||
	    (in->json_values <= AT_ONCE && in->held < 2 * PAGES)) {
		json_decref(value);
		budget_give(in->bodies, in->held);
		return;
	}
	b = must_alloc(calloc(1, sizeof(*b)));
	*b = (struct json_bin){.loop = x->api->loop, .budget = in->bodies, .held = in->held};
	if (is_long(value))
		b->text = value;
	else
		b->open[b->depth++] = value;
	b->task = (struct loop_task){
		.call = free_some,
		.arg = b,
		.user = shares_user(manager_shares(x->api->manager), exchange_tenant(x))};
	loop_task_add(b->loop, &b->task);
}
