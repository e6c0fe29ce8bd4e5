/* Events of containers: the last ones of each owner, and the clients that follow them. They begin anew with a front. */
#include "api/docker/docker_internal.h"

#define EVENTS_KEPT 256

struct follower {
	struct follower *next;
	struct docker_events *of; /* NULL: it has left */
	struct exchange *x;
	json_t *filters;
	struct loop_timer until;
};

struct docker_events {
	json_t *kept; /* array, oldest first */
	struct follower *followers;
};

static void unlist(struct follower *f)
{
	struct follower **at = f->of ? &f->of->followers : NULL;

	while (at && *at && *at != f)
		at = &(*at)->next;
	if (at && *at)
		*at = f->next;
	f->of = NULL;
}

static bool has_value(const json_t *values, const char *text)
{
	json_t *one;
	size_t i;

	json_array_foreach ((json_t *)values, i, one)
		if (str_equal(json_string_value(one), text))
			return true;
	return !values;
}

static bool fits(const json_t *event, const json_t *filters)
{
	const json_t *attributes = json_object_get(json_object_get(event, "Actor"), "Attributes"),
		     *boxes = docker_filter(filters, "container");
	const char *id = body_text(event, "id"), *name = body_text(attributes, "name");

	return has_value(docker_filter(filters, "type"), body_text(event, "Type")) &&
	       has_value(docker_filter(filters, "event"), body_text(event, "Action")) &&
	       has_value(docker_filter(filters, "image"), body_text(event, "from")) &&
	       (has_value(boxes, id) || has_value(boxes, name)) &&
	       docker_labels_match(attributes, docker_filter(filters, "label"));
}

static void send(struct follower *f, const json_t *event)
{
	auto_free char *text = NULL;

	/* Who does not read misses events, and no more. */
	if (!fits(event, f->filters) || !exchange_room(f->x))
		return;
	text = json_dumps(event, JSON_COMPACT);
	exchange_write(f->x, text, strlen(text));
	exchange_write(f->x, "\n", 1);
}

void docker_event(struct container *c, const char *action, const char *key, const char *value)
{
	struct docker_events *of = container_events(c);
	const char *image = body_text(container_config(c), "Image");
	const json_t *labels = json_object_get(container_config(c), "Labels");
	uint64_t now = docker_now_ns();
	json_t *attributes = json_object(), *event;

	if (!c->s)
		return;
	json_object_update(attributes, (json_t *)labels);
	json_object_set_new(attributes, "name", json_string(c->name));
	json_object_set_new(attributes, "image", json_string(image ? image : ""));
	if (key)
		json_object_set_new(attributes, key, json_string(value));
	event = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:{s:s,s:o},s:I,s:I}", "status", action, "id",
			  c->id, "from", image ? image : "", "Type", "container", "Action", action,
			  "scope", "local", "Actor", "ID", c->id, "Attributes", attributes, "time",
			  (json_int_t)(now / 1000000000), "timeNano", (json_int_t)now);
	if (json_array_size(of->kept) == EVENTS_KEPT)
		json_array_remove(of->kept, 0);
	json_array_append(of->kept, event);
	for (struct follower *f = of->followers; f; f = f->next)
		send(f, event);
	json_decref(event);
}

struct docker_events *docker_events_new(void)
{
	struct docker_events *of = must_alloc(calloc(1, sizeof(*of)));

	of->kept = json_array();
	return of;
}

void docker_events_free(struct docker_events *of)
{
	while (of->followers)
		unlist(of->followers);
	json_decref(of->kept);
	free(of);
}

/* ---- the request ---- */

static void follower_done(void *data)
{
	struct follower *f = data;

	unlist(f);
	loop_timer_stop(f->x->api->loop, &f->until);
	json_decref(f->filters);
}

static void on_gone(void *arg)
{
	struct follower *f = arg;

	unlist(f);
	loop_timer_stop(f->x->api->loop, &f->until);
	exchange_answer_gone(f->x);
}

static void on_until(void *arg)
{
	struct follower *f = arg;

	unlist(f);
	exchange_finish(f->x);
}

void docker_events_get(struct exchange *x)
{
	struct docker_events *of = exchange_events(x);
	json_t *filters = docker_filters(x), *event;
	uint64_t since_ns, until_ns, now = docker_now_ns();
	struct follower *f;
	struct err e = {0};
	size_t i;

	if (!filters)
		return;
	f = must_alloc(calloc(1, sizeof(*f)));
	*f = (struct follower){.x = x, .filters = filters};
	f->until = (struct loop_timer){.call = on_until, .arg = f};
	exchange_also_free(x, f, follower_done);
	if (docker_arg_time(x, "since", &since_ns, &e) < 0 ||
	    docker_arg_time(x, "until", &until_ns, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	exchange_set_endless(x);
	exchange_stream(x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	json_array_foreach (of->kept, i, event) {
		uint64_t at = (uint64_t)json_integer_value(json_object_get(event, "timeNano"));

		if (since_ns && at >= since_ns && (!until_ns || at <= until_ns))
			send(f, event);
	}
	if (until_ns && until_ns <= now) {
		exchange_finish(x);
		return;
	}
	f->of = of;
	f->next = of->followers;
	of->followers = f;
	exchange_on_gone(x, on_gone, f);
	if (until_ns)
		loop_timer_set(x->api->loop, &f->until, (until_ns - now) / 1000000 + 1);
}
