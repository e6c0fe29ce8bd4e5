/*
 * Services: commands that run as long as the sandbox. The guest starts one again when it has ended, so that it
 * needs no daemon for that; one that ends at once, again and again, waits longer and longer.
 */
#include "guest/exec/command.h"

#include "guest/link/request.h"

#define FIRST_MS 100
#define MOST_MS 30000
#define STEADY_NS 10000000000ll /* who ran so long has not failed at its start */

struct service {
	struct service *next;
	struct guest *g;
	char *line;
	char user[GUEST_MAX_USER];
	uint32_t eid; /* of the command that runs, or has ended */
	int64_t begun_ns;
	uint64_t wait_ms;
	struct loop_timer again;
};

static void service_start(void *arg);

static void service_again(struct service *s)
{
	s->wait_ms = now_ns() - s->begun_ns > STEADY_NS ? FIRST_MS
		     : s->wait_ms * 2 < MOST_MS		? s->wait_ms * 2
							: MOST_MS;
	loop_timer_set(s->g->loop, &s->again, s->wait_ms);
}

static void service_start(void *arg)
{
	struct service *s = arg;
	struct exec_args *a = must_alloc(calloc(1, sizeof(*a)));
	struct command *c, *before = command_find(s->g, s->eid);

	/* What it left behind would be in the way of the next one. */
	if (before)
		command_kill(before, GUEST_WHY_NONE);
	a->flags = GUEST_EXEC_SHELL | GUEST_EXEC_NO_STDIN | GUEST_EXEC_BACKGROUND;
	snprintf(a->tag, sizeof(a->tag), "service");
	list_add(&a->argv, s->line);
	memcpy(a->user, s->user, sizeof(a->user));
	exec_args_set_cwd(s->g, a);
	s->begun_ns = now_ns();
	c = command_start(s->g, a, NULL);
	exec_args_free(a);
	if (!c) {
		service_again(s);
		return;
	}
	c->acked = true;
	s->eid = c->eid;
}

void service_ended(struct guest *g, uint32_t eid)
{
	for (struct service *s = g->services; s; s = s->next)
		if (s->eid == eid && !s->again.place)
			service_again(s);
}

void services_stop(struct guest *g)
{
	while (g->services) {
		struct service *s = g->services;
		struct command *c = command_find(g, s->eid);

		g->services = s->next;
		loop_timer_stop(g->loop, &s->again);
		if (c)
			command_kill(c, GUEST_WHY_KILLED);
		free(s->line);
		free(s);
	}
}

bool services_request(struct guest *g, struct guest_stream *stream, struct unpack *u)
{
	auto_list struct list lines = {0};
	struct service **last = &g->services;
	char user[GUEST_MAX_USER] = "";

	if (!command_unpack_list(u, &lines))
		return false;
	/* Without it they are the sandbox's own user's. */
	if (!unpack_is_done(u))
		unpack_str(u, user, sizeof(user));
	if (!unpack_is_done(u) || !env_knows_user(user))
		return false;
	services_stop(g);
	for (size_t i = 0; i < lines.count; i++) {
		struct service *s = must_alloc(calloc(1, sizeof(*s)));

		*s = (struct service){
			.g = g, .line = str_copy(lines.items[i]), .wait_ms = FIRST_MS / 2};
		s->again = (struct loop_timer){.call = service_start, .arg = s};
		memcpy(s->user, user, sizeof(user));
		*last = s;
		last = &s->next;
		service_start(s);
	}
	stream_ok(stream, NULL);
	return true;
}
