/* Lists sandboxes by the filters and in the pages of E2B. */
#include "api/e2b/e2b_internal.h"

#include "wire/http1.h"

#define PAGE_MAX 100

struct filter {
	json_t *metadata; /* object: the sandbox must have all of these */
	const char *state, *template;
	uint64_t after_ms;
	bool ascending, running_only;
	uint64_t limit;
	/* The page begins after this sandbox. */
	uint64_t token_ms;
	char token_id[IPC_ID];
};

struct listed_sandboxes {
	struct sandbox **items;
	size_t count, room;
	const struct filter *filter;
};

/* Undoes the escapes of one level; text with a broken escape stays as it is. */
static void unescape(char *text, bool is_query)
{
	auto_free char *plain = must_alloc(malloc(strlen(text) + 1));

	if (http1_unescape(text, strlen(text), is_query, plain))
		strcpy(text, plain);
}

/*
 * Keys and values are escaped once more within the query's own form, so three times in all; the server
 * has undone the first.
 */
json_t *e2b_query_metadata(const char *text)
{
	json_t *all = must_alloc(json_object());
	auto_free char *copy = str_copy(text ? text : "");
	char *rest = copy, *pair;

	while ((pair = strsep(&rest, "&"))) {
		char *value = strchr(pair, '=');

		if (!*pair)
			continue;
		if (value)
			*value++ = '\0';
		value = value ? value : pair + strlen(pair);
		for (int level = 0; level < 2; level++) {
			unescape(pair, level == 0);
			unescape(value, level == 0);
		}
		json_object_set_new(all, pair, json_string(value));
	}
	return all;
}

static int filter_read(struct exchange *x, struct filter *f, struct err *e)
{
	const char *after = exchange_arg(x, "startedAfter"), *order = exchange_arg(x, "order");
	const char *token = exchange_arg(x, "nextToken");
	unsigned long long ms;

	*f = (struct filter){.state = exchange_arg(x, "state"),
			     .template = exchange_arg(x, "template"),
			     .running_only = str_equal(x->path, "/sandboxes")};
	if (exchange_arg_uint(x, "limit", PAGE_MAX, PAGE_MAX, &f->limit, e) < 0)
		return -1;
	if (after && !e2b_parse_time(after, &f->after_ms))
		return err_field(e, ERR_INVALID, "startedAfter", "startedAfter: not a time in UTC");
	if (f->limit < 1)
		return err_field(e, ERR_INVALID, "limit", "limit: at least 1");
	if (order && !str_equal(order, "asc") && !str_equal(order, "desc"))
		return err_field(e, ERR_INVALID, "order", "order: 'asc' or 'desc'");
	f->ascending = order && str_equal(order, "asc");
	if (token && *token) {
		if (sscanf(token, "%llu_%20[a-z0-9]", &ms, f->token_id) != 2)
			return err_field(e, ERR_INVALID, "nextToken", "nextToken: not one of ours");
		f->token_ms = ms;
	}
	f->metadata = e2b_query_metadata(exchange_arg(x, "metadata"));
	return 0;
}

/* Does the comma-separated list have this name? */
static bool list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (strncmp(p, name, len) == 0 && (p[len] == '\0' || p[len] == ','))
			return true;
	return false;
}

static bool has_metadata(const struct sandbox *s, json_t *wanted)
{
	const json_t *have = sandbox_metadata(s);
	const char *key;
	json_t *value;

	json_object_foreach (wanted, key, value)
		if (!json_equal(json_object_get(have, key), value))
			return false;
	return true;
}

static bool is_wanted(const struct sandbox *s, const struct filter *f)
{
	const char *state = e2b_state(s);

	if (!state || (f->running_only && !str_equal(state, "running")))
		return false;
	if (f->state && *f->state && !list_has(f->state, state))
		return false;
	if (f->template && *f->template && !str_equal(f->template, e2b_data_text(s, "template")))
		return false;
	return sandbox_started_ms(s) >= f->after_ms && has_metadata(s, f->metadata);
}

/* By start time, then by id: the same order on every page. */
static int older_first(uint64_t a_ms, const char *a, uint64_t b_ms, const char *b)
{
	return a_ms != b_ms ? (a_ms < b_ms ? -1 : 1) : strcmp(a, b);
}

static int by_age(const void *a, const void *b)
{
	const struct sandbox *one = *(struct sandbox *const *)a, *two = *(struct sandbox *const *)b;

	return older_first(sandbox_started_ms(one), sandbox_id(one), sandbox_started_ms(two),
			   sandbox_id(two));
}

static bool is_behind(const struct sandbox *s, const struct filter *f)
{
	int order = older_first(sandbox_started_ms(s), sandbox_id(s), f->token_ms, f->token_id);

	return !f->token_id[0] || (f->ascending ? order > 0 : order < 0);
}

static bool collect_sandbox(void *arg, struct sandbox *s)
{
	struct listed_sandboxes *all = arg;

	if (!is_wanted(s, all->filter) || !is_behind(s, all->filter))
		return true;
	all->items = array_room(all->items, all->count, &all->room, sizeof(struct sandbox *));
	all->items[all->count++] = s;
	return true;
}

static json_t *page_json(struct exchange *x, const struct listed_sandboxes *all,
			 const struct filter *f)
{
	json_t *out = must_alloc(json_array());
	const struct sandbox *last = NULL;
	char token[64];

	for (size_t i = 0; i < all->count; i++) {
		struct sandbox *s = all->items[f->ascending ? i : all->count - 1 - i];

		if (json_array_size(out) == f->limit) {
			snprintf(token, sizeof(token), "%llu_%s",
				 (unsigned long long)sandbox_started_ms(last), sandbox_id(last));
			exchange_set_header(x, "X-Next-Token", token);
			break;
		}
		json_array_append_new(out, e2b_listed_json(NULL, s));
		last = s;
	}
	return out;
}

void e2b_list(struct exchange *x)
{
	struct filter f;
	struct listed_sandboxes all = {.filter = &f};
	struct err e = {0};

	if (filter_read(x, &f, &e) < 0) {
		exchange_error_as(x, 400, &e);
		return;
	}
	manager_each(x->api->manager, &x->caller, collect_sandbox, &all);
	if (all.count)
		qsort(all.items, all.count, sizeof(struct sandbox *), by_age);
	exchange_json(x, 200, page_json(x, &all, &f));
	free(all.items);
	json_decref(f.metadata);
}
