/* Answers with many items are printed in several turns of their tenant. */
#include "api/http/http_internal.h"

#include "manager/manager.h"

#define AT_ONCE 32	/* items that are printed without ado */
#define ITEM_BYTES 1024 /* roughly, until it is printed */
#define FLAGS (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12))

/* An array, or an object with arrays: their items are printed, and freed, one by one. */
struct long_json {
	struct exchange *x;
	int status;
	json_t *value;
	void *member; /* of the object; NULL: none is left */
	json_t *array;
	size_t at; /* in the array that is open */
	struct buf text;
	size_t kept;
	struct loop_task task;
};

static size_t count_items(json_t *value)
{
	const char *name;
	json_t *member;
	size_t count = json_array_size(value);

	json_object_foreach (value, name, member)
		count += json_array_size(member);
	return count;
}

static void keep(struct long_json *l, size_t bytes)
{
	exchange_keep(l->x, bytes - l->kept);
	l->kept = bytes;
}

static void add(struct long_json *l, const char *text)
{
	buf_add(&l->text, text, strlen(text));
}

static void add_value(struct long_json *l, const json_t *value)
{
	auto_free char *text = must_alloc(json_dumps(value, FLAGS));

	add(l, text);
}

static void next_member(struct long_json *l)
{
	l->member = json_object_iter_next(l->value, l->member);
	add(l, l->member ? "," : "}");
}

/* The name of a member, and its value unless that is an array. */
static void add_member(struct long_json *l)
{
	json_t *value = json_object_iter_value(l->member);
	json_t *name = must_alloc(json_string(json_object_iter_key(l->member)));

	add_value(l, name);
	json_decref(name);
	add(l, ":");
	if (json_is_array(value)) {
		l->array = value;
		l->at = 0;
		add(l, "[");
		return;
	}
	add_value(l, value);
	next_member(l);
}

static void add_item(struct long_json *l)
{
	if (l->at < json_array_size(l->array)) {
		add(l, l->at ? "," : "");
		add_value(l, json_array_get(l->array, l->at));
		/* Not if somebody else has the array, too. */
		if (l->array->refcount == 1)
			json_array_set_new(l->array, l->at, json_null());
		l->at++;
		return;
	}
	add(l, "]");
	l->array = NULL;
	if (l->member)
		next_member(l);
}

static void print_some(void *arg)
{
	struct long_json *l = arg;
	struct loop *loop = l->x->api->loop;

	while (l->array || l->member) {
		if (l->array)
			add_item(l);
		else
			add_member(l);
		if (loop_turn_is_over(loop)) {
			keep(l, l->text.len + count_items(l->value) * ITEM_BYTES);
			loop_task_add(loop, &l->task);
			return;
		}
	}
	keep(l, 0); /* the answer itself is counted */
	/* Nothing was dropped from its front. */
	exchange_reply_take(l->x, l->status, "application/json", take_ptr(l->text.data),
			    l->text.len);
}

static void long_json_done(void *data)
{
	struct long_json *l = data;

	loop_task_remove(l->x->api->loop, &l->task);
	json_decref(l->value);
	buf_done(&l->text);
}

bool long_json_reply(struct exchange *x, int status, json_t *value)
{
	size_t count = count_items(value);
	struct long_json *l;

	/* Somebody else may change it meanwhile. */
	if (count <= AT_ONCE || value->refcount > 1)
		return false;
	l = must_alloc(calloc(1, sizeof(*l)));
	*l = (struct long_json){.x = x, .status = status, .value = value};
	l->task = (struct loop_task){
		.call = print_some,
		.arg = l,
		.user = shares_user(manager_shares(x->api->manager), exchange_tenant(x))};
	if (json_is_array(value))
		l->array = value;
	else
		l->member = json_object_iter(value);
	add(l, l->array ? "[" : "{");
	/* The handler has answered: it may be gone when the client is. */
	x->internal->on_gone = NULL;
	exchange_also_free(x, l, long_json_done);
	keep(l, count * ITEM_BYTES);
	loop_task_add(x->api->loop, &l->task);
	return true;
}
